"""One batch on several cores: each replica computes a slice of its rows; the gradients are summed.

A matrix product on two cores leaves one of them idle between products. Two halves of the batch,
each on its own core with products of one thread, keep both busy from the first layer to the last.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from minitf import functions as F
from minitf.backend import xp
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import lent, libraries, one_blas_thread
from minitf.nn import flatten

__all__ = ["Replicas", "keep_to_cores", "machine", "threads_for"]

_TINY = 1e8  # operations of a matrix product: about a millisecond on one core
_WORTH_IT = 1 << 16  # numbers in the activations of a replica; for fewer, a thread costs too much


def threads_for(operations):
    """Return a `with` block in which BLAS has one thread if products are tiny, else all.

    operations: multiplications and additions of a product.
    The threads of BLAS wait for each other at the end of every product. If another process uses one
    of the cores, they wait some milliseconds until the scheduler runs them: ten to thirty times as
    long as a tiny product takes. On idle cores a second thread gains nothing for a tiny product.
    """
    return one_blas_thread() if operations < _TINY else contextlib.nullcontext()


def keep_to_cores(count):
    """Limit BLAS to `count` threads; on its own it ignores the CPU quota of a container."""
    for library in libraries.select(user_api="blas").lib_controllers:
        library.set_num_threads(min(library.get_num_threads(), count))


def machine(replicas):
    """Return the facts on which the last bits of a sum depend: {name: value}.

    If one of them changes, a resumed run is not bit-exact.
    """
    blas = [
        (
            f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')} "
            f"x{pool['num_threads']}"
        )
        for pool in libraries.info()
        if pool["user_api"] == "blas"
    ]
    library = f"{xp.__name__} {getattr(xp, '__version__', '')}".strip()
    return {
        "arrays": library,
        "matrix products": ", ".join(sorted(set(blas))),
        "replicas": replicas,
    }


class Replicas:
    """Copies of a model that share its weights; each has its own graph and gradients.

    build: makes a model of the same shape; its weights need not be drawn.
    count: the largest number of replicas. How many of them share a batch depends on its shape
    alone, so that a run can be repeated bit for bit.
    """

    def __init__(self, model, build, count):
        self.models = [model]
        for _ in range(count - 1):
            twin = build()
            self.models.append(twin)
            self._share()  # its own weights may be NaN
            flatten(twin.parameters())
        self.pool = ThreadPoolExecutor(count) if count > 1 else None

    def slices(self, batch):
        """Cut a batch into slices, one for each replica that is worth its thread."""
        rows, width = batch.target_in.shape
        size = rows * width * self.models[0].config.d_model
        n = max(1, min(len(self.models), size // _WORTH_IT, rows))
        return [batch.rows(start, stop) for start, stop in slice_bounds(rows, n)]

    def backward(self, batch, n_tokens, seed, step):
        """Add the gradient of a batch to the first model; return (loss, nll) as arrays.

        n_tokens: the target tokens by which both are divided.
        seed, step: of the dropout masks.
        """
        slices = self.slices(batch)

        def work(model, rows):
            with F.dropout_state(seed, step, rows.first_row):
                loss, nll = model.train().loss(
                    rows.source, rows.target_in, rows.target_out, n_tokens
                )
            loss.backward()
            return loss.data, nll.data

        if len(slices) == 1:
            with threads_for(self._operations(batch)):
                return work(self.models[0], slices[0])
        self._share()
        with one_blas_thread():
            results = list(self.pool.map(work, self.models, slices))
        self._sum(len(slices))
        return tuple(sum(column) for column in zip(*results, strict=True))

    def _operations(self, batch):
        """Return the operations of the largest product that every layer has."""
        config = self.models[0].config
        return 2 * max(batch.source.size, batch.target_in.size) * config.d_model * config.d_ff

    def lend_threads(self):
        """Return a `with` block in which forms may use the threads of these replicas."""
        return lent(self.pool, len(self.models))

    def _sum(self, n):
        """Sum the gradients of n replicas in the first; each core sums a slice of each array."""
        gradients = []
        for same in zip(*(model.parameters() for model in self.models[:n]), strict=True):
            if any(p.grad is not None for p in same):
                if same[0].grad is None:  # only rows of other replicas used this parameter
                    same[0]._receive(xp.zeros_like(same[0].data))
                gradients.append([p.grad.reshape(-1) for p in same if p.grad is not None])

        def work(i):
            for mine, *others in gradients:
                own = slice(*slice_bounds(mine.size, n)[i])
                for theirs in others:  # always in this order: sums of floats depend on it
                    mine[own] += theirs[own]

        list(self.pool.map(work, range(n)))

    def _share(self):
        """Point the replicas to the weights, which an optimizer may have moved in memory."""
        weights = self.models[0].parameters()
        for twin in self.models[1:]:
            for mine, theirs in zip(weights, twin.parameters(), strict=True):
                theirs.data, theirs.grad = mine.data, None
