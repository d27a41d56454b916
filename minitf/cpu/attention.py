"""The forms of attention and multi-head attention on NumPy: scores in tiles that fit the cache.

A tile is complete rows of scores: all keys of some queries. For texts of up to LONGEST_KEPT tokens
the weights are kept for backward. For longer ones they are computed again there, so that the memory
grows with the length of the text and not with its square. (A mask of the past, and the numbers of
dropout, grow with the square.)

Apart from the products of matrices, the time goes into passes over the scores. Two things make
these fewer or faster:
* Where no mask makes powers 0, powers of 2 replace those of e, because NumPy often computes them in
  half the time: exp(x) = 2^(x log2(e)). The factor 1/sqrt(d_k) is multiplied by log2(e) once.
* The largest score of a row is subtracted only if it is large. That changes no weight, and only
  keeps the powers from overflowing or vanishing.

Both are decided by what a row may attend to, or by its mask. If other rows or hidden keys had a say
in it, they would change the last bits of its result: the future would change the past.
"""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np

from minitf import functions, transformer
from minitf.common.layers import attends_plainly
from minitf.cpu.sums import blocks, column_sums, row_dots, row_sums
from minitf.dropout import drop, next_mask
from minitf.forms import form_of
from minitf.functions import as_rows, swap
from minitf.inputs import attention_arrays, linear_arrays
from minitf.tensor import is_recording, recall, record

LONGEST_KEPT = 512  # keys; with more, backward computes the weights again
TILE_SCORES = 1 << 18  # scores; 1 MB of complete rows
LARGE = 40  # exponent of 2; a sum of powers with smaller exponents can neither overflow nor vanish


def _has_fast_exp2():
    """Return whether NumPy computes powers of 2 with vector instructions.

    Only its builds for Linux contain such a program, and only for some processors.
    """
    programs = np.lib.introspect.opt_func_info(func_name="^exp2$", signature="float32")
    # NumPy lists only functions that it was compiled for several processors.
    compiled_for = programs.get("exp2", {}).get("ff", {}).get("current", "baseline")
    return sys.platform == "linux" and not compiled_for.startswith("baseline")


HAS_FAST_EXP2 = _has_fast_exp2()
LOG_E = math.log2(math.e)  # exp(x) = 2^(x LOG_E)


