"""Model answers to the exercises of lesson 01, and wrong ones that must not pass."""

import numpy as np

from minitf import functions as F


def predicted_weights():
    return [0.28, 0.07, 0.07, 0.58]


def wrong_predicted_weights():
    return [0.25, 0.03, 0.03, 0.68]  # without the division by sqrt(2)


def additive_mask(mask):
    return np.where(mask, 0.0, -np.inf)


def wrong_additive_mask(mask):
    return mask - 1.0  # a forbidden key still gets a share of 1/e


def mended_weights(scores, mask):
    weights = F.softmax(scores).numpy() * mask
    return weights / weights.sum(axis=-1, keepdims=True)


def wrong_mended_weights(scores, mask):
    # Each row sums to 1, but the size of the lost share tells of the future.
    weights = F.softmax(scores).numpy() * mask
    lost = 1 - weights.sum(axis=-1, keepdims=True)
    return weights + lost * mask / mask.sum(axis=-1, keepdims=True)


def softmax_average(scores, values):
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        shrink, weight = np.exp(before - largest), np.exp(score - largest)
        total, weighted = total * shrink + weight, weighted * shrink + weight * value
    return weighted / total


def wrong_softmax_average(scores, values):
    largest, total, weighted = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        largest = max(largest, score)
        weight = np.exp(score - largest)
        # What is there already is not shrunk.
        total, weighted = total + weight, weighted + weight * value
    return weighted / total
