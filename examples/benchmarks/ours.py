"""minitf, used as its trainer and its translator use it."""

import dataclasses
import json
import os
import platform
import shutil
import tempfile
import timeit
from itertools import chain
from pathlib import Path

import numpy as np
import sentencepiece
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks import work
from benchmarks.protocol import ON_GPU, cores, serve
from minitf import Config, Transformer, __version__, backend, forms
from minitf.cpu.machine import keep_memory
from minitf.cpu.processes import over_cores
from minitf.data import corpora, toy
from minitf.data.dataset import UpdateBatches
from minitf.gpu.matmul import use_precision
from minitf.optim import Adam
from minitf.public.importing import import_model
from minitf.public.names import names_of_layers
from minitf.text import Batch
from minitf.training.update import Updater
from minitf.translation.translator import Search, Translator, slices

# The instruction sets that change the speed of matrix products, as Linux names them; the last three
# are those of 64-bit Arm.
INSTRUCTIONS = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"),
    *("asimd", "sve", "sve2"),
)
TRIALS = 5
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
    arrays = work.weights(model.state(), "beam" in task)
    np.savez(task["weights"], **arrays)
    if "like" in task:
        np.savez(Path(task["folder"], "marian.npz"), **named_by_marian(model.config, arrays))


def model_of(task):
    """Return a model with the weights that all contenders start from; precision: on a GPU."""
    if "precision" in task:
        use_precision(task["precision"])
    with np.load(task["weights"]) as arrays:  # which are read one by one
        return Transformer(Config(**task["model"]), initialise=False).load_state(arrays)


def bundled(task):
    """Write English lines, and the weights, the sizes and the subwords of the bundled model.

    The lines are different sentences of the built-in corpus, drawn from a fixed seed: the same on
    every machine.
    """
    folder, (lines, _) = Path(task["folder"]), toy.pairs(task["lines"], seed=1)
    (folder / work.INPUT).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = Translator.load(BUNDLED).model
    np.savez(task["weights"], **model.state())
    shutil.copy(BUNDLED / "subwords.model", folder)
    config = json.dumps(dataclasses.asdict(model.config))
    (folder / "config.json").write_text(config, encoding="utf-8")


def named_by_marian(config, arrays):
    """Return the arrays of a model with Marian's names, in Marian's shapes."""
    names = {each.minitf: each.marian for each in names_of_layers(config)}
    names |= {"embedding.weight": "Wemb", "output_bias": "decoder_ff_logit_out_b"}
    return {names[name]: np.atleast_2d(array) for name, array in arrays.items()}


def corpus(task):
    """Write a corpus with its subwords into the folder `trained`, and some lines to translate.

    Marian has the end mark first, and no start mark.
    """
    found, folder = corpora.load(task["corpus"]), Path(task["trained"])
    lines = next(iter(found.tests.values())).source[: task["lines"]]
    Path(task["folder"], work.INPUT).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if (folder / "vocab.spm").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "train.source", folder / "train.target"]
    for path, texts in zip(paths, found.train, strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(map(str, paths)),
        model_prefix=str(folder / "vocab"),
        vocab_size=task["model"]["vocabulary_size"],
        character_coverage=1.0,
        eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2,
    )  # fmt: skip
    (folder / "vocab.model").rename(folder / "vocab.spm")


# Training -----------------------------------------------------------------------------------------


class Training:
    """The updates of a trainer with the weights and the one batch of a task."""

    def __init__(self, task):
        keep_memory()
        self.model = model_of(task).astype(task.get("dtype", "float32"))
        self.rows, self.steps = Batch(*work.batch(task)), 0
        self.updater = Updater(
            self.model,
            Adam(self.model.named_parameters()),
            dataset=self,
            build=lambda: Transformer(self.model.config, initialise=False),
            replicas=task["threads"] or cores(),
            seed=1,
        )

    def batch(self, indices):
        """Return the only batch, as a dataset does."""
        return self.rows

    def next(self):
        """Return the batch as an update takes it."""
        return UpdateBatches(0, 0, [np.arange(len(self.rows.source))])

    def step(self):
        """Make one update; returns the loss. On a GPU the host does not wait for it."""
        loss, *_ = self.updater.update(self.next(), work.RATE)
        self.steps += 1
        return loss


