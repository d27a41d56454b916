"""The trainings of lesson 09, which begin with the early model of lesson 08."""

import numpy as np
import pytest

from minitf.course.trained_further import FurtherTraining


@pytest.mark.slow
def test_each_training_begins_with_the_early_model_and_keeps_all_copies():
    further = FurtherTraining(batch_tokens=250, order=np.random.default_rng(1))
    first, second, third = further.checkpoints([0.001, 0.0])
    again = further.checkpoints([0.0])
    for name in first:
        assert (first[name] == again[0][name]).all() and (first[name] == again[1][name]).all()
        assert (second[name] == third[name]).all()
    assert any((first[name] != second[name]).any() for name in first)
    assert further.loss_on_unseen(first) == further.loss_on_unseen(again[1])
    assert further.loss_on_unseen(first) != further.loss_on_unseen(second)
