"""The differentiable functions of the Transformer, each followed by its gradient.

Letters in shape lines: B batch, T target length, S source length, D d_model, F d_ff, H heads,
K d_k, U d_v, V vocabulary, N any other size; `...` means any axes in front. In equations, gx is
dL/dx, the gradient of x (see tensor.py), and delta_ij is 1 if i = j and 0 otherwise.

Inputs are Tensors, which get a gradient, or arrays, which are constants. Ids are NumPy integers, so
that a wrong one raises an error: another library might silently read some other row.

An *op* is a function that computes an equation: of the paper, or of a switch of the model. One
marked `@accelerated` may be computed by another program, its *form*: see forms.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minitf.backend import xp
from minitf.dropout import drop, dropout_mask, dropout_state, next_mask
from minitf.forms import accelerated
from minitf.inputs import as_mask, attention_arrays, checked_ids, layer_norm_arrays, linear_arrays
from minitf.tensor import ArrayLike, Ids, Tensor, arrays_of, as_array, record

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
    "swish",
    "where",
]


def exp(x: ArrayLike) -> Tensor:
    """Return e to the power of each element.

        y = e^x

    x: (...)   ->   (...)
    """
    y = xp.exp(as_array(x))
    return record(y, (x,), lambda gy: gy * y)


def log(x: ArrayLike) -> Tensor:
    """Return the natural logarithm of each element.

        y = ln x

    x: (...)   ->   (...)
    """
    x_data = as_array(x)
    return record(xp.log(x_data), (x,), lambda gy: gy / x_data)


def relu(x: ArrayLike) -> Tensor:
    """Return x with zeros in place of its negative elements.

        y = max(0, x)

    x: (...)   ->   (...)
    Source: section 3.3, eq. 2.
    """
    y = xp.maximum(as_array(x), 0)
    return record(y, (x,), lambda gy: gy * (y > 0))


def swish(x: ArrayLike) -> Tensor:
    """Return x times its sigmoid: close to x far above 0, and close to 0 far below.

        y = x s    with s = sigmoid(x) = 1 / (1 + e^-x) = e^x / (1 + e^x)
        dy/dx = s + x ds/dx = s + x s (1 - s) = s + y (1 - s)

    x: (...)   ->   (...)
    Also called SiLU.
    Source: Ramachandran et al. 2017, "Searching for Activation Functions", with beta = 1.
    """
    x_data = as_array(x)
    s = sigmoid_of(x_data)
    y = x_data * s
    return record(y, (x,), lambda gy: gy * (s + y * (1 - s)))


def sigmoid_of(array):
    """Return the sigmoid of an array; the exponential of -|x| cannot overflow."""
    e = xp.exp(-abs(array))
    return xp.where(array < 0, e, 1) / (1 + e)


def where(mask: ArrayLike, x: ArrayLike, value: ArrayLike) -> Tensor:
    """Return x where the mask is True, and the value elsewhere.

        y = x if mask else value

    mask: bool (...)   x: (...)   value: (...), or a number   ->   (...)
    An element that is not taken gets the gradient 0, and 0 times an infinite slope is NaN: so
    choose x first, as in where(x > 0, log(where(x > 0, x, 1)), 0).
    Raises TypeError for a mask that is not boolean.
    """
    mask = as_mask(mask)
    x_data, value_data = arrays_of(x, value)

    def backward(gy):
        return None, xp.where(mask, gy, 0), xp.where(mask, 0, gy)

    return record(xp.where(mask, x_data, value_data), (None, x, value), backward)


def concatenate(tensors: Sequence[ArrayLike], axis: int = -1) -> Tensor:
    """Return the tensors joined along one axis.

        y = Concat(x_1, ..., x_n)

    tensors: a sequence of (..., N)   ->   (..., N)
    They may differ in the length of the joined axis; the result has the sum of the lengths.
    Source: section 3.2.2.
    """
    tensors = tuple(tensors)  # a generator could be read only once
    arrays = arrays_of(*tensors)
    y = xp.concatenate(arrays, axis=axis)
    ends = np.cumsum([array.shape[axis] for array in arrays])[:-1].tolist()

    def backward(gy):
        return tuple(xp.split(gy, ends, axis=axis))

    return record(y, tensors, backward)


def softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Return weights from 0 to 1 that sum to 1 and grow with the scores x.

        y_i = exp(x_i) / sum_j exp(x_j)
        dy_i/dx_j = y_i (delta_ij - y_j)    by the quotient rule
        gx_j = sum_i gy_i dy_i/dx_j = y_j (gy_j - sum_i gy_i y_i)

    x: (..., N)   ->   (..., N)
    Subtracting the largest score first multiplies numerator and denominator by the same number. It
    changes no y_i, and keeps exp from overflowing.
    Source: section 3.2.1, eq. 1.
    """
    e = xp.exp(_shifted(as_array(x), axis))
    y = e / e.sum(axis=axis, keepdims=True)

    def backward(gy):
        return y * (gy - (gy * y).sum(axis=axis, keepdims=True))

    return record(y, (x,), backward)


