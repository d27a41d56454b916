"""Dropout inside a kernel: five numbers from which it computes the mask that NumPy would draw."""

import math
from typing import NamedTuple

import numpy as np

from minitf.dropout import mask_key, next_mask_numbers, threshold_of

__all__ = ["NO_DROPOUT", "MaskNumbers", "numbers_of", "numbers_of_next_mask"]


class MaskNumbers(NamedTuple):
    """What a kernel needs to draw a mask; the last arguments of kernels with dropout.

    seed, draw: the key of the generator; draw tells the masks of one seed apart.
    start: the index of the first random number.
    threshold: an element is dropped if its 16 random bits are below it.
    factor: of the elements that are kept.
    """

    seed: np.uint64
    draw: np.uint64
    start: np.uint64
    threshold: int
    factor: float


def numbers_of_next_mask(shape, rate, seed=None):
    """Return the MaskNumbers of the next mask of this forward pass, as dropout.next_mask does."""
    return numbers_of(*next_mask_numbers(seed), shape, rate) if rate else NO_DROPOUT


def numbers_of(seed, step, place, first_row, shape, rate):
    """Return the MaskNumbers of dropout_mask(seed, step, place, first_row, shape, rate)."""
    threshold = threshold_of(rate)
    start = first_row * math.prod(shape[1:])
    key = map(np.uint64, mask_key(seed, step, place))
    return MaskNumbers(*key, np.uint64(start), threshold, 65536 / (65536 - threshold))


NO_DROPOUT = numbers_of(0, 0, 0, 0, (), 0.0)
