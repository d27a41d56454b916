"""A model laid out for decoding, where a few rows meet large matrices.

Before OpenBLAS multiplies, it copies the matrix into an order that suits the processor. For a
thousand rows that is nothing; for the few rows of a decoding step it takes longer than the product.
It leaves the copy out below a million multiplications, and asks for no order but this one: a strip
of columns, row after row. So a matrix that is used for many steps is cut into such strips once, and
products of few rows get up to three times as fast.
"""

import copy

import numpy as np

from minitf.nn import Linear, Module, Parameter
from minitf.tensor import as_array, is_recording, record

__all__ = ["PackedParameter", "for_decoding", "in_strips", "packed_linear", "product"]

_WIDTH = 64  # columns in a strip
_FEW = 10**6  # multiplications that OpenBLAS does without a copy


def in_strips(matrix):
    """Return a matrix (D, F) as strips of 64 columns (F/64, D, 64), the last filled with zeros."""
    d, f = matrix.shape
    padded = np.zeros((d, -(-f // _WIDTH) * _WIDTH), dtype=matrix.dtype)
    padded[:, :f] = matrix
    return np.ascontiguousarray(padded.reshape(d, -1, _WIDTH).swapaxes(0, 1))


def product(x, strips, f):
    """Multiply a few rows by a matrix (D, F) in strips: (N, D) -> (N, F).

    >>> product(np.arange(6.0).reshape(2, 3), in_strips(np.eye(3, 5)), 5)
    array([[0., 1., 2., 0., 0.],
           [3., 4., 5., 0., 0.]])
    """
    n, (count, d, width) = len(x), strips.shape
    if n == 1:  # goes another way through OpenBLAS, which takes twice the time of two rows
        return product(np.concatenate([x, x]), strips, f)[:1]
    y = np.empty((n, count * width), dtype=x.dtype)
    out = y.reshape(n, count, width).swapaxes(0, 1)  # (F/64, N, 64)
    most = max(4, _FEW // (d * width) & ~3)
    if n <= most:
        np.matmul(x, strips, out=out)
    else:
        few = -(-n // -(-n // most)) + 3 & ~3  # equal slices of rows, in fours
        for start in range(0, n, few):
            np.matmul(x[start : start + few], strips, out=out[:, start : start + few])
    return y if f == y.shape[1] else y[:, :f]


class PackedParameter(Parameter):
    """A matrix beside a copy of it in strips, which the form of `functions.linear` multiplies by.

    strips: of the matrix, or None. transpose() returns the packed transpose if there is one and
    nothing is recorded. All other operations work on the matrix itself. It is for decoding: the
    strips do not change with the matrix.
    """

    strips = packed_transpose = None

    def cut(self):
        """Cut the matrix into strips; return the parameter."""
        self.strips = in_strips(self.data)
        return self

    def transpose(self, *axes):
        if self.packed_transpose is None or axes or is_recording():
            return super().transpose(*axes)
        return self.packed_transpose


def packed_linear(x, weight, bias=None):
    """Return x W + b from the strips of a packed W, without a gradient."""
    x_data, (d, f) = as_array(x), weight.data.shape
    shape = x_data.shape
    if shape[-1:] != (d,) or x_data.dtype != weight.data.dtype:
        return NotImplemented  # the equation says why
    y = product(x_data.reshape(-1, shape[-1]), weight.strips, f)
    if bias is not None:
        y += as_array(bias)
    return record(y.reshape(*shape[:-1], f), (x,), None)


def for_decoding(model):
    """Return a copy of a model with packed matrices; when weights change, make another copy.

    The matrices are those of Linear layers, and that of the output embedding, transposed, which
    scores the vocabulary. What the modules compute stays their own: a subclass, a replaced method,
    an attribute of somebody else.
    """
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    matrices = [getattr(linear, "weight", None) for linear in linears]
    table = getattr(getattr(model, "output_embedding", None), "weight", None)
    copies = {id(p): PackedParameter(p) for p in (*matrices, table) if _can_be_packed(p)}
    for matrix in matrices:
        if id(matrix) in copies:
            copies[id(matrix)].cut()
    if id(table) in copies:
        copies[id(table)].packed_transpose = PackedParameter(table.data.T).cut()
    return _copied(model, copies)


def _can_be_packed(parameter):
    """Return whether this is a matrix of NumPy, and a Parameter of the library."""
    own = type(parameter) is Parameter
    return own and isinstance(parameter.data, np.ndarray) and parameter.ndim == 2


def _copied(value, copies):
    """Return a copy of a module and of all that it holds, without dropout.

    copies: those made so far, by the id of the original.
    """
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, tuple):
        parts = [_copied(part, copies) for part in value]
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if not isinstance(value, Module | dict | list):
        return value
    twin = copies[id(value)] = copy.copy(value)
    if isinstance(value, list):
        twin[:] = [_copied(part, copies) for part in value]
    else:
        held = vars(twin) if isinstance(value, Module) else twin
        held.update({name: _copied(part, copies) for name, part in held.items()})
    if isinstance(value, Module):
        twin.training = False
    return twin
