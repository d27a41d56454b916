"""The trainer's updates that lesson 07 repeats."""

import numpy as np

from minitf.config import Config
from minitf.course.trained_rows import ReversedRows, parameters_of_the_trainer

ROWS = [[4, 9, 5], [8, 6], [7, 7, 4, 10], [13], [5, 4], [6], [9, 9, 8], [12, 11]]


def test_a_batch_has_its_rows_backwards():
    data = ReversedRows(ROWS, 14)
    first, second = data.plan(1, 100, 1)
    assert [*first, *second] == list(range(8))
    batch = data.batch(first)
    assert batch.target_out[0].tolist() == [5, 9, 4, 3, 0]


def test_every_update_changes_the_parameters():
    config = Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
    first, second = parameters_of_the_trainer(config, ROWS, 2)
    assert abs(second - first).max() > 0
    assert np.isfinite(second).all()
