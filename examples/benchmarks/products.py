"""The matrix products of a training step alone: the lower bound for any engine that uses them.

A step runs once on arrays that record the products they take part in. Then only these products run
again, on arrays of the same shapes and strides, the slices of the batch in parallel as in the step.
The bound is not tight: operands are reused, so more of them are still in the cache than in a step.
"""

import itertools
import types

import numpy as np
from threadpoolctl import ThreadpoolController

from benchmarks.ours import Training
from benchmarks.protocol import serve
from minitf import backend, forms
from minitf import functions as F
from minitf.training.update import shares


class Watched(np.ndarray):
    """An array that records the matrix products it takes part in, in Watched.seen."""

    seen = None

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        plain = [_plain(x) for x in inputs]
        options = {name: _plain(value) for name, value in options.items()}
        if out is not None:
            options["out"] = tuple(_plain(x) for x in out)
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul and all(x.ndim > 1 for x in plain):
            Watched.seen.append([(x.shape, x.strides) for x in (*plain, result)])
        if out is not None:
            return out[0]
        return result.view(Watched) if isinstance(result, np.ndarray) else result


def _plain(x):
    return x.view(np.ndarray) if isinstance(x, Watched) else x


def _watching():
    """NumPy, except for the functions that would turn watched arrays into plain ones."""
    module = types.ModuleType("watched_numpy")
    module.__dict__.update(
        {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    )
    module.asarray = np.asanyarray
    for name in ("where", "empty", "zeros", "ones"):
        make = getattr(np, name)
        setattr(
            module, name, lambda *args, make=make, **options: make(*args, **options).view(Watched)
        )
    return module


def record(training):
    """Run one step and return the products of each slice of the batch.

    Each product is a list of (shape, strides) of x, y and x @ y.
    """
    batch, parts = training.batches[0], []
    training.gradients()  # after which those replicas have a gradient that share the batch
    copies = training.updater.models[1:]
    replicas = 1 + sum(copy.embedding.weight.grad is not None for copy in copies)
    with backend.using(_watching()):
        for p in training.model.parameters():
            p.data = p.data.view(Watched)
        for [(_, start, stop)] in shares([len(batch.source)], replicas):
            Watched.seen, part = [], batch.rows(start, stop)
            with F.dropout_state(1, 0, part.first_row):
                loss, _ = training.model.train().loss(
                    part.source, part.target_in, part.target_out, batch.n_tokens
                )
            loss.backward()
            parts.append(Watched.seen)
        for p in training.model.parameters():
            p.data = p.data.view(np.ndarray)
    return parts


def flops(products):
    """Return the number of multiplications and additions."""
    return sum(2 * np.prod(out[0], dtype=float) * x[0][-1] for x, _, out in products)


class Products:
    """The recorded products, ready to run again."""

    def __init__(self, parts, pool):
        self.parts, self.pool = [self._laid_out(products) for products in parts], pool
        self.controller = ThreadpoolController()

    @staticmethod
    def _laid_out(products):
        """Return arrays for the products of one slice: one for each layout and role."""
        arrays, rng = {}, np.random.default_rng(0)

        def array(role, shape, strides):
            if (role, shape, strides) not in arrays:
                size = 1 + sum(
                    (n - 1) * stride // 4 for n, stride in zip(shape, strides, strict=True)
                )
                flat = rng.standard_normal(size, dtype=np.float32)
                arrays[role, shape, strides] = np.lib.stride_tricks.as_strided(flat, shape, strides)
            return arrays[role, shape, strides]

        return [
            [array(role, *layout) for role, layout in zip("xyo", product, strict=True)]
            for product in products
        ]

    @staticmethod
    def _multiply(products):
        for x, y, out in products:
            np.matmul(x, y, out=out)

    def __call__(self):
        if len(self.parts) == 1:
            return self._multiply(self.parts[0])
        with self.controller.limit(limits=1, user_api="blas"):
            list(self.pool.map(self._multiply, self.parts))


def train(task):
    training = Training.of(task)
    return Products(record(training), training.updater.pool)


def count(task):
    """Return the number of products and floating-point operations of a step."""
    products = list(itertools.chain(*record(Training.of(task))))
    return {"products": len(products), "flops": flops(products)}


if __name__ == "__main__":
    with forms.on():
        serve({"train": train, "count": count})
