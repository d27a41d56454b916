"""minitf, used as its trainer and its translator use it."""

import dataclasses
import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from benchmarks import work
from benchmarks.protocol import cores, peak_memory, serve
from minitf import Config, Tensor, Transformer, __version__, forms
from minitf import functions as F
from minitf.cpu.machine import keep_memory
from minitf.cpu.workers import over_cores
from minitf.data import corpora, dataset, toy
from minitf.data.dataset import UpdateBatches
from minitf.optim import Adam
from minitf.text import Batch
from minitf.training.settings import Settings
from minitf.training.update import Updater
from minitf.translation.translator import Translator, slices

BUNDLED = Path(__file__).resolve().parent.parent / "models" / "en-de"


def about(task):
    """Return versions and threads, for the head of the table.

    OpenBLAS chooses kernels for the processor, unless OPENBLAS_CORETYPE names others.
    """
    blas = next((pool for pool in threadpool_info() if pool["user_api"] == "blas"), {})
    library = [blas.get("internal_api", "no BLAS"), blas.get("version"), blas.get("architecture")]
    library = " ".join(filter(None, library))
    versions = {"minitf": __version__, "NumPy": np.__version__, "matrix products": library}
    return versions | {"threads": task.get("threads") or cores()}


def draw(task):
    """Write the weights that all contenders start from."""
    model = Transformer(Config(**task["model"]))
    np.savez(task["weights"], **work.weights(model.state(), "beam" in task))


def model_of(task):
    """Return a model with the weights that all contenders start from."""
    with np.load(task["weights"]) as arrays:
        # Read one by one.
        return Transformer(Config(**task["model"]), initialise=False).load_state(arrays)


def bundled(task):
    """Write English lines, and the weights of the bundled model; return its sizes.

    The lines are different sentences of the built-in corpus, drawn from a fixed seed: the same on
    every machine.
    """
    lines, _ = toy.pairs(task["lines"], seed=1)
    Path(task["input"]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = Translator.load(BUNDLED).model
    np.savez(task["weights"], **model.state())
    return dataclasses.asdict(model.config)


# Training -----------------------------------------------------------------------------------------


class Training:
    """The updates of a trainer, on batches taken in turn."""

    def __init__(self, model, batches, threads):
        keep_memory()
        self.model, self.batches, self.steps = model, batches, 0
        self.updater = Updater(
            model,
            Adam(model.named_parameters()),
            dataset=self,
            build=lambda: Transformer(model.config, initialise=False),
            replicas=threads or cores(),
            seed=1,
        )

    @classmethod
    def of(cls, task):
        """Return the training run with the weights and the one batch of a task."""
        model = model_of(task).astype(task.get("dtype", "float32"))
        return cls(model, [Batch(*work.batch(task))], task["threads"])

    def batch(self, indices):
        """Return the batch whose number all its rows have."""
        return self.batches[indices[0]]

    def next(self):
        """Return the next batch, as an update takes it."""
        i = self.steps % len(self.batches)
        return UpdateBatches(0, i, [np.full(len(self.batches[i].source), i)])

    def gradients(self):
        """Run forward and backward; returns the loss."""
        return float(self.updater.gradient(self.next(), self.steps)[0])

    def step(self):
        """Make one update; returns the loss."""
        loss, *_ = self.updater.update(self.next(), work.RATE)
        self.steps += 1
        return float(loss)


def check_training(task):
    """Return the losses of three steps; the gradients of the first go into a file."""
    training = Training.of(task)
    training.gradients()
    np.savez(task["out"], **{name: p.grad for name, p in training.model.named_parameters()})
    return [training.step() for _ in range(3)]


class Epoch:
    """Updates on some batches of an epoch of a real corpus, evenly spread over it."""

    def __init__(self, task):
        subwords = Translator.load(BUNDLED).subwords
        settings = Settings(corpus=task["corpus"], batch_tokens=task["batch_tokens"])
        pairs = dataset.prepare(settings, corpora.load(task["corpus"]), lambda line: None, subwords)
        plan = pairs.plan(0, settings.batch_tokens, 1)
        chosen = np.linspace(0, len(plan) - 1, task["batches"], dtype=int)
        batches = [pairs.batch(plan[i]) for i in chosen]
        config = Config(**task["model"] | {"vocabulary_size": len(subwords)})
        self.training = Training(Transformer(config), batches, task["threads"])
        ids = [side for batch in batches for side in (batch.source, batch.target_out)]
        tokens, places = sum(np.count_nonzero(side) for side in ids), sum(side.size for side in ids)
        self.facts = {
            "tokens": int(tokens),
            "padding": float(1 - tokens / places),
            "batches": len(plan),
        }

    def __call__(self):
        for _ in self.training.batches:
            self.training.step()


# Decoding, attention ------------------------------------------------------------------------------


def decoder(task):
    """Return a function that decodes the sentences of the task, giving (ids, ln P) of each."""
    keep_memory()
    source = work.sentences(task)
    translator = Translator(model_of(task), None)

    def search(rows):
        return translator._search(
            rows, task["beam"], task["alpha"], task["length"] - task["source"], 1
        )

    def decode():  # what a translator does between text and text
        with threadpool_limits(1, "blas"):
            pieces = list(over_cores(search, slices(source, task["beam"])))
        return [(best[0].ids, best[0].log_probability) for best in chain.from_iterable(pieces)]

    forks = min(cores(), len(slices(source, task["beam"]))) - 1
    decode.memory = functools.partial(peak_memory, forks)
    return decode


class Attention:
    """Attention alone, forward and backward, on heads that are views of (B, n, H, K).

    These are the layouts inside a model. The batch is cut over the cores as the Updater cuts it.
    """

    def __init__(self, task):
        keep_memory()
        arrays = [array.transpose(0, 2, 1, 3) for array in work.heads(task)]
        count = min(task["threads"] or cores(), task["pairs"])
        cuts = [task["pairs"] * i // count for i in range(count + 1)]
        self.parts = [
            [array[start:stop] for array in arrays] for start, stop in itertools.pairwise(cuts)
        ]
        self.pool, self.controller = ThreadPoolExecutor(count), ThreadpoolController()

    @staticmethod
    def part(arrays):
        """Return the result and the three gradients of some rows.

        Tensor.backward is not used: it would copy the gradients, which no attention inside a model
        does.
        """
        y = F.attention(*(Tensor(array) for array in arrays[:3]))
        return y.data, *y._node.backward(arrays[3])[:3]

    def __call__(self):
        if len(self.parts) == 1:
            return [self.part(self.parts[0])]
        with self.controller.limit(limits=1, user_api="blas"):
            return list(self.pool.map(self.part, self.parts))


def check_attention(task):
    """Write the result and the gradients to a file."""
    results = zip(*Attention(task)(), strict=True)
    np.savez(
        task["out"],
        **{name: np.concatenate(parts) for name, parts in zip("yqkv", results, strict=True)},
    )


JOBS = {
    "about": about,
    "draw": draw,
    "bundled": bundled,
    "train": lambda task: Training.of(task).step,
    "check train": check_training,
    "epoch": Epoch,
    "decode": decoder,
    "check decode": lambda task: decoder(task)(),
    "attention": Attention,
    "check attention": check_attention,
}

if __name__ == "__main__":
    with forms.on():
        serve(JOBS)
