"""Answers to the exercises of lesson 02, and typical wrong ones."""

import numpy as np

from minitf import functions as F
from minitf.tensor import record


def log_sum_exp(x):
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_log_sum_exp(x):
    """It forgets gy, as if the result were the loss itself."""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: F.softmax(x).data)


def fools_the_sum(x):
    return record(x.data - x.data.mean(), (x,), lambda gy: 2 * (gy - gy.mean()))


def wrong_fools_the_sum(x):
    """It forgets the mean, which a check by the sum does see: the gradient of a sum that is
    always 0 is 0.
    """
    return record(x.data - x.data.mean(), (x,), lambda gy: gy)
