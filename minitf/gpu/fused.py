"""Operations on plain GPU arrays, with a few kernels each where CuPy would run many.

functions.py turns them into forms of the engine's ops. The differentiable ones return (result,
backward), except for the softmax, whose gradient is a function of its own. backward returns the
gradients, and writes those of parameters to `out` or `outs`, if given.

Kernels take dropout as MaskNumbers instead of a mask: five numbers from which they draw the mask
that NumPy would draw, and draw it again in the backward pass.

Letters: N rows (all axes but the last), D features; B sentences, W texts of each, R = B * W, n
tokens in a cache. See minitf/functions.py for the others.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from minitf.backend import to_device, to_numpy, xp
from minitf.dropout import mask_key, next_mask_numbers, threshold_of
from minitf.gpu import kernels
from minitf.gpu.launch import launch
from minitf.gpu.matmul import as_operand, matmul
from minitf.gpu.warps import CHUNK, STRIPE, THREADS, WARP

ROWS = 8  # rows of a block, each computed by one warp, if there are enough rows for
BLOCKS = 128  # blocks: about as many as there are multiprocessors


class MaskNumbers(NamedTuple):
    """What a kernel needs to draw a mask; the last arguments of kernels with dropout.

    seed, draw: the key of the generator; masks with one seed differ in draw.
    start: the index of the first random number.
    threshold: an element is dropped if its 16 random bits are below it.
    factor: what the elements that are kept are multiplied by.
    """

    seed: np.uint64
    draw: np.uint64
    start: np.uint64
    threshold: int
    factor: float


def numbers_of_next_mask(shape, rate, seed=None):
    """Return the MaskNumbers of the next mask of this forward pass, as dropout.next_mask does."""
    return numbers_of_mask(*next_mask_numbers(seed), shape, rate) if rate else NO_DROPOUT


def numbers_of_mask(seed, step, place, first_row, shape, rate):
    """Return the MaskNumbers of dropout_mask(seed, step, place, first_row, shape, rate)."""
    threshold = threshold_of(rate)
    start = first_row * math.prod(shape[1:])
    key = map(np.uint64, mask_key(seed, step, place))
    return MaskNumbers(*key, np.uint64(start), threshold, 65536 / (65536 - threshold))


NO_DROPOUT = numbers_of_mask(0, 0, 0, 0, (), 0.0)
NOTHING_ADDED = NO_DROPOUT._replace(factor=0.0)  # keeps all, and multiplies it by 0


def _launch_rows(kernel, n, *arguments, chunks=1):
    """Run a kernel with one warp for each of n rows, or with `chunks` warps for each.

    A few rows, as in decoding, are given to many blocks of few warps: each runs on another part of
    the GPU.
    """
    rows = min(ROWS, max(1, n // BLOCKS))
    launch(kernel, (-(-n // rows), chunks), (WARP, rows), *arguments)


def _launch_chunks(kernel, rows, *arguments):
    """Run a kernel with one warp for 512 columns of each row; its last arguments: MaskNumbers."""
    columns, start = rows.shape[1], arguments[-3]
    skipped = 15 if columns % 16 or start % 16 else 0  # at most so many of those before the row
    _launch_rows(kernel, len(rows), *arguments, chunks=-(-(columns + skipped) // CHUNK))


def _sum_columns(kernel, shape, outs, *arguments):
    """Run a kernel that sums columns, (N, D) -> (D,), one or two sums for each column.

    outs: an array, or None, for each sum. A block of the kernel sums 32 columns of one slice of
    rows; the last block to end adds up the slices.
    """
    n, d = shape
    slice_rows = max(4 * STRIPE, -(-n // 128))  # enough blocks for a GPU, few enough sums
    n_slices, columns = max(1, -(-n // slice_rows)), -(-d // WARP)
    sums = xp.empty((len(outs), columns, n_slices, WARP), dtype=xp.float32)
    outs = [xp.empty(d, dtype=xp.float32) if out is None else out for out in outs]
    arrived = _arrivals(columns, xp.__dict__["_module"])
    block = WARP, STRIPE
    launch(kernel, (columns, n_slices), block, *arguments, *outs, sums, arrived, slice_rows)
    return outs


@functools.cache
def _arrivals(columns, library):
    """Return the zeros in which blocks count: each kernel leaves them as they were."""
    return xp.zeros(columns, dtype=xp.int32)


def column_sums(rows, out=None):
    """Return the sum of rows (N, D) -> (D,); CuPy's own sum keeps a tenth of a GPU busy."""
    return _sum_columns(kernels.column_sums, rows.shape, [out], rows)[0]


