"""Decoding, faster, on a GPU: the program of the CPU, with the keys and values of the source laid out for a GPU."""

from minitf import decode
from minitf.backend import xp
from minitf.cpu import search
from minitf.forms import form_of

__all__ = ["ContiguousCache", "continuations", "next_words"]


class ContiguousCache(search.SourceCache):
    """Keys and values of the source, copied once: a GPU's products would copy heads that lie apart at every step."""

    def laid_out(self, array):
        return xp.ascontiguousarray(array)


class _NextWords(search.SharedNextWords):
    source_cache = ContiguousCache


@form_of(decode.next_words)
def next_words(model, source, width, cached):
    """Return the scorer of the equation with caches that the beams of a sentence share; without caches, none."""
    return _NextWords(model, source, width) if cached and decode.can_cache(model) else NotImplemented


@form_of(decode.continuations)
def continuations(scores, totals, count):
    """Return the best continuations of each sentence; only a few scores of each come back from the GPU."""
    return search.continuations(scores, totals, count)
