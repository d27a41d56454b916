"""The settings of a training run, and the command line that sets them."""

# ruff: noqa: RUF009 (`setting` returns a field of a dataclass, not a shared default)

import argparse
import dataclasses
import operator
import os
import re
import reprlib
import types
import typing

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
    "resumed",
    "resumed_model",
]

# Defaults that follow from the size of the text. First the paper's, which a large text gets.
_PAPER = {"learning_rate": 1.0, "warmup_steps": 4000, "steps": 100_000, "valid_every": 1000}
_EPOCHS, _MIN_STEPS = 40, 1000  # epochs and updates of a new model; --patience may end it earlier
_TUNING_EPOCHS, _MIN_TUNING_STEPS = 5, 100  # the same for a trained model,
_TUNING_WARMUP, _TUNING_RATE = 50, 0.25  # which a higher rate would damage; --help: a quarter
_MIN_VALID_EVERY = 50  # updates; with fewer, validations would take longer than training


# What a resumed run does with a setting that is given again: no update depends on it, though which
# weights are kept may (FREE); the run is no longer bit for bit the uninterrupted one (COURSE); the
# change is refused (FIXED); it is added to what was given before (ADDED). SESSION: the setting is
# that of each session, given or not.
FREE, COURSE, FIXED, ADDED, SESSION = "free", "course", "fixed", "added", "session"


def setting(default, help, **facts):
    """Return a field of Settings: a row of the table that argparse, the checks and --resume read.

    default: None if `fill_in` or the backend chooses it. help: for --help. facts: least and most,
    the limits of a number; choices, all values that there are; files, whether the value is two
    paths, SOURCE and TARGET; on_resume, see above.
    """
    facts = {"most": 10**12, "on_resume": FREE, **facts, "help": help}
    if default is list:
        return dataclasses.field(default_factory=list, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


def kind_of(field):
    """Return the type of a field without `| None` and without what it contains: bool, list ..."""
    hint = field.type.__args__[0] if isinstance(field.type, types.UnionType) else field.type
    return typing.get_origin(hint) or hint


def _list_of_texts(values):
    if not isinstance(values, (list, tuple)):
        raise TypeError
    return [os.fsdecode(value) for value in values]


# How a value of a Python program, such as a Path or a number of NumPy, becomes one that a
# checkpoint can store; each raises TypeError or ValueError for another kind of value.
_PLAIN = {
    bool: lambda value: bool(operator.index(value)),
    int: operator.index,
    float: float,
    str: os.fsdecode,
    list: _list_of_texts,
}


@dataclasses.dataclass
class Settings:
    """Everything that a run depends on besides the corpus; stored in every checkpoint.

    Raises UserError for a value of a kind that a setting cannot have; for its limits see `check`.
    """

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
        on_resume=SESSION,
    )
    preset: str = setting("tiny", f"size of the model: {', '.join(PRESETS)}", on_resume=FIXED)
    set: list[str] = setting(
        list,
        "change one setting of the model, e.g. --set d_model=128 --set norm=pre; may be repeated",
        on_resume=ADDED,
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
        choices=("sentencepiece", "none"),
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
        on_resume=SESSION,
    )
    plan: bool = setting(
        False,
        "train nothing: measure slices (some rows) of batches, and estimate the memory and the "
        "time of the run",
        on_resume=SESSION,
    )
    backend: str | None = setting(
        None, "numpy or cupy (default: the environment variable MINITF_BACKEND, else numpy)"
    )
    precision: str = setting(
        "float32",
        f"precision of the operands of a GPU's matrix products: {', '.join(PRECISIONS)}",
        on_resume=COURSE,
        choices=tuple(PRECISIONS),
    )

    def __post_init__(self):
        for name, field in _FIELDS.items():
            value, kind = getattr(self, name), kind_of(field)
            if value is None and field.default is None:
                continue
            try:
                setattr(self, name, _PLAIN[kind](value))
            except (TypeError, ValueError):
                raise UserError(
                    f"the setting {name} cannot be {reprlib.repr(value)}: give {_KINDS[kind]}"
                ) from None


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
    list: "a list of texts",
}


_EXIT_CODES = """exit code: 0 after a completed run or one stopped by a signal; 2 after an error,
reported on one line; 3 if --minutes or --patience ended the run before its steps were done, and its
model scores less than 1 BLEU on the validation text: it cannot translate; 130 after Ctrl-C before
training begins, or after a second Ctrl-C."""


