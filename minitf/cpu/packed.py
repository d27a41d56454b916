"""Packed weights: matrices as products of few rows need them.

Before a product, OpenBLAS copies the matrix into a memory layout that suits the processor. For a
thousand rows the copy costs little; for the few rows of a decoding step it takes longer than the
product. On a processor with AVX-512 it has programs for small matrices too: below a million
multiplications they make no copy, and they are fast if the matrix has few columns. So there a
matrix that is used for many tokens is cut once into panels of 64 columns: products of few rows
become up to three times as fast. Elsewhere panels would only be slower, by a tenth to a half, and a
matrix is one panel as wide as itself.
"""

import math

import numpy as np

from minitf.cpu import threads

_WIDTH = 64  # columns of a panel
# The kernels of OpenBLAS that have programs for small matrices.
_FOR_SMALL = {"SkylakeX", "Cooperlake", "SapphireRapids"}
_CUT = threads.kernels() in _FOR_SMALL  # whether matrices are cut
_LARGE = 1 << 21  # bytes of a matrix by which two threads multiply
_FEW = 10**6  # multiplications; below this, OpenBLAS does not copy the matrix
_SLICES = 3  # slices of the rows of a product, at most


def in_panels(matrices, shapes, dtype):
    """Return matrices (D, F) as panels (F/64, D, 64), parts of one array.

    matrices: an iterable, read one at a time, so that few are in memory twice. shapes: a list.
    The last panel is padded with zeros. Where matrices are not cut: as one panel (1, D, F).

    For a large array, NumPy asks the system for large pages of memory. Fetching thousands of small
    ones takes longer than reading the weights of a model, and a decoding step waits for their
    addresses: it took a fifth longer.
    """
    # (F/64 rounded up, D, 64)
    shapes = [(-(-f // _WIDTH), d, _WIDTH) if _CUT else (1, d, f) for d, f in shapes]
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=int)
    parts = np.split(np.empty(sum(ends[-1:]), dtype), ends[:-1])
    arrays = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]
    for matrix, panels in zip(matrices, arrays, strict=True):
        width = panels.shape[2]
        for i, panel in enumerate(panels):
            columns = matrix[:, i * width : (i + 1) * width]
            panel[:, : columns.shape[1]] = columns
            panel[:, columns.shape[1] :] = 0
    return arrays


def product(x, panels, f):
    """Multiply a few rows by a matrix (D, F) in panels: (N, D) -> (N, F).

    >>> (panels,) = in_panels([np.eye(3, 5)], [(3, 5)], float)
    >>> product(np.arange(6.0).reshape(2, 3), panels, 5)
    array([[0., 1., 2., 0., 0.],
           [3., 4., 5., 0., 0.]])
    """
    n_rows, (count, d, width) = len(x), panels.shape
    if not _CUT:
        return _of_whole(x, panels[0])
    # A single row would use another program of OpenBLAS, which takes longer than this one for two.
    x = x.repeat(2, 0) if n_rows == 1 else x
    y = np.empty((n := len(x), count, width), dtype=x.dtype)
    out = y.swapaxes(0, 1)  # (F/64, N, 64)
    # A slice has a multiple of four rows: OpenBLAS computes four at a time, and takes as long for
    # those left over. Reading a panel for many slices takes longer than copying it once.
    most = max(4, _FEW // (d * width) // 4 * 4)
    if n <= most or n > _SLICES * most:
        np.matmul(x, panels, out=out)
    else:
        slices = -(-n // most)
        few = -(-n // (4 * slices)) * 4  # rows of each slice: the same number, rounded up to fours
        for start in range(0, n, few):
            start = min(start, n - 2)  # never a single row: the one before it is computed again
            np.matmul(x[start : start + few], panels, out=out[:, start : start + few])
    return y.reshape(n, -1)[:n_rows, :f]


def _of_whole(x, matrix):
    """Multiply a few rows by a matrix that is not cut; another thread computes half of a large one.

    Multiplying by a large matrix takes longer than handing over half of it.
    """
    # BLAS multiplies four rows at a time: fewer are faster one after the other.
    if len(x) < 4:
        return (x[:, None] @ matrix)[:, 0]
    pool = threads.second_thread() if matrix.nbytes >= _LARGE else None
    if pool is None:
        return x @ matrix
    y, middle = np.empty((len(x), matrix.shape[1]), x.dtype), matrix.shape[1] // 2
    other = pool.submit(np.matmul, x, matrix[:, middle:], out=y[:, middle:])
    np.matmul(x, matrix[:, :middle], out=y[:, :middle])
    other.result()
    return y
