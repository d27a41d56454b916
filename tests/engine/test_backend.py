"""The helpers of `backend`: sums of rows, stretches, kernels, memory."""

import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import strict

from minitf import backend
from minitf.backend import segment_sum, stretches, to_numpy, using, xp
from minitf.errors import UserError, in_file


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 2, 2], [4, 0, 4, 1, 0, 3], [1], []], ids=str)
def test_rows_of_one_id_are_added_up(library, ids, rng):
    rows = rng.normal(size=(len(ids), 3))
    expected = np.zeros((5, 3))
    for i, row in zip(ids, rows, strict=True):
        expected[i] += row
    np.testing.assert_allclose(to_numpy(segment_sum(xp.asarray(ids, dtype=int), xp.asarray(rows), 5)), expected)


def test_stretches_are_of_one_length_or_one_more():
    for length in (0, 1, 7, 20, 100):
        for count in (1, 2, 3, 8, 30):
            cuts = stretches(length, count)
            assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])] and cuts[-1][1] == length
            sizes = [stop - start for start, stop in cuts]
            assert len(cuts) == count and max(sizes) - min(sizes) <= 1


def test_kernels_are_for_float32_alone():
    single, double = np.zeros(2, np.float32), np.zeros(2)
    with using(strict.with_kernels):
        assert backend.has_kernels() and backend.has_kernels(single, single)
        assert not backend.has_kernels(single, double) and not backend.has_kernels(double, single)
    assert not backend.has_kernels(single)


def test_kernels_come_back_after_an_error():
    with using(strict.with_kernels):
        with pytest.raises(ZeroDivisionError), backend.plain():
            assert not backend.has_kernels()
            raise ZeroDivisionError
        assert backend.has_kernels()


def test_a_gpu_needs_no_more_than_one_process_of_this_machine():
    assert backend.cores() >= 1
    with using(strict.module):
        assert backend.cores() == 1


def test_an_error_names_its_file_and_others_pass():
    with pytest.raises(UserError, match=r"^words\.txt: one line$"), in_file("words.txt"):
        raise UserError("one line")
    with pytest.raises(ValueError, match=r"^another$"), in_file("words.txt"):
        raise ValueError("another")


# Memory -----------------------------------------------------------------------------------------------------


def test_nothing_is_traced_after_an_error():
    """Tracing makes every allocation slower, for the rest of the process."""
    with pytest.raises(ZeroDivisionError):
        backend.memory_of(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()


SLACK = 2 << 20  # the kernel counts pages of each thread for itself, and adds them up now and then


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_largest_memory_is_that_of_before_in_bytes():
    hold = np.ones(64 << 20, np.uint8)
    now = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    largest = backend.largest_memory()
    assert 64 << 20 < now <= largest + SLACK
    del hold
    assert backend.largest_memory() + SLACK >= largest
