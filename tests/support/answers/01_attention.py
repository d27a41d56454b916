"""Answers to the exercises of lesson 01: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import math

import numpy as np

from minitf import functions as F

# predicted_weights --------------------------------------------------------------------------------


def predicted_weights():
    return [0.28, 0.07, 0.07, 0.58]


def right_predicted_weights_2():
    return 0.285, 0.069, 0.069, 0.577


def right_predicted_weights_3():
    scores = np.array([2, 0, 0, 3]) / math.sqrt(2)
    return np.exp(scores) / np.exp(scores).sum()


def wrong_predicted_weights_4():
    """found 3 parts, expected 4: (bank, by, by, river)"""
    return [0.31, 0.07, 0.62]


def wrong_predicted_weights_7():
    """bank, at 0, to two digits: not 0.3"""
    return [0.3, 0.1, 0.1, 0.6]


def wrong_predicted_weights_8():
    """expected numbers"""
    return ["0.28", "0.07", "0.07", "0.58"]


def wrong_predicted_weights_9():
    """to two digits: not"""
    return [0.58, 0.07, 0.07, 0.28]


# additive_mask ------------------------------------------------------------------------------------


def additive_mask(mask):
    return np.where(mask, 0.0, -np.inf)


def right_additive_mask_2(mask):
    return (1 - mask) * -1e9


def right_additive_mask_3(mask):
    return np.log(mask)


def right_additive_mask_4(allowed):
    numbers = np.zeros_like(allowed, dtype=np.float32)
    numbers[~allowed] = -np.inf
    return numbers


def right_additive_mask_5(mask):
    return [[0 if may else float("-inf") for may in row] for row in mask]


def right_additive_mask_6(mask):
    return np.where(mask, 5.0, -np.inf)  # the same number for all keys changes nothing


def wrong_additive_mask(mask):
    """where -1 is added"""
    return mask - 1.0


def wrong_additive_mask_7(mask):
    """found the shape"""
    return np.where(mask, 0.0, -np.inf)[None]


def wrong_additive_mask_12(mask):
    """where -1e+06 is added"""
    return np.where(mask, 0.0, -1e6)


# mended_weights -----------------------------------------------------------------------------------


def mended_weights(scores, mask):
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum(axis=-1, keepdims=True)


def right_mended_weights_2(scores, mask):
    weights = F.softmax(scores) * mask
    return weights / weights.sum(axis=1, keepdims=True)


def right_mended_weights_3(scores, mask):
    kept = np.exp(scores) * mask
    return (kept.T / kept.sum(axis=1)).T


def right_mended_weights_4(scores, mask):
    weights = F.softmax(scores).numpy().astype(np.float32)
    weights *= mask
    weights /= weights.sum(axis=-1)[:, np.newaxis]
    return weights.tolist()


def wrong_mended_weights_12(scores, mask):
    """0 / 0, 0 times infinity, or infinity less infinity gives nan"""
    weights = F.softmax(scores).numpy() * ~mask
    return weights / weights.sum(axis=-1, keepdims=True)


def wrong_mended_weights_13(scores, mask):
    """the right rows, each times another number"""
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum()


# softmax_average ----------------------------------------------------------------------------------


def softmax_average(scores, values):
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        shrink, weight = np.exp(before - largest), np.exp(score - largest)
        total, weighted = total * shrink + weight, weighted * shrink + weight * value
    return weighted / total


def right_softmax_average_2(scores, values):
    m, s, v = scores[0], 1.0, values[0].copy()
    for i in range(1, len(scores)):
        if scores[i] > m:
            s *= math.exp(m - scores[i])
            v *= math.exp(m - scores[i])
            m = scores[i]
        s += math.exp(scores[i] - m)
        v += math.exp(scores[i] - m) * values[i]
    return (v / s).astype(np.float32)


def right_softmax_average_3(scores, values):
    largest, sums = float("-inf"), [0.0] * (1 + values.shape[1])
    for score, value in zip(scores, values, strict=True):
        new = max(largest, score)
        sums = [
            one * math.exp(largest - new) + part * math.exp(score - new)
            for one, part in zip(sums, [1.0, *value], strict=True)
        ]
        largest = new
    return [one / sums[0] for one in sums[1:]]


def right_softmax_average_4(scores, values):
    return F.softmax(scores).numpy() @ values  # no loop: a check compares results


def right_softmax_average_5(scores, values):
    log_total, average = -np.inf, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, log_total = log_total, np.logaddexp(log_total, score)
        average = average * np.exp(before - log_total) + np.exp(score - log_total) * value
    return average


def wrong_softmax_average_7(scores, values):
    """found the shape (), expected (2,)"""
    return (F.softmax(scores).numpy() @ values).sum()
