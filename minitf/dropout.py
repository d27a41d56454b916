"""The masks of dropout: a function of what each is for, so no random state has to be saved.

A training that was stopped resumes with the masks that it would have drawn, and a batch that is
split over cores or machines gets the masks of the undivided batch, slice by slice.
"""

import contextlib
import math
import threading
from collections.abc import Iterator

import numpy as np

from minitf.backend import to_device, xp

__all__ = ["dropout_mask", "dropout_state"]


class _DropoutState(threading.local):
    """What the next mask is for; each thread has its own state."""

    seed, step, first_row, place = 0, 0, 0, 0


_state = _DropoutState()


@contextlib.contextmanager
def dropout_state(seed: int, step: int, first_row: int = 0) -> Iterator[None]:
    """Make the masks of every `dropout` in the block a function of these numbers.

    first_row: the index in the undivided batch of the first row of this slice.
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
    """Return a mask that is True with probability 1 - rate, to 1/65536.

    Each element is decided by 16 bits of a counter-based generator (Philox: the n-th random number
    is a function of n), at the position of the element in the mask of the undivided batch. So any
    slice of a mask can be drawn without the others.
    seed, step, place: what the mask is for. first_row, shape: the first row and the shape of the
    slice.
    """
    count = math.prod(shape)
    start = first_row * math.prod(shape[1:])
    skip = start % 16  # one count of the generator makes 256 bits, which decide 16 elements
    key = np.array([seed, step << 16 | place], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=start // 16))
    words = generator.integers(
        0, 2**64 - 1, size=-(-(count + skip) // 4), dtype=np.uint64, endpoint=True
    )
    bits = words.view(np.uint16)[skip : skip + count]
    return to_device((bits >= threshold_of(rate)).reshape(shape))


def threshold_of(rate):
    """Return how many of the 65,536 values of 16 bits drop an element. Raises ValueError."""
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropout must be at least 0 and less than 1, not {rate}")
    return min(round(rate * 65536), 65535)


def drop(x, mask, factor):
    """Return x times the factor where the mask is True, and 0 elsewhere; x if there is no mask.

    0 even where x is infinite or NaN: a dropped element has no effect, nor has its gradient.
    """
    return x if mask is None else xp.where(mask, x * factor, 0)


def next_mask(shape, rate, seed=None):
    """Return the next mask of this forward pass, and the factor that keeps the mean.

    Without dropout there is no mask: None and 1, and the next mask is not affected.
    """
    if rate == 0:
        return None, 1
    return dropout_mask(*next_place(seed), shape, rate), 65536 / (65536 - threshold_of(rate))


def next_place(seed):
    """Return seed, step, place and first row of the next mask.

    A seed of its own makes the mask independent of the state, and leaves the state as it is.
    """
    if seed is not None:
        return seed, 0, 0, 0
    _state.place += 1
    return _state.seed, _state.step, _state.place - 1, _state.first_row
