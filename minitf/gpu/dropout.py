"""Dropout inside a kernel: five numbers from which it computes the mask that NumPy would draw."""

import math

import numpy as np

from minitf.dropout import mask_key, next_mask_numbers, threshold_of

__all__ = ["NO_DROPOUT", "decisions", "next_decisions"]


def next_decisions(shape, rate, seed=None):
    """Return the five numbers of the next mask of this forward pass, as dropout.next_mask does."""
    return decisions(*next_mask_numbers(seed), shape, rate) if rate else NO_DROPOUT


def decisions(seed, step, place, first_row, shape, rate):
    """Return the five numbers of dropout_mask(seed, step, place, first_row, shape, rate).

    They are the key of the generator (two numbers), the index of the first random number, the
    threshold, and the factor of the elements that are kept.
    """
    threshold = threshold_of(rate)
    start = first_row * math.prod(shape[1:])
    key = map(np.uint64, mask_key(seed, step, place))
    return *key, np.uint64(start), threshold, 65536 / (65536 - threshold)


NO_DROPOUT = decisions(0, 0, 0, 0, (), 0.0)
