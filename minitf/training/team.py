"""The gradient of one update, computed by all cores of all ranks together."""

import time

from minitf import forms
from minitf.backend import on_gpu, to_device
from minitf.cpu.replicas import Replicas, machine, threads_for
from minitf.optim import gradient_norm

__all__ = ["Team"]


class Team:
    """Everything that computes an update: ranks, and on each rank replicas, one for each core.

    Each rank takes a slice of the update, each replica a slice of the rank's. The sum of their
    gradients is the gradient that one core would have found, up to rounding.
    model, optimizer: a Transformer, and the Adam of its parameters. dataset: has the batches.
    ranks: the Ranks of the run. build: makes a model for another replica. replicas: how many each
    rank has, 0 for one on each core; a GPU has one. seed: of the dropout masks. accumulate: the
    most batches of an update.
    machine: the facts on which the last bits of a sum depend.
    """

    def __init__(self, model, optimizer, dataset, ranks, build, replicas, seed, accumulate):
        self.optimizer, self.dataset, self.ranks = optimizer, dataset, ranks
        self.seed, self.accumulate = seed, accumulate
        n = 1 if on_gpu() else replicas or ranks.cores()
        self.replicas = Replicas(model, build, n)
        self.machine = machine(n) | {
            "ranks": ranks.size,
            "forms": "on" if forms.are_on() else "off",
        }

    def gradient(self, batches, step):
        """Leave the gradient of some batches in the optimizer: the same on every rank.

        batches: arrays of indices into the dataset. step: the number of updates before this one;
        it decides which dropout masks are drawn.
        Returns (loss, plain negative log-likelihood, gradient norm) as arrays, and the number of
        targets that count, by which loss and gradient are divided.
        """
        mine = self._slices(batches)
        count = self.replicas.models[0].count_targets
        (n_tokens,) = self.ranks.total(sum(count(batch.target_out) for _, batch in mine))
        self.optimizer.zero_grad()
        loss, nll = 0.0, 0.0
        # Not len(batches): an update with fewer of them would repeat masks of earlier ones.
        first = step * self.accumulate
        for i, batch in mine:
            figures = self.replicas.backward(batch, n_tokens, self.seed, first + i)
            loss, nll = loss + figures[0], nll + figures[1]
        gradients = self.optimizer.collect()
        self.ranks.sum(gradients)
        with threads_for(2 * gradients.size):
            norm = gradient_norm(gradients)
        if self.ranks.size > 1:
            loss, nll = self.ranks.total(float(loss), float(nll))
            norm = self.ranks.tell(float(norm))  # its last bits depend on the machine
            loss, nll, norm = (to_device(x, gradients.dtype) for x in (loss, nll, norm))
        return (loss, nll, norm), n_tokens

    def _slices(self, batches):
        """Return this rank's slices of some batches: [(number of the batch, Batch)]."""
        slices = self.ranks.slices([len(indices) for indices in batches])
        return [(i, self.dataset.batch(batches[i]).rows(*rows)) for i, *rows in slices]

    def largest_slice(self, indices, accumulate):
        """Return this rank's slice of a batch, the largest if an update has several such batches.

        indices: of the batch, in the dataset.
        """
        slices = self.ranks.slices([len(indices)] * accumulate)
        most = max((stop - start for _, start, stop in slices), default=1)
        return self.dataset.batch(indices).rows(0, most)

    def try_batch(self, batch):
        """Run a batch forward and backward, discard the results, and return the seconds it took."""
        started = time.perf_counter()
        loss, _ = self.replicas.backward(batch, batch.n_tokens, self.seed, 0)
        float(loss)  # waits for a GPU
        self.replicas.models[0].zero_grad()
        return time.perf_counter() - started

    def lend_threads(self):
        """Return a `with` block in which Adam may use the threads of the replicas."""
        return self.replicas.lend_threads()

    def check_same_weights(self, step):
        """Raise UserError unless all ranks have the same weights, as they should at any step."""
        self.ranks.check_same(self.optimizer.data, f"weights after step {step:,}")
