"""The forms of the engine's functions for NumPy: the programs that are fastest on a CPU.

They compute all positions in one product, sums as products, and work in place. Each computes the
equation of the op of the same name in minitf/functions.py or optim.py.
"""

from __future__ import annotations

import numpy as np

from minitf import functions, optim
from minitf.cpu.sums import add_segments, blocks, column_sums, row_dots, row_sums
from minitf.cpu.threads import parallel_for
from minitf.forms import form_of
from minitf.functions import as_rows
from minitf.inputs import checked_ids, layer_norm_arrays, linear_arrays
from minitf.tensor import as_array, gradient_out, gradient_so_far, recall, record


@form_of(functions.linear)
def linear(x, weight, bias=None):
    """Multiply all positions as the rows of one matrix product."""
    x_data, w, b = linear_arrays(x, weight, bias)
    shape, x_again = x_data.shape, recall(x, x_data)
    y = as_rows(x_data) @ w  # (N, F)
    if b is not None:
        y += b

    def backward(gy):
        gy = as_rows(gy)  # (N, F)
        g_bias = None if b is None else column_sums(gy)
        g_weight = np.matmul(as_rows(x_again()).T, gy, out=gradient_out(weight))
        return (gy @ w.T).reshape(shape), g_weight, g_bias

    return record(y.reshape(*shape[:-1], w.shape[1]), (x, weight, bias), backward)


@form_of(functions.layer_norm)
def layer_norm(x, gain, bias, eps=1e-6):
    """Compute in place, and sums over features as products.

    With n the normalised row, s its deviation before and u = gain * gy, as in F.layer_norm:

        gx = (u - mean(u) - n mean(u n)) / s

    Both means are products with the gain: sum(u) = gy . gain, and sum(u n) = (gy n) . gain. The
    gradient of the gain needs gy n as well.
    """
    x_data, g, b = layer_norm_arrays(x, gain, bias)
    size = x_data.shape[-1]
    normal = x_data - row_sums(x_data) / size
    inverse = 1 / np.sqrt(row_dots(normal, normal) / size + eps)  # 1 / s, (..., 1)
    normal *= inverse

    def scaled():
        return normal * g + b

    def backward(gy):
        products = gy * normal
        g_gain = column_sums(products)
        # n mean(u n) + mean(u), in an array that is no longer needed
        removed = np.multiply(normal, (products @ g)[..., None] / size, out=products)
        removed += (gy @ g)[..., None] / size
        gx = gy * g
        gx -= removed
        gx *= inverse
        return gx, g_gain, column_sums(gy)

    return record(scaled(), (x, gain, bias), backward, again=scaled)


@form_of(functions.embedding)
def embedding(table, ids):
    """Sort the ids in backward, and add up each run of equal ones.

    If the table has a gradient already, for example from the output with tied embeddings, the sums
    are added to it in place, without an array of zeros as large as the table.
    """
    weight = as_array(table)
    ids = checked_ids(ids, weight)

    def backward(gy):
        g_table = gradient_so_far(table)
        if g_table is None:
            g_table = np.zeros_like(weight)
        add_segments(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), g_table)
        return g_table, None

    return record(weight[ids], (table, None), backward)


@form_of(optim.adam_update)
def adam_update(x, g, m, v, t, rate, beta_1=0.9, beta_2=0.98, eps=1e-9):
    """Change x, m and v block by block, so that each stays in the cache, on all threads."""
    if not x.ndim:
        return NotImplemented
    # Both bias corrections are numbers, so they need no pass over the arrays:
    # sqrt(v/c) + eps = (sqrt(v) + eps sqrt(c)) / sqrt(c)
    root = (1 - beta_2**t) ** 0.5
    scale = rate * root / (1 - beta_1**t)

    def update(block):
        data, gradient, mean, square = (array[block] for array in (x, g, m, v))
        scratch = gradient * (1 - beta_1)
        mean *= beta_1
        mean += scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - beta_2
        square *= beta_2
        square += scratch
        np.sqrt(square, out=scratch)
        scratch += eps * root
        np.divide(mean, scratch, out=scratch)
        scratch *= scale
        data -= scratch

    return parallel_for(update, blocks(x.shape))
