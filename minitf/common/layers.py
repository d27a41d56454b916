"""Which layers a form may compute without calling them: those of this library, as they were made.

A subclass, another layer in the place of one, and an object with a method of its own are left to
the equation, which calls what it is given. Here classes are looked at, because few numbers cannot
tell an attention to the last hundred tokens from one to all.
"""

from minitf import nn, transformer
from minitf.beyond import ssru

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


def rate_of(dropout):
    """Return the rate at which a Dropout drops now."""
    return dropout.rate if dropout.training else 0.0