def dropout(x, numbers):
    """Return keep * x * factor, (..., D); backward does the same to the gradient."""

    def apply(array):
        rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
        y = xp.empty_like(rows)
        _launch_chunks(kernels.dropout, rows, rows, y, *numbers)
        return y.reshape(array.shape)

    return apply(x), apply


def bias_relu_dropout(x, bias, numbers=NO_DROPOUT):
    """Return keep * max(0, x + bias) * factor, computed in place of x (..., D).

    backward returns the gradients of x and of the bias (D,). If x is rounded, so is its gradient.
    """
    y, shape = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), x.shape
    _launch_chunks(kernels.bias_relu_dropout, y, y, bias, *numbers)

    def backward(gy, out=None):
        gx, gradient = xp.empty_like(y), kernels.bias_relu_dropout_gradient
        arguments = gy.reshape(y.shape), y, numbers.factor, gx
        (g_bias,) = _sum_columns(gradient, y.shape, [out], *arguments)
        return gx.reshape(shape), g_bias

    return y.reshape(shape), backward


def add_norm(x, added, gain, bias, eps, numbers=NO_DROPOUT):
    """Return LayerNorm(x + keep * added * factor), for x and added (..., D).

    backward returns the gradients of x, added, gain (D,) and bias (D,).
    """
    shape, n = x.shape, math.prod(x.shape[:-1])
    x, added = x.reshape(n, shape[-1]), added.reshape(n, shape[-1])
    y, normal, deviation = xp.empty_like(x), xp.empty_like(x), xp.empty(n, dtype=x.dtype)
    _launch_rows(kernels.add_norm, n, x, added, gain, bias, eps, y, normal, deviation, *numbers)

    def backward(gy, outs=(None, None), gx=None):
        gy, gx = gy.reshape(normal.shape), xp.empty(shape, normal.dtype) if gx is None else gx
        g_added = xp.empty_like(gx) if numbers.threshold else gx
        both = (g.reshape(normal.shape) for g in (gx, g_added))
        _launch_rows(kernels.add_norm_gradient, n, gy, normal, deviation, gain, *both, *numbers)
        kernel = kernels.norm_parameter_gradients
        g_gain, g_bias = _sum_columns(kernel, normal.shape, outs, gy, normal)
        return gx, g_added, g_gain, g_bias

    return y.reshape(shape), backward


def layer_norm(x, gain, bias, eps):
    """Return LayerNorm(x), computed as LayerNorm(x + 0 x), for x (..., D).

    backward returns the gradients of x, gain (D,) and bias (D,).
    """
    y, backward = add_norm(x, x, gain, bias, eps, NOTHING_ADDED)

    def without_added(gy, outs=(None, None)):
        gx, _, g_gain, g_bias = backward(gy, outs)
        return gx, g_gain, g_bias

    return y, without_added


def softmax_dropout(scores, mask, scale, numbers=NO_DROPOUT):
    """Turn scores (B, H, T, S) into weights in place; return the weights, and those after dropout.

    Without dropout these are the same array. The axes may be in any order in memory.
    """
    mask = xp.broadcast_to(xp.ones((), dtype=bool) if mask is None else mask, scores.shape)
    used = xp.empty_like(scores) if numbers.threshold else scores
    rows = math.prod(scores.shape[:-1])
    _launch_rows(kernels.masked_softmax, rows, scores, mask, scale, scores, used, *numbers)
    return scores, used


def softmax_dropout_gradient(g, weights, scale, numbers=NO_DROPOUT):
    """Turn the gradient of the weights after dropout into that of the scores in place.

    Returns the gradient of the scores, and the weights after dropout; all (B, H, T, S).
    """
    used = xp.empty_like(weights) if numbers.threshold else weights
    rows = math.prod(g.shape[:-1])
    _launch_rows(kernels.masked_softmax_gradient, rows, g, weights, scale, used, *numbers)
    return g, used


