"""Answers to the exercises of lesson 01: right ones, and wrong ones that must not pass.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import math

import numpy as np

from minitf import functions as F
from minitf.transformer import causal_mask

# predicted_weights --------------------------------------------------------------------------------


def predicted_weights():
    return [0.28, 0.07, 0.07, 0.58]


def right_predicted_weights_2():
    return 0.285, 0.069, 0.069, 0.577


def right_predicted_weights_3():
    scores = np.array([2, 0, 0, 3]) / math.sqrt(2)
    return np.exp(scores) / np.exp(scores).sum()


def wrong_predicted_weights():
    """a softmax without the division by the root of d_k"""
    return [0.25, 0.03, 0.03, 0.68]


def wrong_predicted_weights_2():
    """the scores: their softmax is missing"""
    return [1.41, 0, 0, 2.12]


def wrong_predicted_weights_3():
    """the powers of e, not divided by their sum"""
    return [4.11, 1, 1, 8.34]


def wrong_predicted_weights_4():
    """found 3 numbers, expected 4, one for each of: bank, by, by, river"""
    return [0.31, 0.07, 0.62]


def wrong_predicted_weights_5():
    """a division by d_k in place of its root"""
    return [0.3, 0.11, 0.11, 0.49]


def wrong_predicted_weights_6():
    """numbers in percent"""
    return [28, 7, 7, 58]


def wrong_predicted_weights_7():
    """bank, at 0, is not 0.3, but all are near: round to two digits"""
    return [0.3, 0.1, 0.1, 0.6]


def wrong_predicted_weights_8():
    """expected numbers"""
    return ["0.28", "0.07", "0.07", "0.58"]


def wrong_predicted_weights_9():
    """the words in another order"""
    return [0.58, 0.07, 0.07, 0.28]


def wrong_predicted_weights_10():
    """the scores divided by their sum"""
    return [0.4, 0, 0, 0.6]


def wrong_predicted_weights_11():
    """three words: there are two by"""
    e = np.exp(np.array([2, 0, 3]) / math.sqrt(2))
    bank, by, river = e / e.sum()
    return [bank, by, by, river]


def wrong_predicted_weights_12():
    """bank looks at itself, too"""
    e = np.exp(np.array([0, 0, 3]) / math.sqrt(2))
    return [0, *(e / e.sum())]


def wrong_predicted_weights_13():
    """a division by the lengths of the vectors"""
    cosines = np.array([1, 0, 0, 1 / math.sqrt(2)])
    return F.softmax(cosines).numpy()


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


def wrong_additive_mask_2(mask):
    """0 times infinity is NaN"""
    return (1 - mask) * -np.inf


def wrong_additive_mask_3(mask):
    """is the mask the wrong way round?"""
    return np.where(mask, -np.inf, 0.0)


def wrong_additive_mask_4(mask):
    """where -100 is added"""
    return np.where(mask, 0.0, -100.0)


def wrong_additive_mask_5(mask):
    """a forbidden key still gets a share"""
    return mask.astype(float)


def wrong_additive_mask_6(mask):
    """where 0 is added"""
    return np.where(mask, 0.0, 0.0)


def wrong_additive_mask_7(mask):
    """found the shape"""
    return np.where(mask, 0.0, -np.inf)[None]


def wrong_additive_mask_8(mask):
    """where 1 is added"""
    return 1.0 - mask


def wrong_additive_mask_9(mask):
    """ValueError"""
    return np.where(causal_mask(4)[0, 0], 0.0, -np.inf)


def wrong_additive_mask_10(mask):
    """a forbidden key still gets a share"""
    return np.where(mask, 0, -1e4)


def wrong_additive_mask_11(mask):
    """infinity is added, where minus infinity belongs"""
    return np.where(mask, 0.0, np.inf)


def wrong_additive_mask_12(mask):
    """where -1e+06 is added"""
    return np.where(mask, 0.0, -1e6)


def wrong_additive_mask_13(mask):
    """a causal mask, whatever the mask is"""
    return np.triu(np.full(mask.shape, -np.inf), k=1)


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


def right_mended_weights_5(scores, mask):
    rows = []
    for row, allowed in zip(F.softmax(scores).numpy(), mask, strict=True):
        rows.append(row * allowed / (row * allowed).sum())
    return rows


def wrong_mended_weights(scores, mask):
    """the lost share handed out in equal parts"""
    weights = F.softmax(scores).numpy() * mask
    lost = 1 - weights.sum(axis=-1, keepdims=True)
    return weights + lost * mask / mask.sum(axis=-1, keepdims=True)


def wrong_mended_weights_2(scores, mask):
    """columns that sum to 1"""
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum(axis=0, keepdims=True)


def wrong_mended_weights_3(scores, mask):
    """sums without keepdims"""
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum(axis=-1)


def wrong_mended_weights_4(scores, mask):
    """all weights divided by one sum"""
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum()


def wrong_mended_weights_5(scores, mask):
    """a score of 0 is no weight of 0"""
    return F.softmax(scores * mask).numpy()


def wrong_mended_weights_6(scores, mask):
    """the rows no longer sum to 1"""
    return F.softmax(scores).numpy() * mask


def wrong_mended_weights_7(scores, mask):
    """a second softmax"""
    return F.softmax(F.softmax(scores).numpy() * mask)


def wrong_mended_weights_8(scores, mask):
    """rows divided by their number of keys"""
    weights = F.softmax(scores).numpy() * mask
    return weights / mask.sum(axis=-1, keepdims=True)


def wrong_mended_weights_9(scores, mask):
    """rows of length 1"""
    weights = F.softmax(scores).numpy() * mask
    return weights / np.linalg.norm(weights, axis=-1, keepdims=True)


def wrong_mended_weights_10(scores, mask):
    """a softmax of the weights that are left"""
    weights = F.softmax(scores).numpy()
    return F.softmax(np.where(mask, weights, -np.inf))


def wrong_mended_weights_11(scores, mask):
    """the transpose of the mask"""
    weights = F.softmax(scores).numpy() * mask.T
    return weights / weights.sum(axis=-1, keepdims=True)


def wrong_mended_weights_12(scores, mask):
    """0 / 0, 0 times infinity, or infinity less infinity gives nan"""
    weights = F.softmax(scores).numpy() * ~mask
    return weights / weights.sum(axis=-1, keepdims=True)


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


def wrong_softmax_average(scores, values):
    """sums that are not shrunk when a larger score comes"""
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        largest = max(largest, score)
        weight = np.exp(score - largest)
        total, weighted = total + weight, weighted + weight * value
    return weighted / total


def wrong_softmax_average_2(scores, values):
    """a weighted sum that is not shrunk"""
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        weight = np.exp(score - largest)
        total = total * np.exp(before - largest) + weight
        weighted = weighted + weight * value
    return weighted / total


def wrong_softmax_average_3(scores, values):
    """a sum of powers that is not shrunk"""
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        weight = np.exp(score - largest)
        total = total + weight
        weighted = weighted * np.exp(before - largest) + weight * value
    return weighted / total


def wrong_softmax_average_4(scores, values):
    """every power of e is to have an exponent of at most 0"""
    total, weighted = 0.0, 0.0
    for score, value in zip(scores, values, strict=True):
        total, weighted = total + np.exp(score), weighted + np.exp(score) * value
    return weighted / total


def wrong_softmax_average_5(scores, values):
    """scores near -1000: found nan"""
    largest, total, weighted = 0.0, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        shrink, weight = np.exp(before - largest), np.exp(score - largest)
        total, weighted = total * shrink + weight, weighted * shrink + weight * value
    return weighted / total


def wrong_softmax_average_6(scores, values):
    """not divided by the sum of the powers"""
    largest, weighted = -np.inf, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        weighted = weighted * np.exp(before - largest) + np.exp(score - largest) * value
    return weighted


def wrong_softmax_average_7(scores, values):
    """found the shape (), expected (2,)"""
    return (F.softmax(scores).numpy() @ values).sum()


def wrong_softmax_average_8(scores, values):
    """the plain mean of the values"""
    return values.mean(axis=0)


def wrong_softmax_average_9(scores, values):
    """a factor e^(new - old) in place of e^(old - new)"""
    largest, total, weighted = scores[0], 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        grow, weight = np.exp(largest - before), np.exp(score - largest)
        total, weighted = total * grow + weight, weighted * grow + weight * value
    return weighted / total


def wrong_softmax_average_10(scores, values):
    """the first score left out"""
    return softmax_average(scores[1:], values[1:])


def wrong_softmax_average_11(scores, values):
    """a largest score that begins at 0"""
    largest, total, weighted = 0.0, 1e-9, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        shrink, weight = np.exp(before - largest), np.exp(score - largest)
        total, weighted = total * shrink + weight, weighted * shrink + weight * value
    return weighted / total
