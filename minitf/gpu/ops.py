"""Operations on the arrays of a GPU that are one kernel each, in place of five or ten of the library's.

First the operations on plain arrays: (result, backward), where backward gives the gradients. Then the forms of the
engine's ops, which record them. A form takes float32 only.

Dropout is given as five numbers (gpu/dropout.py) and not as a mask: the kernels draw it, the backward pass again.
"""

import math

from minitf import functions
from minitf.backend import xp
from minitf.forms import form_of
from minitf.functions import attention_arrays, check_layer_norm, check_linear, checked_ids
from minitf.gpu import kernels
from minitf.gpu.dropout import NO_DROPOUT, next_decisions
from minitf.gpu.launch import has_kernels, launch
from minitf.gpu.matmul import as_factor, matmul
from minitf.gpu.warps import STRIPE, WARP
from minitf.tensor import as_array, is_recording, record

__all__ = [
    "add_norm",
    "attention",
    "bias_relu_dropout",
    "column_sums",
    "dropout",
    "layer_norm",
    "segment_sum",
]

ROWS = 8  # of a block, each worked on by one warp


NOTHING_ADDED = (*NO_DROPOUT[:4], 0.0)


def _launch_rows(kernel, n, *arguments):
    """Give each of n rows to a warp."""
    launch(kernel, (-(-n // ROWS),), (WARP, ROWS), *arguments)


def _launch_stripes(kernel, shape, *arguments):
    """Give 32 columns of a strip of rows to each block of (32, 8) threads.

    Sums over the rows come as one row for each strip, which the caller adds up.
    """
    launch(
        kernel, (-(-shape[1] // WARP), -(-shape[0] // _strip(shape[0]))), (WARP, STRIPE), *arguments
    )


def _strip(n):
    """How many of n rows a block adds up: enough blocks for a GPU, few enough sums."""
    return max(4 * STRIPE, -(-n // 128))


def _sums(rows, strip):
    """Make room for one sum of the rows for each strip."""
    return xp.empty((-(-len(rows) // strip), rows.shape[1]), dtype=rows.dtype)


def column_sums(rows):
    """out = sum of the rows (N, D): CuPy's own sum keeps a tenth of a GPU busy with it."""
    strip = _strip(len(rows))
    sums = _sums(rows, strip)
    _launch_stripes(kernels.column_sums, rows.shape, rows, sums, strip)
    return sums.sum(axis=0)


def dropout(x, numbers):
    """y = keep * x * scale; backward does the same to the gradient."""

    def apply(array):
        rows = array.reshape(-1, array.shape[-1])
        y = xp.empty_like(rows)
        _launch_rows(kernels.dropout, len(rows), rows, y, *numbers)
        return y.reshape(array.shape)

    return apply(x), apply


def bias_relu_dropout(x, bias, numbers=NO_DROPOUT):
    """y = keep * max(0, x + bias) * scale, in the place of x; backward gives the gradients of x and of the bias."""
    y, shape = x.reshape(-1, x.shape[-1]), x.shape
    _launch_rows(kernels.bias_relu_dropout, len(y), y, bias, *numbers)

    def backward(gy):
        gx, strip = xp.empty_like(y), _strip(len(y))
        g_bias = _sums(y, strip)
        gradient = kernels.bias_relu_dropout_gradient
        _launch_stripes(gradient, y.shape, gy.reshape(y.shape), y, gx, g_bias, strip, numbers[-1])
        return gx.reshape(shape), g_bias.sum(axis=0)

    return y.reshape(shape), backward


def add_norm(x, added, gain, bias, eps, numbers=NO_DROPOUT):
    """y = LayerNorm(x + keep * added * scale); backward gives the gradients of x, added, gain and bias."""
    shape, n = x.shape, math.prod(x.shape[:-1])
    x, added = x.reshape(n, shape[-1]), added.reshape(n, shape[-1])
    y, normal, deviation = xp.empty_like(x), xp.empty_like(x), xp.empty(n, dtype=x.dtype)
    _launch_rows(kernels.add_norm, n, x, added, gain, bias, eps, y, normal, deviation, *numbers)

    def backward(gy):
        gy, gx, strip = gy.reshape(normal.shape), xp.empty_like(normal), _strip(n)
        g_added = xp.empty_like(normal) if numbers[3] else gx
        _launch_rows(
            kernels.add_norm_gradient, n, gy, normal, deviation, gain, gx, g_added, *numbers
        )
        g_gain, g_bias = _sums(normal, strip), _sums(normal, strip)
        _launch_stripes(
            kernels.norm_parameter_gradients, normal.shape, gy, normal, g_gain, g_bias, strip
        )
        return gx.reshape(shape), g_added.reshape(shape), g_gain.sum(axis=0), g_bias.sum(axis=0)

    return y.reshape(shape), backward


def layer_norm(x, gain, bias, eps):
    """y = LayerNorm(x), as x + 0 x; backward gives the gradients of x, gain and bias."""
    y, backward = add_norm(x, x, gain, bias, eps, NOTHING_ADDED)

    def without_added(gy):
        gx, _, g_gain, g_bias = backward(gy)
        return gx, g_gain, g_bias

    return y, without_added


def softmax_dropout(scores, mask, factor, numbers=NO_DROPOUT):
    """Turn scores (B, H, T, S) into weights in place: (weights, dropped), which is one array without dropout."""
    mask = xp.broadcast_to(xp.ones((), dtype=bool) if mask is None else mask, scores.shape)
    dropped = xp.empty_like(scores) if numbers[3] else scores
    rows = math.prod(scores.shape[:-1])
    _launch_rows(kernels.masked_softmax, rows, scores, mask, factor, scores, dropped, *numbers)
    return scores, dropped


def softmax_dropout_gradient(g, weights, factor, numbers=NO_DROPOUT):
    """Turn the gradient of the dropped weights into that of the scores in place: (that, the dropped weights)."""
    rows = weights.reshape(-1, weights.shape[-1])
    dropped = xp.empty_like(rows) if numbers[3] else rows
    _launch_rows(
        kernels.masked_softmax_gradient,
        len(rows),
        g.reshape(rows.shape),
        rows,
        factor,
        dropped,
        *numbers,
    )
    return g, dropped.reshape(weights.shape)


def attention(query, key, value, mask=None, numbers=NO_DROPOUT, once=False):
    """y = dropout(softmax(query key^T / sqrt(d_k))) value, of (B, H, T, K); backward gives the three gradients.

    once: there will be no backward.
    """
    scale = 1 / math.sqrt(query.shape[-1])
    query, key, value = map(as_factor, (query, key, value))
    if not once:  # one copy for the six products
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


def segment_sum(ids, rows, n):
    """out[v] = sum of rows[i] over all i with ids[i] = v, with the same bits every time."""
    out = xp.zeros((n, rows.shape[1]), dtype=rows.dtype)
    order = xp.argsort(ids, kind="stable")
    grid = len(ids), -(-rows.shape[1] // WARP)
    launch(kernels.segment_sum, grid, (WARP, STRIPE), ids[order], order, rows, out)
    return out


# Forms: the ops of the engine for float32 on a GPU -------------------------------------------------


@form_of(functions.linear)
def linear_form(x, weight, bias=None):
    """One product by cuBLAS for all positions, in the precision that was chosen."""
    x_data, w = as_array(x), as_array(weight)
    b = None if bias is None else as_array(bias)
    if not has_kernels(x_data, w, *([] if b is None else [b])):
        return NotImplemented
    check_linear(x_data, w, b)
    shape, n = x_data.shape, math.prod(x_data.shape[:-1])
    rows, w = as_factor(x_data.reshape(n, shape[-1])), as_factor(w)  # (N, D), (D, F)
    y = matmul(rows, w)  # (N, F)
    if b is not None:
        y += b

    def backward(gy):
        gy = gy.reshape(n, w.shape[1])  # (N, F)
        g_bias = None if b is None else column_sums(gy)
        gy = as_factor(gy)
        return matmul(gy, w.T).reshape(shape), matmul(rows.T, gy), g_bias

    return record(y.reshape(*shape[:-1], w.shape[1]), (x, weight, bias), backward)


@form_of(functions.layer_norm)
def layer_norm_form(x, gain, bias, eps=1e-6):
    """One kernel for a row."""
    arrays = as_array(x), as_array(gain), as_array(bias)
    if not has_kernels(*arrays):
        return NotImplemented
    check_layer_norm(*arrays)
    y, backward = layer_norm(*arrays, eps)
    return record(y, (x, gain, bias), backward)


@form_of(functions.embedding)
def embedding_form(table, ids):
    """The gradient adds up rows in the same order every time, which atomic additions do not."""
    weight = as_array(table)
    if not has_kernels(weight):
        return NotImplemented
    ids = checked_ids(ids, weight)

    def backward(gy):
        return segment_sum(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), len(weight)), None

    return record(weight[ids], (table, None), backward)


@form_of(functions.dropout)
def dropout_form(x, rate, seed=None):
    """The kernel draws the mask, and once more in backward."""
    x_data = as_array(x)
    if rate == 0 or not has_kernels(x_data):
        return NotImplemented
    y, backward = dropout(x_data, next_decisions(x_data.shape, rate, seed))
    return record(y, (x,), backward)


@form_of(functions.add_norm)
def add_norm_form(x, added, gain, bias, eps=1e-6, rate=0.0, seed=None):
    """One kernel for the dropout, the sum and the norm of a row."""
    arrays = as_array(x), as_array(added), as_array(gain), as_array(bias)
    if not has_kernels(*arrays) or arrays[0].shape != arrays[1].shape:
        return NotImplemented
    check_layer_norm(arrays[0], *arrays[2:])
    y, backward = add_norm(*arrays, eps, next_decisions(arrays[1].shape, rate, seed))
    return record(y, (x, added, gain, bias), backward)


@form_of(functions.feed_forward)
def feed_forward_form(x, w_1, b_1, w_2, b_2, rate=0.0, seed=None):
    """All that follows the first product is one kernel."""
    if b_1 is None or not has_kernels(as_array(x), as_array(w_1), as_array(b_1)):
        return NotImplemented
    check_linear(as_array(x), as_array(w_1), as_array(b_1))
    product = functions.linear(x, w_1)
    numbers = next_decisions(product.shape, rate, seed)
    y, backward = bias_relu_dropout(product.data, as_array(b_1), numbers)
    return functions.linear(record(y, (product, b_1), backward), w_2, b_2)


@form_of(functions.attention)
def attention_form(query, key, value, mask=None, rate=0.0, seed=None):
    """Products by cuBLAS, and between them one kernel for the softmax of a row and its dropout."""
    q, k, v, mask = attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not has_kernels(q, k, v) or len(shape) != 4 or not math.prod(shape):
        return NotImplemented
    y, backward = attention(q, k, v, mask, next_decisions(shape, rate, seed), not is_recording())
    return record(y, (query, key, value), backward)
