"""The masks of dropout.

Each mask is computed from (seed, step, place, row), so no random state has to be saved: a training
run that was stopped resumes with the masks that it would have drawn, and a batch that is split,
each slice padded as the batch is, gets the masks of the undivided batch.

step: the number of the batch. place: the number of a dropout among those of one step, counted from
0 in the order in which they compute; a step can have 65536 places. row: the index of a sentence in
the undivided batch.

The random generator, Philox, has no state either: it is a function of a key and a counter n, and
returns 256 random bits, 16 for each of 16 elements of a mask. The key is made from seed, step and
place. If the rows of a mask have 10 elements each:

    row          0          1           2           3         ...
    elements  0 ... 9   10 ... 19   20 ... 29   30 ... 39     ...

    n            0             1              2               ...
    elements  0 ... 15     16 ... 31      32 ... 47           ...

So row 2 can be drawn without the others: it begins in n = 20 // 16 = 1, after 20 % 16 = 4 elements
to skip. The 16 bits of an element are a number from 0 to 65535. The element is kept if the number
is at least the threshold, which is 65536 * rate, rounded.
"""

import contextlib
import math
import threading
from collections.abc import Iterator

import numpy as np

from minitf.backend import to_device

__all__ = ["dropout_mask", "dropout_state"]


class _DropoutState(threading.local):
    """The numbers that determine the next mask, and a generator; each thread has its own."""

    seed, step, first_row, place = 0, 0, 0, 0
    generator = None  # made for the first mask: a translator never loads numpy.random


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
    """Return a mask that is True, for an element that is kept, with probability 1 - rate.

    The probability is rounded to a multiple of 1/65536. seed, step, place: see the top of the file.
    first_row, shape: the first row and the shape of the slice of the mask.
    Raises ValueError for a rate that is not at least 0 and less than 1, and for a seed or step that
    is negative or no integer.
    """
    count = math.prod(shape)
    start = first_row * math.prod(shape[1:])  # the index of the slice's first element
    n, skipped = start // 16, start % 16  # 16 elements for each n
    # The generator returns its 256 bits as four numbers of 64 bits, which hold 4 elements each.
    n_numbers = math.ceil((skipped + count) / 4)
    numbers = _generator(mask_key(seed, step, place), n).random_raw(n_numbers)
    bits = numbers.view(np.uint16)[skipped : skipped + count]  # 16 bits for each element
    return to_device((bits >= threshold_of(rate)).reshape(shape))


def _generator(key, n):
    """Return Philox with this key and counter.

    A thread sets the one that it has: a new one first asks the system for random bits.
    """
    if _state.generator is None:
        _state.generator = np.random.Philox()
    _state.generator.state = {
        "bit_generator": "Philox",
        "state": {"key": np.array(key, np.uint64), "counter": np.array([n, 0, 0, 0], np.uint64)},
        "buffer": np.zeros(4, np.uint64),
        "buffer_pos": 4,  # after the last number of the buffer
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _state.generator


def mask_key(seed, step, place):
    """Return the generator's key, two numbers of 64 bits.

    Each step has 65536 places: place 65536 of step 0 has the mask of place 0 of step 1. Outside all
    `dropout_state` blocks the step is always 0 and the place counts on, so calls
    without a seed never reuse a mask within a thread.
    Raises ValueError for a seed or step that is negative, no integer, or too large.
    """
    # A NumPy int32 would overflow in the product: so take Python's integers.
    numbers = seed, step, place
    seed, step, place = (int(n) if isinstance(n, np.integer) else n for n in numbers)
    key = seed, 65536 * step + place
    if not all(isinstance(n, int) and 0 <= n < 2**64 for n in key):
        raise ValueError(
            "dropout needs a seed and a step that are integers of at least 0 and less than 2^64 "
            f"and 2^48, not {seed!r} and {step!r}"
        )
    return key


def threshold_of(rate):
    """Return how many of the 65,536 values of 16 bits drop an element. Raises ValueError."""
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropout must be at least 0 and less than 1, not {rate}")
    return min(round(rate * 65536), 65535)


def next_mask(shape, rate, seed=None):
    """Return the next mask of this forward pass, and the factor that keeps the mean.

        factor = 65536 / (65536 - threshold), about 1 / (1 - rate)

    This is exactly 1 over the probability of being kept. Without dropout (rate 0) there is nothing
    to draw or to multiply: the mask is None, the factor 1, and the next mask is not affected.
    """
    if rate == 0:
        return None, 1
    mask = dropout_mask(*next_mask_numbers(seed), shape, rate)
    return mask, 65536 / (65536 - threshold_of(rate))


def drop(x, mask, factor):
    """Return x times the factor where the mask is True, else 0; x if the mask is None."""
    return x if mask is None else x * mask * factor


def next_mask_numbers(seed):
    """Return seed, step, place and first row of the next mask.

    A given seed makes the mask independent of the `dropout_state`, which stays as it is.
    """
    if seed is not None:
        return seed, 0, 0, 0
    _state.place += 1
    return _state.seed, _state.step, _state.place - 1, _state.first_row
