"""The settings of a training run: the table that the command line and --resume read."""

# ruff: noqa: RUF009 (`setting` returns a field of a dataclass, not a shared default)

import dataclasses
import os
import reprlib
import types
import typing

from minitf.cli import whole
from minitf.config import PRESETS
from minitf.data.corpora import NAMES
from minitf.errors import UserError
from minitf.gpu.matmul import PRECISIONS

__all__ = ["Settings", "convert", "flag", "kind_of"]


def setting(default, *, help, least=0, most=10**12, choices=(), files=False, on_resume="taken"):
    """Return a field of Settings, a row of the table.

    default: None if the size of the text or the backend decides. least, most: the limits of a
    number. choices: all values that there are. files: whether the value is two files.
    on_resume: what --resume does with a value that is given again. It is "taken"; or taken and
    "noted", because the run is no longer bit for bit the uninterrupted one; or "refused"; or
    "added" to what was given before. "session": each session has its own, given or not.
    """
    facts = {"least": least, "most": most, "choices": choices, "files": files}
    return dataclasses.field(
        default=default, metadata={**facts, "help": help, "on_resume": on_resume}
    )


@dataclasses.dataclass
class Settings:
    """Everything that a run depends on besides the corpus; stored in every checkpoint.

    Raises UserError for a value that a setting cannot have.
    """

    # fmt: off
    # The text
    corpus: str = setting("toy", help=f"train on this corpus: {', '.join(NAMES)}")
    train: list[str] | None = setting(None, files=True,
        help="your own text: one sentence per line, line i of TARGET translates line i of SOURCE")
    valid: list[str] | None = setting(None, files=True,
        help="your validation text, two files as for --train, kept out of training")
    add: list[str] | None = setting(None, files=True,
        help="more pairs to train on, in two files; no subwords are learned from them")
    vocabulary_size: int = setting(0, on_resume="refused",
        help="subwords of both languages together (default: 15 times the root of the number of "
        "pairs, between 1000 and 32000; with --subwords none, all tokens)")
    subwords: str = setting("sentencepiece", choices=("sentencepiece", "none"), on_resume="refused",
        help="how the text is cut: sentencepiece, or none if it is already cut (words, or BPE with "
        "@@)")
    max_length: int = setting(250, least=1, most=10**9, on_resume="noted",
        help="leave out pairs in which either side has more subwords than this")

    # The model
    preset: str = setting("tiny", on_resume="refused",
        help=f"size of the model: {', '.join(PRESETS)}")
    set: list[str] = setting((), on_resume="added",
        help="change one setting of the model, e.g. --set d_model=128 --set norm=pre; may be "
        "repeated")
    start_from: str | None = setting(None, on_resume="refused",
        help="fine-tune: start with the weights and subwords of the model in this folder, or of a "
        "public one such as opus-mt-en-de, which is downloaded once")

    # An update
    batch_tokens: int = setting(4096, least=2, most=10**9, on_resume="noted",
        help="maximum tokens of a batch on each side, padding included")
    accumulate: int = setting(1, least=1, on_resume="noted",
        help="batches whose gradients are added up for one update; several small ones, each of "
        "another length, teach more than a large one")
    learning_rate: float | None = setting(None, least=1e-12, on_resume="noted",
        help="a factor on the paper's warm-up schedule (default: 1; less after a shorter warm-up, "
        "so that the peak is the same; with --start-from, a quarter of that)")
    warmup_steps: int | None = setting(None, least=1, on_resume="noted",
        help="number of updates during which the learning rate rises (default: a tenth of --steps "
        "or, if that is not given, of its default without --minutes; at most 4000; with "
        "--start-from, at most 50; a longer one is shortened to a tenth where it would be over a "
        "third of the default of --steps)")
    cooldown: float = setting(0.0, most=1, on_resume="noted",
        help="fraction of --steps, at their end, in which the learning rate falls linearly to 0, "
        "such as 0.3; only checkpoints of these are averaged, and --patience does not apply "
        "(default 0: none, as in the paper)")
    clip: float = setting(0.0, on_resume="noted",
        help="if the norm of the gradient exceeds N, scale it down to N (default 0: no clipping, "
        "as in the paper)")

    # The length of the run
    steps: int | None = setting(None, least=1,
        help="total number of updates (steps) (default: 40 epochs, at least 1000 and at most "
        "100000; with --start-from, 5 epochs, at least 100; with --minutes, 100000)")
    minutes: float = setting(0.0,
        help="stop this session after N minutes (a resumed run gets N more), and then finish as "
        "after the last step: average, validate, test (default 0: no limit)")
    valid_every: int | None = setting(None, least=1,
        help="updates between validations; each writes a checkpoint (default: an epoch, but at "
        "least 50 and at most 1000)")
    save_every: int = setting(0,
        help="updates between additional checkpoints, which are averaged as well (default 0: none)")
    log_every: int = setting(50, least=1, help="updates between log lines")
    patience: int = setting(10,
        help="stop after N validations in a row that improved neither BLEU nor perplexity; 0 never "
        "stops")

    # Its model, and the test
    average: int = setting(5, least=1,
        help="the model is the average of the last N checkpoints, or the last one alone, if its "
        "validation BLEU is higher")
    beam: int = setting(4, least=1, most=1000, help="beam width for the test")
    alpha: float = setting(0.6, most=10, help="length penalty for the test")
    max_extra: int = setting(50, most=10_000,
        help="limit a translation to N subwords more than its source")

    # The session, and the machine
    out: str = setting("runs/latest", on_resume="session",
        help="folder for the model, its checkpoints, log.jsonl and curves.png; translate.py "
        "--model reads it")
    resume: bool = setting(False, on_resume="session",
        help="continue from the last checkpoint in --out; settings that are given again change, "
        "others stay")
    plan: bool = setting(False, on_resume="session",
        help="train nothing: measure slices (some rows) of batches, and estimate the memory and "
        "the time of the run")
    seed: int = setting(0, most=2**63 - 1, on_resume="noted",
        help="seed of the weights, the data order and dropout (default 0)")
    replicas: int = setting(0, most=256,
        help="copies of the model that share each batch, one thread each, in every process "
        "(default 0: one for each core)")
    backend: str | None = setting(None,
        help="numpy or cupy (default: the environment variable MINITF_BACKEND, else numpy)")
    precision: str = setting("float32", choices=tuple(PRECISIONS), on_resume="noted",
        help=f"precision of the operands of a GPU's matrix products: {', '.join(PRECISIONS)}")
    # fmt: on

    def __post_init__(self):
        for field in dataclasses.fields(self):
            setattr(self, field.name, _checked(field, getattr(self, field.name)))


