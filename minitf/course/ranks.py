"""The ranks of a run, computed one after the other in one process: for a lesson without mpirun."""

from types import SimpleNamespace

import numpy as np

from minitf.backend import to_numpy
from minitf.training.cursor import UpdateBatches
from minitf.training.distributed import Ranks
from minitf.training.update import Updater

__all__ = ["gradients_of_ranks"]


def gradients_of_ranks(model, optimizer, batches, size, seed, step):
    """Return what each rank computes of an update, before the ranks sum it: flat gradients.

    Everything but the sending is the trainer's: its Updater says which rows a rank takes, and adds
    up their gradients. What the ranks would ask each other, the number of target tokens of the
    update, each is told in advance.

    model, optimizer: a Transformer, and the Adam of its parameters. batches: of the update.
    size: the number of ranks. seed, step: of the dropout masks.
    """
    n_tokens = sum(model.count_targets(batch.target_out) for batch in batches)
    dataset = SimpleNamespace(batch=lambda indices: batches[indices[0]])
    update = UpdateBatches(0, 0, [np.full(len(b.target_out), i) for i, b in enumerate(batches)])
    gradients = []
    for rank in range(size):
        ranks = _Alone(rank, size, n_tokens)
        options = {"ranks": ranks, "seed": seed, "accumulate": len(batches)}
        Updater(model, optimizer, dataset, **options).gradient(update, step)
        gradients.append(to_numpy(optimizer.gradients).copy())
    return gradients


class _Alone(Ranks):
    """A rank that sends nothing, and knows the target tokens of all ranks."""

    def __init__(self, rank, size, n_tokens):
        super().__init__(rank, size)
        self.n_tokens = n_tokens

    def sum_numbers(self, *numbers):
        return (self.n_tokens,) if len(numbers) == 1 else numbers  # else the loss, in two forms

    def all_reduce(self, array):
        """Leave the gradient of this rank as it is."""

    def broadcast(self, value):
        return value
