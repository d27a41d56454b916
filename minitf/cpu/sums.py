"""Sums over rows, columns and equal ids as NumPy computes them fastest, and blocks of arrays."""

from __future__ import annotations

import itertools
import math

import numpy as np

from minitf.functions import as_rows


def add_segments(ids, rows, out):
    """Add each row to the row of `out` at its id: the gradient of a look-up in a table.

        out[v] += sum of rows[i] over all i with ids[i] == v

    ids: int (N,)   rows: (N, D)   out: (V, D)

    Sorting the ids and summing each run of equal ids takes about as long as np.add.at, and is more
    exact: if an id has thousands of rows, they are not added one by one to a sum far larger.
    """
    if len(ids):
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        out[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def add_product(x, y, out, first):
    """Write the product x y to `out` if it is the first, otherwise add it."""
    if first:
        np.matmul(x, y, out=out)
    else:
        out += x @ y


def row_sums(x):
    """Return the sums over the last axis: (..., D) -> (..., 1).

    A product with ones takes a third of the time of x.sum.
    """
    return (x @ np.ones(x.shape[-1], dtype=x.dtype))[..., None]


def column_sums(x):
    """Return the sum over all axes but the last: (..., D) -> (D,)."""
    rows = as_rows(x)
    return np.ones(len(rows), dtype=x.dtype) @ rows


def row_dots(x, y):
    """Return the dot product of each pair of rows: (..., D) and (..., D) -> (..., 1).

    np.vecdot needs no array of all products.
    """
    return np.vecdot(x, y)[..., None]


def blocks(shape, size=1 << 17):
    """Return the indices of blocks of about `size` elements that together cover an array.

    Several operations in a row on one block find it in the cache.

    >>> blocks((300_000,))
    [(slice(0, 131072, None),), (slice(131072, 262144, None),), (slice(262144, 300000, None),)]
    >>> blocks((2, 3, 10), 20)
    [(0, slice(0, 2, None)), (0, slice(2, 3, None)), (1, slice(0, 2, None)), (1, slice(2, 3, None))]
    """
    axis, rest = 0, math.prod(shape[1:])
    if shape[0] * rest <= size:
        return [(slice(0, shape[0]),)]
    while rest > size and axis < len(shape) - 1:
        axis += 1
        rest //= shape[axis]
    n = max(1, size // max(1, rest))
    cuts = [slice(start, min(start + n, shape[axis])) for start in range(0, shape[axis], n)]
    return [(*first, cut) for first in itertools.product(*map(range, shape[:axis])) for cut in cuts]


def slice_bounds(length, count):
    """Return (start, stop) of `count` slices of a length that differ by at most one.

    >>> slice_bounds(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(length * i // count, length * (i + 1) // count) for i in range(count)]