def check_training(task):
    """Return the losses of three steps; the gradients of the first go into a file."""
    training = Training(task)
    training.updater.gradient(training.next(), training.steps)
    named = training.model.named_parameters()
    gradients = {name: backend.to_numpy(p.grad) for name, p in named}
    if "like" in task:
        gradients["embedding.weight"][work.BOS] = 0  # Marian's start mark is a constant
    np.savez(task["out"], **gradients)
    return [float(training.step()) for _ in range(3)]


# Decoding -----------------------------------------------------------------------------------------


def decoder(task):
    """Return a function that decodes the sentences of the task, giving (ids, ln P) of each."""
    keep_memory()
    source = work.sentences(task)
    translator = Translator(model_of(task), None, placeholders=())
    options = Search(task["beam"], task["alpha"], task["length"] - task["source"])

    def search(rows):
        return translator._search(rows, options)

    batches = [source] if "precision" in task else slices(source, task["beam"])

    def decode():  # what a translator does between text and text
        with threadpool_limits(1, "blas"):
            pieces = list(over_cores(search, batches))
        return [(best[0].ids, best[0].log_probability) for best in chain.from_iterable(pieces)]

    decode.forks = min(cores(), len(batches)) - 1
    return decode


def translating(task):
    """Return a function that translates lines with a model that Marian trained."""
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        import_model(task["trained"], f"{folder}/model", "float32", say=lambda line: None)
        translator = Translator.load(f"{folder}/model")
    search = {"beam": task["beam"], "alpha": task["alpha"]}
    search |= {"like": "marian" if task["beam"] > 1 else "paper"}
    translate = work.translating(
        task, lambda lines: [best.text for best, *_ in translator.translate(lines, **search)]
    )
    translate.forks = 0 if task["alone"] else cores() - 1
    return translate


# The processor ------------------------------------------------------------------------------------


def processor(cpuinfo="/proc/cpuinfo"):
    """Return the name of the processor and its instruction sets, which only Linux lists."""
    found = {}
    if Path(cpuinfo).exists():
        lines = Path(cpuinfo).read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        pairs = (line.partition(":") for line in lines)
        found = {key.strip(): value.strip() for key, _, value in pairs}
    flags = found.get("flags", found.get("Features", "")).split()
    return {
        "model name": found.get("model name") or platform.processor() or platform.machine(),
        "family": found.get("cpu family", ""),
        "model": found.get("model", ""),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
    }


def speed(threads):
    """Return additions a second, bytes and floating-point operations a second.

    A ratio of two programs depends on all of that. Additions are those of a Python loop; a thread
    copies 64 MB; the products are of 1,024 x 1,024 float32 matrices, on one thread and on all. Each
    speed is that of the fastest of a few trials; all take about a second.
    """
    x = np.ones(1 << 24, np.float32)
    y, square = np.ones_like(x), x[: 1 << 20].reshape(1024, 1024)
    products = {}
    for count in sorted({1, threads}):
        with threadpool_limits(count, "blas"):
            products[str(count)] = 2 * 1024**3 / _fastest(lambda: square @ square)
    return {
        "additions": 1_000_000 / _fastest("for i in range(1_000_000): total += i", "total = 0"),
        "copy": 2 * x.nbytes / _fastest(lambda: np.copyto(y, x)),
        "products": products,
    }


def _fastest(work, setup="pass"):
    """Return the seconds of the fastest trial."""
    return min(timeit.repeat(work, setup, number=1, repeat=TRIALS))


JOBS = {
    "about": about,
    "machine": lambda task: processor() | speed(task["threads"] or cores()),
    "draw": draw,
    "bundled": bundled,
    "train": lambda task: Training(task).step,
    "check train": check_training,
    "decode": decoder,
    "check decode": lambda task: decoder(task)(),
    "corpus": corpus,
    "translate": translating,
    "check translate": lambda task: translating(task)(),
}

if __name__ == "__main__":
    gpu = {}
    if ON_GPU in os.environ:
        backend.use("cupy")
        pool = backend.xp.get_default_memory_pool()
        gpu = {"wait": backend.xp.cuda.Device().synchronize, "memory": pool.total_bytes}
    with forms.on():
        serve(JOBS, **gpu)