def flag(name):
    """Return the option of the command line that sets this setting."""
    return "--" + name.replace("_", "-")


def _checked(field, value):
    """Return the value of a setting as its type. Raises UserError if the setting cannot have it."""
    if value is None and field.default is None:
        return None
    name, facts, kind = flag(field.name), field.metadata, kind_of(field)
    value = convert(name, value, kind)
    if kind in (int, float) and not facts["least"] <= value <= facts["most"]:
        limit = f"most {facts['most']}" if value > facts["most"] else f"least {facts['least']}"
        raise UserError(f"{name} must be at {limit}, not {value}")
    if facts["choices"] and value not in facts["choices"]:
        raise UserError(f"{name} must be one of {', '.join(facts['choices'])}, not {value!r}")
    if facts["files"] and len(value) != 2:
        raise UserError(f"{name} needs two files: SOURCE TARGET")
    return value


# Types --------------------------------------------------------------------------------------------


def _name(value):
    if not (name := os.fsdecode(value)):
        raise ValueError(value)
    return name


def _texts(value):
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    return [os.fsdecode(text) for text in value]


# How a value becomes one of this type, which a checkpoint can store, and what the type is called.
# The value is a text of the command line, or of a Python program, such as a Path or an np.int64.
TYPES = {
    bool: (lambda value: {"true": True, "false": False}[str(value).lower()], "true or false"),
    int: (whole, "a whole number"),
    float: (float, "a number"),
    str: (_name, "a name"),
    tuple: (
        lambda text: tuple(map(whole, text.split(","))) if text else (),
        "a list of whole numbers such as 1,5",
    ),
    list: (_texts, "a list of texts"),
}


def kind_of(field):
    """Return the type of a field without `| None` and without what it contains: bool, list ..."""
    hint = field.type.__args__[0] if isinstance(field.type, types.UnionType) else field.type
    return typing.get_origin(hint) or hint


def convert(name, value, kind):
    """Return a value as one of this type, a key of TYPES. Raises UserError, which has the name."""
    reader, called = TYPES[kind]
    try:
        return reader(value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UserError(f"{name} must be {called}, not {reprlib.repr(value)}") from None
