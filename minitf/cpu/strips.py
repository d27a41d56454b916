"""A model laid out for decoding, where a few rows meet large matrices.

Before OpenBLAS multiplies, it copies the matrix into an order that suits the processor. For a thousand rows that
is nothing; for the few rows of a decoding step it takes longer than the product. It leaves the copy out below a
million multiplications, and asks for no order but this one: a strip of columns, row after row. So a matrix that
is used for many steps is cut into such strips once, and products of few rows get up to three times as fast.
"""

import copy

import numpy as np

from minitf.backend import xp
from minitf.gpu.matmul import matmul
from minitf.nn import Linear, Module
from minitf.tensor import Tensor, as_array
from minitf.transformer import Transformer

__all__ = ["StripLinear", "Strips", "for_decoding"]

_WIDTH = 64  # columns in a strip
_FEW = 10**6  # multiplications that OpenBLAS does without a copy
# The library's own versions of what StripLinear reimplements, kept to detect replacements.
_CALL, _LOGITS = Linear.__call__, Transformer.logits


class Strips:
    """A matrix (D, F) for products with few rows; on a GPU it stays as it is.

    >>> Strips(np.eye(3, 5)).product(np.arange(6.0).reshape(2, 3))
    array([[0., 1., 2., 0., 0.],
           [3., 4., 5., 0., 0.]])
    """

    def __init__(self, matrix):
        self.matrix, self.strips = matrix, None
        if isinstance(matrix, np.ndarray):
            d, f = matrix.shape
            padded = np.zeros((d, -(-f // _WIDTH) * _WIDTH), dtype=matrix.dtype)
            padded[:, :f] = matrix
            self.strips = np.ascontiguousarray(padded.reshape(d, -1, _WIDTH).swapaxes(0, 1))  # (F/64, D, 64)

    def product(self, x):
        """Multiply: (N, D) -> (N, F)."""
        n, (d, f) = len(x), self.matrix.shape
        if self.strips is None:
            return matmul(x, self.matrix)
        if n == 1:  # goes another way through OpenBLAS, which takes twice the time of two rows
            return self.product(np.concatenate([x, x]))[:1]
        y = xp.empty((n, len(self.strips) * _WIDTH), dtype=x.dtype)
        out = y.reshape(n, -1, _WIDTH).swapaxes(0, 1)  # (F/64, N, 64)
        most = max(4, _FEW // (d * _WIDTH) & ~3)
        if n <= most:
            xp.matmul(x, self.strips, out=out)
        else:
            few = -(-n // -(-n // most)) + 3 & ~3  # equal shares of rows, in fours
            for start in range(0, n, few):
                xp.matmul(x[start : start + few], self.strips, out=out[:, start : start + few])
        return y[:, :f]


class StripLinear(Linear):
    """y = x W + b, not recorded, with W in strips."""

    def __init__(self, weight, bias=None):
        self.weight, self.bias, self.strips = weight, bias, Strips(as_array(weight))

    def __call__(self, x):
        y = self.strips.product(x.data.reshape(-1, x.shape[-1]))
        if self.bias is not None:
            y += as_array(self.bias)
        return Tensor(y.reshape(*x.shape[:-1], -1))


def for_decoding(model):
    """Copy a model, all its matrices in strips. It has the weights of now: where they change, make another copy.

    Only the library's own Linear and Transformer.logits are replaced. All else computes as it does in the model: a
    subclass of Linear, a replaced method.
    """
    twin = _in_strips(model, {})
    if getattr(type(model), "logits", None) is _LOGITS and "logits" not in vars(model):
        twin.logits = StripLinear(Tensor(as_array(model.output_embedding.weight).T))
    return twin


def _is_own(value):
    """Tell whether this is a Linear of the library, with the library's methods and nothing besides."""
    return (
        type(value) is Linear
        and Linear.__call__ is _CALL
        and vars(value).keys() <= {"weight", "bias", "training"}
    )


def _in_strips(value, twins):
    """Copy a module and all that it holds, without dropout. twins: the copies so far, by the id of the original."""
    if id(value) in twins:
        return twins[id(value)]
    if isinstance(value, tuple):
        parts = [_in_strips(part, twins) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if not isinstance(value, Module | dict | list):
        return value
    twin = twins[id(value)] = StripLinear(value.weight, value.bias) if _is_own(value) else copy.copy(value)
    if isinstance(value, list):
        twin[:] = [_in_strips(part, twins) for part in value]
    elif not _is_own(value):
        held = vars(twin) if isinstance(value, Module) else twin
        held.update({name: _in_strips(part, twins) for name, part in held.items()})
    if isinstance(value, Module):
        twin.training = False
    return twin
