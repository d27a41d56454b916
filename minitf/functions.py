"""The named differentiable functions of the Transformer, each with its gradient right under it.

Letters: B batch, T target length, S source length, D d_model, H heads, K d_k, F d_ff, V vocabulary; `...` any
axes in front. Inputs are Tensors (which get a gradient) or arrays (which are constants). Ids are NumPy integers
on the CPU: there a wrong one is an error, while a GPU would read some other row without a word.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from minitf.backend import blocks, column_sums, has_kernels, row_dots, row_sums, segment_sum, to_device, xp
from minitf.dropout import dropout_mask, dropout_state, next_decisions, next_mask
from minitf.gpu import ops
from minitf.gpu.matmul import as_factor, matmul
from minitf.tensor import ArrayLike, Ids, Tensor, as_array, is_recording, operand, record

__all__ = [
    "attention",
    "attention_weights",
    "concatenate",
    "dropout",
    "dropout_mask",
    "dropout_state",
    "embedding",
    "exp",
    "layer_norm",
    "linear",
    "log",
    "log_softmax",
    "relu",
    "softmax",
    "where",
]


def exp(x: ArrayLike) -> Tensor:
    """Raise e to each element.

        y = e^x

    x: (...)   ->   (...)
    """
    y = xp.exp(as_array(x))
    return record(y, (x,), lambda gy: gy * y)


def log(x: ArrayLike) -> Tensor:
    """Take the natural logarithm of each element.

        y = ln x

    x: (...)   ->   (...)
    """
    x_data = as_array(x)
    return record(xp.log(x_data), (x,), lambda gy: gy / x_data)


def relu(x: ArrayLike) -> Tensor:
    """Replace what is negative by zero.

        y = max(0, x)

    x: (...)   ->   (...)
    Source: section 3.3, eq. 2.
    """
    y = xp.maximum(as_array(x), 0)
    return record(y, (x,), lambda gy: gy * (y > 0))


def where(mask: ArrayLike, x: ArrayLike, value: ArrayLike) -> Tensor:
    """Keep x where the mask is True, and take the value elsewhere.

        y = x if mask else value

    mask: bool (...)   x: (...)   value: (...), or a number   ->   (...)
    Raises TypeError for a mask that is not boolean.
    """
    mask, x_data = _boolean(mask), as_array(x)

    def backward(gy):
        g_value = xp.where(mask, 0, gy) if isinstance(value, Tensor) else None
        return None, xp.where(mask, gy, 0), g_value

    return record(xp.where(mask, x_data, operand(value, x_data.dtype)), (None, x, value), backward)


def _boolean(mask):
    """Give a mask on the device. Raises TypeError for numbers: elsewhere 1 means True, or 0 and -infinity are added."""
    mask = to_device(mask.data if isinstance(mask, Tensor) else mask)
    if mask.dtype != bool:
        raise TypeError(
            f"a mask must be boolean, True = may attend, not {mask.dtype}: write mask != 0 for a mask of 1 and 0, "
            "mask == 0 for one of 0 and -inf"
        )
    return mask


def concatenate(tensors: Sequence[ArrayLike], axis: int = -1) -> Tensor:
    """Join tensors along one axis.

        y = Concat(x_1, ..., x_n)

    tensors: a sequence of (..., D) that may differ in D   ->   (..., D)
    Source: section 3.2.2.
    """
    arrays = [as_array(x) for x in tensors]
    ends = np.cumsum([array.shape[axis] for array in arrays])[:-1].tolist()

    def backward(gy):
        return tuple(xp.split(gy, ends, axis=axis))

    return record(xp.concatenate(arrays, axis=axis), tuple(tensors), backward)


def softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Turn scores into positive weights that sum to 1.

        y_i = exp(x_i) / sum_j exp(x_j)

    x: (..., D)   ->   (..., D)
    The largest score is subtracted first, which changes nothing but keeps exp from overflowing.
    Source: section 3.2.1, eq. 1.
    """
    y = xp.exp(_shifted(as_array(x), axis))
    y /= y.sum(axis=axis, keepdims=True)

    def backward(gy):
        return y * (gy - (gy * y).sum(axis=axis, keepdims=True))

    return record(y, (x,), backward)


def _shifted(x, axis):
    """Subtract the largest number along an axis; of none there is no largest."""
    return x - x.max(axis=axis, keepdims=True) if x.size else x.copy()


