"""Which elements dropout keeps: a function of what they are for, with nothing random to remember.

So a stopped training resumes with the very masks it would have drawn, and a batch that is cut over
cores or machines draws in each part the masks of the whole.
"""

import contextlib
import math
import threading
from collections.abc import Iterator

import numpy as np

from minitf.backend import to_device

__all__ = ["dropout_mask", "dropout_state"]


class _DropoutState(threading.local):
    """Where in the training a mask is drawn: each thread has its own place."""

    seed, step, first_row, place = 0, 0, 0, 0


_state = _DropoutState()


@contextlib.contextmanager
def dropout_state(seed: int, step: int, first_row: int = 0) -> Iterator[None]:
    """Fix the masks of every `dropout` in the block: they depend on these numbers and
    on nothing else.

    first_row: which row of the whole batch is the first of this part of it.
    """
    before = _state.seed, _state.step, _state.first_row, _state.place
    _state.seed, _state.step, _state.first_row, _state.place = seed, step, first_row, 0
    try:
        yield
    finally:
        _state.seed, _state.step, _state.first_row, _state.place = before


def dropout_mask(
    seed: int, step: int, place: int, first_row: int, shape: tuple[int, ...], rate: float
) -> np.ndarray:
    """Draw which elements to keep: True with probability 1 - rate, to 1/65536.

    Element i of row r is decided by 16 bits of a counter-based generator (Philox: the n-th random
    number is a function of n) at the position of that element, so any part of a mask can be drawn
    without the rest.
    seed, step, place: what the mask is for. first_row: where this part starts. shape: of this part.
    """
    count = math.prod(shape)
    start = first_row * math.prod(shape[1:])
    skip = start % 16  # one count of the generator makes 256 bits, the decisions for 16 elements
    key = np.array([seed, step << 16 | place], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=start // 16))
    words = generator.integers(
        0, 2**64 - 1, size=-(-(count + skip) // 4), dtype=np.uint64, endpoint=True
    )
    bits = words.view(np.uint16)[skip : skip + count]
    return to_device((bits >= threshold_of(rate)).reshape(shape))


def threshold_of(rate):
    """Return how many of the 65,536 values of 16 bits mean: drop. Raises ValueError."""
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropout must be at least 0 and less than 1, not {rate}")
    return min(round(rate * 65536), 65535)


def next_mask(shape, rate, seed=None):
    """Draw the mask of the next dropout in this forward pass, and the factor that keeps the mean.

    Without dropout both are the number 1, and it takes no place.
    """
    if rate == 0:
        return 1, 1
    return dropout_mask(*next_place(seed), shape, rate), 65536 / (65536 - threshold_of(rate))


def next_place(seed):
    """Return seed, step, place and first row of the next mask. A seed of its own takes no place."""
    if seed is not None:
        return seed, 0, 0, 0
    _state.place += 1
    return _state.seed, _state.step, _state.place - 1, _state.first_row
