"""Stops a run at the first loss or gradient that is not finite, before it changes a weight."""

import math

from minitf import backend
from minitf.backend import to_numpy, xp
from minitf.errors import UserError

__all__ = ["Guard"]


class Guard:
    """Checks the figures of every update: (loss, plain negative log-likelihood, gradient norm).

    On the CPU `check` raises immediately. On a GPU that would mean waiting for every update.
    There `check` only clears `finite`, a flag on the GPU that turns this update of Adam and all
    that follow into no-ops, and `read` raises later.

    team: the Team whose gradients it checks.
    unlogged: (loss, nll, norm, target tokens) of the updates that were read since the last entry
    of the log, as plain numbers.
    loss: of the last update read.
    """

    def __init__(self, team):
        self.team = team
        self.finite = True
        self.loss, self.unlogged = math.nan, []
        self._unread = []

    def delays(self):
        """Return whether figures stay on the GPU until `read`.

        Several ranks exchange theirs in every update, so there they are read immediately.
        """
        return backend.on_gpu() and self.team.ranks.size == 1

    def check(self, step, batches, figures, n_tokens):
        """Take the figures of an update that is about to change the weights.

        step: the number of updates before this one. batches: its UpdateBatches.
        Raises UserError if a figure is not finite, on a GPU only in the next call of `read`.
        """
        self._unread.append((step, batches, figures, n_tokens))
        if self.delays():
            loss, _, norm = figures
            self.finite &= xp.isfinite(loss) & xp.isfinite(norm)
        else:
            self.read()

    def read(self):
        """Fetch the unread figures; raise UserError at the first that is not finite."""
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        # One transfer for all of them: on a GPU, each one waits.
        table = to_numpy(xp.stack([xp.stack(figures) for _, _, figures, _ in unread]))
        for (step, batches, _, n_tokens), row in zip(unread, table.tolist(), strict=True):
            if not all(map(math.isfinite, row)):
                self._stop(step, batches, loss=row[0])
            self.loss = row[0]
            self.unlogged.append((*row, n_tokens))

    def has_unlogged(self):
        """Return whether there were updates since the last entry of the log."""
        return bool(self._unread or self.unlogged)

    def _stop(self, step, batches, loss):
        """Raise the UserError that names the first weight, loss or gradient that is not finite."""
        if self.delays():  # the gradient in memory is that of a later update: compute it again
            self.team.optimizer.step_count = step
            self.team.gradient(batches.indices, step)
        raise UserError(
            f"{self._not_finite(loss)} at step {step + 1} ({batches}): the update was not made; "
            "continue from the last checkpoint with --resume, and with a lower --learning-rate "
            "or --clip 1 if it happens again"
        )

    def _not_finite(self, loss):
        """Name what is not finite: a weight spoils the loss, and the loss the gradients."""
        parameters = self.team.optimizer.named_parameters
        for name, parameter in parameters:
            if not bool(xp.isfinite(parameter.data).all()):
                return f"the weight {name} is not finite"
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        for name, parameter in parameters:
            if parameter.grad is not None and not bool(xp.isfinite(parameter.grad).all()):
                return f"the gradient of {name} is not finite"
        return "the norm of the gradient is not finite"
