"""Dropout's masks are a function of (seed, step, place, row), in whatever slices they are drawn."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sizes import B, D, H, S, T

from minitf import dropout
from minitf import functions as F
from minitf.backend import to_numpy
from minitf.gpu.fused import NO_DROPOUT, numbers_of_next_mask
from minitf.nn import Dropout
from minitf.tensor import Tensor

RATE = 0.3


def mask(first_row=0, shape=(9, T, 3), seed=1, step=2, place=3, rate=RATE):
    return to_numpy(F.dropout_mask(seed, step, place, first_row, shape, rate))


@pytest.mark.parametrize("row", [(16,), (T, 3), (T, D), (1,), (H, T, S), ()])
def test_part_of_a_mask_is_part_of_the_whole(row):
    """For rows of 1, 15, 16, 60 and 105 elements: the generator makes 16 decisions at a time."""
    whole = mask(shape=(40, *row))
    for start, stop in [(0, 40), (0, 1), (1, 2), (3, 20), (16, 33), (17, 40), (39, 40)]:
        assert np.array_equal(mask(start, (stop - start, *row)), whole[start:stop])


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_the_rate_is_kept(rate):
    n = 400_000
    kept = mask(shape=(n,), rate=rate).mean()
    assert abs(kept - (1 - rate)) < 5 * (rate * (1 - rate) / n) ** 0.5
    threshold = round(rate * 65536)  # of the 65,536 values of 16 bits: so the mean stays exactly
    y = F.dropout(np.ones(1000), rate, seed=5).numpy()
    assert np.unique(y[y != 0]).tolist() == [65536 / (65536 - threshold)]


@pytest.mark.parametrize("rate", [1.0, 1.5, -0.5, -1e-6, float("nan")])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="the rate of dropout must be at least 0 and less than 1"):
        F.dropout(np.ones((2, 3)), rate)


def test_each_number_counts():
    """Another seed, step, place or row gives a mask that knows nothing of the first."""
    shape, n = (500, 400), 200_000
    one = mask(shape=shape)
    others = {
        "seed": mask(shape=shape, seed=2),
        "step": mask(shape=shape, step=3),
        "place": mask(shape=shape, place=4),
        "seed and step swapped": mask(shape=shape, seed=2, step=1),
        "step and place swapped": mask(shape=shape, step=3, place=2),
        "row": mask(first_row=500, shape=shape),
        "a late step": mask(shape=shape, step=10**7),
    }
    for name, other in others.items():
        agree = (one == other).mean()
        expected = (1 - RATE) ** 2 + RATE**2
        assert abs(agree - expected) < 5 * (expected * (1 - expected) / n) ** 0.5, name


def test_the_places_of_one_pass_differ_and_a_second_pass_repeats_them():
    x = np.ones((B, T, D))

    def draw_three():
        with F.dropout_state(seed=1, step=1):
            return [F.dropout(x, RATE).numpy() for _ in range(3)]

    one, two, three = draw_three()
    assert not np.array_equal(one, two)
    assert not np.array_equal(two, three)
    assert np.array_equal([one, two, three], draw_three())


def test_part_of_a_batch_draws_the_masks_of_the_whole():
    x, weights = np.ones((9, T, D)), np.ones((9, H, T, S))

    def draw(rows):
        with F.dropout_state(seed=1, step=1, first_row=rows.start):
            return F.dropout(x[rows], RATE).numpy(), F.dropout(weights[rows], RATE).numpy()

    whole = draw(slice(0, 9))
    for rows in (slice(0, 4), slice(4, 5), slice(5, 9)):
        for part, all_of_it in zip(draw(rows), whole, strict=True):
            assert np.array_equal(part, all_of_it[rows])


@pytest.mark.parametrize("numbers", [(0.5, 0), (0, 1.5), (-1, 0), (0, -1), (2**64, 0), (0, 2**48)])
def test_seed_and_step_are_integers_that_are_not_negative(numbers, library):
    """A fraction would be cut off: seed 0.5 would have the masks of seed 0."""
    x = np.ones((3, 4), np.float32)
    with F.dropout_state(*numbers), pytest.raises(ValueError, match="integers of at least 0"):
        F.dropout(x, RATE)
    if numbers[1] == 0:
        with pytest.raises(ValueError, match="integers of at least 0"):
            F.dropout(x, RATE, seed=numbers[0])


def test_an_own_seed_takes_no_place():
    x = np.ones((B, D))
    with F.dropout_state(seed=1, step=1):
        expected = F.dropout(x, RATE).numpy()
    with F.dropout_state(seed=1, step=1):
        own = [F.dropout(x, RATE, seed=8).numpy() for _ in range(2)]
        assert np.array_equal(*own)
        with F.dropout_state(seed=2, step=3, first_row=4):
            assert np.array_equal(F.dropout(x, RATE, seed=8).numpy(), own[0])
        assert np.array_equal(F.dropout(x, RATE).numpy(), expected)
    assert not np.array_equal(own[0], expected)


def test_the_state_before_comes_back():
    x = np.ones((B, D))
    with F.dropout_state(seed=1, step=1):
        expected = [F.dropout(x, RATE).numpy() for _ in range(2)]
    with F.dropout_state(seed=1, step=1):
        first = F.dropout(x, RATE).numpy()
        with pytest.raises(ZeroDivisionError), F.dropout_state(seed=9, step=9, first_row=9):
            for _ in range(2):
                F.dropout(x, RATE)
            raise ZeroDivisionError
        assert np.array_equal([first, F.dropout(x, RATE).numpy()], expected)


def test_threads_do_not_see_each_other():
    """Many threads, each in the middle of its own pass, draw what one alone would draw."""
    x = np.ones((B, T, D))
    together = threading.Barrier(4)

    def work(seed, wait):
        drawn = []
        with F.dropout_state(seed, step=1):
            for _ in range(5):
                wait()
                drawn.append(F.dropout(x, RATE).numpy())
        return drawn

    with F.dropout_state(seed=7, step=7), ThreadPoolExecutor(4) as pool:
        expected = (
            dropout._state.seed,
            dropout._state.step,
            dropout._state.first_row,
            dropout._state.place,
        )
        results = list(pool.map(lambda seed: work(seed, together.wait), range(4)))
        assert (
            dropout._state.seed,
            dropout._state.step,
            dropout._state.first_row,
            dropout._state.place,
        ) == expected
    for seed, drawn in enumerate(results):
        assert np.array_equal(drawn, work(seed, lambda: None))


def test_no_dropout_is_no_work():
    x = Tensor(np.ones((B, T, D)))
    assert F.dropout(x, 0.0) is x
    assert Dropout(0.9).eval()(x) is x
    with F.dropout_state(seed=1, step=1):
        F.dropout(x, 0.0)
        assert dropout._state.place == 0, "a rate of 0 takes no place"
        assert numbers_of_next_mask((B, D), 0.0) is NO_DROPOUT
        assert dropout._state.place == 0, "nor does it where a kernel would draw"


def test_a_kernel_is_told_all_that_the_mask_depends_on():
    """The generator's key, the index of the first decision, the threshold and the factor."""
    with F.dropout_state(seed=7, step=3, first_row=5):
        F.dropout(np.ones((2, 4)), RATE)
        found = numbers_of_next_mask((2, 4, 6), 0.25)
    assert [float(number) for number in found] == [7, (3 << 16) + 1, 5 * 24, 16384, 4 / 3]


def test_a_long_mask_is_the_same_everywhere(library):
    """A threshold or a random number off by one changes a few of so many decisions."""
    drawn = np.packbits(mask(5, (1000, 301), seed=3, step=70_000, place=9, rate=0.1))
    assert hashlib.sha256(drawn).hexdigest()[:16] == "3dc206f2b2eccc9c"
