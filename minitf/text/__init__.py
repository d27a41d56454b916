"""Text to ids and back, and batches of them. Plain NumPy, no Tensor."""

from minitf.text.batches import Batch, make_batch, plan_batches
from minitf.text.subwords import PairedSubwords, Subwords, Vocabulary, load_subwords
from minitf.text.vocabulary import BOS, EOS, PAD, UNK, Words

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
