"""Forms of what several layers compute, and what such forms share in both rooms.

They take the layers themselves, and compute those of this library without calling them, in one op.
A subclass, another layer in the place of one, and an object with a method of its own are left to
the equation, which calls what it is given.
"""

from minitf import functions as F
from minitf import transformer
from minitf.decode import has_own_methods
from minitf.forms import form_of
from minitf.nn import Dropout, LayerNorm, Linear
from minitf.transformer import MultiHeadAttention

__all__ = ["attends_plainly"]


def _add_and_norm(x, added, dropout, norm):
    """Call `functions.add_norm`, one op."""
    if type(norm) is not LayerNorm or type(dropout) is not Dropout:
        return NotImplemented
    return F.add_norm(x, added, norm.gain, norm.bias, norm.eps, _rate(dropout))


def _feed_forward_network(x, inner, activation, dropout, outer):
    """Call `functions.feed_forward`, one op, which has the ReLU."""
    if activation is not F.relu or type(dropout) is not Dropout:
        return NotImplemented
    if type(inner) is not Linear or type(outer) is not Linear:
        return NotImplemented
    return F.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, _rate(dropout))


def _rate(dropout):
    return dropout.rate if dropout.training else 0.0


for room in ("cpu", "gpu"):
    form_of(transformer.add_and_norm, room)(_add_and_norm)
    form_of(transformer.feed_forward_network, room)(_feed_forward_network)


def attends_plainly(attention, x, memory):
    """Return whether a form may compute an attention without calling its methods and projections.

    One that does not call its `output` either has to look at that as well. Other calls are left to
    the equation, which also refuses what does not fit.
    """
    if type(attention) is not MultiHeadAttention or has_own_methods(attention):
        return False
    layers = attention.query, attention.key, attention.value
    return (
        all(type(layer) is Linear for layer in layers)
        and x.ndim == memory.ndim == 3
        and len(x) == len(memory)
        and x.shape[1] > 0
        and memory.shape[1] > 0  # without keys there is no greatest score
        and len({array.dtype for array in (x, memory, *(layer.weight for layer in layers))}) == 1
    )
