"""Which layers a form may compute without calling them: those of this library, as they were made.

A subclass, another layer in the place of one, and an object with a method of its own are left to
the equation, which calls what it is given. Here classes are looked at, because few numbers cannot
tell an attention to the last hundred tokens from one to all.
"""

from minitf import functions as F
from minitf import nn, transformer
from minitf.beyond import ssru
from minitf.nn import Dropout, LayerNorm, Linear
from minitf.transformer import MultiHeadAttention

_OWN = nn.__name__, transformer.__name__, ssru.__name__


def is_own(layer, kind=None):
    """Return whether a layer is of this library and unchanged; its sublayers do not count.

    kind: the class that it must have; by default any of the library. An attention that keeps its
    weights counts as changed.
    """
    made = type(layer) is kind if kind else type(layer).__module__ in _OWN
    return (
        made
        and vars(type(layer)).keys().isdisjoint(vars(layer))  # else it has a method of its own
        and not getattr(layer, "keep_weights", False)
    )


def is_plain_norm(dropout, norm):
    """Return whether a form may compute an Add & Norm without calling its layers."""
    return is_own(norm, LayerNorm) and is_own(dropout, Dropout)


def is_plain_network(inner, activation, dropout, outer):
    """Return whether a form, which has the ReLU, may compute a network without its layers."""
    linear = is_own(inner, Linear) and is_own(outer, Linear)
    return linear and is_own(dropout, Dropout) and activation is F.relu


def rate_of(dropout):
    """Return the rate at which a Dropout drops now."""
    return dropout.rate if dropout.training else 0.0


def attends_plainly(attention, x, memory):
    """Return whether a form may compute an attention without calling its methods and projections.

    One that does not call its `output` either has to look at that as well. Other calls are left to
    the equation, which also refuses what does not fit.
    """
    if not is_own(attention, MultiHeadAttention):
        return False
    layers = attention.query, attention.key, attention.value
    return (
        all(is_own(layer, Linear) for layer in layers)
        and x.ndim == memory.ndim == 3
        and len(x) == len(memory)
        and min(x.size, memory.size) > 0  # without keys there is no greatest score
        and len({array.dtype for array in (x, memory, *(layer.weight for layer in layers))}) == 1
    )
