"""Which layers a form may compute without calling them: those of this library.

A subclass, another layer in the place of one, and an object with a method of its own are left to
the equation, which calls what it is given.
"""

from minitf import functions as F
from minitf import nn, transformer
from minitf.beyond import ssru
from minitf.nn import Dropout, LayerNorm, Linear
from minitf.transformer import MultiHeadAttention


def is_plain_norm(dropout, norm):
    """Return whether a form may compute an Add & Norm without calling its layers."""
    return type(norm) is LayerNorm and type(dropout) is Dropout


def is_plain_network(inner, activation, dropout, outer):
    """Return whether a form, which has the ReLU, may compute a network without its layers."""
    plain = type(inner) is type(outer) is Linear and type(dropout) is Dropout
    return plain and activation is F.relu


def rate_of(dropout):
    """Return the rate at which a Dropout drops now."""
    return dropout.rate if dropout.training else 0.0


def attends_plainly(attention, x, memory):
    """Return whether a form may compute an attention without calling its methods and projections.

    One that does not call its `output` either has to look at that as well. Other calls are left to
    the equation, which also refuses what does not fit.
    """
    if type(attention) is not MultiHeadAttention or is_changed(attention):
        return False
    layers = attention.query, attention.key, attention.value
    return (
        all(type(layer) is Linear for layer in layers)
        and x.ndim == memory.ndim == 3
        and len(x) == len(memory)
        and min(x.size, memory.size) > 0  # without keys there is no greatest score
        and len({array.dtype for array in (x, memory, *(layer.weight for layer in layers))}) == 1
    )


def is_standard(module):
    """Return whether a module is of this library and unchanged; its submodules do not count."""
    is_own = type(module).__module__ in (nn.__name__, transformer.__name__, ssru.__name__)
    return is_own and module.can_cache and not is_changed(module)


def is_changed(module):
    """Return whether an object has a method of its own, or keeps the weights of attention."""
    own = vars(type(module)).keys() & vars(module).keys() - {"keep_weights"}
    return bool(own) or getattr(module, "keep_weights", False)
