"""The form of attention on NumPy: scores in tiles that fit the cache.

A tile is complete rows of scores: all keys of some queries. For texts of up to LONGEST_KEPT tokens
the weights are kept for backward. For longer ones they are computed again there, so that the memory
grows with the length of the text and not with its square. (A mask of the past, and the numbers of
dropout, grow with the square.)

The largest score of a row is subtracted only if it is large. That changes no weight, and only keeps
the exponentials from overflowing or vanishing. What a row may attend to decides it. If other rows
or hidden keys had a say in it, they would change the last bits of its result: the future would
change the past.
"""

from __future__ import annotations

import math

import numpy as np

from minitf import functions
from minitf.cpu.sums import add_product, blocks, row_dots, row_sums
from minitf.dropout import drop, next_mask
from minitf.forms import form_of
from minitf.functions import swap
from minitf.inputs import attention_arrays
from minitf.tensor import is_recording, record

LONGEST_KEPT = 512  # keys; with more, backward computes the weights again
TILE_SCORES = 1 << 18  # scores; 1 MB of complete rows
LARGE = 30  # a score; a sum of exponentials of smaller ones can neither overflow nor vanish


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

    def averages():
        y = np.empty_like(q, shape=(*q.shape[:-1], v.shape[-1]))
        for tile, keys, _, weights in computed():
            np.matmul(dropped(weights, tile), v[keys], out=y[tile])
        return y

    def backward(gy):
        g_query, g_key, g_value = np.empty_like(q), np.empty_like(k), np.empty_like(v)
        for tile, keys, first, weights in computed():
            g_weights = dropped(gy[tile] @ swap(v[keys]), tile)
            g_weights -= row_dots(g_weights, weights)
            g_weights *= weights
            g_weights *= 1 / math.sqrt(q.shape[-1])
            g_scores = g_weights  # computed in the same array
            np.matmul(g_scores, k[keys], out=g_query[tile])
            add_product(swap(g_scores), q[tile], g_key[keys], first)
            add_product(swap(dropped(weights, tile)), gy[tile], g_value[keys], first)
        return g_query, g_key, g_value, None

    again = averages if stored else None
    return record(averages(), (query, key, value, None), backward, again=again)


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
    scores *= 1 / math.sqrt(query.shape[-1])
    all_are_small = scores.max() < LARGE and scores.min() > -LARGE  # false if one is NaN
    if limit is not None:
        np.fmin(scores, limit, out=scores)  # unlike a sum, -inf also for a score that is NaN
    if not all_are_small:
        largest = scores.max(axis=-1, keepdims=True)  # a slow search
        # Nothing is subtracted from a row whose largest score is small, as if all were small, nor
        # from a row that may attend to nothing, whose largest score is -infinity.
        scores -= np.where((abs(largest) < LARGE) | np.isneginf(largest), 0, largest)
    weights = np.exp(scores, out=scores)
    sums = row_sums(weights)
    weights /= sums + (sums == 0)  # 1 for a row that may attend to nothing
    return weights


def _limit(mask, shape, dtype):
    """Return an upper limit for each score: -infinity where the mask is False, else NaN for none.

    np.fmin ignores a limit that is NaN, and so returns every other score as it is, even NaN. With a
    limit of infinity it would turn a score that is NaN into infinity.
    """
    if mask is None:
        return None
    return np.broadcast_to(np.where(mask, np.nan, -np.inf).astype(dtype), shape)
