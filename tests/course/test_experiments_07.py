"""The experiments of lesson 07: a cheap point of each, repeated."""

import numpy as np
import pytest

from minitf.course.experiments import common_wish, smoothing, warmup
from minitf.course.lesson import kept


def test_a_schedule_rises_stays_or_falls():
    shares = [
        [warmup.share_of_peak(schedule, step) for step in (1, 200, 800)]
        for schedule in warmup.SCHEDULES
    ]
    assert shares == [[1 / 200, 1.0, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]]


def test_a_batch_has_its_rows_backwards():
    batch = warmup.reversal(np.random.default_rng(1), 20)
    for source, target in zip(batch.source, batch.target_out, strict=True):
        digits = source[: np.argmax(source == 3)]
        assert 3 <= len(digits) <= 8
        assert [*digits[::-1], 3] == target[: len(digits) + 1].tolist()


@pytest.mark.slow
def test_the_kept_losses_of_the_warm_up_are_repeated():
    """Only the beginning: later, differences in rounding have grown."""
    losses = warmup.curve("warm-up", 0.004, seed=2, updates=100)
    np.testing.assert_allclose(losses, kept("warmup")["warm-up"]["0.004"][1][:2], rtol=0.05)


@pytest.mark.slow
def test_the_kept_scores_of_the_smoothing_are_repeated():
    (first,) = smoothing.judged(smoothing.Task(), 2000, 0.2, seed=2, updates=100)
    expected = kept("smoothing")["2000 pairs, 0.2"][1][0]
    assert first["update"] == expected["update"] == 100
    assert first["perplexity"] == pytest.approx(expected["perplexity"], rel=0.1)
    assert first["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)


def test_the_walk_in_parts_is_the_same_training():
    notes = common_wish.training("at once", 0.008, 2)
    whole = warmup.training("at once", 0.008, 1, updates=2, dtype=np.float64)
    np.testing.assert_allclose(notes["loss"], [loss for _, loss in whole])
    without = common_wish.training("at once", 0.008, 2, without=(1,))
    assert without["loss"][0] == notes["loss"][0]
    assert abs(without["loss"][1] - notes["loss"][1]) > 0.01