def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Take the logarithm of the softmax, without computing the softmax, which could be 0.

        y_i = x_i - ln sum_j exp(x_j)

    x: (..., D)   ->   (..., D)
    """
    y = _shifted(as_array(x), axis)
    y -= xp.log(xp.maximum(xp.exp(y).sum(axis=axis, keepdims=True), 1))  # it is less only where there are no scores

    def backward(gy):
        return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)

    return record(y, (x,), backward)


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Multiply by a matrix, and add a bias if there is one.

        y = x W + b

    x: (..., D)   weight: (D, F)   bias: (F,)   ->   (..., F)
    All axes in front become rows of one matrix product, the fastest thing a computer does.
    Raises ValueError where the sizes do not fit.
    Source: section 3.3, eq. 2.
    """
    x_data, w = as_array(x), as_array(weight)
    shape = x_data.shape
    if w.ndim != 2:
        raise ValueError(f"linear takes a matrix as its weight, not shape {w.shape}")
    if shape[-1:] != w.shape[:1]:
        raise ValueError(f"linear: x has {shape[-1] if shape else 'no'} features, the weight takes {w.shape[0]}")
    n = math.prod(shape[:-1])
    rows, w = as_factor(x_data.reshape(n, shape[-1])), as_factor(w)  # (N, D), (D, F)
    y = matmul(rows, w)  # (N, F)
    if bias is not None:
        b = as_array(bias)
        _check_vector("linear: the bias", b, w.shape[1])
        y += b

    def backward(gy):
        gy = gy.reshape(n, w.shape[1])  # (N, F)
        g_bias = None if bias is None else (ops.column_sums if has_kernels(gy) else column_sums)(gy)
        gy = as_factor(gy)
        return matmul(gy, w.T).reshape(shape), matmul(rows.T, gy), g_bias

    return record(y.reshape(shape[:-1] + w.shape[1:]), (x, weight, bias), backward)


def _check_vector(name, vector, size):
    if vector.shape != (size,):
        raise ValueError(f"{name} has shape {vector.shape}, but ({size},) is needed, one number for each feature")


def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-6) -> Tensor:
    """Give every position mean 0 and variance 1 over its features, then scale and shift.

        y = gain * (x - mean) / sqrt(var + eps) + bias

    x: (..., D)   gain: (D,)   bias: (D,)   ->   (..., D)
    Raises ValueError where the sizes do not fit, and for positions without features.
    Source: section 3.1; Ba et al. 2016, eq. 4.
    """
    x_data, g, b = as_array(x), as_array(gain), as_array(bias)
    size = x_data.shape[-1] if x_data.ndim else 0
    if not size:
        raise ValueError(f"layer_norm: x of shape {x_data.shape} has no features to normalize")
    _check_vector("layer_norm: the gain", g, size)
    _check_vector("layer_norm: the bias", b, size)
    if has_kernels(x_data):
        y, backward = ops.layer_norm(x_data, g, b, eps)
        return record(y, (x, gain, bias), backward)
    normal = x_data - row_sums(x_data) / size
    inverse = 1 / xp.sqrt(row_dots(normal, normal) / size + eps)  # (..., 1)
    normal *= inverse
    y = normal * g
    y += b

    def backward(gy):
        gx = gy * g  # the gradient of `normal`; what changes the mean or the variance of x has no effect on y
        without_effect = normal * (row_dots(gx, normal) / size)
        without_effect += row_sums(gx) / size
        gx -= without_effect
        gx *= inverse
        return gx, column_sums(gy * normal), column_sums(gy)

    return record(y, (x, gain, bias), backward)


def integers(ids, name):
    """Give ids as a NumPy array of integers; an empty list has no type and is one as well. Raises TypeError."""
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu" and ids.size:
        raise TypeError(f"{name} must be integers, not {ids.dtype}")
    return ids.astype(np.int64) if ids.dtype.kind not in "iu" else ids


def embedding(table: ArrayLike, ids: Ids) -> Tensor:
    """Look up one row of the table for each id.

        y = table[ids], which is  one_hot(ids) @ table

    table: (V, D)   ids: int (...)   ->   (..., D)
    Raises IndexError for an id outside 0 ... V-1, TypeError for ids that are not integers, ValueError for a table that
    is not a matrix.
    Source: section 3.4.
    """
    weight = as_array(table)
    if weight.ndim != 2:
        raise ValueError(f"embedding takes a table (V, D), not shape {weight.shape}")
    ids = integers(ids, "ids")
    if ids.size and not (ids.min() >= 0 and ids.max() < len(weight)):
        raise IndexError(f"ids from {ids.min()} to {ids.max()} do not fit a table of {len(weight)} rows")
    ids = to_device(ids)

    def backward(gy):
        sum_rows = ops.segment_sum if has_kernels(gy) else segment_sum
        return sum_rows(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), len(weight)), None

    return record(weight[ids], (table, None), backward)


