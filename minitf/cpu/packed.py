"""Packed weights: matrices as products of few rows need them, and copies of modules with them.

Before a product, OpenBLAS copies the matrix into a memory layout that suits the processor. For a
thousand rows the copy costs little; for the few rows of a decoding step it takes longer than the
product. On a processor with AVX-512 it has programs for small matrices too: below a million
multiplications they make no copy, and they are fast if the matrix has few columns. So there a
matrix that is used for many steps is cut once into panels of 64 columns: products of few rows
become up to three times as fast. Elsewhere panels would only be slower, by a tenth to a half, and a
matrix is one panel as wide as itself.

What packed modules are worth, for one sentence on a Zen 4 (one thread): a changed model, which its
modules decode, takes 1.5 to 2.3 times as long without them, and 1.1 to 1.3 times with AVX2 alone,
where single rows gain. Of a model that the fused decoder takes, only the encoder has them: without,
the bundled model with its six layers takes 1.04 to 1.1 times as long; with AVX2, and in batches,
the difference is within the noise.
"""

import copy
import math

import numpy as np

from minitf.cpu import threads
from minitf.nn import Linear, Module, Parameter
from minitf.tensor import as_array, is_recording, record

__all__ = [
    "PackedParameter",
    "arrays_in_one",
    "in_panels",
    "packed_copy",
    "packed_linear",
    "panels_shape",
    "product",
]

_WIDTH = 64  # columns of a panel
# The kernels of OpenBLAS that have programs for small matrices.
_FOR_SMALL = {"SkylakeX", "Cooperlake", "SapphireRapids"}
_CUT = threads.kernels() in _FOR_SMALL  # whether matrices are cut
_LARGE = 1 << 21  # bytes of a matrix by which two threads multiply
_FEW = 10**6  # multiplications; below this, OpenBLAS does not copy the matrix


