"""Operations on plain GPU arrays, each one kernel where CuPy would run five or ten.

Most return (result, backward), where backward returns the gradients: those of parameters in the
arrays that it is given for them, if any. functions.py turns these operations into forms of the
engine's ops. They take dropout as five numbers (dropout.py) instead of a mask: the kernels draw the
mask, and draw it again in the backward pass.
"""

import math

from minitf.backend import xp
from minitf.gpu import kernels
from minitf.gpu.dropout import NO_DROPOUT
from minitf.gpu.launch import launch
from minitf.gpu.matmul import as_factor, matmul
from minitf.gpu.warps import STRIPE, WARP

__all__ = [
    "add_norm",
    "add_segments",
    "attention",
    "attention_step",
    "bias_relu_dropout",
    "column_sums",
    "dropout",
    "exchange",
    "layer_norm",
    "log_sum_exp",
    "softmax_dropout",
    "softmax_dropout_gradient",
]

ROWS = 8  # rows of a block, each computed by one warp
THREADS = 256  # threads of a block that computes one row

NOTHING_ADDED = (*NO_DROPOUT[:4], 0.0)


def _launch_rows(kernel, n, *arguments):
    """Run a kernel with one warp for each of n rows."""
    launch(kernel, (-(-n // ROWS),), (WARP, ROWS), *arguments)


def _launch_stripes(kernel, shape, *arguments):
    """Run a kernel with one block of (32, 8) threads for 32 columns of each slice of rows.

    A sum over the rows has one row for each slice, and the caller adds these up.
    """
    launch(
        kernel,
        (-(-shape[1] // WARP), -(-shape[0] // _slice_rows(shape[0]))),
        (WARP, STRIPE),
        *arguments,
    )


def _slice_rows(n):
    """Return how many of n rows a block adds up: enough blocks for a GPU, few enough sums."""
    return max(4 * STRIPE, -(-n // 128))


def _sums(rows, slice_rows):
    """Return an empty array for the sum of the rows of each slice."""
    return xp.empty((-(-len(rows) // slice_rows), rows.shape[1]), dtype=rows.dtype)


def column_sums(rows, out=None):
    """Return the sum of rows (N, D) -> (D,); CuPy's own sum keeps a tenth of a GPU busy."""
    slice_rows = _slice_rows(len(rows))
    sums = _sums(rows, slice_rows)
    _launch_stripes(kernels.column_sums, rows.shape, rows, sums, slice_rows)
    return sums.sum(axis=0, out=out)


def dropout(x, numbers):
    """Return keep * x * scale; backward does the same to the gradient."""

    def apply(array):
        rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
        y = xp.empty_like(rows)
        _launch_rows(kernels.dropout, len(rows), rows, y, *numbers)
        return y.reshape(array.shape)

    return apply(x), apply


def bias_relu_dropout(x, bias, numbers=NO_DROPOUT):
    """Return keep * max(0, x + bias) * scale, computed in place of x.

    backward returns the gradients of x and of the bias.
    """
    y, shape = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), x.shape
    _launch_rows(kernels.bias_relu_dropout, len(y), y, bias, *numbers)

    def backward(gy, out=None):
        gx, slice_rows = xp.empty_like(y), _slice_rows(len(y))
        g_bias = _sums(y, slice_rows)
        gradient = kernels.bias_relu_dropout_gradient
        _launch_stripes(
            gradient, y.shape, gy.reshape(y.shape), y, gx, g_bias, slice_rows, numbers[-1]
        )
        return gx.reshape(shape), g_bias.sum(axis=0, out=out)

    return y.reshape(shape), backward


def add_norm(x, added, gain, bias, eps, numbers=NO_DROPOUT):
    """Return LayerNorm(x + keep * added * scale).

    backward returns the gradients of x, added, gain and bias.
    """
    shape, n = x.shape, math.prod(x.shape[:-1])
    x, added = x.reshape(n, shape[-1]), added.reshape(n, shape[-1])
    y, normal, deviation = xp.empty_like(x), xp.empty_like(x), xp.empty(n, dtype=x.dtype)
    _launch_rows(kernels.add_norm, n, x, added, gain, bias, eps, y, normal, deviation, *numbers)

    def backward(gy, outs=(None, None)):
        gy, gx, slice_rows = gy.reshape(normal.shape), xp.empty_like(normal), _slice_rows(n)
        g_added = xp.empty_like(normal) if numbers[3] else gx
        _launch_rows(
            kernels.add_norm_gradient, n, gy, normal, deviation, gain, gx, g_added, *numbers
        )
        g_gain, g_bias = _sums(normal, slice_rows), _sums(normal, slice_rows)
        _launch_stripes(
            kernels.norm_parameter_gradients, normal.shape, gy, normal, g_gain, g_bias, slice_rows
        )
        g_gain, g_bias = (
            x.sum(axis=0, out=out) for x, out in zip((g_gain, g_bias), outs, strict=True)
        )
        return gx.reshape(shape), g_added.reshape(shape), g_gain, g_bias

    return y.reshape(shape), backward


def layer_norm(x, gain, bias, eps):
    """Return LayerNorm(x), computed as that of x + 0 x.

    backward returns the gradients of x, gain and bias.
    """
    y, backward = add_norm(x, x, gain, bias, eps, NOTHING_ADDED)

    def without_added(gy, outs=(None, None)):
        gx, _, g_gain, g_bias = backward(gy, outs)
        return gx, g_gain, g_bias

    return y, without_added


def softmax_dropout(scores, mask, factor, numbers=NO_DROPOUT):
    """Turn scores (B, H, T, S) into weights in place; return the weights and the dropped weights.

    Without dropout they are one array.
    """
    mask = xp.broadcast_to(xp.ones((), dtype=bool) if mask is None else mask, scores.shape)
    dropped = xp.empty_like(scores) if numbers[3] else scores
    rows = math.prod(scores.shape[:-1])
    _launch_rows(kernels.masked_softmax, rows, scores, mask, factor, scores, dropped, *numbers)
    return scores, dropped


def softmax_dropout_gradient(g, weights, factor, numbers=NO_DROPOUT):
    """Turn the gradient of the dropped weights into that of the scores in place.

    Returns the gradient of the scores, and the dropped weights.
    """
    dropped = xp.empty_like(weights) if numbers[3] else weights
    rows = math.prod(g.shape[:-1])
    _launch_rows(kernels.masked_softmax_gradient, rows, g, weights, factor, dropped, *numbers)
    return g, dropped


def exchange(x):
    """Return x with its first two axes exchanged, in a new array: (M, N, K) -> (N, M, K)."""
    m, n, size = x.shape
    y = xp.empty((n, m, size), dtype=x.dtype)
    _launch_rows(kernels.exchange, m * n, x, y)
    return y


def attention(query, key, value, mask=None, numbers=NO_DROPOUT, once=False):
    """Return dropout(softmax(query key^T / sqrt(d_k))) value, for a query (B, H, T, K).

    backward returns the gradients of query, key and value. once: backward will not be called.
    """
    scale = 1 / math.sqrt(query.shape[-1])
    query, key, value = map(as_factor, (query, key, value))
    if not once:  # one copy, for six products
        query, key, value = map(xp.ascontiguousarray, (query, key, value))
    weights, dropped = softmax_dropout(matmul(query, key.swapaxes(-1, -2)), mask, scale, numbers)
    y = matmul(dropped, value)

    def backward(gy):
        gy = xp.ascontiguousarray(as_factor(gy))
        g, dropped = softmax_dropout_gradient(
            matmul(gy, value.swapaxes(-1, -2)), weights, scale, numbers
        )
        g = as_factor(g)
        g_query, g_key = matmul(g, key), matmul(g.swapaxes(-1, -2), query)
        return g_query, g_key, matmul(dropped.swapaxes(-1, -2), gy)

    return y, backward


def attention_step(projected, keys, values, mask, first=-1):
    """Return softmax(q k^T / sqrt(d_k)) v for the newest token of each text, (R, H*K).

    projected: the queries (R, H*K). With `first`, the newest keys and values follow them, (R,
    3*H*K), and are written to the cache indices first ... first + W - 1 of each sentence.
    keys, values: (B, H, capacity, K). mask: (B, W, n), True for the own tokens of each text.
    """
    n_heads, size = keys.shape[1], keys.shape[3]
    weights = xp.empty((len(projected), n_heads, mask.shape[2]), dtype=projected.dtype)
    y = xp.empty((len(projected), n_heads * size), dtype=projected.dtype)
    arguments = projected, first, 1 / math.sqrt(size), keys, values, mask, weights, y
    launch(kernels.attention_step, (len(projected) * n_heads,), (WARP,), *arguments)
    return y


def log_sum_exp(logits):
    """Return ln sum_v exp(logits) of each row: (R, V) -> (R,)."""
    y = xp.empty(len(logits), dtype=logits.dtype)
    launch(kernels.log_sum_exp, (len(logits),), (THREADS,), logits, y)
    return y


def add_segments(ids, rows, out):
    """Add rows[i] to out[ids[i]] for all i, with the same bits every time."""
    order = xp.argsort(ids, kind="stable")
    grid = len(ids), -(-rows.shape[1] // WARP)
    launch(kernels.add_segments, grid, (WARP, STRIPE), ids[order], order, rows, out)
