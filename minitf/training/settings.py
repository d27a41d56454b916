"""The settings of a training run, and the command line that sets them."""

# ruff: noqa: RUF009 (`setting` returns a field of a dataclass, not a shared default)

import argparse
import dataclasses
import inspect
import os
import re
import reprlib
import types
import typing

import numpy as np

from minitf.cli import OptionParser, number
from minitf.config import PRESETS, Config
from minitf.cpu.machine import free_memory
from minitf.data.corpora import NAMES
from minitf.errors import UserError
from minitf.gpu.matmul import PRECISIONS
from minitf.translation.loading import check_subwords

__all__ = [
    "Settings",
    "check",
    "check_model",
    "check_stored",
    "check_together",
    "fill_in",
    "model_changes",
    "parse",
    "plain",
    "resumed",
    "resumed_model",
]

# Defaults that follow from the size of the text. First the paper's, which a large text gets.
_PAPER = {"learning_rate": 1.0, "warmup_steps": 4000, "steps": 100_000, "valid_every": 1000}
_EPOCHS, _MIN_STEPS = 40, 1000  # epochs and updates of a new model; --patience may end it earlier
_TUNING_EPOCHS, _MIN_TUNING_STEPS = 5, 100  # the same for a trained model,
_TUNING_WARMUP, _TUNING_RATE = 50, 0.25  # which a higher rate would damage; --help: a quarter
_MIN_VALID_EVERY = 50  # updates; with fewer, validations would take longer than training


# What --resume does with a setting that is given again: no update depends on it, though which
# weights are kept may (FREE); the run is no longer bit for bit the uninterrupted one (COURSE); or
# the change is refused (FIXED).
FREE, COURSE, FIXED = "free", "course", "fixed"


