"""One update of the weights: the gradient, by all cores of all ranks; its check; Adam's step.

A matrix product on two cores leaves one of them idle between products. Two halves of a batch, each
on its own core with products of one thread, keep both busy from the first layer to the last.
"""

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.backend import on_gpu, to_device, to_numpy, xp
from minitf.cpu.machine import instruction_sets
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import libraries, one_blas_thread, use_pool
from minitf.decode import made_up_texts
from minitf.errors import UserError
from minitf.gpu.functions import updates_only_if
from minitf.optim import adam_update, clip_gradient, gradient_norm
from minitf.text.batches import Batch
from minitf.training.distributed import Ranks

_SMALL_PRODUCT = 1e8  # operations of a matrix product: about a millisecond on one core
_MIN_ACTIVATIONS = 1 << 16  # numbers of a replica; for fewer, a thread costs too much


def slices_of(sizes, count):
    """Cut the rows of some batches into equal slices: [(batch, first row, row after last)] of each.

    sizes: the number of rows of each batch; each batch counts as equally long. A cut is between
    batches where possible, else between rows.

    >>> slices_of([10, 4, 8, 8], 2)
    [[(0, 0, 10), (1, 0, 4)], [(2, 0, 8), (3, 0, 8)]]
    >>> slices_of([10, 4, 8], 2)
    [[(0, 0, 10), (1, 0, 2)], [(1, 2, 4), (2, 0, 8)]]
    """
    # The unit is 1 / count of a batch, so that every slice has len(sizes) units.
    slices = []
    for number in range(count):
        edges = number * len(sizes), (number + 1) * len(sizes)
        rows = [
            (i, *(n * min(max(edge - i * count, 0), count) // count for edge in edges))
            for i, n in enumerate(sizes)
        ]
        slices.append([(i, start, stop) for i, start, stop in rows if start < stop])
    return slices


def threads_for(operations):
    """Return a `with` block in which BLAS has one thread if products are tiny, else all.

    operations: multiplications and additions of a product.
    The threads of BLAS wait for each other at the end of every product. If another process uses one
    of the cores, they wait some milliseconds until the scheduler runs them: ten to thirty times as
    long as a tiny product takes; on idle cores a second thread saves a fifth of an update at most.
    """
    return one_blas_thread() if operations < _SMALL_PRODUCT else contextlib.nullcontext()


class Updater:
    """Updates a model: its weights change by the gradient of some batches, or not at all.

    Each rank computes a slice of the rows of an update. On a rank, each replica, a copy of the
    model that shares its weights, computes a slice of the rows of a batch on a core of its own. The
    sum of their gradients is the gradient that one core would have found, up to rounding.

    model, optimizer: a Transformer, and the Adam of its parameters. dataset: has the batches of
    `update` and `gradient`. build: makes a model of the same shape, for another replica; its
    weights need not be drawn. replicas: how many a rank has, 0 for one on each core; a GPU has one.
    How many share a batch depends on its shape alone, so that a run can be repeated bit for bit.
    ranks: the Ranks of the run. seed: determines the dropout masks. clip: the largest norm of a
    gradient, 0 for any.

    machine: the facts on which the last bits of a sum depend; if one of them changes, a resumed run
    is not bit-exact.
    loss: that of the last update that was read. unlogged: (loss, nll, norm, target tokens), as
    plain numbers, for each update read since the last entry of the log.
    """

    def __init__(
        self, model, optimizer, dataset=None, build=None, replicas=1, ranks=None, seed=0, clip=0.0
    ):
        self.optimizer, self.dataset, self.ranks = optimizer, dataset, ranks or Ranks()
        self.seed, self.clip = seed, clip
        n = 1 if on_gpu() else replicas or self.ranks.cores()
        self.models = [model, *(build() for _ in range(n - 1))]
        # For each weight, the parameters of all replicas, which share its values.
        self.weights = list(zip(*(each.parameters() for each in self.models), strict=True))
        for mine, *others in self.weights:
            for parameter in others:
                parameter.data = mine.data
        self.pool = ThreadPoolExecutor(n) if n > 1 else None
        self.machine = _machine() | {
            "replicas": n,
            "ranks": self.ranks.size,
            "forms": "on" if forms.all_forms() else "off",
        }
        self.finite = True  # on a GPU a flag, which makes all updates after a wrong one no-ops
        self.loss, self.unlogged, self._pending = math.nan, [], []

    def update(self, batches, rate):
        """Change the weights once, with this learning rate. batches: an UpdateBatches.

        Returns (loss, plain negative log-likelihood, gradient norm, target tokens), the first three
        as arrays.
        Raises UserError before anything is changed if one of them is not finite. On a GPU that
        would mean waiting for every update; there the weights stay, and `fetch_figures` raises.
        """
        step = self.optimizer.step_count
        figures = loss, _, norm, _ = self.gradient(batches, step)
        self._pending.append((step, batches, figures))
        # Several ranks exchange their figures in every update, and Adam's equation reads no flag.
        if on_gpu() and self.ranks.size == 1 and forms.is_on(adam_update):
            self.finite &= xp.isfinite(loss) & xp.isfinite(norm)
        else:
            self.fetch_figures()
        gradients = self.optimizer.gradients
        if self.clip:
            clip_gradient(gradients, self.clip, norm)
        with use_pool(self.pool, len(self.models)), updates_only_if(self.finite):  # of Adam's form
            self.optimizer.step(rate, gradients)
        return figures

    # The gradient ---------------------------------------------------------------------------------

    def gradient(self, batches, step):
        """Leave the gradient of an update in the optimizer: the same on every rank.

        batches: an UpdateBatches, of as many batches in every update. step: the number of updates
        before this one. Returns the figures, as `update`.
        """
        sizes = [len(indices) for indices in batches.indices]
        mine = [
            (i, self.dataset.batch(batches.indices[i]).rows(start, stop))
            for i, start, stop in slices_of(sizes, self.ranks.size)[self.ranks.rank]
        ]
        count = self.models[0].count_targets
        (n_tokens,) = self.ranks.sum_numbers(sum(count(batch.target_out) for _, batch in mine))
        self.optimizer.zero_grad()
        loss, nll = 0.0, 0.0
        for i, batch in mine:
            figures = self.backward(batch, n_tokens, step * len(sizes) + i)
            loss, nll = loss + figures[0], nll + figures[1]
        gradients = self.optimizer.gather_gradients()
        self.ranks.all_reduce(gradients)
        with threads_for(2 * gradients.size):
            norm = gradient_norm(gradients)
        if self.ranks.size > 1:
            loss, nll = self.ranks.sum_numbers(float(loss), float(nll))
            norm = self.ranks.broadcast(float(norm))  # its last bits depend on the machine
            loss, nll, norm = (to_device(x, gradients.dtype) for x in (loss, nll, norm))
        return loss, nll, norm, n_tokens

    def backward(self, batch, n_tokens, step):
        """Add the gradient of a batch to the model's, on all cores of this rank.

        n_tokens: the target tokens by which it is divided. step: the number of the batch in the
        run, for the dropout masks. Returns (loss, plain negative log-likelihood) as arrays.
        """
        rows, width = batch.target_in.shape
        config = self.models[0].config
        # Each replica has to be worth its thread.
        n = max(1, min(len(self.models), rows * width * config.d_model // _MIN_ACTIVATIONS, rows))

        def compute(model, part):
            if not model.training:
                model.train()  # visits all modules: 3% of an update of a tiny model
            with F.dropout_state(self.seed, step, part.first_row):
                loss, nll = model.loss(part.source, part.target_in, part.target_out, n_tokens)
            loss.backward()
            return loss.data, nll.data

        if n == 1:
            tokens = max(batch.source.size, batch.target_in.size)
            with threads_for(2 * tokens * config.d_model * config.d_ff):  # in every layer
                return compute(self.models[0], batch)
        parts = [batch.rows(*bounds) for bounds in slice_bounds(rows, n)]

        def add(core):
            for mine, *others in self.weights:
                own = slice(*slice_bounds(mine.size, n)[core])
                # Always in this order: sums of floats depend on it.
                for theirs in (each.grad for each in others if each.grad is not None):
                    mine.grad.reshape(-1)[own] += theirs.reshape(-1)[own]

        try:
            with one_blas_thread():
                figures = list(self.pool.map(forms.in_threads(compute), self.models, parts))
            self.optimizer.gather_gradients()  # with zeros where there is none
            list(self.pool.map(add, range(n)))
        finally:
            for replica in self.models[1:]:  # so that the next forward pass has their memory
                replica.zero_grad()
        return tuple(sum(column) for column in zip(*figures, strict=True))

    # The checks -----------------------------------------------------------------------------------

    def try_batch(self, batch):
        """Run a batch forward and backward, and discard the results."""
        loss, _ = self.backward(batch, batch.n_tokens, 0)
        float(loss)  # waits for a GPU
        self.models[0].zero_grad()

    def verified_forms(self):
        """Return the ops whose forms may train this model: see `forms.verified`.

        It compares the loss of a few made-up tokens, the length of each parameter's gradient G and
        u^T G v with fixed vectors u and v, and two updates by Adam. So a large model needs no more
        memory than for an update. Key biases have a gradient of 0 up to rounding: so gradients are
        compared relative to a thousandth of the length of the whole gradient.
        """
        source, before = made_up_texts(self.models[0].config)
        target = np.roll(before, -1, axis=1)
        target[:, -1] = self.models[0].config.eos_id
        batch = Batch(*(ids.astype(np.int32) for ids in (source, before, target)))

        def numbers():
            self.optimizer.zero_grad()
            loss, nll = self.backward(batch, target.size, 0)
            least = float(gradient_norm(self.optimizer.gather_gradients())) / 1000
            gradients = [p.grad for _, p in self.optimizer.named_parameters if p.grad is not None]
            figures = [np.array([*_sketch(gradient), least]) for gradient in gradients]
            figures.append(np.array([float(loss), float(nll)]))
            x, m, v = to_device([np.linspace(-1, 1, 9), *np.zeros((2, 9))], gradients[0].dtype)
            for t in (1, 2):
                adam_update(x, x * x + 1, m, v, t, 0.01)
            return [*figures, to_numpy(x)]

        verified = forms.verified(numbers)
        self.optimizer.zero_grad()
        return verified

    def fetch_figures(self):
        """Fetch the figures of updates that were not read; raise at the first that is not finite.

        The UserError names the first weight, loss or gradient that is not finite.
        """
        if not self._pending:
            return
        unread, self._pending = self._pending, []
        # One transfer for all of them: on a GPU, each one waits.
        table = to_numpy(xp.stack([xp.stack(figures[:3]) for _, _, figures in unread])).tolist()
        for (step, batches, (*_, n_tokens)), row in zip(unread, table, strict=True):
            if not all(map(math.isfinite, row)):
                if self.finite is not True:
                    # The gradient in memory is of a later update: compute it again.
                    self.optimizer.step_count = step
                    self.gradient(batches, step)
                raise UserError(
                    f"{self._not_finite(row[0])} at step {step + 1} ({batches}): the update was "
                    "not made; continue from the last checkpoint with --resume, and with a lower "
                    "--learning-rate or --clip 1 if it happens again"
                )
            self.loss = row[0]
            self.unlogged.append((*row, n_tokens))

    def _not_finite(self, loss):
        """Name what is not finite: a weight spoils the loss, and the loss the gradients."""
        parameters = self.optimizer.named_parameters
        for name, parameter in parameters:
            if not bool(xp.isfinite(parameter.data).all()):
                return f"the weight {name} is not finite"
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        for name, parameter in parameters:
            if parameter.grad is not None and not bool(xp.isfinite(parameter.grad).all()):
                return f"the gradient of {name} is not finite"
        return "the norm of the gradient is not finite"


def _sketch(gradient):
    """Return the length of a gradient G (a, ...), and u^T G v."""
    matrix = gradient.reshape(len(gradient), -1)
    u, v = (xp.cos(xp.arange(n, dtype=matrix.dtype)) for n in matrix.shape)
    return float(gradient_norm(matrix.ravel())), float(u @ matrix @ v)


def _machine():
    """Return the array library, NumPy's instruction sets, and the libraries of matrix products."""
    blas = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')} "
        f"x{pool['num_threads']}"
        for pool in libraries.info()
        if pool["user_api"] == "blas"
    }
    return {
        "arrays": f"{xp.__name__} {getattr(xp, '__version__', '')}".strip(),
        "instruction sets": instruction_sets(),
        "matrix products": ", ".join(sorted(blas)),
    }
