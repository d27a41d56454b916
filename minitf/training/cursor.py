"""The position of a run in its training text, and the batches of each update."""

import dataclasses

import numpy as np

__all__ = ["Cursor", "UpdateBatches"]


@dataclasses.dataclass(frozen=True)
class UpdateBatches:
    """The batches of one update, and where they are in the training text.

    epoch, position: of the first batch; both count from 0.
    indices: for each batch an array of indices into the dataset.

    >>> str(UpdateBatches(0, 2, [np.arange(9)])), str(UpdateBatches(1, 2, [np.arange(9)] * 3))
    ('epoch 1, batch 3', 'epoch 2, batch 3 and the 2 after it')
    """

    epoch: int
    position: int
    indices: list[np.ndarray]

    def __str__(self):
        # Not "batches 3 to 5": the last ones may be the first of the next epoch.
        more = len(self.indices) - 1
        after = f" and the {more} after it" if more > 1 else " and the one after it" if more else ""
        return f"epoch {self.epoch + 1}, batch {self.position + 1}{after}"


class Cursor:
    """Steps through the batches of epoch after epoch.

    The batches of an epoch and their order depend on the seed and the epoch alone. So `epoch` and
    `position`, the number of its batches already taken, are all that a checkpoint has to store.
    plan: the batches of this epoch.
    """

    def __init__(self, dataset, batch_tokens, seed):
        self.dataset, self.batch_tokens, self.seed = dataset, batch_tokens, seed
        self.move(0, 0)

    def move(self, epoch, position):
        """Go to a position in an epoch."""
        self.epoch, self.position = epoch, position
        self.plan = self.dataset.plan(epoch, self.batch_tokens, self.seed)

    def next(self, n):
        """Return the next n batches, as UpdateBatches; they may reach into the next epoch."""
        self._begin_epoch_if_due()
        epoch, position = self.epoch, self.position
        return UpdateBatches(epoch, position, [self._next_batch() for _ in range(n)])

    def epochs(self):
        """Return the number of epochs done, the current one as a fraction."""
        return self.epoch + self.position / len(self.plan)

    def _next_batch(self):
        self._begin_epoch_if_due()
        self.position += 1
        return self.plan[self.position - 1]

    def _begin_epoch_if_due(self):
        # Beyond the last batch only if a resumed run has less text than before.
        if self.position >= len(self.plan):
            self.move(self.epoch + 1, 0)