def setting(default, help, least=None, most=10**12, on_resume=FREE, files=False):
    """Return a field of Settings.

    default: None if `fill_in` or the backend chooses it. help: for --help. least, most: limits of a
    number. on_resume: FREE, COURSE or FIXED. files: the value is two paths, SOURCE and TARGET.
    """
    metadata = {"help": help, "limits": (least, most), "on_resume": on_resume, "files": files}
    if default is list:
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass
class Settings:
    """Everything that a run depends on besides the corpus; stored in every checkpoint."""

    corpus: str = setting("toy", f"train on this corpus: {', '.join(NAMES)}")
    train: list[str] | None = setting(
        None,
        "your own text: one sentence per line, line i of TARGET translates line i of SOURCE",
        files=True,
    )
    valid: list[str] | None = setting(
        None,
        "your validation text, two files as for --train, kept out of training",
        files=True,
    )
    add: list[str] | None = setting(
        None, "more pairs to train on, in two files; no subwords are learned from them", files=True
    )
    out: str = setting(
        "runs/latest",
        "folder for the model, its checkpoints, log.jsonl and curves.png; translate.py --model "
        "reads it",
    )
    preset: str = setting("tiny", f"size of the model: {', '.join(PRESETS)}", on_resume=FIXED)
    set: list[str] = setting(
        list,
        "change one setting of the model, e.g. --set d_model=128 --set norm=pre; may be repeated",
    )
    vocabulary_size: int = setting(
        0,
        "subwords of both languages together (default: 15 times the root of the number of pairs, "
        "between 1000 and 32000; with --subwords none, all tokens)",
        least=0,
        on_resume=FIXED,
    )
    subwords: str = setting(
        "sentencepiece",
        "how the text is cut: sentencepiece, or none if it is already cut (words, or BPE with @@)",
        on_resume=FIXED,
    )
    sample_subwords: float = setting(
        0.0,
        "cut the text in another way in each epoch, leaving out each merge of the subwords with "
        "this probability (BPE-dropout), such as 0.1; it may help in very long trainings on small "
        "texts (default 0: never, as in the paper)",
        least=0,
        most=0.9,
        on_resume=COURSE,
    )
    max_length: int = setting(
        250,
        "leave out pairs in which either side has more subwords than this",
        least=1,
        most=10**9,
        on_resume=COURSE,
    )
    batch_tokens: int = setting(
        4096,
        "maximum tokens of a batch on each side, padding included",
        least=2,
        most=10**9,
        on_resume=COURSE,
    )
    accumulate: int = setting(
        1,
        "batches whose gradients are added up for one update; several small ones, each of another "
        "length, teach more than a large one",
        least=1,
        on_resume=COURSE,
    )
    learning_rate: float | None = setting(
        None,
        "a factor on the paper's warm-up schedule (default: 1; less after a shorter warm-up, so "
        "that the peak is the same; with --start-from, a quarter of that)",
        least=0,
        on_resume=COURSE,
    )
    warmup_steps: int | None = setting(
        None,
        "number of updates during which the learning rate rises (default: a tenth of --steps or, "
        "if that is not given, of its default without --minutes; at most "
        f"{_PAPER['warmup_steps']}; with --start-from, at most {_TUNING_WARMUP}; a longer one is "
        "shortened to a tenth where it would be over a third of the default of --steps)",
        least=1,
        on_resume=COURSE,
    )
    cooldown: float = setting(
        0.0,
        "fraction of --steps, at their end, in which the learning rate falls linearly to 0, such "
        "as 0.3; only checkpoints of these are averaged, and --patience does not apply (default 0: "
        "none, as in the paper)",
        least=0,
        most=1,
        on_resume=COURSE,
    )
    clip: float = setting(
        0.0,
        "if the norm of the gradient exceeds N, scale it down to N (default 0: no clipping, as in "
        "the paper)",
        least=0,
        on_resume=COURSE,
    )
    steps: int | None = setting(
        None,
        f"total number of updates (steps) (default: {_EPOCHS} epochs, at least {_MIN_STEPS} and at "
        f"most {_PAPER['steps']}; with --start-from, {_TUNING_EPOCHS} epochs, at least "
        f"{_MIN_TUNING_STEPS}; with --minutes, {_PAPER['steps']})",
        least=1,
    )
    minutes: float = setting(
        0.0,
        "stop this session after N minutes (a resumed run gets N more), and then finish as after "
        "the last step: average, validate, test (default 0: no limit)",
        least=0,
    )
    valid_every: int | None = setting(
        None,
        "updates between validations; each writes a checkpoint (default: an epoch, but at least "
        f"{_MIN_VALID_EVERY} and at most {_PAPER['valid_every']})",
        least=1,
    )
    save_every: int = setting(
        0,
        "updates between additional checkpoints, which are averaged as well (default 0: none)",
        least=0,
    )
    log_every: int = setting(50, "updates between log lines", least=1)
    patience: int = setting(
        10,
        "stop after N validations in a row that improved neither BLEU nor perplexity; 0 never "
        "stops",
        least=0,
    )
    average: int = setting(
        5,
        "the model is the average of the last N checkpoints, or the last one alone, if its "
        "validation BLEU is higher",
        least=1,
    )
    beam: int = setting(4, "beam width for the test", least=1, most=1000)
    alpha: float = setting(0.6, "length penalty for the test", least=0, most=10)
    max_extra: int = setting(
        50,
        "limit a translation to N subwords more than its source",
        least=0,
        most=10_000,
    )
    seed: int = setting(
        0,
        "seed of the weights, the data order and dropout (default 0)",
        least=0,
        most=2**63 - 1,
        on_resume=COURSE,
    )
    replicas: int = setting(
        0,
        "copies of the model that share each batch, one thread each, in every process (default 0: "
        "one for each core)",
        least=0,
        most=256,
    )
    start_from: str | None = setting(
        None,
        "fine-tune: start with the weights and subwords of the model in this folder, or of a "
        "public one such as opus-mt-en-de, which is downloaded once",
        on_resume=FIXED,
    )
    resume: bool = setting(
        False,
        "continue from the last checkpoint in --out; settings that are given again change, others "
        "stay",
    )
    plan: bool = setting(
        False,
        "train nothing: measure slices (some rows) of batches, and estimate the memory and the "
        "time of the run",
    )
    backend: str | None = setting(
        None, "numpy or cupy (default: the environment variable MINITF_BACKEND, else numpy)"
    )
    precision: str = setting(
        "float32",
        f"precision of the operands of a GPU's matrix products: {', '.join(PRECISIONS)}",
        on_resume=COURSE,
    )


_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}

