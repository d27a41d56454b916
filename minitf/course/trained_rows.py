"""A few updates of the trainer on rows of digits: lesson 07 repeats them from the equations."""

import tempfile
from types import SimpleNamespace

import numpy as np

from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.training import Settings
from minitf.training.trainer import Trainer

__all__ = ["ReversedRows", "parameters_of_the_trainer"]


class ReversedRows:
    """The data of a trainer: rows of ids, to be written backwards, in batches of four."""

    def __init__(self, rows, vocabulary):
        self.rows, self.vocabulary = rows, vocabulary

    def plan(self, epoch, batch_tokens, seed):
        """Return which rows make each batch; the order never changes."""
        return np.split(np.arange(len(self.rows)), len(self.rows) // 4)

    def batch(self, indices):
        """Return the batch of some rows."""
        sources = [self.rows[i] for i in indices]
        return make_batch(sources, [source[::-1] for source in sources], self.vocabulary)

    def fingerprint(self):
        """Return what a resumed run compares."""
        return f"{len(self.rows)} rows of digits"


def parameters_of_the_trainer(config, rows, updates):
    """Return all parameters after each update of two batches of four rows.

    The trainer's settings: warmup_steps 2, the factor 0.5 of the learning rate, the usual seed.
    """
    path = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=folder, accumulate=2, steps=updates, warmup_steps=2, learning_rate=0.5,
            valid_every=100,
        )  # fmt: skip
        data = ReversedRows(rows, config.vocabulary_size)
        trainer = Trainer(settings, data, config, SimpleNamespace(say=print))
        for _ in range(updates):
            trainer.update()
            path.append(Tensor(trainer.optimizer.data).numpy().copy())
    return path
