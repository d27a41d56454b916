"""The rows of the table: the work that is measured, and the contenders."""

import dataclasses

KEPT = {  # glibc keeps freed memory, which minitf requests itself
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "100000000",
}


@dataclasses.dataclass(frozen=True)
class Contender:
    """A module of this folder in its own process, perhaps with another environment."""

    title: str
    module: str
    environment: dict = dataclasses.field(default_factory=dict)
    options: dict = dataclasses.field(default_factory=dict)
    foreign: bool = True  # runs in the interpreter of --python


CONTENDERS = {
    "minitf": Contender("minitf", "ours", foreign=False),
    # Takes part in every row, if it is asked for.
    "earlier": Contender("minitf, --earlier", "ours", foreign=False),
    "imports": Contender('python -c "import numpy, sentencepiece"', "command", foreign=False),
    "products": Contender("its matrix products alone", "products", foreign=False),
    "composed": Contender("minitf, composed operations", "composed", foreign=False),
    "torch": Contender("PyTorch eager", "pytorch"),
    "torch-kept": Contender("PyTorch eager, memory kept", "pytorch", KEPT),
    "torch-compile": Contender("torch.compile, memory kept", "pytorch", KEPT, {"compile": True}),
    "ctranslate2": Contender("CTranslate2 float32", "with_ctranslate2"),
    "transformers": Contender("transformers", "with_transformers"),
}
RIVALS = [name for name in CONTENDERS if name not in ("minitf", "earlier")]
EAGER = ("torch", "torch-kept")
# seconds; a run of minitf on two cores of an AMD EPYC (Zen 4), if it takes more than a quarter of
# a second; for `expected`
SECONDS = {
    "train-small": 0.5,
    "train-small-padded": 0.5,
    "train-base": 4.5,
    "greedy-base-32": 0.9,
    "beam-base-32": 2.5,
    "opus-greedy-32": 1.2,
    "opus-beam-1": 0.3,
    "opus-beam-32": 3.5,
    "attention-2048": 0.5,
    "file-1000": 4,
    "import": 0.5,  # most of it is PyTorch's
    "growth-layers-4": 0.6,
    "growth-layers-6": 0.9,
    "growth-width-256": 0.5,
    "growth-width-512": 1.5,
    "growth-batch-64": 0.5,
    "growth-batch-128": 0.9,
    "growth-length-96": 0.5,
    "growth-length-192": 1.1,
    "growth-length-384": 2.4,
    "growth-decode-128": 0.7,
    "growth-decode-256": 1.3,
    "growth-epoch": 32,
}
START = 9  # seconds; to start a contender, to compare it with minitf, and its first run


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table.

    kind: the job of the workers. task: their arguments. contenders: those besides minitf. The title
    is a template, which the task fills in. The programs of a task are the arguments of Python for
    each contender.
    """

    name: str
    title: str
    kind: str
    task: dict
    contenders: tuple


def _model(n_layers, d_model, d_ff, n_heads, vocabulary_size):
    sizes = {"n_layers": n_layers, "d_model": d_model, "d_ff": d_ff, "n_heads": n_heads}
    return sizes | {"vocabulary_size": vocabulary_size, "dropout": 0.1}


TINY, SMALL, BASE = (
    _model(2, 64, 256, 4, 64),
    _model(3, 256, 1024, 4, 8000),
    _model(6, 512, 2048, 8, 37000),
)
# The sizes and switches of opus-mt-en-de, as transformers computes them.
OPUS = _model(6, 512, 2048, 8, 58101) | {
    "attention_bias": True,
    "activation": "swish",
    "output_bias": True,
    "sinusoid_layout": "halves",
    "eps": 1e-5,
}
QUICK = _model(1, 16, 32, 2, 50)


def _training(name, title, model, pairs, length, contenders, **more):
    task = {"model": model, "pairs": pairs, "length": length, **more}
    return Row(
        name,
        f"training step, {title}, {{pairs}} pairs of {{length}} tokens",
        "train",
        task,
        contenders,
    )


def _decoding(name, title, model, pairs, source, length, beam, contenders):
    task = {
        "model": model,
        "pairs": pairs,
        "source": source,
        "length": length,
        "beam": beam,
        "alpha": 0.6,
    }
    how = "greedy" if beam == 1 else f"beam {beam}"
    return Row(
        name,
        f"{how}, {title}, batch {{pairs}}, {{source}} to {{length}} tokens",
        "decode",
        task,
        contenders,
    )


def _attention(length, tokens=4096):
    task = {"heads": 8, "d_k": 64, "length": length, "pairs": max(1, tokens // length)}
    title = (
        "attention alone, forward and backward, {pairs} times {length:,} positions, {heads} "
        "heads of {d_k}"
    )
    return Row(f"attention-{length}", title, "attention", task, EAGER)


def _commands():
    sentence = "The children are playing in the garden."
    programs = {
        "minitf": ["examples/translate.py", sentence],
        "imports": ["-c", "import numpy, sentencepiece"],
    }
    title = "translate.py with one sentence, in a new process"
    yield Row("start-up", title, "command", {"programs": programs}, ("imports",))
    programs = {
        "minitf": ["examples/translate.py", "--input", "{input}", "--output", "{output}"],
        "ctranslate2": [
            "-m",
            "benchmarks.with_ctranslate2",
            "{folder}",
            "{subwords}",
            "{input}",
            "{output}",
        ],
    }
    title = "translate.py with a file of {lines:,} lines, beam 4, in a new process"
    task = {"programs": programs, "lines": 1000}
    yield Row("file-1000", title, "command", task, ("ctranslate2",))
    programs = {"minitf": ["-c", "import minitf"], "torch": ["-c", "import torch"]}
    yield Row("import", "import, in a new process", "command", {"programs": programs}, ("torch",))


def _main():
    yield _training("train-tiny", "tiny", TINY, 32, 12, ("products", *EAGER, "composed"))
    yield _training(
        "train-small", "small", SMALL, 64, 24, ("products", *EAGER, "torch-compile", "composed")
    )
    yield _training(
        "train-small-padded", "small, 12 to 24 real tokens", SMALL, 64, 24, EAGER, padded=True
    )
    yield _training("train-base", "base", BASE, 64, 32, ("products", *EAGER))
    for title, model, length, batches in (
        ("small", SMALL, 24, (64, 32)),
        ("base", BASE, 32, (32, 32)),
    ):
        for how, beam, many in (("greedy", 1, batches[0]), ("beam", 4, batches[1])):
            for pairs in (1, many):
                name = f"{how}-{title}-{pairs}"
                yield _decoding(
                    name, title, model, pairs, 20, length, beam, (*EAGER, "ctranslate2")
                )
    for how, beam in (("greedy", 1), ("beam", 4)):
        for pairs in (1, 32):
            name, rivals = f"opus-{how}-{pairs}", ("transformers", "ctranslate2")
            yield _decoding(name, "opus-mt-en-de", OPUS, pairs, 20, 32, beam, rivals)
    for length in (64, 128, 256, 512, 1024, 2048):
        yield _attention(length)
    yield from _commands()


def _growth():
    for n in (1, 2, 3, 4, 6):
        yield _training(
            f"growth-layers-{n}",
            f"small, n_layers {n}",
            SMALL | {"n_layers": n},
            64,
            24,
            ("torch",),
        )
    for d in (64, 128, 256, 512):
        model = _model(3, d, 4 * d, max(1, d // 64), 8000)
        yield _training(f"growth-width-{d}", f"small, d_model {d}", model, 64, 24, ("torch",))
    for pairs in (4, 8, 16, 32, 64, 128):
        yield _training(f"growth-batch-{pairs}", "small", SMALL, pairs, 24, ("torch",))
    for length in (12, 24, 48, 96, 192, 384):
        yield _training(f"growth-length-{length}", "small", SMALL, 16, length, ("torch",))
    for length in (16, 32, 64, 128, 256):
        yield _decoding(f"growth-decode-{length}", "small", SMALL, 16, 16, length, 1, ("torch",))
    task = {"corpus": "tatoeba-en-de", "model": SMALL, "batch_tokens": 4096, "batches": 30}
    yield Row(
        "growth-epoch", "{batches} batches of an epoch of tatoeba-en-de, small", "epoch", task, ()
    )


ROWS = {row.name: row for row in (*_main(), *_growth())}
DEFAULT = [name for name in ROWS if not name.startswith("growth")]


def chosen(names):
    """Return the rows with these names, or whose names begin with them.

    Raises ValueError for a name that fits no row.
    """
    found = []
    for name in names:
        rows = [name] if name in ROWS else [row for row in ROWS if row.startswith(name)]
        if not rows:
            raise ValueError(f"no row is called {name!r}: choose from {', '.join(ROWS)}")
        found += [row for row in rows if row not in found]
    return [ROWS[name] for name in found]


def expected(row, count, pairs):
    """Return about how many seconds a row takes with so many contenders and pairs of timings.

    A rival takes longer than minitf, and shorter work is repeated.
    """
    return count * (START + pairs * 1.3 * SECONDS.get(row.name, 0.25))


def quick(row):
    """Return the same row in tiny sizes."""
    task = dict(row.task)
    if "model" in task:
        task["model"] = task["model"] | QUICK
    small = {
        "pairs": 4,
        "source": 5,
        "length": 8,
        "heads": 2,
        "d_k": 8,
        "batches": 2,
        "batch_tokens": 256,
        "lines": 4,
    }
    task |= {name: min(task[name], value) for name, value in small.items() if name in task}
    return dataclasses.replace(row, task=task)