# A tiny model that learns the toy corpus in under three minutes on two cores.
QUICK = {
    "corpus": "toy",
    "preset": "tiny",
    "vocabulary_size": 500,
    "batch_tokens": 1024,
    "warmup_steps": 400,
    "learning_rate": 0.7,
    "steps": 3600,
    "valid_every": 1200,
    "save_every": 100,
    "average": 8,
    "log_every": 200,
    "set": ["dropout=0.0", "label_smoothing=0.05"],
}

# Named sets of defaults, for --recipe.
RECIPES = {
    # For a hundred thousand pairs, on one computer. Its rate has a peak of 2e-3 (learning_rate is
    # a factor on the paper's schedule), nearly three times that of base: a smaller model bears
    # larger steps. No sampled subwords, which cost 7 BLEU in 2,000 updates: lessons/REPRODUCE.md.
    "small-data": {
        "preset": "small",
        "batch_tokens": 1024,
        "accumulate": 4,
        "warmup_steps": 1000,
        "learning_rate": 1.0,
        "cooldown": 0.3,
        "set": ["d_ff=512", "dropout=0.15"],
    },
    # For some thousand trees. One small batch an update, and norm=pre: with the larger batches and
    # the norm of small-data, a parser still ignored its sentence after a thousand updates.
    "parsing": {
        "preset": "small",
        "vocabulary_size": 3000,
        "sample_subwords": 0.1,
        "batch_tokens": 1024,
        "warmup_steps": 1000,
        "learning_rate": 0.5,
        "cooldown": 0.3,
        "steps": 25_000,
        "valid_every": 2000,
        "save_every": 250,
        "set": ["n_layers=4", "d_model=192", "d_ff=512", "norm=pre", "dropout=0.15"],
    },
}

# The fields of Config that --resume --set may change, and those that follow from the text.
_RATES = ("dropout", "attention_dropout", "feed_forward_dropout", "label_smoothing")
_NOT_SET = ("vocabulary_size", "pad_id", "unk_id", "bos_id", "eos_id")

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of whole numbers such as 1,5",
}


_EXIT_CODES = """exit code: 0 after a completed run or one stopped by a signal; 2 after an error,
reported on one line; 3 if --minutes or --patience ended the run before its steps were done, and its
model scores less than 1 BLEU on the validation text: it cannot translate; 130 after Ctrl-C before
training begins, or after a second Ctrl-C."""


# The messages of argparse, as patterns, and plainer ones.
_PLAIN = (
    (r"^argument (\S+): must be", r"\1 must be"),
    (r"^argument --score: expected 2 arguments", "--score needs two files: HYP REF"),
    (r"^argument (\S+): expected 2 arguments", r"\1 needs two files: SOURCE TARGET"),
    (r"^argument (\S+): expected one argument", r"\1 needs a value"),
)


class _Parser(OptionParser):
    def error(self, message):
        for pattern, plainer in _PLAIN:
            message = re.sub(pattern, plainer, message)
        super().error(message)


LESSON = "09_train_wmt.py"  # without options this program runs the lesson instead


def flag(name):
    """Return the option of the command line that sets this setting."""
    return "--" + name.replace("_", "-")


def as_typed(program):
    """Return the command that starts the program; a module is started by Python."""
    return f"python -m {program}" if program.startswith("minitf.") else program


def parse(arguments, program=LESSON):
    """Return the Settings of a command line, and the names of those given. Raises UserError."""
    parser = _Parser(
        prog=as_typed(program),
        description="Train a Transformer to translate."
        + (
            " Without options, or with only --figures DIR and --backend, it is lesson 09."
            if program == LESSON
            else ""
        ),
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
    )
    for field in _FIELDS.values():
        _add_option(parser, field)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="train a tiny model on the toy corpus in about three minutes"
        + ("; alone: run lesson 09, then train it for fewer updates" if program == LESSON else ""),
    )
    parser.add_argument(
        "--recipe",
        choices=sorted(RECIPES),
        metavar="NAME",
        help="other defaults than the paper's. "
        + "; ".join(f"{name}: {_as_options(recipe)}" for name, recipe in RECIPES.items()),
    )
    parser.add_argument(
        "--score",
        nargs=2,
        metavar=("HYP", "REF"),
        help="train nothing: score the translations in file HYP against the references in file "
        "REF (plain text; the name of REF ends in its language, .de or .fr)",
    )
    given = vars(parser.parse_args(arguments))
    if "score" in given:
        raise UserError("--score HYP REF trains nothing: leave the other options out")
    defaults = QUICK if given.pop("quick", False) else {}
    if recipe := given.pop("recipe", None):
        if defaults or "start_from" in given:
            other = "--quick" if defaults else "--start-from"
            raise UserError(f"--recipe is for a new model of your own: leave out {other}")
        if recipe == "parsing" and not {"train", "corpus", "resume"} & set(given):
            raise UserError(
                "--recipe parsing needs a text of sentences and trees: add --corpus craft-words"
            )
        defaults = RECIPES[recipe]
    # The later of two values of a field counts. A resumed run has a model already.
    if "set" in given and "resume" not in given:
        given["set"] = defaults.get("set", []) + given["set"]
    settings = Settings(**{**defaults, **given})
    check(settings)
    check_together(settings, set(given))
    return settings, set(given)


