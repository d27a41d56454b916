"""The named differentiable functions of the Transformer, each with its gradient right under it.

Letters: B batch, T target length, S source length, D d_model, H heads, K d_k, F d_ff, V vocabulary;
`...` any axes in front. Inputs are Tensors (which get a gradient) or arrays (which are constants).
Ids are NumPy integers on the CPU: there a wrong one is an error, while a GPU would read some other
row without a word.

An op marked `@accelerated` may be computed by a faster form of it, in `minitf/cpu/` or
`minitf/gpu/`: see forms.py.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from minitf.backend import to_device, xp
from minitf.dropout import dropout_mask, dropout_state, next_mask
from minitf.forms import accelerated
from minitf.tensor import ArrayLike, Ids, Tensor, as_array, operand, record

__all__ = [
    "add_norm",
    "attention",
    "attention_weights",
    "concatenate",
    "dropout",
    "dropout_mask",
    "dropout_state",
    "embedding",
    "exp",
    "feed_forward",
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
    mask, x_data = boolean(mask), as_array(x)

    def backward(gy):
        g_value = xp.where(mask, 0, gy) if isinstance(value, Tensor) else None
        return None, xp.where(mask, gy, 0), g_value

    return record(xp.where(mask, x_data, operand(value, x_data.dtype)), (None, x, value), backward)


def concatenate(tensors: Sequence[ArrayLike], axis: int = -1) -> Tensor:
    """Join tensors along one axis.

        y = Concat(x_1, ..., x_n)

    tensors: a sequence of (..., D) that may differ in D   ->   (..., D)
    The length of the joined axis is the sum of theirs.
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
        gx_i = y_i (gy_i - sum_j gy_j y_j)

    x: (..., D)   ->   (..., D)
    The largest score is subtracted first, which changes nothing but keeps exp from overflowing.
    Source: section 3.2.1, eq. 1.
    """
    e = xp.exp(_shifted(as_array(x), axis))
    y = e / e.sum(axis=axis, keepdims=True)

    def backward(gy):
        return y * (gy - (gy * y).sum(axis=axis, keepdims=True))

    return record(y, (x,), backward)


def _shifted(x, axis):
    """Subtract the largest number along an axis; an empty array has none."""
    return x - x.max(axis=axis, keepdims=True) if x.size else x


def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Take the logarithm of the softmax, without computing the softmax, which could be 0.

        y_i = x_i - ln sum_j exp(x_j)
        gx_i = gy_i - softmax(x)_i sum_j gy_j

    x: (..., D)   ->   (..., D)
    """
    z = _shifted(as_array(x), axis)
    total = xp.exp(z).sum(axis=axis, keepdims=True)
    y = z - xp.log(xp.maximum(total, 1))  # less than 1 only along an axis of length 0

    def backward(gy):
        return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)

    return record(y, (x,), backward)


@accelerated
def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Multiply by a matrix, and add a bias if there is one.

        y = x W + b

    x: (..., D)   weight: (D, F)   bias: (F,)   ->   (..., F)
    Raises ValueError where the sizes do not fit.
    Source: section 3.3, eq. 2.
    """
    x_data, w = as_array(x), as_array(weight)
    b = None if bias is None else beside(bias, x_data.dtype)
    check_linear(x_data, w, b)
    y = x_data @ w if b is None else x_data @ w + b  # (..., F)

    def backward(gy):
        g_weight = _rows(x_data).T @ _rows(gy)  # (D, F), summed over all positions
        return gy @ w.T, g_weight, sum_rows(gy)  # the last is dropped where there is no bias

    return record(y, (x, weight, bias), backward)


def _rows(x):
    """Make one row of each position: (..., D) -> (N, D)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def sum_rows(x):
    """Sum over all axes but the last: (..., D) -> (D,)."""
    return _rows(x).sum(axis=0)