def _shifted(x, axis):
    """Return x minus its largest number along an axis; an empty array, which has none, as it is."""
    return x - x.max(axis=axis, keepdims=True) if x.size else x


def log_softmax(x: ArrayLike, axis: int = -1) -> Tensor:
    """Return the logarithm of the softmax, also where the softmax itself would round to 0.

        y_i = x_i - ln sum_j exp(x_j)
        dy_i/dx_j = delta_ij - softmax(x)_j
        gx_j = sum_i gy_i dy_i/dx_j = gy_j - softmax(x)_j sum_i gy_i

    x: (..., N)   ->   (..., N)
    The largest score is subtracted first, as in softmax.
    """
    z = _shifted(as_array(x), axis)
    total = xp.exp(z).sum(axis=axis, keepdims=True)  # at least exp(0), from the largest score
    y = z - xp.log(xp.maximum(total, 1))  # maximum: an axis of length 0 has a total of 0

    def backward(gy):
        return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)  # exp(y) is softmax(x)

    return record(y, (x,), backward)


@accelerated
def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Tensor:
    """Return x times a matrix, plus a bias if there is one.

        y = x W + b, which is  y_nf = sum_d x_nd W_df + b_f  for position n
        gx_nd = sum_f gy_nf W_df, or gx = gy W^T
        gW_df = sum_n x_nd gy_nf, or gW = x^T gy, with all positions as rows
        gb_f = sum_n gy_nf

    x: (..., D)   weight: (D, F)   bias: (F,)   ->   (..., F)
    Raises ValueError for sizes that do not fit.
    Source: section 3.3, eq. 2.
    """
    x_data, w, b = linear_arrays(x, weight, bias)
    y = x_data @ w if b is None else x_data @ w + b  # (..., F)

    def backward(gy):
        g_weight = as_rows(x_data).T @ as_rows(gy)  # (D, F), summed over all positions
        return gy @ w.T, g_weight, sum_rows(gy)  # without a bias, the last is ignored

    return record(y, (x, weight, bias), backward)