def attention(query, key, value, mask=None, numbers=NO_DROPOUT, out=None):
    """Return dropout(softmax(query key^T / sqrt(d_k))) value: (H, B, T, U), in `out` if given.

    query: (H, B, T, K)   key: (H, B, S, K)   value: (H, B, S, U), may be rounded
    The heads come first: the matrices of a batch are then at equal distances, as cuBLAS needs them.
    The mask, and the random numbers of dropout, are in the order (B, H, T, S).
    backward returns the gradients of query, key and value, in `outs` if given.
    """
    scale = 1 / math.sqrt(query.shape[-1])
    scores = matmul(query, key.swapaxes(2, 3)).swapaxes(0, 1)  # a view
    weights, used = softmax_dropout(scores, mask, scale, numbers)
    y = matmul(used.swapaxes(0, 1), value, out)

    def backward(gy, outs=(None, None, None)):
        g_used = matmul(gy, value.swapaxes(2, 3)).swapaxes(0, 1)
        # The weights after dropout are computed again, so that forward need not keep them.
        g, used = softmax_dropout_gradient(g_used, weights, scale, numbers)
        g, used = as_operand(g.swapaxes(0, 1)), used.swapaxes(0, 1)
        products = (g, key), (g.swapaxes(2, 3), query), (used.swapaxes(2, 3), gy)
        return [matmul(*pair, out) for pair, out in zip(products, outs, strict=True)]

    return y, backward


def swap_first_axes(x):
    """Return contiguous x with its first two axes exchanged, contiguous: (M, N, K) -> (N, M, K).

    A copy is limited by the bytes that the threads of a GPU have under way, each one number. So
    numbers are copied as words of 8 bytes, two or four at a time, if K allows it.
    """
    word = x.dtype if x.shape[-1] * x.itemsize % 8 else xp.uint64
    return xp.ascontiguousarray(x.view(word).swapaxes(0, 1)).view(x.dtype)


def attend_newest(projected, cache, mask, first=None):
    """Return softmax(q k^T / sqrt(d_k)) v for the newest token of each text, (R, H*K).

    projected: the queries (R, H*K). With `first`, the newest keys and values follow them, (R,
    3*H*K), and are written to the cache indices first ... first + W - 1 of each sentence.
    cache: the keys of all heads, then the values, (B, 2*H, capacity, K).
    mask: (B, W, n), True for the tokens that a text may attend to: of the newest, its own alone.
    """
    n_heads, size = cache.shape[1] // 2, cache.shape[3]
    scores = xp.empty((len(projected), n_heads, mask.shape[2]), dtype=projected.dtype)
    y = xp.empty((len(projected), n_heads * size), dtype=projected.dtype)
    first = -1 if first is None else first
    arguments = projected, first, 1 / math.sqrt(size), cache, mask, scores, y
    launch(kernels.attend_newest, (len(projected) * n_heads,), (WARP, STRIPE), *arguments)
    return y


def add_segments(ids, rows, out):
    """Add rows[i] to out[ids[i]] for all i, with the same bits every time.

    ids: (N,), a NumPy array   rows: (N, D)   out: (V, D)
    The host sorts them: a GPU starts about 20 kernels for that. NumPy sorts 16 bits in one pass.
    """
    keys = ids.astype(np.uint16) if len(out) <= 2**16 else ids
    order = np.argsort(keys, kind="stable")
    both = to_device(np.stack([ids[order], order]).astype(np.int32))
    grid = len(ids), -(-rows.shape[1] // WARP)
    launch(kernels.add_segments, grid, (WARP, STRIPE), both[0], both[1], rows, out)


def best_of_rows(logits, never, count):
    """Return the logsumexp and the `count` greatest logits of each row, and their ids, on the CPU.

    They are float64 (R,), float32 and int32 (R, count), the greatest first, of equals the lower id.
    Where fewer logits are above -1e30, they end with -infinity and the id V.
    logits: (R, V). Afterwards the two ids `never` have -infinity, and they are not among the best;
    -1 is no id.
    """
    results = xp.empty((len(logits), 1 + 2 * count), dtype=xp.float32)
    arguments = logits, *never, -math.inf, count, results, results.view(xp.int32)
    warps = min(2 * THREADS // WARP, -(-logits.shape[1] // WARP))  # none without a column
    launch(kernels.best_of_rows, (len(logits),), (WARP * warps,), *arguments)
    results = to_numpy(results)  # one copy for all three
    return (
        results[:, 0].astype(np.float64),
        results[:, 1 : 1 + count],
        results.view(np.int32)[:, 1 + count :],
    )
