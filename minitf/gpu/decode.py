"""Decoding, faster, on a GPU: the program of the CPU, with the source contiguous in memory."""

from minitf import decode
from minitf.backend import xp
from minitf.cpu import decode as cpu_decode
from minitf.forms import form_of

__all__ = ["continuations", "token_scorer"]


@form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a Scorer whose caches are shared by the beams of a sentence.

    The keys and values of the source are contiguous: products would copy others at every step.
    """
    if not cached or not decode.can_cache(model):
        return NotImplemented
    return cpu_decode.SharedTokenScorer(model, source, width, arranged=xp.ascontiguousarray)


@form_of(decode.continuations)
def continuations(scores, totals, count):
    """Return the best continuations; only a few scores of each sentence leave the GPU."""
    return cpu_decode.continuations(scores, totals, count)
