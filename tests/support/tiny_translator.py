"""The folder of a tiny untrained model that translates nonsense, but for each source a
nonsense of its own.
"""

from minitf.config import Config
from minitf.files.models import save_model
from minitf.text import Subwords
from minitf.transformer import Transformer

TEXT = [
    "the dog saw a bird.",
    "ein Vogel sah den Hund, oder?",
    "we sing in the old house; you do not.",
]
LONGEST = 20  # subwords in a part


def make_subwords():
    return Subwords.train(TEXT, 330, log=lambda notice: None)


def make_model(subwords, **changes):
    """Untied, because a tied model that knows nothing repeats its last word for ever."""
    sizes = {"d_model": 16, "d_ff": 24, "n_heads": 2, "tie": False}
    return Transformer(Config.preset("tiny", len(subwords), **sizes, **changes), seed=1)


def save(folder, subwords, notes=None, **changes):
    """Save the model and give its folder."""
    model = make_model(subwords, **changes)
    save_model(folder, model.state(), model.config.to_dict(), subwords, notes=notes)
    return folder