def _as_options(values):
    """Return settings as they are typed on the command line."""
    return " ".join(
        f"{flag(name)} {item}"
        for name, value in values.items()
        for item in (value if name == "set" else [value])
    )


def _add_option(parser, field):
    name, default, help = flag(field.name), field.default, field.metadata["help"]
    if default not in (None, False, 0, dataclasses.MISSING):
        help += f" (default {default})"
    help = help.replace("%", "%%")
    kind = _kind(Settings, field.name)
    if field.metadata["files"]:
        parser.add_argument(name, nargs=2, metavar=("SOURCE", "TARGET"), help=help)
    elif field.name == "set":
        parser.add_argument(name, action="append", metavar="KEY=VALUE", help=help)
    elif kind is bool:
        parser.add_argument(name, action="store_true", help=help)
    else:
        reader = str if kind is str else number(kind)
        parser.add_argument(name, type=reader, metavar=_metavar(field.name, kind), help=help)


def _metavar(name, kind):
    """Return the name that --help gives to the value of an option."""
    if kind is not str:
        return "N"
    return "DIR" if name in ("out", "start_from") else "NAME"


def _kind(cls, name):
    """Return the type of a field of a dataclass: bool, int, float, str, tuple, or else list."""
    hint = typing.get_type_hints(cls)[name]
    if typing.get_origin(hint) is tuple:
        return tuple
    kinds = (hint, *typing.get_args(hint))
    return next((kind for kind in (bool, int, float, str) if kind in kinds), list)


def check(settings: Settings) -> None:
    """Raise UserError for a number or a name out of range, before any time is spent on it."""
    for name, field in _FIELDS.items():
        value, least, most = getattr(settings, name), *field.metadata["limits"]
        if value is None:
            continue
        if least is not None and not least <= value <= most:
            limit = f"at most {most}" if value > most else f"at least {least}"
            raise UserError(f"{flag(name)} must be {limit}, not {value}")
        if field.metadata["files"] and len(value) != 2:
            raise UserError(f"{flag(name)} needs two files: SOURCE TARGET")
    if settings.learning_rate == 0:
        raise UserError(
            "--learning-rate must be more than 0: it is a factor, 1 for the paper's schedule"
        )
    if settings.subwords not in ("sentencepiece", "none"):
        raise UserError(f"--subwords must be sentencepiece or none, not {settings.subwords!r}")
    if settings.precision not in PRECISIONS:
        raise UserError(
            f"--precision must be one of {', '.join(PRECISIONS)}, not {settings.precision!r}"
        )
    if not settings.out:
        raise UserError("--out must name a folder")
    changes = model_changes(settings.set)
    if settings.resume or settings.start_from:  # the sizes of that model are not known yet
        changes = {name: value for name, value in changes.items() if name in _RATES}
    # Nor is the vocabulary's size. This one is so large that it refuses no suppressed id.
    Config.preset(settings.preset, 10**9, **changes)


def check_together(settings, given):
    """Raise UserError for options that contradict each other.

    given: the names of the settings that were asked for, without those that --quick implies.
    """
    if settings.valid and not settings.train and not settings.resume:
        raise UserError(
            "--valid is only used with --train: leave it out, a named corpus has its own "
            "validation sentences"
        )
    if {"corpus", "train"} <= given:
        raise UserError("--corpus and --train are both given: choose one of them")
    if settings.start_from and not settings.resume:
        for name in sorted(given & {"preset", "vocabulary_size", "subwords"}):
            raise UserError(
                f"--start-from uses that model's size and subwords: leave out {flag(name)}"
            )


