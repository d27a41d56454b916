"""Dropout as a kernel draws it: five numbers in place of a mask, from which it computes the mask
that NumPy draws.
"""

import math

import numpy as np

from minitf.dropout import next_place, threshold_of

__all__ = ["NO_DROPOUT", "decisions", "next_decisions"]


def next_decisions(shape, rate, seed=None):
    """Return the five numbers of the next mask in this forward pass. No dropout takes no place."""
    return decisions(*next_place(seed), shape, rate) if rate else NO_DROPOUT


def decisions(seed, step, place, first_row, shape, rate):
    """Return the five numbers of dropout_mask(seed, step, place, first_row, shape, rate).

    The key of the generator (two), the number of the first decision, the threshold, and the factor
    of what is kept.
    """
    threshold = threshold_of(rate)
    start = first_row * math.prod(shape[1:])
    key = np.uint64(seed), np.uint64(step << 16 | place)
    return *key, np.uint64(start), threshold, 65536 / (65536 - threshold)


NO_DROPOUT = decisions(0, 0, 0, 0, (), 0.0)