@accelerated
def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-6) -> Tensor:
    """Give every position mean 0 and variance 1 over its features, then scale and shift.

        y = gain * n + bias    with n = (x - mean) / s and s = sqrt(var + eps)
        gx = (u - mean(u) - n mean(u n)) / s    with u = gain * gy

    x: (..., D)   gain: (D,)   bias: (D,)   ->   (..., D)
    The gradient loses its mean and its part along n: to shift or to stretch x changes no y.
    Raises ValueError where the sizes do not fit, and for positions without features.
    Source: section 3.1; Ba et al. 2016, eq. 4.
    """
    x_data = as_array(x)
    g, b = beside(gain, x_data.dtype), beside(bias, x_data.dtype)
    check_layer_norm(x_data, g, b)
    mean = x_data.mean(axis=-1, keepdims=True)  # (..., 1)
    deviation = xp.sqrt(x_data.var(axis=-1, keepdims=True) + float(eps))
    normal = (x_data - mean) / deviation  # (..., D)

    def backward(gy):
        u = gy * g  # the gradient of `normal`
        mean_u = u.mean(axis=-1, keepdims=True)
        mean_un = (u * normal).mean(axis=-1, keepdims=True)
        gx = (u - mean_u - normal * mean_un) / deviation
        return gx, sum_rows(gy * normal), sum_rows(gy)

    return record(normal * g + b, (x, gain, bias), backward)


@accelerated
def embedding(table: ArrayLike, ids: Ids) -> Tensor:
    """Look up one row of the table for each id.

        y = table[ids], which is  one_hot(ids) @ table

    table: (V, D)   ids: int (...)   ->   (..., D)
    Raises IndexError for an id outside 0 ... V-1, TypeError for ids that are not integers,
    ValueError for a table that is not a matrix.
    Source: section 3.4.
    """
    weight = as_array(table)
    ids = checked_ids(ids, weight)

    def backward(gy):
        g_table = xp.zeros_like(weight)
        xp.add.at(g_table, ids, gy)  # a row that was looked up twice gets the sum
        return g_table, None

    return record(weight[ids], (table, None), backward)


@accelerated
def dropout(x: ArrayLike, rate: float, seed: int | None = None) -> Tensor:
    """Set each element to zero with probability `rate`, and scale the others so that
    the mean stays.

        y = mask * x / (1 - rate)

    x: (..., D)   ->   (..., D)
    The mask is a function of the seed. Without one it follows from the `dropout_state` block around
    the call, and each call in the block has its own.
    Raises ValueError for a rate that is not at least 0 and less than 1.
    Source: section 5.4; Srivastava et al. 2014.
    """
    if rate == 0:
        return x if isinstance(x, Tensor) else Tensor(x)
    x_data = as_array(x)
    keep, factor = next_mask(x_data.shape, rate, seed)  # True or False, and 1 / (1 - rate)
    return record(x_data * keep * factor, (x,), lambda gy: gy * keep * factor)


@accelerated
def add_norm(
    x: ArrayLike,
    added: ArrayLike,
    gain: ArrayLike,
    bias: ArrayLike,
    eps: float = 1e-6,
    rate: float = 0.0,
    seed: int | None = None,
) -> Tensor:
    """Add the output of a sub-layer to its input, and normalize.

        y = LayerNorm(x + Dropout(added))

    x: (..., D)   added: (..., D)   gain: (D,)   bias: (D,)   ->   (..., D)
    It is composed of other ops, and an op of its own only so that one form can compute it all.
    Raises what `layer_norm` and `dropout` raise.
    Source: sections 3.1 and 5.4.
    """
    return layer_norm(x + dropout(added, rate, seed), gain, bias, eps)


