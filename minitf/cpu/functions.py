"""The forms of the engine's functions for NumPy: the programs that are fastest on a CPU.

They compute all positions in one product, sums as products, and work in place.
The op of the same name in minitf/functions.py says what each computes.
"""

from __future__ import annotations

import math

import numpy as np

from minitf import functions
from minitf.cpu.strips import packed_linear
from minitf.cpu.sums import column_sums, row_dots, row_sums, segment_sum
from minitf.forms import form_of
from minitf.functions import (
    checked_ids,
    layer_norm_arrays,
    linear_arrays,
)
from minitf.tensor import as_array, is_recording, record


@form_of(functions.linear)
def linear(x, weight, bias=None):
    """Multiply all positions as the rows of one matrix product."""
    if getattr(weight, "strips", None) is not None and not is_recording():
        return packed_linear(x, weight, bias)
    x_data, w, b = linear_arrays(x, weight, bias)
    shape = x_data.shape
    n = math.prod(shape[:-1])
    rows = x_data.reshape(n, shape[-1])  # (N, D)
    y = rows @ w  # (N, F)
    if b is not None:
        y += b

    def backward(gy):
        gy = gy.reshape(n, w.shape[1])  # (N, F)
        g_bias = None if b is None else column_sums(gy)
        return (gy @ w.T).reshape(shape), rows.T @ gy, g_bias

    return record(y.reshape(shape[:-1] + w.shape[1:]), (x, weight, bias), backward)


@form_of(functions.layer_norm)
def layer_norm(x, gain, bias, eps=1e-6):
    """Work in place, with sums over features as products."""
    x_data, g, b = layer_norm_arrays(x, gain, bias)
    size = x_data.shape[-1]
    normal = x_data - row_sums(x_data) / size
    inverse = 1 / np.sqrt(row_dots(normal, normal) / size + eps)  # (..., 1)
    normal *= inverse
    y = normal * g
    y += b

    def backward(gy):
        gx = gy * g  # the gradient of `normal`
        removed = normal * (row_dots(gx, normal) / size)  # n mean(u n), then + mean(u)
        removed += row_sums(gx) / size
        gx -= removed
        gx *= inverse
        return gx, column_sums(gy * normal), column_sums(gy)

    return record(y, (x, gain, bias), backward)


@form_of(functions.embedding)
def embedding(table, ids):
    """Sort the ids in backward, and add up each run of equal ones."""
    weight = as_array(table)
    ids = checked_ids(ids, weight)

    def backward(gy):
        return segment_sum(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), len(weight)), None

    return record(weight[ids], (table, None), backward)
