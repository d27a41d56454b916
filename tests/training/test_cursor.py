"""The cursor: every batch of every epoch once, from wherever a run resumes."""

import numpy as np
import pytest

from minitf.data.dataset import Cursor


class Text:
    """A dataset of five batches, in a different order in each epoch."""

    size = 5

    def plan(self, epoch, batch_tokens, seed):
        rng = np.random.default_rng([seed, epoch])
        return [np.array([i]) for i in rng.permutation(self.size)]


def batches(cursor, n, updates):
    return [int(i[0]) for _ in range(updates) for i in cursor.next(n).indices]


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_an_epoch_has_every_batch_once(n):
    taken = batches(Cursor(Text(), 60, seed=1), n, 15)
    epochs = [taken[start : start + 5] for start in range(0, len(taken) - 4, 5)]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert epochs[0] != epochs[1], "each has its own order"


@pytest.mark.parametrize("done", range(12))
def test_it_goes_on_from_epoch_and_position_alone(done):
    cursor = Cursor(Text(), 60, seed=3)
    batches(cursor, 1, done)
    other = Cursor(Text(), 60, seed=3)
    other.move(cursor.epoch, cursor.position)
    assert other.epochs() == cursor.epochs() == done / 5
    assert batches(other, 2, 6) == batches(cursor, 2, 6)


def test_an_update_knows_where_its_first_batch_is():
    cursor = Cursor(Text(), 60, seed=0)
    assert str(cursor.next(1)) == "epoch 1, batch 1"
    assert str(cursor.next(2)) == "epoch 1, batch 2 and the one after it"
    assert str(cursor.next(3)) == "epoch 1, batch 4 and the 2 after it", "the epoch has 5"
    assert str(cursor.next(1)) == "epoch 2, batch 2"


def test_less_text_than_before():
    """A resumed run may have fewer batches in an epoch than it has already taken."""
    cursor = Cursor(Text(), 60, seed=0)
    cursor.move(2, 13)
    cursor.next(1)
    assert (cursor.epoch, cursor.position) == (3, 1)
