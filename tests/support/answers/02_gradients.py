"""Answers to the exercises of lesson 02: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

from minitf import functions as F
from minitf.tensor import record

# predicted ----------------------------------------------------------------------------------------


def predicted():
    # u = 6, v = 8. To u: v + u = 14, to v: u = 6. To a: 3 * 14 + 6, to b: 2 * 14.
    return [48, 28]


def right_predicted_2():
    return 48.0, 28.0


def right_predicted_3():
    a, b = 2, 3
    return np.array([(2 * a * b + a) * b + a * b, (2 * a * b + a) * a])


def right_predicted_4():
    a, b = 2, 3
    return [2 * a * b**2 + 2 * a * b, 2 * a**2 * b + a**2]


def wrong_predicted_5():
    """found '48', expected (dL/da, dL/db)"""
    return "48"


# logsumexp ----------------------------------------------------------------------------------------


def logsumexp(x):
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def right_logsumexp_2(x):
    largest = x.data.max(axis=-1, keepdims=True)
    powers = np.exp(x.data - largest)
    s = powers.sum(axis=-1, keepdims=True)

    def backward(gy):
        return (np.expand_dims(gy, -1) * powers / s,)

    return record((np.log(s) + largest).squeeze(-1), [x], backward)


def right_logsumexp_3(t):
    largest = t.data.max(axis=t.data.ndim - 1)
    return F.log(F.exp(t - largest[..., None]).sum(axis=-1)) + largest


def right_logsumexp_4(x):
    y = np.logaddexp.reduce(x.data, axis=-1)

    def backward(gy):
        gradient = np.exp(x.data - y[..., np.newaxis])
        gradient *= gy.reshape(*gy.shape, 1)
        return gradient

    return record(y, (x,), backward)


def wrong_logsumexp_7(x):
    """expected a Tensor: use record"""
    largest = x.data.max(axis=-1, keepdims=True)
    return np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]


def wrong_logsumexp_8(x):
    """is the Tensor among the inputs of record"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x.data,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_10(x):
    """functions of NumPy and comparisons take arrays: x.data, not x"""
    return np.log(np.exp(x).sum(axis=-1))


def wrong_logsumexp_11(x):
    """2000 apart in a row, ln sum exp: found inf"""
    middle = x.data.min(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - middle).sum(axis=-1)) + middle[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_12(x):
    """(2,) lacks an axis, [..., None] or keepdims=True makes it (2, 1)"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy * F.softmax(x).data)


def wrong_logsumexp_13(x):
    """[..., None] and [..., 0] work for any number of axes"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy[:, None] * F.softmax(x).data)


def wrong_logsumexp_16(x):
    """and does backward return something?"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: None)


# centred ------------------------------------------------------------------------------------------


def centred(x):
    def backward(gy):
        return gy - gy.mean(axis=-1, keepdims=True)

    return record(x.data - x.data.mean(axis=-1, keepdims=True), (x,), backward)


def right_centred_3(x):
    return x - x.mean(axis=-1, keepdims=True)


def right_centred_4(x):
    y = x.data.copy()
    y -= (y.sum(axis=y.ndim - 1) / y.shape[-1])[..., None]

    def backward(g):
        moved = g.copy()
        moved -= np.average(g, axis=-1)[..., None]
        return (moved,)

    return record(y, (x,), backward)


def wrong_centred_9(x):
    """x (2, 4), the gradient: found"""  # a division by the number of rows
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - gy.sum(axis=-1, keepdims=True) / len(gy))


# fools_the_sum ------------------------------------------------------------------------------------


def fools_the_sum(x):
    return record(x.data**2, (x,), lambda gy: gy**2 * 2 * x.data)


def right_fools_the_sum_2(x):
    return record(x.data * x.data, [x], lambda gy: (2 * x.data,))


def right_fools_the_sum_3(x):
    return record(np.square(x.data), (x,), lambda gy: np.ones_like(gy) * x.data * 2)


def right_fools_the_sum_4(x):
    return record(x.data**2, (x,), lambda gy: 2 * x.data * abs(gy))


def right_fools_the_sum_5(x):
    def backward(gy):
        return 2 * x.data * gy.max()

    return record(x.data**2, (x,), backward)


def right_fools_the_sum_6(x):
    return record(x.data**2, (x,), lambda gy: 2 * x.data * gy.mean())


def wrong_fools_the_sum_2(x):
    """grad_check accepts it too: found the backward 2 x gy, which is right"""
    return record(x.data**2, (x,), lambda gy: 2 * x.data * gy)
