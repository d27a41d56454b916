"""What the ranks of an update compute, without mpirun."""

import numpy as np
import pytest

from minitf.config import Config
from minitf.course.ranks import gradients_of_ranks
from minitf.optim import Adam
from minitf.text import make_batch
from minitf.transformer import Transformer


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_ranks_gradients_sum_to_that_of_one(size):
    model = Transformer(Config(9, n_layers=1, d_model=8, d_ff=8, n_heads=2))
    model.astype(np.float64)
    adam = Adam(model.named_parameters())
    rows = [[4, 5, 6, 7], [8, 4], [5], [6, 7, 8]]
    batches = [make_batch(rows, rows[::-1], 9), make_batch(rows[:3], rows[1:], 9)]

    (alone,) = gradients_of_ranks(model, adam, batches, 1, seed=3, step=7)
    of_ranks = gradients_of_ranks(model, adam, batches, size, seed=3, step=7)

    assert len(of_ranks) == size
    assert all(np.linalg.norm(gradient - alone) > 0.1 for gradient in of_ranks)
    np.testing.assert_allclose(sum(of_ranks), alone, rtol=0, atol=1e-14)