def as_rows(x):
    """Return x with one row for each position: (..., D) -> (N, D)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def sum_rows(x):
    """Return the sum over all axes but the last: (..., D) -> (D,)."""
    return as_rows(x).sum(axis=0)


@accelerated
def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-6) -> Tensor:
    """Return x with mean 0 and variance 1 at each position, then scaled and shifted.

        y = gain * n + bias    with n = (x - mean) / s and s = sqrt(var + eps)
        dmean/dx_j = 1/D,  ds/dx_j = (x_j - mean) / (D s) = n_j / D
        dn_i/dx_j = (delta_ij - 1/D - n_i n_j / D) / s    by the quotient rule
        gx_j = sum_i u_i dn_i/dx_j = (u_j - mean(u) - n_j mean(u n)) / s    with u = gn = gain * gy
        ggain = sum of n gy, gbias = sum of gy, over all positions

    x: (..., D)   gain: (D,)   bias: (D,)   ->   (..., D)
    Mean and variance are taken over the D features of a position.
    Raises ValueError for sizes that do not fit, and for positions without features.
    Source: section 3.1; Ba et al. 2016, eq. 4.
    """
    x_data, g, b = layer_norm_arrays(x, gain, bias)
    mean = x_data.mean(axis=-1, keepdims=True)  # (..., 1)
    deviation = xp.sqrt(x_data.var(axis=-1, keepdims=True) + float(eps))  # NumPy's eps is float64
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
    """Return the row of the table for each id.

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
    """Set each element to zero with probability `rate`; scale the others to keep the mean.

        y = mask * x / (1 - rate)    with the rate rounded to a multiple of 1/65536

    x: (..., D)   ->   (..., D)
    The mask is 1 for a kept element and 0 for a dropped one. It is a function of the seed; without
    a seed, a function of the `dropout_state` block around the call, with a new mask for each call
    in the block. The gradient passes through the same mask.
    Raises ValueError for a rate that is not at least 0 and less than 1.
    Source: section 5.4; Srivastava et al. 2014.
    """
    if rate == 0:
        return x if isinstance(x, Tensor) else Tensor(x)
    x_data = as_array(x)
    mask, factor = next_mask(x_data.shape, rate, seed)
    return record(drop(x_data, mask, factor), (x,), lambda gy: drop(gy, mask, factor))


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
    """Return the average of the values, weighted by how well their keys match each query.

        y = P value    with P = softmax(Z), Z = query key^T / sqrt(d_k)
        gP = gy value^T,  gvalue = P^T gy    as in `linear`
        gZ_ts = P_ts (gP_ts - sum_r gP_tr P_tr)    as in `softmax`, for each query t
        gquery = gZ key / sqrt(d_k),  gkey = gZ^T query / sqrt(d_k)

    query: (..., T, K)  key: (..., S, K)  value: (..., S, U)  mask: bool (..., T, S) -> (..., T, U)
    Where the mask is False, Z is -infinity and P is 0. The gradient needs no mask: where P_ts is 0,
    gZ_ts is 0 too. A query that may attend to no key gets zeros. The axes in front broadcast, those
    of the mask too.
    With a rate, dropout is applied to the weights (not in the paper): y and gvalue have Dropout(P)
    in place of P, and gP passes through the same mask.
    Raises TypeError for a mask that is not boolean, ValueError for sizes that do not fit.
    Source: section 3.2.1, eq. 1.
    """
    q, k, v, mask = attention_arrays(query, key, value, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights = masked_softmax(q @ swap(k) * scale, mask)  # (..., T, S)
    keep, factor = next_mask(weights.shape, rate, seed)
    used = drop(weights, keep, factor)  # the weights after dropout

    def backward(gy):
        g_used, g_value = gy @ swap(v), swap(used) @ gy
        g_weights = drop(g_used, keep, factor)  # through the mask that made `used`
        return *_query_and_key_gradients(g_weights, weights, q, k, scale), g_value, None

    return record(used @ v, (query, key, value, None), backward)


def attention_weights(query: ArrayLike, key: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
    """Return how much each query attends to each key.

        weights = softmax(query key^T / sqrt(d_k)), 0 where the mask is False

    query: (..., T, K)   key: (..., S, K)   mask: bool (..., T, S)   ->   (..., T, S)
    A query that may attend to no key gets a row of zeros.
    Raises TypeError for a mask that is not boolean, ValueError for sizes that do not fit.
    Source: section 3.2.1, eq. 1.
    """
    q, k, _, mask = attention_arrays(query, key, key, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights = masked_softmax(q @ swap(k) * scale, mask)  # (..., T, S)

    def backward(gy):
        return *_query_and_key_gradients(gy, weights, q, k, scale), None

    return record(weights, (query, key, None), backward)


def _query_and_key_gradients(g_weights, weights, q, k, scale):
    """Return the gradients of query and key, where weights = softmax(q k^T * scale)."""
    total = (g_weights * weights).sum(axis=-1, keepdims=True)  # (..., T, 1)
    g_scores = weights * (g_weights - total)  # (..., T, S), as in softmax
    g_products = g_scores * scale
    return g_products @ k, swap(g_products) @ q


def masked_softmax(scores, mask):
    """Return the softmax over the last axis: 0 where the mask is False, and in a row of only False.

    scores: (..., T, S)   mask: bool (..., T, S), or None   ->   (..., T, S)
    """
    if not scores.size:  # without keys there is no largest score
        return scores
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    largest = scores.max(axis=-1, keepdims=True)  # (..., T, 1)
    empty = largest == -xp.inf  # a query that may attend to nothing: 0 / 1 instead of 0 / 0
    e = xp.exp(scores - xp.where(empty, 0, largest))  # exp(-inf) is 0
    return e / xp.where(empty, 1, e.sum(axis=-1, keepdims=True))


def swap(x):
    """Return x with its last two axes exchanged."""
    return x.swapaxes(-1, -2)
