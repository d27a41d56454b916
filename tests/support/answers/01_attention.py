"""Model answers to the exercises of lesson 01, and wrong ones that must not pass."""

import numpy as np


def additive_mask(mask):
    return np.where(mask, 0.0, -np.inf)


def wrong_additive_mask(mask):
    return mask - 1.0  # a forbidden key still gets a share of 1/e


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
