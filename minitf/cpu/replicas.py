"""Several cores of one machine: each thread takes some rows of the batch; the gradients are summed.

A matrix product on two cores leaves one of them idle between products. Two halves of the batch,
each on its own core with products of one thread, keep both busy from the first layer to the last.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import ThreadpoolController

from minitf import functions as F
from minitf.backend import xp
from minitf.cpu.machine import cpu_cores
from minitf.cpu.sums import stretches
from minitf.cpu.threads import lent
from minitf.nn import flatten

__all__ = ["Replicas", "keep_to_cores", "machine", "threads_for"]

_TINY = 1e8  # operations in a matrix product: about a millisecond on one core
_WORTH_IT = 1 << 16  # numbers in the activations of a replica; with fewer a thread gains nothing
_libraries = ThreadpoolController()  # made once: to find the libraries takes half a millisecond


def threads_for(operations):
    """Return a `with` block in which products of fewer operations than _TINY have one thread.

    The threads of BLAS wait for each other at the end of every product. If another process has one
    of the cores, they wait for a slice of the scheduler's time, some milliseconds: ten to thirty
    times as long as a tiny product. On idle cores the second thread gains nothing below _TINY.
    """
    return _one_thread() if operations < _TINY else contextlib.nullcontext()


def _one_thread():
    return _libraries.limit(limits=1, user_api="blas")


def keep_to_cores():
    """Give BLAS at most one thread for each core: it does not know the quota of a container."""
    for library in _libraries.select(user_api="blas").lib_controllers:
        library.set_num_threads(min(library.get_num_threads(), cpu_cores()))


def machine(replicas):
    """Return the facts that the last bits of a sum depend on.

    Where one of them differs, a resumed run is not bit-exact.
    """
    blas = [
        (
            f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')} "
            f"x{pool['num_threads']}"
        )
        for pool in _libraries.info()
        if pool["user_api"] == "blas"
    ]
    library = f"{xp.__name__} {getattr(xp, '__version__', '')}".strip()
    return {
        "arrays": library,
        "matrix products": ", ".join(sorted(set(blas))),
        "replicas": replicas,
    }


class Replicas:
    """The same model several times: shared weights, but a graph and gradients for each.

    build: makes a model of the same shape without drawing its weights. count: the most replicas;
    how many of them a batch gets is a function of its shape alone, so that a run can be repeated
    bit by bit.
    """

    def __init__(self, model, build, count):
        self.models = [model]
        for _ in range(count - 1):
            twin = build()
            self.models.append(twin)
            self._share()  # its own weights are not drawn, and may be NaN
            flatten(twin.parameters())
        self.pool = ThreadPoolExecutor(count) if count > 1 else None

    def parts(self, batch):
        """Cut a batch into the parts that the replicas take."""
        rows, width = batch.target_in.shape
        size = rows * width * self.models[0].config.d_model
        n = max(1, min(len(self.models), size // _WORTH_IT, rows))
        return [batch.rows(start, stop) for start, stop in stretches(rows, n)]

    def backward(self, batch, n_tokens, seed, step):
        """Leave the gradient of loss / n_tokens in the first model;
        return (loss, nll) as arrays.
        """
        parts = self.parts(batch)

        def work(model, part):
            with F.dropout_state(seed, step, part.first_row):
                loss, nll = model.train().loss(
                    part.source, part.target_in, part.target_out, n_tokens
                )
            loss.backward()
            return loss.data, nll.data

        if len(parts) == 1:
            with threads_for(self._operations(batch)):
                return work(self.models[0], parts[0])
        self._share()
        with _one_thread():
            results = list(self.pool.map(work, self.models, parts))
        self._sum(len(parts))
        return tuple(sum(column) for column in zip(*results, strict=True))

    def _operations(self, batch):
        """Return the multiplications and additions of the largest product that all layers have."""
        config = self.models[0].config
        return 2 * max(batch.source.size, batch.target_in.size) * config.d_model * config.d_ff

    def lend_threads(self):
        """Return a `with` block in which forms may use the threads of these replicas."""
        return lent(self.pool, len(self.models))

    def _sum(self, n):
        """Sum the gradients of n replicas in the first; each core takes a slice of each array."""
        gradients = []
        for same in zip(*(model.parameters() for model in self.models[:n]), strict=True):
            if any(p.grad is not None for p in same):
                if same[0].grad is None:  # only rows of other replicas came by this parameter
                    same[0]._receive(xp.zeros_like(same[0].data))
                gradients.append([p.grad.reshape(-1) for p in same if p.grad is not None])

        def work(i):
            for mine, *others in gradients:
                stretch = slice(*stretches(mine.size, n)[i])
                for theirs in others:  # always in this order: sums of floats depend on it
                    mine[stretch] += theirs[stretch]

        list(self.pool.map(work, range(n)))

    def _share(self):
        """Point the replicas to the weights, which an optimizer may have moved."""
        weights = self.models[0].parameters()
        for twin in self.models[1:]:
            for mine, theirs in zip(weights, twin.parameters(), strict=True):
                theirs.data, theirs.grad = mine.data, None
