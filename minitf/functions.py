"""The named differentiable functions of the Transformer, each with its gradient right under it.

Letters: B batch, T target length, S source length, D d_model, H heads, K d_k, F d_ff, V vocabulary; `...` any
axes in front. Inputs are Tensors (which get a gradient) or arrays (which are constants). Ids are NumPy integers
on the CPU: there a wrong one is an error, while a GPU would read some other row without a word.
"""

import contextlib
import math
import threading

import numpy as np

from minitf.backend import segment_sum, to_device, xp
from minitf.tensor import Tensor, is_recording, record

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


def _array(x):
    return x.data if isinstance(x, Tensor) else to_device(x)


def exp(x):
    """Raise e to each element.

        y = e^x

    x: (...)   ->   (...)
    """
    y = xp.exp(_array(x))
    return record(y, (x,), lambda gy: gy * y)


def log(x):
    """Take the natural logarithm of each element.

        y = ln x

    x: (...)   ->   (...)
    """
    x_data = _array(x)
    return record(xp.log(x_data), (x,), lambda gy: gy / x_data)


def relu(x):
    """Replace what is negative by zero.

        y = max(0, x)

    x: (...)   ->   (...)
    Source: section 3.3, eq. 2.
    """
    y = xp.maximum(_array(x), 0)
    return record(y, (x,), lambda gy: gy * (y > 0))


def where(mask, x, value):
    """Keep x where the mask is True, and put a constant elsewhere.

        y = x if mask else value

    mask: bool (...)   x: (...)   value: ()   ->   (...)
    """
    mask = to_device(mask)
    y = xp.where(mask, _array(x), value)
    return record(y, (mask, x, None), lambda gy: (None, gy * mask, None))


def concatenate(tensors, axis=-1):
    """Join tensors along one axis.

        y = Concat(x_1, ..., x_n)

    tensors: a sequence of (..., D) that may differ in D   ->   (..., D)
    Source: section 3.2.2.
    """
    arrays = [_array(x) for x in tensors]
    ends = np.cumsum([array.shape[axis] for array in arrays])[:-1].tolist()

    def backward(gy):
        return tuple(xp.split(gy, ends, axis=axis))

    return record(xp.concatenate(arrays, axis=axis), tuple(tensors), backward)


def softmax(x, axis=-1):
    """Turn scores into positive weights that sum to 1.

        y_i = exp(x_i) / sum_j exp(x_j)

    x: (..., D)   ->   (..., D)
    The largest score is subtracted first, which changes nothing but keeps exp from overflowing.
    Source: section 3.2.1, eq. 1.
    """
    x_data = _array(x)
    y = xp.exp(x_data - x_data.max(axis=axis, keepdims=True))
    y /= y.sum(axis=axis, keepdims=True)

    def backward(gy):
        return y * (gy - (gy * y).sum(axis=axis, keepdims=True))

    return record(y, (x,), backward)


def log_softmax(x, axis=-1):
    """Take the logarithm of the softmax, without computing the softmax, which could be 0.

        y_i = x_i - ln sum_j exp(x_j)

    x: (..., D)   ->   (..., D)
    """
    x_data = _array(x)
    y = x_data - x_data.max(axis=axis, keepdims=True)
    y -= xp.log(xp.exp(y).sum(axis=axis, keepdims=True))

    def backward(gy):
        return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)

    return record(y, (x,), backward)


def linear(x, weight, bias=None):
    """Multiply by a matrix, and add a bias if there is one.

        y = x W + b

    x: (..., D)   weight: (D, F)   bias: (F,)   ->   (..., F)
    All axes in front become rows of one matrix product, the fastest thing a computer does.
    Source: section 3.3, eq. 2.
    """
    x_data, w = _array(x), _array(weight)
    rows = x_data.reshape(-1, w.shape[0])  # (N, D)
    y = rows @ w  # (N, F)
    if bias is not None:
        y += _array(bias)

    def backward(gy):
        gy = gy.reshape(-1, w.shape[1])  # (N, F)
        gx = (gy @ w.T).reshape(x_data.shape)
        return gx, rows.T @ gy, None if bias is None else gy.sum(axis=0)

    return record(y.reshape(x_data.shape[:-1] + w.shape[1:]), (x, weight, bias), backward)