def dropout(x: ArrayLike, rate: float, seed: int | None = None) -> Tensor:
    """Set each element to zero with probability `rate`, and scale the others so that the mean stays.

        y = mask * x / (1 - rate)

    x: (..., D)   ->   (..., D)
    The mask comes from `dropout_state`, and differs from call to call there; with a seed it comes from the seed.
    Raises ValueError for a rate that is not at least 0 and less than 1.
    Source: section 5.4; Srivastava et al. 2014.
    """
    if rate == 0:
        return x if isinstance(x, Tensor) else Tensor(x)
    x_data = as_array(x)
    if has_kernels(x_data):
        y, backward = ops.dropout(x_data, next_decisions(x_data.shape, rate, seed))
        return record(y, (x,), backward)
    mask, scale = next_mask(x_data.shape, rate, seed)

    def apply(array):
        y = array * mask
        y *= scale
        return y

    return record(apply(x_data), (x,), apply)


# Attention ---------------------------------------------------------------------------------------------------

_SCORES = 1 << 19  # how many are worked on at a time: two megabytes
_LONG = 512  # of how many keys the weights are kept for backward


def _aligned(query, key, value, mask):
    """Broadcast the axes in front of query, key and value to those of all, the mask included. Raises ValueError."""
    shapes = q, k, v, m = query.shape, key.shape, value.shape, () if mask is None else mask.shape
    fits = len(q) > 1 and len(k) > 1 and len(v) > 1 and q[-1] == k[-1] > 0 and k[-2] == v[-2]
    if fits and q[:-2] == k[:-2] == v[:-2] and _is_within(m, (*q[:-1], k[-2])):  # as they are in the Transformer
        return query, key, value
    with contextlib.suppress(ValueError):
        if fits and _is_within(m[-2:], (q[-2], k[-2])):
            front = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
            return tuple(xp.broadcast_to(array, (*front, *array.shape[-2:])) for array in (query, key, value))
    raise ValueError(
        "attention takes a query (..., T, K), a key (..., S, K), a value (..., S, D) and perhaps a mask (..., T, S), "
        f"not the shapes {', '.join(map(str, shapes[: 3 if mask is None else 4]))}"
    )


def _is_within(shape, larger):
    """Whether an array of this shape broadcasts to the larger one."""
    for n, most in zip(shape[::-1], larger[::-1], strict=False):
        if n != most and n != 1:
            return False
    return len(shape) <= len(larger)


def _barrier(mask, dtype):
    """0 where the mask is True and -infinity elsewhere: what is added to the scores of a softmax."""
    return None if mask is None else xp.where(mask, 0, xp.asarray(-xp.inf, dtype=dtype))


def _masked_softmax(query, key, barrier):
    """softmax(query key^T / sqrt(d_k) + barrier) of plain arrays."""
    scores = query @ key.swapaxes(-1, -2)  # (..., T, S)
    scores *= 1 / math.sqrt(query.shape[-1])
    if barrier is not None:
        scores += barrier
    # A row that may attend to nothing has no largest score; with any finite one its exponentials are all 0.
    if scores.size:
        scores -= xp.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = xp.exp(scores, out=scores)
    # The largest exponential of any other row is 1, so only such an empty row has a sum below 1.
    weights /= xp.maximum(row_sums(weights), 1)
    return weights


def _scores_gradient(g_weights, weights, d_k):
    """From the gradient of the weights to that of query key^T, in place."""
    g_weights -= row_dots(g_weights, weights)
    g_weights *= weights
    g_weights *= 1 / math.sqrt(d_k)
    return g_weights