@accelerated
def feed_forward(
    x: ArrayLike,
    w_1: ArrayLike,
    b_1: ArrayLike | None,
    w_2: ArrayLike,
    b_2: ArrayLike | None,
    rate: float = 0.0,
    seed: int | None = None,
) -> Tensor:
    """Put two linear maps in a row, with a ReLU between them, at each position alike.

        y = max(0, x W_1 + b_1) W_2 + b_2

    x: (..., D)   w_1: (D, F)   b_1: (F,)   w_2: (F, D)   b_2: (D,)   ->   (..., D)
    With a rate, dropout is applied after the ReLU (not in the paper). It is composed of other ops,
    as `add_norm` is. Raises what `linear` and `dropout` raise.
    Source: section 3.3, eq. 2.
    """
    hidden = dropout(relu(linear(x, w_1, b_1)), rate, seed)  # (..., F)
    return linear(hidden, w_2, b_2)


# Attention ---------------------------------------------------------------------------------------


@accelerated
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

    query: (..., T, K)  key: (..., S, K)  value: (..., S, D)  mask: bool (..., T, S) -> (..., T, D)
    With a rate, dropout is applied to the weights (not in the paper).
    A query that may attend to no key gets zeros. The axes in front broadcast, those of
    the mask as well.
    Raises TypeError for a mask that is not boolean, ValueError where the sizes do not fit.
    Source: section 3.2.1, eq. 1.
    """
    q, k, v, mask = attention_arrays(query, key, value, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights = masked_softmax(q @ swap(k) * scale, mask)  # (..., T, S)
    keep, factor = next_mask(weights.shape, rate, seed)  # 1 and 1 without dropout
    dropped = weights * keep * factor

    def backward(gy):
        g_weights = gy @ swap(v) * keep * factor
        mean = (g_weights * weights).sum(axis=-1, keepdims=True)  # weighted: the weights sum to 1
        g_scores = weights * (g_weights - mean) * scale  # as in softmax
        return g_scores @ k, swap(g_scores) @ q, swap(dropped) @ gy, None

    return record(dropped @ v, (query, key, value, None), backward)


def attention_weights(query: ArrayLike, key: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
    """Say how much each query attends to each key.

        weights = softmax(Q K^T / sqrt(d_k)), 0 where the mask is False

    query: (..., T, K)   key: (..., S, K)   mask: bool (..., T, S)   ->   (..., T, S)
    A query that may attend to no key gets a row of zeros.
    Raises TypeError for a mask that is not boolean, ValueError where the sizes do not fit.
    Source: section 3.2.1, eq. 1.
    """
    q, k, _, mask = attention_arrays(query, key, key, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights = masked_softmax(q @ swap(k) * scale, mask)  # (..., T, S)

    def backward(gy):
        mean = (gy * weights).sum(axis=-1, keepdims=True)  # weighted: the weights sum to 1
        g_scores = weights * (gy - mean) * scale  # as in softmax
        return g_scores @ k, swap(g_scores) @ q, None

    return record(weights, (query, key, None), backward)


def masked_softmax(scores, mask):
    """Return the softmax over the last axis of an array: 0 where the mask is False, and in a row
    of only False.
    """
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    # The sum of a row is at least 1, its largest exponential, or 0 if all is masked: 0 / 1 is 0.
    largest = xp.maximum(scores.max(axis=-1, keepdims=True), -1e30) if scores.size else 0
    e = xp.exp(scores - largest)
    return e / xp.maximum(e.sum(axis=-1, keepdims=True), 1)


def swap(x):
    """Exchange the last two axes."""
    return x.swapaxes(-1, -2)


# Arguments: what an op and its forms check -----------------------------------------------


def beside(x, dtype):
    """Return the array of a Tensor as it is, and a constant converted to this dtype."""
    return x.data if isinstance(x, Tensor) else as_array(x).astype(dtype, copy=False)


def boolean(mask):
    """Return a mask as an array of the library in use. Raises TypeError for a mask of numbers.

    Other libraries take 1 for True, or add 0 and -infinity: such a mask would be read wrongly.
    """
    mask = to_device(mask.data if isinstance(mask, Tensor) else mask)
    if mask.dtype != bool:
        raise TypeError(
            f"a mask must be boolean, True = may attend, not {mask.dtype}: write mask != 0 for a "
            "mask of 1 and 0, mask == 0 for one of 0 and -inf"
        )
    return mask


def check_linear(x, w, b):
    """Raise ValueError unless x (..., D) can be multiplied by w (D, F), and b, if it
    is there, added.
    """
    if w.ndim != 2:
        raise ValueError(f"linear takes a matrix as its weight, not shape {w.shape}")
    if x.shape[-1:] != w.shape[:1]:
        features = x.shape[-1] if x.ndim else "no"
        raise ValueError(f"linear: x has {features} features, the weight takes {w.shape[0]}")
    if b is not None:
        _check_vector("linear: the bias", b, w.shape[1])


def check_layer_norm(x, gain, bias):
    """Raise ValueError unless x (..., D) has features, and gain and bias one number for each."""
    size = x.shape[-1] if x.ndim else 0
    if not size:
        raise ValueError(f"layer_norm: x of shape {x.shape} has no features to normalize")
    _check_vector("layer_norm: the gain", gain, size)
    _check_vector("layer_norm: the bias", bias, size)


def _check_vector(name, vector, size):
    if vector.shape != (size,):
        raise ValueError(
            f"{name} has shape {vector.shape}, but ({size},) is needed, one number for each feature"
        )


def checked_ids(ids, table):
    """Return ids as an array of the library in use.

    Raises an error unless each is a row of the table (V, D).
    """
    if table.ndim != 2:
        raise ValueError(f"embedding takes a table (V, D), not shape {table.shape}")
    ids = integers(ids, "ids")
    if ids.size and not (ids.min() >= 0 and ids.max() < len(table)):
        raise IndexError(
            f"ids from {ids.min()} to {ids.max()} do not fit a table of {len(table)} rows"
        )
    return to_device(ids)


def integers(ids, name):
    """Return ids as a NumPy array of integers; an empty list has no type and counts as one.

    Raises TypeError.
    """
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu" and ids.size:
        raise TypeError(f"{name} must be integers, not {ids.dtype}")
    return ids.astype(np.int64) if ids.dtype.kind not in "iu" else ids


def attention_arrays(query, key, value, mask):
    """Return the arrays of attention's arguments, with the same axes in front of query,
    key and value.

    Constants take the dtype of the query. Raises TypeError for a mask that is not boolean,
    ValueError where the sizes do not fit.
    """
    query = as_array(query)
    key, value = beside(key, query.dtype), beside(value, query.dtype)
    mask = None if mask is None else boolean(mask)
    shapes = q, k, v, m = query.shape, key.shape, value.shape, () if mask is None else mask.shape
    fits = len(q) > 1 and len(k) > 1 and len(v) > 1 and q[-1] == k[-1] > 0 and k[-2] == v[-2]
    if fits and q[:-2] == k[:-2] == v[:-2] and _is_within(m, (*q[:-1], k[-2])):  # as in the model
        return query, key, value, mask
    with contextlib.suppress(ValueError):
        if fits and _is_within(m[-2:], (q[-2], k[-2])):
            front = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
            arrays = (xp.broadcast_to(x, (*front, *x.shape[-2:])) for x in (query, key, value))
            return *arrays, mask
    raise ValueError(
        "attention takes a query (..., T, K), a key (..., S, K), "
        "a value (..., S, D) and perhaps a mask (..., T, S), not the "
        f"shapes {', '.join(map(str, shapes[: 3 if mask is None else 4]))}"
    )


def _is_within(shape, larger):
    """Tell whether an array of this shape broadcasts to the larger one."""
    for n, most in zip(shape[::-1], larger[::-1], strict=False):
        if n != most and n != 1:
            return False
    return len(shape) <= len(larger)
