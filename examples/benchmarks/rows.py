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
    rival: bool = True  # runs in the interpreter of --python


CONTENDERS = {
    "minitf": Contender("minitf", "ours", rival=False),
    # Takes part in every row, if it is asked for.
    "earlier": Contender("minitf, --earlier", "ours", rival=False),
    "products": Contender("its matrix products alone", "products", rival=False),
    "composed": Contender("minitf, composed operations", "composed", rival=False),
    "torch": Contender("PyTorch eager", "pytorch"),
    "torch-kept": Contender("PyTorch eager, memory kept", "pytorch", KEPT),
    "torch-compile": Contender("torch.compile, memory kept", "pytorch", KEPT, {"compile": True}),
    "ctranslate2": Contender("CTranslate2 float32", "with_ctranslate2"),
}
RIVALS = [name for name in CONTENDERS if name not in ("minitf", "earlier")]
EAGER = ("torch", "torch-kept")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table.

    kind: the job of the workers. task: their arguments. contenders: those besides minitf. The title
    is a template, which the task fills in.
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
QUICK = _model(1, 16, 32, 2, 50)


def _training(name, title, model, pairs, length, contenders, **more):
    task = {"model": model, "pairs": pairs, "length": length, **more}
    return Row(
        name, f"training step, {title}, {{pairs}} pairs of {{length}}", "train", task, contenders
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
        f"{how}, {title}, batch {{pairs}}, {{source}} to {{length}} words",
        "decode",
        task,
        contenders,
    )


def _attention(length, tokens=4096):
    task = {"heads": 8, "d_k": 64, "length": length, "pairs": max(1, tokens // length)}
    title = (
        "attention alone, forward and backward, {pairs} times {length} positions, {heads} "
        "heads of {d_k}"
    )
    return Row(f"attention-{length}", title, "attention", task, EAGER)


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
    for length in (64, 128, 256, 512, 1024, 2048):
        yield _attention(length)
    yield Row("import", "import, in a process of its own", "import", {}, ("torch",))


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
    yield Row("growth-epoch", "an epoch of tatoeba-en-de, small", "epoch", task, ())


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


def quick(row):
    """Return the same row in tiny sizes."""
    task = dict(row.task)
    if "model" in task:
        task["model"] = QUICK
    small = {
        "pairs": 4,
        "source": 5,
        "length": 8,
        "heads": 2,
        "d_k": 8,
        "batches": 2,
        "batch_tokens": 256,
    }
    task |= {name: min(task[name], value) for name, value in small.items() if name in task}
    return dataclasses.replace(row, task=task)