def fill_in(settings, epoch):
    """Return the settings without None, and the chosen values as command-line options.

    epoch: updates in an epoch of the text.

    >>> fill_in(Settings(), 250)[1]
    '--steps 10000 --warmup-steps 1000 --learning-rate 0.5 --valid-every 250'
    >>> fill_in(Settings(start_from="model"), 250)[1]
    '--steps 1250 --warmup-steps 50 --learning-rate 0.028 --valid-every 250'
    >>> fill_in(Settings(warmup_steps=1000, learning_rate=1.0), 1)[1]
    '--steps 1000 --warmup-steps 100 --learning-rate 0.316 --valid-every 50'
    >>> fill_in(Settings(), 30_000)[1]
    '--steps 100000 --warmup-steps 4000 --learning-rate 1 --valid-every 1000'
    """
    s, tuning = settings, bool(settings.start_from)
    if tuning:
        epochs, min_steps = _TUNING_EPOCHS, _MIN_TUNING_STEPS
        max_warmup, rate = _TUNING_WARMUP, _TUNING_RATE
    else:
        epochs, min_steps = _EPOCHS, _MIN_STEPS
        max_warmup, rate = _PAPER["warmup_steps"], 1
    steps = s.steps or round(min(max(epochs * epoch, min_steps), _PAPER["steps"]))
    warmup = s.warmup_steps or min(max(1, steps // 10), max_warmup)
    # The peak of the schedule is factor * (d_model * warmup)^-0.5. This factor makes it the
    # paper's for every shorter warm-up.
    factor = rate * min(1, warmup / _PAPER["warmup_steps"]) ** 0.5
    if s.steps is None and not s.minutes and 3 * warmup > steps:
        # A recipe's warm-up on a small text: shorter, with the same peak.
        warmup, before = max(1, steps // 10), warmup
        factor = (s.learning_rate or factor) * (warmup / before) ** 0.5
        s = dataclasses.replace(s, warmup_steps=None, learning_rate=None)
    values = {
        "steps": _PAPER["steps"] if s.minutes else steps,
        "warmup_steps": warmup,
        "learning_rate": float(f"{factor:.3g}"),
        "valid_every": round(min(max(epoch, _MIN_VALID_EVERY), _PAPER["valid_every"])),
    }
    chosen = {name: value for name, value in values.items() if getattr(s, name) is None}
    options = " ".join(f"{flag(name)} {value:g}" for name, value in chosen.items())
    return dataclasses.replace(s, **chosen), options


def check_model(settings, config, n_subwords):
    """Raise UserError for a model that does not fit the memory or the text."""
    check_subwords(config, n_subwords)
    count, free = config.count_parameters(), free_memory()
    if free is not None and 16 * count > free:  # weights, gradients, and two moments
        raise UserError(
            f"a model of {count:,} parameters needs {16 * count / 1e9:,.1f} GB before training "
            f"begins, but only {free / 1e9:,.1f} GB are free: {smaller_model(settings)}"
        )
    if config.positions == "learned" and settings.max_length >= config.max_length:
        longer = f" or --set max_length={settings.max_length + 1}"
        raise UserError(
            f"--max-length {settings.max_length} and the end mark are more than the "
            f"{config.max_length} positions that the model learns: use --max-length "
            f"{config.max_length - 1}{'' if settings.start_from or settings.resume else longer}"
        )


def smaller_model(settings):
    """Return the advice for a model that does not fit: the sizes of a trained one are settled."""
    if settings.resume:
        return "go on with a machine, or a GPU, of more memory"
    if settings.start_from:
        return "start from a smaller model"
    return "choose a smaller --preset, or smaller sizes with --set"


def check_stored(stored):
    """Raise UserError for settings of a checkpoint that no run can have had."""
    if other := stored.keys() ^ _FIELDS.keys():
        raise UserError(
            f"of another version of minitf (its setting {min(other)}): continue the run with that "
            "version, or begin a new one"
        )
    if name := _wrong_type(stored):
        raise UserError(
            f"the setting {name} cannot be {reprlib.repr(stored[name])}: copy the file again"
        )
    check(Settings(**stored))


def plain(settings):
    """Return settings of a Python program as the command line would give them.

    Paths become text, tuples lists, and NumPy's numbers Python's, which a checkpoint can store.
    Raises UserError for a value of another type.
    """
    values = {name: _plain(getattr(settings, name)) for name in _FIELDS}
    if name := _wrong_type(values):
        kind = inspect.formatannotation(typing.get_type_hints(Settings)[name])
        raise UserError(f"the setting {name} cannot be {reprlib.repr(values[name])}: give {kind}")
    return Settings(**values)


def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _wrong_type(values):
    """Return the name of a value that a field of Settings cannot have, or None."""
    for name, hint in typing.get_type_hints(Settings).items():
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if name in values and not any(_is(values[name], option) for option in options):
            return name
    return None


def _is(value, kind):
    if kind == list[str]:
        return type(value) is list and all(type(item) is str for item in value)
    return type(value) in ((int, float) if kind is float else (kind,))


def _names(on_resume):
    return [name for name, field in _FIELDS.items() if field.metadata["on_resume"] == on_resume]


def resumed(settings, given, stored):
    """Return the settings of a resumed run, and the changes that matter.

    The settings are those of the checkpoint (`stored`, a dictionary), replaced by those that were
    given. The changes, {name: (before, now)}, are those after which the run is not bit for bit the
    uninterrupted one.
    """
    before = Settings(**stored)
    for name in _names(FIXED):
        if name in given and getattr(settings, name) != getattr(before, name):
            raise UserError(
                f"--resume cannot change {flag(name)} {getattr(settings, name)} (it was "
                f"{getattr(before, name)}): leave it out, or start a new run in another folder "
                "with --out"
            )
    own = {name: getattr(settings, name) for name in given}
    own |= {"out": settings.out, "resume": True, "plan": settings.plan}
    if "set" in given:
        newest = {item.partition("=")[0]: item for item in before.set + settings.set}
        own["set"] = list(newest.values())
    if "valid" in given and "train" not in given and ("corpus" in given or not before.train):
        raise UserError(
            "--valid is only used with --train: leave it out, a named corpus has its own "
            "validation sentences"
        )
    if "corpus" in given:
        own |= {"train": None, "valid": None}
    merged = Settings(**{**stored, **own})
    if merged.valid and not merged.train:
        raise UserError(
            f"the checkpoint in {merged.out} has a validation text but no training text: "
            "add --train SOURCE TARGET"
        )
    names = _names(COURSE) + (["steps"] if merged.cooldown else [])
    pairs = {name: (getattr(before, name), getattr(merged, name)) for name in names}
    return merged, {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def resumed_model(config, assignments):
    """Apply --set to the model of a resumed run, of which only dropout and smoothing can change.

    Returns the Config and {name: (before, now)}. Raises UserError for other changes.
    """
    changes = {
        name: value
        for name, value in model_changes(assignments).items()
        if getattr(config, name) != value
    }
    if fixed := sorted(changes.keys() - set(_RATES)):
        what = ", ".join(
            f"{name} of the model from {getattr(config, name)} to {changes[name]}" for name in fixed
        )
        raise UserError(
            f"--resume cannot change {what}: start a new run in another folder with --out"
        )
    return config.replace(**changes), {
        name: (getattr(config, name), value) for name, value in changes.items()
    }


def _parsed(value, kind):
    """Return the value of --set as its type. Raises KeyError or ValueError for another value."""
    if kind is bool:
        return {"true": True, "false": False}[value.lower()]
    if kind is tuple:
        return tuple(int(number) for number in value.split(",")) if value else ()
    return kind(value)


def model_changes(assignments):
    """Return the fields of Config that ["d_model=128", "norm=pre"] sets.

    Raises UserError for a wrong name or value.
    """
    names = [field.name for field in dataclasses.fields(Config) if field.name not in _NOT_SET]
    changes = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name not in names:
            raise UserError(
                f"--set {assignment}: write KEY=VALUE, where KEY is one of {', '.join(names)}"
            )
        kind = _kind(Config, name)
        try:
            changes[name] = _parsed(value, kind)
        except (ValueError, KeyError):
            raise UserError(f"--set {assignment}: {value!r} is not {_KINDS[kind]}") from None
    return changes