# The messages of argparse, as patterns, and plainer ones.
_PLAINER = (
    (r"^argument (\S+): must be", r"\1 must be"),
    (r"^argument --score: expected 2 arguments", "--score needs two files: HYP REF"),
    (r"^argument (\S+): expected 2 arguments", r"\1 needs two files: SOURCE TARGET"),
    (r"^argument (\S+): expected one argument", r"\1 needs a value"),
)


class _Parser(OptionParser):
    def error(self, message):
        for pattern, plainer in _PLAINER:
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
    kind = kind_of(field)
    if field.metadata.get("files"):
        parser.add_argument(name, nargs=2, metavar=("SOURCE", "TARGET"), help=help)
    elif kind is list:
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


def check(settings: Settings) -> None:
    """Raise UserError for a number or a name out of range, before any time is spent on it."""
    for name, field in _FIELDS.items():
        value, facts = getattr(settings, name), field.metadata
        if value is None:
            continue
        if "least" in facts and not facts["least"] <= value <= facts["most"]:
            most = value > facts["most"]
            limit = f"at most {facts['most']}" if most else f"at least {facts['least']}"
            raise UserError(f"{flag(name)} must be {limit}, not {value}")
        if "choices" in facts and value not in facts["choices"]:
            raise UserError(
                f"{flag(name)} must be one of {', '.join(facts['choices'])}, not {value!r}"
            )
        if "files" in facts and len(value) != 2:
            raise UserError(f"{flag(name)} needs two files: SOURCE TARGET")
    if settings.learning_rate == 0:
        raise UserError(
            "--learning-rate must be more than 0: it is a factor, 1 for the paper's schedule"
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
    if not settings.resume:
        _check_texts(settings)
    if {"corpus", "train"} <= given:
        raise UserError("--corpus and --train are both given: choose one of them")
    if settings.start_from and not settings.resume:
        for name in sorted(given & {"preset", "vocabulary_size", "subwords"}):
            raise UserError(
                f"--start-from uses that model's size and subwords: leave out {flag(name)}"
            )


def _check_texts(settings):
    if settings.valid and not settings.train:
        raise UserError(
            "--valid is only used with --train: leave it out, a named corpus has its own "
            "validation sentences"
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
    settings = Settings(**stored)
    check(settings)
    _check_texts(settings)


def resumed(settings, given, stored):
    """Return the settings of a resumed run, and the changes that matter.

    The settings are those of the checkpoint (`stored`, a dictionary), replaced by those that were
    given. The changes, {name: (before, now)}, are those after which the run is not bit for bit the
    uninterrupted one.
    """
    before, merged = Settings(**stored), dict(stored)
    if "corpus" in given:
        merged |= {"train": None, "valid": None}
    for name, field in _FIELDS.items():
        was, now, on_resume = (
            getattr(before, name),
            getattr(settings, name),
            field.metadata["on_resume"],
        )
        if on_resume == SESSION:
            merged[name] = now
        elif name not in given:
            continue
        elif on_resume == FIXED and now != was:
            raise UserError(
                f"--resume cannot change {flag(name)} {now} (it was {was}): leave it out, or start "
                "a new run in another folder with --out"
            )
        elif on_resume == ADDED:  # the later of two values of a field counts
            merged[name] = list({item.partition("=")[0]: item for item in was + now}.values())
        else:
            merged[name] = now
    merged = Settings(**merged)
    _check_texts(merged)
    changes = {
        name: (getattr(before, name), getattr(merged, name))
        for name, field in _FIELDS.items()
        if field.metadata["on_resume"] == COURSE or (name == "steps" and merged.cooldown)
    }
    return merged, {name: pair for name, pair in changes.items() if pair[0] != pair[1]}


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
    kinds = {field.name: kind_of(field) for field in dataclasses.fields(Config)}
    names = [name for name in kinds if name not in _NOT_SET]
    changes = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name not in names:
            raise UserError(
                f"--set {assignment}: write KEY=VALUE, where KEY is one of {', '.join(names)}"
            )
        try:
            changes[name] = _parsed(value, kinds[name])
        except (ValueError, KeyError):
            raise UserError(f"--set {assignment}: {value!r} is not {_KINDS[kinds[name]]}") from None
    return changes
