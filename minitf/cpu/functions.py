"""Forms of the ops for NumPy: attention in tiles, one product for all positions, sums as products,
work in place.

Each holds the program that is fastest on a CPU; what it computes is said by the op of the same name
in functions.py.
"""

from __future__ import annotations

import math

import numpy as np

from minitf import functions
from minitf.cpu.strips import packed_linear
from minitf.cpu.sums import blocks, column_sums, row_dots, row_sums, segment_sum
from minitf.dropout import next_mask
from minitf.forms import form_of
from minitf.functions import (
    attention_arrays,
    beside,
    check_layer_norm,
    check_linear,
    checked_ids,
    swap,
)
from minitf.tensor import as_array, is_recording, record

TILE_SCORES = 1 << 19  # scores in one tile of attention: two megabytes, which fit the cache
LONGEST_KEPT = 512  # keys: of more, the weights are computed again in backward


@form_of(functions.linear)
def linear(x, weight, bias=None):
    """All axes in front become rows of one matrix product, the fastest thing a computer does."""
    if getattr(weight, "strips", None) is not None and not is_recording():
        return packed_linear(x, weight, bias)
    x_data, w = as_array(x), as_array(weight)
    b = None if bias is None else beside(bias, x_data.dtype)
    check_linear(x_data, w, b)
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
    """In place, with sums over features as products."""
    x_data = as_array(x)
    g, b = beside(gain, x_data.dtype), beside(bias, x_data.dtype)
    check_layer_norm(x_data, g, b)
    size = x_data.shape[-1]
    normal = x_data - row_sums(x_data) / size
    inverse = 1 / np.sqrt(row_dots(normal, normal) / size + eps)  # (..., 1)
    normal *= inverse
    y = normal * g
    y += b

    def backward(gy):
        gx = gy * g  # the gradient of `normal`; a change of x's mean or variance has no effect on y
        without_effect = normal * (row_dots(gx, normal) / size)
        without_effect += row_sums(gx) / size
        gx -= without_effect
        gx *= inverse
        return gx, column_sums(gy * normal), column_sums(gy)

    return record(y, (x, gain, bias), backward)


@form_of(functions.embedding)
def embedding(table, ids):
    """The gradient sorts the ids and adds up each run of equal ones."""
    weight = as_array(table)
    ids = checked_ids(ids, weight)

    def backward(gy):
        return segment_sum(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), len(weight)), None

    return record(weight[ids], (table, None), backward)


# Attention ---------------------------------------------------------------------------------------


@form_of(functions.attention)
def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Work on the scores in tiles that fit the cache.

    The result and the gradients are laid out in memory like their inputs: where the heads are views
    of one array (B, T, H, K), the way back to (B, T, D) is a view as well. Where there are more
    keys than LONGEST_KEPT, their weights are computed again in backward: then memory grows with the
    length of the text, and not with its square.
    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory".
    """
    q, k, v, mask = attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not (n_scores := math.prod(shape)):
        return NotImplemented
    barrier = _barrier(mask, q.dtype)
    keep, scale = next_mask(shape, rate, seed) if rate else (None, 1)
    y = _like(q, (*q.shape[:-1], v.shape[-1]))
    if not is_recording() and not rate and n_scores <= TILE_SCORES:  # a step of decoding
        return record(np.matmul(_weights(q, k, barrier), v, out=y), (query, key, value), None)
    if barrier is not None:
        barrier = np.broadcast_to(barrier, shape)

    def weigh(tile, keys):
        """Return the weights of some queries, before and after dropout."""
        weights = _weights(q[tile], k[keys], None if barrier is None else barrier[tile])
        return weights, weights if keep is None else weights * keep[tile] * scale

    tiles, kept = _tiles(shape), []
    for tile, keys, _ in tiles:
        weights, dropped = weigh(tile, keys)
        np.matmul(dropped, v[keys], out=y[tile])
        if is_recording() and shape[-1] <= LONGEST_KEPT:
            kept.append((weights, dropped))

    def backward(gy):
        g_query, g_key, g_value = np.empty_like(q), np.empty_like(k), np.empty_like(v)
        for i, (tile, keys, first) in enumerate(tiles):
            weights, dropped = kept[i] if kept else weigh(tile, keys)
            g_weights = gy[tile] @ swap(v[keys])
            if keep is not None:
                g_weights *= keep[tile]
                g_weights *= scale
            g_weights -= row_dots(g_weights, weights)
            g_weights *= weights
            g_weights *= 1 / math.sqrt(q.shape[-1])
            g_scores = g_weights  # in its place
            np.matmul(g_scores, k[keys], out=g_query[tile])
            _add_product(swap(g_scores), q[tile], g_key[keys], first)
            _add_product(swap(dropped), gy[tile], g_value[keys], first)
        return g_query, g_key, g_value, None

    return record(y, (query, key, value, None), backward)


def _barrier(mask, dtype):
    """Return 0 where the mask is True and -infinity elsewhere, to be added to scores."""
    return None if mask is None else np.where(mask, 0, np.asarray(-np.inf, dtype=dtype))


def _weights(query, key, barrier):
    """Return softmax(query key^T / sqrt(d_k) + barrier), computed in one array."""
    scores = query @ swap(key)  # (..., T, S)
    scores *= 1 / math.sqrt(query.shape[-1])
    if barrier is not None:
        scores += barrier
    # A row that may attend to nothing has no largest score; with any finite one its
    # exponentials are all 0.
    scores -= np.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = np.exp(scores, out=scores)
    # The largest exponential of any other row is 1, so only such an empty row has a sum below 1.
    weights /= np.maximum(row_sums(weights), 1)
    return weights


def _tiles(shape):
    """Cut scores (..., T, S) into tiles: the index of its queries, that of its keys, and whether it
    is their first.
    """
    heads = len(shape) - 2
    tiles = blocks(shape[:-1], max(1, TILE_SCORES // shape[-1]))
    return [(tile, tile[:heads], len(tile) <= heads or tile[heads].start == 0) for tile in tiles]


def _add_product(x, y, out, first):
    """Write the product of the first tile of some keys; add those of the others."""
    if first:
        np.matmul(x, y, out=out)
    else:
        out += x @ y


def _like(q, shape):
    """Return an empty array of this shape, its axes in memory in the order of q's."""
    return np.empty_like(q) if q.shape == shape else np.empty(shape, dtype=q.dtype)