def layer_norm(x, gain, bias, eps=1e-6):
    """Give every position mean 0 and variance 1 over its features, then scale and shift.

        y = gain * (x - mean) / sqrt(var + eps) + bias

    x: (..., D)   gain: (D,)   bias: (D,)   ->   (..., D)
    Source: section 3.1; Ba et al. 2016, eq. 4.
    """
    x_data, g = _array(x), _array(gain)
    normal = x_data - x_data.mean(axis=-1, keepdims=True)
    deviation = xp.sqrt((normal * normal).mean(axis=-1, keepdims=True) + eps)
    normal /= deviation
    y = normal * g
    y += _array(bias)

    def backward(gy):
        over = tuple(range(gy.ndim - 1))
        g_gain = (gy * normal).sum(axis=over)
        gx = gy * g  # the gradient of `normal`; what changes the mean or the variance of x has no effect on y
        gx -= gx.mean(axis=-1, keepdims=True) + normal * (gx * normal).mean(axis=-1, keepdims=True)
        gx /= deviation
        return gx, g_gain, gy.sum(axis=over)

    return record(y, (x, gain, bias), backward)


def embedding(table, ids):
    """Look up one row of the table for each id.

        y = table[ids], which is  one_hot(ids) @ table

    table: (V, D)   ids: int (...)   ->   (..., D)
    Raises IndexError for an id outside 0 ... V-1.
    Source: section 3.4.
    """
    weight = _array(table)
    ids = np.asarray(ids)
    if ids.size and not (ids.min() >= 0 and ids.max() < len(weight)):
        raise IndexError(f"ids from {ids.min()} to {ids.max()} do not fit a table of {len(weight)} rows")
    ids = to_device(ids)

    def backward(gy):
        return segment_sum(ids.ravel(), gy.reshape(-1, gy.shape[-1]), len(weight)), None

    return record(weight[ids], (table, None), backward)


# Dropout -----------------------------------------------------------------------------------------------------


class _DropoutState(threading.local):
    """Where in the training a mask is drawn: each thread has its own place."""

    seed, step, first_row, place = 0, 0, 0, 0


_state = _DropoutState()


@contextlib.contextmanager
def dropout_state(seed, step, first_row=0):
    """Fix the masks of every `dropout` in the block: they depend on these numbers and on nothing else.

    So a stopped training resumes with the very masks it would have drawn, and a batch that is cut into parts
    draws in each part (whose first row is first_row of the whole) the masks of the whole.
    """
    before = _state.seed, _state.step, _state.first_row, _state.place
    _state.seed, _state.step, _state.first_row, _state.place = seed, step, first_row, 0
    try:
        yield
    finally:
        _state.seed, _state.step, _state.first_row, _state.place = before


