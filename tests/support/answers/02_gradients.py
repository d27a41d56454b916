"""Answers to the exercises of lesson 02, and typical wrong ones."""

import numpy as np

from minitf import functions as F
from minitf.tensor import record


def predicted():
    # u = 6, v = 8. To u: v + u = 14, to v: u = 6. To a: 3 * 14 + 6, to b: 2 * 14.
    return [48, 28]


def wrong_predicted():
    """It forgets that v is also made from a: one path of three."""
    return [42, 28]


def log_sum_exp(x):
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_log_sum_exp(x):
    """It forgets gy, as if the result were the loss itself."""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: F.softmax(x).data)


def centred(x):
    def backward(gy):
        return gy - gy.mean(axis=-1, keepdims=True)

    return record(x.data - x.data.mean(axis=-1, keepdims=True), (x,), backward)


def wrong_centred(x):
    """The mean of all numbers, not of each row."""
    return record(x.data - x.data.mean(axis=-1, keepdims=True), (x,), lambda gy: gy - gy.mean())


def fools_the_sum(x):
    return record(x.data**2, (x,), lambda gy: gy**2 * 2 * x.data)


def wrong_fools_the_sum(x):
    """Zeros fool the sum of a softmax, whose gradient is 0; that of x**2 is not."""
    return record(x.data**2, (x,), lambda gy: gy * 0)
