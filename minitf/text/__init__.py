"""Text to ids and back, and batches of them. Plain NumPy, no Tensor."""

from minitf.text.batches import Batch, make_batch, plan_batches
from minitf.text.paired import PairedSubwords
from minitf.text.subwords import Subwords, Vocabulary, load_subwords
from minitf.text.vocabulary import BOS, EOS, PAD, UNK
from minitf.text.words import Words

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "PairedSubwords",
    "Subwords",
    "Vocabulary",
    "Words",
    "load_subwords",
    "make_batch",
    "plan_batches",
]
