"""The rows of the table: the work that is measured, and the contenders."""

import dataclasses

from benchmarks.work import INPUT

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
    foreign: bool = True  # runs in the interpreter of --python


CONTENDERS = {
    "minitf": Contender("minitf", "ours", foreign=False),
    # Takes part in every row, if it is asked for.
    "earlier": Contender("minitf, --earlier", "ours", foreign=False),
    "imports": Contender('python -c "import numpy, sentencepiece"', "protocol", foreign=False),
    "torch": Contender("PyTorch eager", "pytorch"),
    "torch-kept": Contender("PyTorch eager, memory kept", "pytorch", KEPT),
    "ctranslate2": Contender("CTranslate2 float32", "with_ctranslate2"),
    "marian": Contender("Marian", "with_marian"),
}
RIVALS = [name for name in CONTENDERS if name not in ("minitf", "earlier")]
EAGER = ("torch", "torch-kept")


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table.

    kind: the job of the workers. task: their arguments. contenders: those besides minitf. The title
    is a template, which the task fills in. The programs of a task are the arguments of Python for
    each contender. `first` names the jobs that make the files which all of them start from, and who
    does them.
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
DRAW = {"minitf": "draw"}
QUICK = _model(1, 16, 32, 2, 50)
# What Marian's Transformer has and the paper's has not.
MARIAN = {"attention_bias": True, "output_bias": True}
MARIAN |= {"sinusoid_layout": "halves", "sinusoid_base": "t2t"}
# After so many updates of 64 pairs, the translations end.
TOY = {"corpus": "toy", "updates": 2000, "rate": 0.003, "model": TINY | {"vocabulary_size": 600}}
MULTI30K = {"corpus": "multi30k", "updates": 800, "rate": 0.001, "model": SMALL}
TRAINED = {"first": {"minitf": "corpus", "marian": "trained"}, "alpha": 0.6}


def _training(name, title, model, pairs, length, **more):
    title = f"training step, {title}, {{pairs}} pairs of {{length}} tokens"
    task = {"model": model, "pairs": pairs, "length": length, "first": DRAW, **more}
    return Row(f"train-{name}", title, "train", task, EAGER)


def _decoding(name, title, model, length, most, contenders):
    """Yield greedy search and beam search, for one sentence and for several: most {beam: pairs}.

    contenders: for beam search; PyTorch was left behind in both, and has only the latter.
    """
    for how, beam in (("greedy", 1), ("beam", 4)):
        for pairs in (1, most[beam]):
            task = {"model": model, "pairs": pairs, "source": 20, "length": length, "first": DRAW}
            row = name.format(how=how, pairs=pairs)
            search = "greedy" if beam == 1 else "beam 4"
            words = f"{search}, {title}, batch {{pairs}}, {{source}} to {{length}} tokens"
            rivals = contenders if beam > 1 else ("ctranslate2",)
            yield Row(row, words, "decode", task | {"beam": beam, "alpha": 0.6}, rivals)


def _against_marian():
    """Yield the training steps with Marian's Transformer, and translations by models of Marian."""
    for row in (row for row in _steps() if "padded" not in row.task):
        task = row.task | {"model": row.task["model"] | MARIAN, "like": "marian"}
        names = {"name": f"marian-{row.name}", "title": f"{row.title}, as Marian"}
        yield dataclasses.replace(row, **names, task=task, contenders=("marian",))
    for name, trained in {"tiny": TOY, "small": MULTI30K}.items():
        for how, beam in {"greedy": 1, "beam": 4}.items():
            for lines, way in {20: " one by one", 1000: ""}.items():
                task = trained | TRAINED | {"lines": lines, "beam": beam, "alone": lines == 20}
                search = how if beam == 1 else "beam 4"
                title = f"{search}, {name}, trained by Marian, {lines:,} sentences{way}"
                row = f"marian-{how}-{name}-{lines}"
                yield Row(row, title, "translate", task, ("marian",))


def _commands():
    sentence = "The children are playing in the garden."
    programs = {
        "minitf": ["examples/translate.py", sentence],
        "imports": ["-c", "import numpy, sentencepiece"],
    }
    title = "translate.py with one sentence, in a new process"
    yield Row("start-up", title, "command", {"programs": programs}, ("imports",))
    theirs = ["-m", "benchmarks.with_ctranslate2", "{folder}", "{output}"]
    ours = ["examples/translate.py", "--input", f"{{folder}}/{INPUT}", "--output", "{output}"]
    programs = {"minitf": ours, "ctranslate2": theirs}
    title = "translate.py with a file of {lines:,} lines, beam 4, in a new process"
    task = {"programs": programs, "lines": 1000, "first": {"minitf": "bundled"}}
    yield Row("file-1000", title, "command", task, ("ctranslate2",))


def _on_gpu():
    """Yield the rows that gpu_check.py measures."""
    small = SMALL | {"vocabulary_size": BASE["vocabulary_size"]}
    rows = [
        _training("small", "small, {precision}", small, 128, 32, precision="float32"),
        _training("tf32", "base, {precision}", BASE, 512, 48, precision="tf32"),
        _training("bfloat16", "base, {precision}", BASE, 512, 48, precision="bfloat16"),
    ]
    for row in rows:
        name = row.name.replace("train", "gpu")
        yield dataclasses.replace(row, name=name, contenders=("torch",))
    *_, row = _decoding("gpu-decoding", "base", BASE, 32, {1: 64, 4: 64}, ("torch",))
    yield dataclasses.replace(row, task=row.task | {"precision": "float32"})


def _steps():
    yield _training("tiny", "tiny", TINY, 32, 12)
    yield _training("small", "small", SMALL, 64, 24)
    yield _training("small-padded", "small, 12 to 24 real tokens", SMALL, 64, 24, padded=True)
    yield _training("base", "base", BASE, 64, 32)


def _rows():
    yield from _steps()
    rivals = *EAGER, "ctranslate2"
    yield from _decoding("{how}-small-{pairs}", "small", SMALL, 24, {1: 64, 4: 32}, rivals)
    yield from _decoding("{how}-base-{pairs}", "base", BASE, 32, {1: 32, 4: 32}, rivals)
    yield from _against_marian()
    yield from _commands()
    yield from _on_gpu()


ROWS = {row.name: row for row in _rows()}


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
    if "corpus" in task:  # a model must be trained, or its translations do not end
        task |= TOY
    elif "model" in task:
        task["model"] = task["model"] | QUICK
    small = {"pairs": 4, "source": 5, "length": 8, "lines": 4}
    if "precision" in task:  # a simulator of a GPU takes seconds for each pair
        small |= {"pairs": 1, "source": 3, "length": 4}
    task |= {name: min(task[name], value) for name, value in small.items() if name in task}
    return dataclasses.replace(row, task=task)
