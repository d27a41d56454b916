"""A language model made of the library's parts: it learns to write the toy corpus's English,
character by character.
"""

import numpy as np

from minitf import Config
from minitf import functions as F
from minitf.beyond.sampling import generate
from minitf.data import toy
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import Embedding, Module
from minitf.optim import Adam
from minitf.transformer import Encoder, Positions, causal_mask

TEXT = "\n".join(toy.splits(n_train=2000, n_valid=0, n_test=0)["train"][0])
CHARACTERS = sorted(set(TEXT))
LONGEST = 48  # characters that the model reads at once


class LanguageModel(Module):
    """An encoder in which each position sees only what comes before it."""

    def __init__(self, config, rng):
        self.embedding = Embedding(config.vocabulary_size, config.d_model, rng)
        self.positions, self.encoder = Positions(config, rng), Encoder(config, rng)

    def __call__(self, ids):
        """Score the next character at each position: ids (B, T) -> logits (B, T, V)."""
        x = self.positions(self.embedding(ids) * self.embedding.weight.shape[1] ** 0.5)
        x = self.encoder(x, causal_mask(ids.shape[1]))
        return F.linear(x, self.embedding.weight.transpose())


def train(updates=800):
    """Train on pieces of the text that begin anywhere; returns the model."""
    rng, ids = np.random.default_rng(0), np.searchsorted(CHARACTERS, list(TEXT))
    model = LanguageModel(
        Config(
            len(CHARACTERS), n_layers=2, d_model=64, d_ff=256, n_heads=4, norm="pre", dropout=0.0
        ),
        rng,
    )
    adam = Adam(model.named_parameters())
    for update in range(1, updates + 1):
        rows = rng.integers(0, len(ids) - LONGEST, 32)[:, None] + np.arange(LONGEST + 1)
        adam.zero_grad()
        loss = label_smoothed_cross_entropy(
            model(ids[rows[:, :-1]]), ids[rows[:, 1:]], smoothing=0.0, pad_id=-1
        )
        loss.backward()
        adam.step(8e-3 * min(update / 50, 1.02 - update / updates))
        if update % 100 == 0 or update == 1:
            print(f"update {update}: {float(loss):.3f} nats per character")
    return model


if __name__ == "__main__":
    model = train().eval()
    prompt = np.searchsorted(CHARACTERS, list("The "))[None]
    (text,) = generate(
        lambda ids: model(ids[:, -LONGEST:])[:, -1], prompt, length=300, temperature=0.6, seed=1
    )
    print("It writes:\nThe " + "".join(CHARACTERS[i] for i in text.ids))
