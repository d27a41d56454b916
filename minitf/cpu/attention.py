"""The form of attention on NumPy: scores in tiles that fit the cache."""

from __future__ import annotations

import math

import numpy as np

from minitf import functions
from minitf.cpu.sums import blocks, row_dots, row_sums
from minitf.dropout import drop, next_mask
from minitf.forms import form_of
from minitf.functions import attention_arrays, swap
from minitf.tensor import is_recording, record

TILE_SCORES = 1 << 19  # scores in a tile of attention: 2 MB, which fits the cache
LONGEST_KEPT = 512  # keys; with more, backward recomputes the weights instead of storing them


@form_of(functions.attention)
def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Work on the scores in tiles that fit the cache.

    The result and the gradients have the memory layout of their inputs: if the heads are views of
    one array (B, T, H, K), merging them into (B, T, D) is a view as well.
    """
    q, k, v, mask = attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not math.prod(shape):
        return NotImplemented
    keep, factor = next_mask(shape, rate, seed)
    y, write_gradients = attend(q, k, v, mask, keep, factor)

    def backward(gy):
        gradients = np.empty_like(q), np.empty_like(k), np.empty_like(v)
        write_gradients(gy, gradients)
        return *gradients, None

    return record(y, (query, key, value, None), backward)


def attend(q, k, v, mask=None, keep=None, factor=1):
    """Return attention's result and a function that writes its gradients.

        y, backward = attend(q, k, v, mask, keep, factor)
        backward(gy, (g_q, g_k, g_v))

    q: (..., T, K)  k: (..., S, K)  v: (..., S, N), with equal axes in front  ->  y: (..., T, N)
    keep, factor: the mask of dropout (..., T, S) as next_mask returns it, or None and 1
    g_q, g_k, g_v: arrays with the shapes of q, k and v and any memory layout, also views of one
    array; their contents are overwritten

    With more keys than LONGEST_KEPT, backward computes the weights a second time, so that memory
    grows with the length of the text and not with its square.
    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory".
    """
    shape = *q.shape[:-1], k.shape[-2]
    limit = _limit(mask, q.dtype)
    y = _like(q, (*q.shape[:-1], v.shape[-1]))
    if not is_recording() and keep is None and math.prod(shape) <= TILE_SCORES:  # decoding
        return np.matmul(_weights(q, k, limit), v, out=y), None
    if limit is not None:
        limit = np.broadcast_to(limit, shape)

    def weights_of(tile, keys):
        """Return the weights of the queries in a tile, before and after dropout."""
        weights = _weights(q[tile], k[keys], None if limit is None else limit[tile])
        return weights, weights if keep is None else drop(weights, keep[tile], factor)

    tiles, stored = _tiles(shape), []
    for tile, keys, _ in tiles:
        weights, used = weights_of(tile, keys)
        np.matmul(used, v[keys], out=y[tile])
        if is_recording() and shape[-1] <= LONGEST_KEPT:
            stored.append((weights, used))

    def backward(gy, gradients):
        g_query, g_key, g_value = gradients
        for i, (tile, keys, first) in enumerate(tiles):
            weights, used = stored[i] if stored else weights_of(tile, keys)
            g_weights = gy[tile] @ swap(v[keys])
            if keep is not None:
                g_weights = drop(g_weights, keep[tile], factor)
            g_weights -= row_dots(g_weights, weights)
            g_weights *= weights
            g_weights *= 1 / math.sqrt(q.shape[-1])
            g_scores = g_weights  # computed in the same array
            np.matmul(g_scores, k[keys], out=g_query[tile])
            _add_product(swap(g_scores), q[tile], g_key[keys], first)
            _add_product(swap(used), gy[tile], g_value[keys], first)

    return y, backward


def _limit(mask, dtype):
    """Return a limit for the scores: -infinity where the mask is False, elsewhere NaN for none.

    np.fmin returns the score beside a limit of NaN, and NaN where the score is NaN as well. Beside
    a limit of infinity it would turn that score into infinity.
    """
    return None if mask is None else np.where(mask, np.nan, -np.inf).astype(dtype)


def _weights(query, key, limit):
    """Return softmax(query key^T / sqrt(d_k)), with scores up to a limit, computed in one array."""
    scores = query @ swap(key)  # (..., T, S)
    scores *= 1 / math.sqrt(query.shape[-1])
    if limit is not None:
        np.fmin(scores, limit, out=scores)  # unlike a sum, -inf also for a score that is NaN
    # -1e30 instead of the -inf of a row that may attend to nothing makes all its exponentials 0.
    scores -= np.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = np.exp(scores, out=scores)
    # Every other row has a sum of at least 1, its largest exponential.
    weights /= np.maximum(row_sums(weights), 1)
    return weights


def _tiles(shape):
    """Cut scores (..., T, S) into tiles of queries: a list of (tile, keys, first).

    tile: the index of its queries. keys: the index of their keys. first: whether it is the first
    tile with these keys.
    """
    heads = len(shape) - 2
    tiles = blocks(shape[:-1], max(1, TILE_SCORES // shape[-1]))
    return [(tile, tile[:heads], len(tile) <= heads or tile[heads].start == 0) for tile in tiles]


def _add_product(x, y, out, first):
    """Write the product x y to `out` if it is the first, otherwise add it."""
    if first:
        np.matmul(x, y, out=out)
    else:
        out += x @ y


def _like(q, shape):
    """Return an empty array of this shape, with its axes in memory in the order of q's."""
    return np.empty_like(q) if q.shape == shape else np.empty(shape, dtype=q.dtype)