@form_of(functions.attention)
def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Compute the scores in tiles that fit the cache.

    The result and the gradients have the memory layout of the inputs: if the heads are views of one
    array (B, T, H, K), merging them into (B, T, D) needs no copy.
    """
    q, k, v, mask = attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not math.prod(shape):
        return NotImplemented
    keep, factor = next_mask(shape, rate, seed)
    average, write_gradients = attend(q, k, v, mask, keep, factor)

    def backward(gy):
        gradients = np.empty_like(q), np.empty_like(k), np.empty_like(v)
        write_gradients(gy, gradients)
        return *gradients, None

    return record(average(), (query, key, value, None), backward)


def attend(q, k, v, mask=None, keep=None, factor=1):
    """Return a function that returns the result of attention, and one that writes its gradients.

        average, backward = attend(q, k, v, mask, keep, factor)
        y = average()
        backward(gy, (g_q, g_k, g_v))

    q: (..., T, K)  k: (..., S, K)  v: (..., S, U), with equal axes in front  ->  y: (..., T, U)
    keep, factor: the mask of dropout (..., T, S) as next_mask returns it, or None and 1
    g_q, g_k, g_v: arrays with the shapes of q, k and v, which are overwritten. They may have any
    memory layout and be views of one array.
    backward reads q, k, v and y, so they must not change before.
    """
    shape = *q.shape[:-1], k.shape[-2]
    tiles, limit = _tiles(shape), _limit(mask, shape, q.dtype)

    def weights_of(tile, keys):
        return _attention_weights(q[tile], k[keys], None if limit is None else limit[tile])

    stored = None
    if is_recording() and shape[-1] <= LONGEST_KEPT:
        stored = [weights_of(tile, keys) for tile, keys, _ in tiles]

    def computed():
        """Yield each tile, the index of its keys, whether it is their first, and its weights."""
        for i, (tile, keys, first) in enumerate(tiles):
            yield tile, keys, first, stored[i] if stored else weights_of(tile, keys)

    def dropped(x, tile):
        return x if keep is None else drop(x, keep[tile], factor)

    def average():
        y = np.empty_like(q, shape=(*q.shape[:-1], v.shape[-1]))
        for tile, keys, _, weights in computed():
            np.matmul(dropped(weights, tile), v[keys], out=y[tile])
        return y

    def backward(gy, gradients):
        g_query, g_key, g_value = gradients
        for tile, keys, first, weights in computed():
            g_weights = dropped(gy[tile] @ swap(v[keys]), tile)
            g_weights -= row_dots(g_weights, weights)
            g_weights *= weights
            g_weights *= 1 / math.sqrt(q.shape[-1])
            g_scores = g_weights  # computed in the same array
            np.matmul(g_scores, k[keys], out=g_query[tile])
            add_product(swap(g_scores), q[tile], g_key[keys], first)
            add_product(swap(dropped(weights, tile)), gy[tile], g_value[keys], first)

    return average, backward


def _tiles(shape):
    """Cut scores (..., T, S) into tiles of queries: a list of (tile, keys, first).

    tile: the index of its queries. keys: the index of their keys. first: whether no earlier tile
    has the same keys.
    """
    heads = len(shape) - 2
    tiles = blocks(shape[:-1], max(1, TILE_SCORES // shape[-1]))
    return [(tile, tile[:heads], len(tile) <= heads or tile[heads].start == 0) for tile in tiles]


def _attention_weights(query, key, limit):
    """Return softmax(min(query key^T / sqrt(d_k), limit)), computed in one array."""
    scores = query @ swap(key)  # (..., T, S)
    scores *= LOG_E / math.sqrt(query.shape[-1])
    all_are_small = scores.max() < LARGE and scores.min() > -LARGE  # false if one is NaN
    if limit is not None:
        np.fmin(scores, limit, out=scores)  # unlike a sum, -inf also for a score that is NaN
    # Where all are small, each row has a 0, found without the slow search for its largest score.
    shifts = None if all_are_small else _shifts(scores.max(axis=-1, keepdims=True))
    weights = _powers_of(scores, shifts, is_masked=limit is not None)
    sums = row_sums(weights)
    weights /= sums + (sums == 0)  # 1 for a row that may attend to nothing
    return weights


def add_product(x, y, out, first):
    """Write the product x y to `out` if it is the first, otherwise add it."""
    if first:
        np.matmul(x, y, out=out)
    else:
        out += x @ y


def _limit(mask, shape, dtype):
    """Return an upper limit for each score: -infinity where the mask is False, else NaN for none.

    np.fmin ignores a limit that is NaN, and so returns every other score as it is, even NaN. With a
    limit of infinity it would turn a score that is NaN into infinity.
    """
    if mask is None:
        return None
    return np.broadcast_to(np.where(mask, np.nan, -np.inf).astype(dtype), shape)


def _shifts(largest):
    """Return what is subtracted from rows of scores with these largest scores, (..., 1).

    0 from a row whose largest score is small: beside it, the power of a far lower one is 0 anyway.
    0 also from a row that may attend to nothing, whose largest score is -infinity.
    """
    return np.where((abs(largest) < LARGE) | np.isneginf(largest), 0, largest)


def _powers_of(scores, shifts, is_masked):
    """Return 2^(scores - shifts), computed in the array of the scores.

    shifts: (..., 1), or None for 0 from all rows.

    For a power of 0 or almost 0, np.exp2 takes 20 to 600 times as long; np.exp does not.
    """
    if shifts is not None:
        scores -= shifts
    if HAS_FAST_EXP2 and not is_masked:
        if shifts is not None:  # else no power is almost 0
            np.maximum(scores, np.finfo(scores.dtype).minexp, out=scores)
        return np.exp2(scores, out=scores)
    scores *= math.log(2)
    return np.exp(scores, out=scores)


# Multi-head attention: queries, keys and values from one product ---------------------------------


@form_of(transformer.multi_head_attention)
def multi_head_attention(attention, x, memory, mask=None, cache=None):
    """Project each input once, with the weights side by side, and attend to views of the result.

        [Q K V] = x [W^Q W^K W^V]                       if the memory is x
        Q = x W^Q  and  [K V] = memory [W^K W^V]        otherwise

    In backward the gradients of Q, K and V are written side by side as well, so that one product
    computes the gradient of an input, and another those of its weights.
    """
    if cache is not None or not is_recording() or not attends_plainly(attention, x, memory):
        return NotImplemented
    layers = attention.query, attention.key, attention.value
    inputs = [(x, layers)] if memory is x else [(x, layers[:1]), (memory, layers[1:])]
    projections = [_RowProjection(data, group, attention.n_heads) for data, group in inputs]
    heads = [head for p in projections for head in p.heads(p.y)]  # queries, keys, values
    q, k, v, mask = attention_arrays(*heads, mask)
    rate = attention.rate if attention.training else 0.0
    keep, factor = next_mask((*q.shape[:-1], k.shape[-2]), rate)
    average, write_gradients = attend(q, k, v, mask, keep, factor)
    batch, n_heads, length, _ = q.shape

    def merged():
        return average().transpose(0, 2, 1, 3).reshape(batch, length, -1)  # (B, T, H*U)

    def backward(gy):
        pairs = [(p, np.empty_like(p.y)) for p in projections]  # each with the gradient of its y
        g_heads = [head for p, g_y in pairs for head in p.heads(g_y)]
        write_gradients(gy.reshape(batch, length, n_heads, -1).transpose(0, 2, 1, 3), g_heads)
        return tuple(gradient for p, g_y in pairs for gradient in p.backward(g_y))

    parents = []
    for data, group in inputs:
        parents += [data, *(each for layer in group for each in (layer.weight, layer.bias))]
    return attention.output(record(merged(), parents, backward, again=merged))


class _RowProjection:
    """Several linear layers of one input, computed as one product whose heads are views.

        y = x [W_1 W_2 ...] + [b_1 b_2 ...]

    y: the results side by side, (N, F), for the N = B * T rows of x (B, T, D). On a GPU the heads
    come first, because cuBLAS can write them so: see _HeadProjection in gpu/functions.py.
    """

    def __init__(self, x, layers, n_heads):
        arrays = [linear_arrays(x, layer.weight, layer.bias) for layer in layers]
        inputs, self.weights, self.biases = zip(*arrays, strict=True)
        self.shape, self.n_heads = inputs[0].shape, n_heads
        ends = itertools.accumulate((weight.shape[1] for weight in self.weights), initial=0)
        self.columns = list(itertools.starmap(slice, itertools.pairwise(ends)))  # of y, by layer
        self.y, self.x_again = as_rows(inputs[0]) @ self._weight(), recall(x, inputs[0])
        for columns, bias in zip(self.columns, self.biases, strict=True):
            if bias is not None:
                self.y[:, columns] += bias

    def _weight(self):
        """Return the weights side by side, (D, F); backward makes them again, to save memory."""
        return np.concatenate(self.weights, axis=1) if len(self.weights) > 1 else self.weights[0]

    def heads(self, array):
        """Return the heads of each layer, (B, H, T, K), as views of an array like y."""
        by_layer = [array[:, columns] for columns in self.columns]
        shapes = [(*self.shape[:-1], self.n_heads, y.shape[1] // self.n_heads) for y in by_layer]
        return [
            y.reshape(shape).transpose(0, 2, 1, 3)
            for y, shape in zip(by_layer, shapes, strict=True)
        ]

    def backward(self, gy):
        """Return the gradients of the input, and of weight and bias of each layer."""
        gradients = [(gy @ self._weight().T).reshape(self.shape)]
        g_weight = as_rows(self.x_again()).T @ gy  # (D, F)
        for columns, bias in zip(self.columns, self.biases, strict=True):
            g_bias = None if bias is None else column_sums(gy[:, columns])
            gradients += [g_weight[:, columns], g_bias]
        return gradients
