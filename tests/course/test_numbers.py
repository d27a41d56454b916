"""The numbers behind a figure: stored in its file, and compared with those of another run."""

import numpy as np
import pytest

from minitf.course import figures
from minitf.course.numbers import agree, keep_numbers, numbers_behind, numbers_in

CURVES = {"loss": (range(3), np.array([3.0, 2.0, 1.0])), "bound": ([0, 2], [1, 1])}


def test_the_numbers_survive_in_the_file_and_the_file_becomes_smaller(tmp_path):
    path = tmp_path / "a.png"
    figures.lines(CURVES, path, "x", "y")
    assert numbers_in(path) is None
    before = path.stat().st_size
    behind = numbers_behind([CURVES, {"x": "updates"}])
    keep_numbers(path, behind)
    assert path.stat().st_size < 0.7 * before
    assert agree(numbers_in(path), behind) and numbers_in(path) == behind


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda x: x * (1 + 1e-4), True),
        (lambda x: x + 0.1, False),
        (lambda x: x[:2], False),
        (lambda x: x[::-1], False),
        (lambda x: np.append(x[:2], np.nan), False),
        (lambda x: x.reshape(3, 1), True),
    ],
)
def test_rounding_agrees_and_other_numbers_do_not(change, same):
    x = np.array([3.0, 2.0, 1.0])
    assert agree(numbers_behind([x]), numbers_behind([change(x)])) == same


def test_a_loss_is_not_hidden_by_the_updates_beside_it():
    updates, losses = np.arange(0, 400, 10), np.full(40, 0.6)
    behind = numbers_behind({"loss": (updates, losses)})
    assert agree(behind, numbers_behind({"loss": (updates, losses * 1.01)}))
    assert not agree(behind, numbers_behind({"loss": (updates, losses * 1.1)}))


def test_names_must_be_the_same():
    assert not agree(numbers_behind({"a": [1.0]}), numbers_behind({"b": [1.0]}))
    assert agree(numbers_behind({"a": None}), numbers_behind({"a": None}))


def test_of_a_large_array_some_numbers_and_its_mean_are_kept():
    x = np.random.default_rng(0).random((100, 50))
    (kept,) = numbers_behind(x)
    assert len(kept) == 202
    assert not agree([kept], numbers_behind(x**2))
    assert agree(numbers_behind([[1.0, 2.0], [3.0]]), [[1.0, 2.0], [3.0]])
