"""Answers to the exercises of lesson 02: right ones, and wrong ones that must not pass.

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


def wrong_predicted():
    """dL/da, at 0, is not 42: that looks like two paths of three: v is made from a, too"""
    return [42, 28]


def wrong_predicted_2():
    """the two the wrong way round"""
    return [28, 48]


def wrong_predicted_3():
    """L is made from u, too"""
    return [24, 12]


def wrong_predicted_4():
    """v is made from u, too"""
    return [48, 16]


def wrong_predicted_5():
    """found '48', expected a list of 2 numbers"""
    return "48"


def wrong_predicted_6():
    """found 1 numbers, expected 2, one for each of: dL/da, dL/db"""
    return [48]


def wrong_predicted_7():
    """the slopes of u alone"""
    return [3, 2]


def wrong_predicted_8():
    """the slope of a product is the other factor"""
    return [50, 28]


def wrong_predicted_9():
    """the path through v alone counted twice"""
    return [54, 28]


def wrong_predicted_10():
    """v = u + b: it is u + a"""
    return [45, 36]


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


def right_logsumexp_5(x):
    y = np.logaddexp.reduce(x.data, axis=-1)
    return record(y, (x,), lambda gy: np.expand_dims(gy, -1) * np.exp(x.data - y[..., None]))


def wrong_logsumexp(x):
    """a backward without gy"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: F.softmax(x).data)


def wrong_logsumexp_2(x):
    """one maximum for all rows"""
    largest = x.data.max()
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_3(x):
    """an overflow"""
    y = np.log(np.exp(x.data).sum(axis=-1))
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_4(x):
    """not divided by their sum"""
    largest = x.data.max(axis=-1, keepdims=True)
    powers = np.exp(x.data - largest)
    y = np.log(powers.sum(axis=-1)) + largest[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] * powers)


def wrong_logsumexp_5(x):
    """an axis more than x has without its last (keepdims)"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1, keepdims=True)) + largest
    return record(y, (x,), lambda gy: gy * F.softmax(x).data)


def wrong_logsumexp_6(x):
    """the largest number subtracted, and not added again"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1))
    return record(y, (x,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_7(x):
    """expected a Tensor: use record"""
    largest = x.data.max(axis=-1, keepdims=True)
    return np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]


def wrong_logsumexp_8(x):
    """is the Tensor among the inputs of record"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    return record(y, (x.data,), lambda gy: gy[..., None] * F.softmax(x).data)


def wrong_logsumexp_9(x):
    """the slope of the powers is missing"""
    largest = x.data.max(axis=-1, keepdims=True)
    s = np.exp(x.data - largest).sum(axis=-1, keepdims=True)
    y = (np.log(s) + largest)[..., 0]
    return record(y, (x,), lambda gy: gy[..., None] / s + 0 * x.data)


def wrong_logsumexp_10(x):
    """TypeError: np.exp takes no Tensor, because its result would have no history"""
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


def wrong_logsumexp_14(x):
    """the largest numbers with their axis (keepdims): [..., 0] drops it"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest
    return record(y, (x,), lambda gy: gy * F.softmax(x).data)


def wrong_logsumexp_15(x):
    """an overflow: backward needs the largest number subtracted, too"""
    largest = x.data.max(axis=-1, keepdims=True)
    y = np.log(np.exp(x.data - largest).sum(axis=-1)) + largest[..., 0]
    powers = np.exp(x.data)
    return record(y, (x,), lambda gy: gy[..., None] * powers / powers.sum(axis=-1, keepdims=True))


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


def right_centred_2(x):
    n = x.data.shape[-1]
    matrix = np.eye(n) - np.full((n, n), 1 / n)
    return record(x.data @ matrix, (x,), lambda gy: np.einsum("...i,ij->...j", gy, matrix))


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


def right_centred_5(x):
    centre = np.eye(x.shape[-1]) - 1 / x.shape[-1]
    return record(x.data @ centre, (x,), lambda gy: gy @ centre)


def wrong_centred(x):
    """the mean of all of gy, not of each row"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - gy.mean())


def wrong_centred_2(x):
    """the path through the mean is missing"""
    return record(x.data - x.data.mean(axis=-1, keepdims=True), (x,), lambda gy: gy)


def wrong_centred_3(x):
    """the sum of each row of gy in place of its mean"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - gy.sum(axis=-1, keepdims=True))


def wrong_centred_4(x):
    """the mean is in every number"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy * (1 - 1 / x.shape[-1]))


def wrong_centred_5(x):
    """the mean of x in place of that of gy"""
    mean = x.data.mean(axis=-1, keepdims=True)
    return record(x.data - mean, (x,), lambda gy: gy - mean)


def wrong_centred_6(x):
    """the mean of all numbers, not of each row"""
    return record(x.data - x.data.mean(), (x,), lambda gy: gy - gy.mean())


def wrong_centred_7(x):
    """the path through the mean added"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy + gy.mean(axis=-1, keepdims=True))


def wrong_centred_8(x):
    """the mean handed back in place of gy"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy.mean(axis=-1, keepdims=True) + 0 * gy)


def wrong_centred_9(x):
    """a division by the number of rows"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - gy.sum(axis=-1, keepdims=True) / len(gy))


def wrong_centred_10(x):
    """(2,) lacks an axis, [..., None] or keepdims=True makes it (2, 1)"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - gy.mean(axis=-1))


def wrong_centred_11(x):
    """1 / n in place of the mean of gy"""
    y = x.data - x.data.mean(axis=-1, keepdims=True)
    return record(y, (x,), lambda gy: gy - 1 / x.shape[-1])


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


def wrong_fools_the_sum(x):
    """zeros, which fool only sums that never change"""
    return record(x.data**2, (x,), lambda gy: gy * 0)


def wrong_fools_the_sum_2(x):
    """grad_check accepts it too: found the backward 2 x gy, which is right"""
    return record(x.data**2, (x,), lambda gy: 2 * x.data * gy)


def wrong_fools_the_sum_3(x):
    """the factor 2 is missing"""
    return record(x.data**2, (x,), lambda gy: gy**2 * x.data)


def wrong_fools_the_sum_4(x):
    """expected a Tensor: use record"""
    return x.data**2


def wrong_fools_the_sum_5(x):
    """grad_check accepts it too"""
    return x * x


def wrong_fools_the_sum_6(x):
    """gy handed on unchanged"""
    return record(x.data**2, (x,), lambda gy: gy)


def wrong_fools_the_sum_7(x):
    """the result x**2: found"""
    return record(2 * x.data, (x,), lambda gy: gy**2 * 2 * x.data)


def wrong_fools_the_sum_8(x):
    """2 gy: the slope of x**2 is 2 x"""
    return record(x.data**2, (x,), lambda gy: 2 * gy)


def wrong_fools_the_sum_9(x):
    """the sum of gy: it is as large as x has numbers"""
    return record(x.data**2, (x,), lambda gy: 2 * x.data * gy.sum())
