"""Decoding, faster, on a GPU: the program of the CPU, with the source laid out for a GPU."""

from minitf import decode
from minitf.backend import xp
from minitf.cpu import decode as cpu_decode
from minitf.forms import form_of

__all__ = ["ContiguousCache", "continuations", "next_words"]


class ContiguousCache(cpu_decode.SourceCache):
    """Keys and values of the source, contiguous: else products would copy them at every step."""

    def laid_out(self, array):
        return xp.ascontiguousarray(array)


class _NextWords(cpu_decode.SharedNextWords):
    source_cache = ContiguousCache


@form_of(decode.next_words)
def next_words(model, source, width, cached):
    """Return a scorer whose caches are shared by the beams of a sentence; there is none without."""
    if not cached or not decode.can_cache(model):
        return NotImplemented
    return _NextWords(model, source, width)


@form_of(decode.continuations)
def continuations(scores, totals, count):
    """Return the best continuations; only a few scores of each sentence leave the GPU."""
    return cpu_decode.continuations(scores, totals, count)