def dropout_mask(seed, step, place, first_row, shape, rate):
    """Draw which elements to keep: True with probability 1 - rate, to 1/65536.

    Element i of row r is decided by 16 bits of a counter-based generator (Philox: the n-th random number is a
    function of n) at the position of that element, so any part of a mask can be drawn without the rest.
    seed, step, place: what the mask is for. first_row: where this part starts. shape: of this part.
    """
    count = math.prod(shape)
    start = first_row * math.prod(shape[1:])
    skip = start % 16  # one count of the generator makes 256 bits, the decisions for 16 elements
    key = np.array([seed, step << 16 | place], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=start // 16))
    words = generator.integers(0, 2**64 - 1, size=-(-(count + skip) // 4), dtype=np.uint64, endpoint=True)
    bits = words.view(np.uint16)[skip : skip + count]
    return to_device((bits >= round(rate * 65536)).reshape(shape))


def dropout(x, rate, seed=None):
    """Set each element to zero with probability `rate`, and scale the others so that the mean stays.

        y = mask * x / (1 - rate)

    x: (..., D)   ->   (..., D)
    The mask comes from `dropout_state`, and differs from call to call there; with a seed it comes from the seed.
    Source: section 5.4; Srivastava et al. 2014.
    """
    if rate == 0:
        return x if isinstance(x, Tensor) else Tensor(x)
    x_data = _array(x)
    mask, scale = _next_mask(x_data.shape, rate, seed)

    def apply(array):
        y = array * mask
        y *= scale
        return y

    return record(apply(x_data), (x,), apply)


def _next_mask(shape, rate, seed=None):
    """Draw the mask of the next dropout in this forward pass, and the factor that keeps the mean."""
    scale = 65536 / (65536 - round(rate * 65536))
    if seed is not None:
        return dropout_mask(seed, 0, 0, 0, shape, rate), scale
    mask = dropout_mask(_state.seed, _state.step, _state.place, _state.first_row, shape, rate)
    _state.place += 1
    return mask, scale


# Attention ---------------------------------------------------------------------------------------------------


def _masked_softmax(query, key, mask):
    """softmax(query key^T / sqrt(d_k)) of plain arrays, with weight 0 where the mask is False."""
    scores = query @ key.swapaxes(-1, -2)  # (..., T, S)
    scores *= 1 / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    # A row that may attend to nothing has no largest score; with any finite one its exponentials are all 0.
    scores -= xp.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = xp.exp(scores, out=scores)
    # The largest exponential of any other row is 1, so only such an empty row has a sum below 1.
    weights /= xp.maximum(weights.sum(axis=-1, keepdims=True), 1)
    return weights


def _masked_softmax_gradient(g_weights, weights, query, key):
    g_scores = g_weights - (g_weights * weights).sum(axis=-1, keepdims=True)
    g_scores *= weights
    g_scores *= 1 / math.sqrt(query.shape[-1])
    g_query = xp.matmul(g_scores, key, out=xp.empty_like(query))  # (..., T, K)
    g_key = xp.matmul(g_scores.swapaxes(-1, -2), query, out=xp.empty_like(key))  # (..., S, K)
    return g_query, g_key


def attention_weights(query, key, mask=None):
    """Say how much each query attends to each key.

        weights = softmax(Q K^T / sqrt(d_k)), 0 where the mask is False

    query: (..., T, K)   key: (..., S, K)   mask: bool (..., T, S)   ->   (..., T, S)
    A query that may attend to no key gets a row of zeros.
    Source: section 3.2.1, eq. 1.
    """
    q, k = _array(query), _array(key)
    weights = _masked_softmax(q, k, None if mask is None else to_device(mask))

    def backward(gy):
        return *_masked_softmax_gradient(gy, weights, q, k), None

    return record(weights, (query, key, None), backward)


def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Average the values, weighted by how well their keys fit each query.

        y = softmax(Q K^T / sqrt(d_k)) V

    query: (..., T, K)   key: (..., S, K)   value: (..., S, D)   mask: bool (..., T, S)   ->   (..., T, D)
    With a rate, dropout is applied to the weights (not in the paper).
    The result and the gradients are laid out in memory like their inputs: where the heads are views of one array
    (B, T, H, K), the way back to (B, T, D) is a view as well.
    Source: section 3.2.1, eq. 1.
    """
    q, k, v = _array(query), _array(key), _array(value)
    weights = _masked_softmax(q, k, None if mask is None else to_device(mask))
    dropped, factor = weights, None
    if rate:
        keep, scale = _next_mask(weights.shape, rate, seed)
        factor = keep * xp.asarray(scale, dtype=weights.dtype)
        dropped = weights * factor
    y = _like(q, weights.shape[:-1] + v.shape[-1:])
    xp.matmul(dropped, v, out=y)
    if not is_recording():
        return record(y, (), None)

    def backward(gy):
        g_weights = gy @ v.swapaxes(-1, -2)
        if rate:
            g_weights *= factor
        g_query, g_key = _masked_softmax_gradient(g_weights, weights, q, k)
        g_value = xp.matmul(dropped.swapaxes(-1, -2), gy, out=xp.empty_like(v))
        return g_query, g_key, g_value, None

    return record(y, (query, key, value, None), backward)


def _like(q, shape):
    """Give an empty array of this shape, its axes in memory in the order of q's."""
    return xp.empty_like(q) if q.shape == shape else xp.empty(shape, dtype=q.dtype)