def attention_weights(query: ArrayLike, key: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
    """Say how much each query attends to each key.

        weights = softmax(Q K^T / sqrt(d_k)), 0 where the mask is False

    query: (..., T, K)   key: (..., S, K)   mask: bool (..., T, S)   ->   (..., T, S)
    A query that may attend to no key gets a row of zeros.
    Raises TypeError for a mask that is not boolean, ValueError where the sizes do not fit.
    Source: section 3.2.1, eq. 1.
    """
    mask, k = None if mask is None else _boolean(mask), as_array(key)
    q, k, _ = _aligned(as_array(query), k, k, mask)
    weights = _masked_softmax(q, k, _barrier(mask, q.dtype))

    def backward(gy):
        g_scores = _scores_gradient(gy.copy(), weights, q.shape[-1])
        return g_scores @ k, g_scores.swapaxes(-1, -2) @ q, None

    return record(weights, (query, key, None), backward)


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike | None = None,
    rate: float = 0.0,
    seed: int | None = None,
) -> Tensor:
    """Average the values, weighted by how well their keys fit each query.

        y = softmax(Q K^T / sqrt(d_k)) V

    query: (..., T, K)   key: (..., S, K)   value: (..., S, D)   mask: bool (..., T, S)   ->   (..., T, D)
    With a rate, dropout is applied to the weights (not in the paper).
    The result and the gradients are laid out in memory like their inputs: where the heads are views of one array
    (B, T, H, K), the way back to (B, T, D) is a view as well. The scores are worked on in parts that fit the cache.
    Where there are more than 512 keys, their weights are computed again in backward: then memory grows with the
    length of the text, and not with its square.
    A query that may attend to no key gets zeros. The axes in front broadcast, those of the mask as well.
    Raises TypeError for a mask that is not boolean, ValueError where the sizes do not fit.
    Source: section 3.2.1, eq. 1; Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory".
    """
    mask = None if mask is None else _boolean(mask)
    q, k, v = _aligned(as_array(query), as_array(key), as_array(value), mask)
    shape = *q.shape[:-1], k.shape[-2]
    n_scores = math.prod(shape)
    if not n_scores:  # no query, or no key to attend to
        y = xp.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        return record(y, (query, key, value), lambda gy: (xp.zeros_like(q), xp.zeros_like(k), xp.zeros_like(v)))
    if has_kernels(q, k, v) and q.ndim == 4:
        y, backward = ops.attention(q, k, v, mask, next_decisions(shape, rate, seed), not is_recording())
        return record(y, (query, key, value), backward)
    barrier = _barrier(mask, q.dtype)
    keep, scale = next_mask(shape, rate, seed) if rate else (None, 1)
    y = _like(q, (*q.shape[:-1], v.shape[-1]))
    if not is_recording() and not rate and n_scores <= _SCORES:  # a step of decoding
        return record(xp.matmul(_masked_softmax(q, k, barrier), v, out=y), (query, key, value), None)
    if barrier is not None:
        barrier = xp.broadcast_to(barrier, shape)

    def weigh(part, keys):
        """Give the weights of some queries, before and after dropout."""
        weights = _masked_softmax(q[part], k[keys], None if barrier is None else barrier[part])
        return weights, weights if keep is None else weights * keep[part] * scale

    parts, kept = _parts(shape), []
    for part, keys, _ in parts:
        weights, dropped = weigh(part, keys)
        xp.matmul(dropped, v[keys], out=y[part])
        if is_recording() and shape[-1] <= _LONG:
            kept.append((weights, dropped))

    def backward(gy):
        g_query, g_key, g_value = xp.empty_like(q), xp.empty_like(k), xp.empty_like(v)
        for i, (part, keys, first) in enumerate(parts):
            weights, dropped = kept[i] if kept else weigh(part, keys)
            g_weights = gy[part] @ v[keys].swapaxes(-1, -2)
            if keep is not None:
                g_weights *= keep[part]
                g_weights *= scale
            g_scores = _scores_gradient(g_weights, weights, q.shape[-1])
            xp.matmul(g_scores, k[keys], out=g_query[part])
            _add_product(g_scores.swapaxes(-1, -2), q[part], g_key[keys], first)
            _add_product(dropped.swapaxes(-1, -2), gy[part], g_value[keys], first)
        return g_query, g_key, g_value, None

    return record(y, (query, key, value, None), backward)


def _parts(shape):
    """Cut scores (..., T, S) into parts: the index of its queries, that of its keys, and whether it is their first."""
    heads = len(shape) - 2
    parts = blocks(shape[:-1], max(1, _SCORES // max(1, shape[-1])))
    return [(part, part[:heads], len(part) <= heads or part[heads].start == 0) for part in parts]


def _add_product(x, y, out, first):
    if first:
        xp.matmul(x, y, out=out)
    else:
        out += x @ y


def _like(q, shape):
    """Give an empty array of this shape, its axes in memory in the order of q's."""
    return xp.empty_like(q) if q.shape == shape else xp.empty(shape, dtype=q.dtype)