def panels_shape(d, f):
    """Return the shape of the panels of a matrix (D, F)."""
    return (-(-f // _WIDTH), d, _WIDTH) if _CUT else (1, d, f)  # F/64 rounded up


def in_panels(matrix, panels=None):
    """Return a matrix (D, F) as panels (F/64, D, 64), in the given array or in a new one.

    The last panel is padded with zeros. Where matrices are not cut: as one panel (1, D, F).
    """
    panels = np.empty(panels_shape(*matrix.shape), matrix.dtype) if panels is None else panels
    width = panels.shape[2]
    for i, panel in enumerate(panels):
        columns = matrix[:, i * width : (i + 1) * width]
        panel[:, : columns.shape[1]] = columns
        panel[:, columns.shape[1] :] = 0
    return panels


def product(x, panels, f):
    """Multiply a few rows by a matrix (D, F) in panels: (N, D) -> (N, F).

    >>> product(np.arange(6.0).reshape(2, 3), in_panels(np.eye(3, 5)), 5)
    array([[0., 1., 2., 0., 0.],
           [3., 4., 5., 0., 0.]])
    """
    given, (count, d, width) = len(x), panels.shape
    if not _CUT:
        return _of_whole(x, panels[0])
    # A single row would use another program of OpenBLAS, which takes longer than this one for two.
    if given == 1:
        x = x.repeat(2, 0)
    n = len(x)
    y = np.empty((n, count * width), dtype=x.dtype)
    out = y.reshape(n, count, width).swapaxes(0, 1)  # (F/64, N, 64)
    most = max(4, _FEW // (d * width) & ~3)  # rows of one product, a multiple of four
    if n <= most:
        np.matmul(x, panels, out=out)
    else:
        slices = -(-n // most)
        few = -(-n // slices) + 3 & ~3  # rows of each slice: the same number, rounded up to fours
        for start in range(0, n, few):
            start = min(start, n - 2)  # never a single row: the one before it is computed again
            np.matmul(x[start : start + few], panels, out=out[:, start : start + few])
    return y[:given, :f]


def _of_whole(x, matrix):
    """Multiply a few rows by a matrix that is not cut; another thread computes half of a large one.

    Multiplying by a large matrix takes longer than handing over half of it.
    """
    # BLAS multiplies four rows at a time: fewer are faster one after the other.
    if len(x) < 4:
        return (x[:, None] @ matrix)[:, 0]
    pool = threads.spare() if matrix.nbytes >= _LARGE else None
    if pool is None:
        return x @ matrix
    y, middle = np.empty((len(x), matrix.shape[1]), x.dtype), matrix.shape[1] // 2
    other = pool.submit(np.matmul, x, matrix[:, middle:], out=y[:, middle:])
    np.matmul(x, matrix[:, :middle], out=y[:, :middle])
    other.result()
    return y


class PackedParameter(Parameter):
    """A matrix with a copy of it in panels, which the form of `functions.linear` multiplies by.

    panels: the copy, or None; it does not follow later changes of the matrix. transpose() returns
    the packed transpose if there is one and nothing is recorded. All other operations use the
    matrix itself.
    """

    panels = packed_transpose = None

    def cut(self, panels=None):
        """Cut the matrix into panels, in the given array or in a new one; return the parameter."""
        self.panels = in_panels(self.data, panels)
        return self

    def transpose(self, *axes):
        if self.packed_transpose is None or axes or is_recording():
            return super().transpose(*axes)
        return self.packed_transpose


def packed_linear(x, weight, bias=None):
    """Return x W + b from the panels of a packed W, without a gradient."""
    x_data, (d, f) = as_array(x), weight.data.shape
    b = None if bias is None else as_array(bias)
    shape = x_data.shape
    fits = shape[-1:] == (d,) and (b is None or b.shape == (f,))
    if not fits or x_data.dtype != weight.data.dtype:
        return NotImplemented  # the equation says what is wrong
    y = product(x_data.reshape(-1, d), weight.panels, f)
    if b is not None:
        y += b
    return record(y.reshape(*shape[:-1], f), (x,), None)


def arrays_in_one(shapes, dtype):
    """Return arrays of these shapes, which are parts of one array, with numbers to be written.

    NumPy asks the system for large pages of memory for a large array. To fetch thousands of small
    ones takes longer than to read the weights of a model, and a step of decoding waits for their
    addresses: it took a fifth longer.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=int)
    parts = np.split(np.empty(sum(ends[-1:]), dtype), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]


def packed_copy(model, part):
    """Return a copy of a model with the matrices of `part` packed: the model or a module in it.

    Packed are the matrices of Linear layers, and the transposed output embedding, which scores the
    vocabulary. The copied modules compute what the originals compute, also those of a subclass or
    with a replaced method.
    """
    linears = [module for module in part.modules() if isinstance(module, Linear)]
    matrices = [getattr(linear, "weight", None) for linear in linears]
    table = getattr(getattr(part, "output_embedding", None), "weight", None)
    packable = [p for p in (*matrices, table) if _can_be_packed(p)]
    copies = {id(p): PackedParameter(p, copy=False) for p in packable}
    packed = [copies[id(p)] for p in matrices if id(p) in copies]
    if id(table) in copies:
        copies[id(table)].packed_transpose = PackedParameter(table.data.T, copy=False)
        packed.append(copies[id(table)].packed_transpose)
    for dtype in {p.dtype for p in packed}:
        alike = [p for p in packed if p.dtype == dtype]
        panels = arrays_in_one([panels_shape(*p.shape) for p in alike], dtype)
        for parameter, array in zip(alike, panels, strict=True):
            parameter.cut(array)
    return _copied(model, copies)


def _can_be_packed(parameter):
    """Return whether this is exactly a Parameter, and its data a matrix of NumPy."""
    plain = type(parameter) is Parameter
    return plain and isinstance(parameter.data, np.ndarray) and parameter.ndim == 2


def _copied(value, copies):
    """Return a copy of a module and of everything in its attributes, with dropout off.

    copies: the copies made so far, by the id of the original.
    """
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, tuple):
        items = [_copied(item, copies) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    if not isinstance(value, Module | dict | list):
        return value
    copied = copies[id(value)] = copy.copy(value)
    if isinstance(value, list):
        copied[:] = [_copied(item, copies) for item in value]
    else:
        held = vars(copied) if isinstance(value, Module) else copied
        held.update({name: _copied(item, copies) for name, item in held.items()})
    if isinstance(value, Module):
        copied.training = False
    return copied
