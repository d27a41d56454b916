"""The settings of a training run, and the command line that makes them."""

import argparse
import dataclasses
import re
import typing

from minitf.config import PRESETS, Config, check_types
from minitf.cpu.machine import free_memory
from minitf.data.corpora import NAMES
from minitf.errors import UserError
from minitf.gpu.matmul import PRECISIONS

__all__ = [
    "Settings",
    "check_model",
    "check_stored",
    "fill_in",
    "model_changes",
    "parse",
    "resumed",
    "resumed_model",
]


@dataclasses.dataclass
class Settings:
    """What a run depends on besides the corpus; stored with every checkpoint.

    None: `fill_in` chooses a value for the size of the text.
    """

    corpus: str = "toy"
    train: list[str] | None = None
    valid: list[str] | None = None
    out: str = "runs/latest"
    preset: str = "tiny"
    set: list[str] = dataclasses.field(default_factory=list)
    vocabulary_size: int = 0
    subwords: str = "sentencepiece"
    join: int = 0
    copy: int = 0
    max_length: int = 250
    batch_tokens: int = 4096
    accumulate: int = 1
    learning_rate: float | None = None
    warmup_steps: int | None = None
    clip: float = 0.0
    steps: int | None = None
    minutes: float = 0.0
    valid_every: int | None = None
    save_every: int = 0
    log_every: int = 50
    patience: int = 10
    average: int = 5
    beam: int = 4
    alpha: float = 0.6
    max_extra: int = 50
    seed: int = 0
    replicas: int = 0
    start_from: str | None = None
    resume: bool = False
    plan: bool = False
    backend: str | None = None
    precision: str = "float32"


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

# What follows from the size of the text, unless it is given. First as the paper has it, and a
# large text gets it.
_PAPER = {"learning_rate": 1.0, "warmup_steps": 4000, "steps": 100_000, "valid_every": 1000}
_EPOCHS, _FEWEST_STEPS = 40, 1000  # of a new model: its length, which --patience may end before
_TUNING_EPOCHS, _FEWEST_TUNING_STEPS = 5, 100  # of a model that was trained before,
_TUNING_WARMUP, _TUNING_RATE = 50, 0.25  # which too high a rate would spoil
_FEWEST_VALID = 50  # updates between two validations, or they would take longer than the updates

# Where nothing of it changes, a resumed run does what it would have done without the stop.
_COURSE = (
    "max_length",
    "join",
    "copy",
    "batch_tokens",
    "accumulate",
    "learning_rate",
    "warmup_steps",
    "clip",
    "seed",
)
_COURSE += ("precision",)
_FIXED = ("preset", "vocabulary_size", "subwords", "start_from")  # cannot change within a run
# The settings of the model that may differ.
_RATES = ("dropout", "attention_dropout", "feed_forward_dropout", "label_smoothing")
# Not by --set: they follow from the text.
_NOT_SET = ("vocabulary_size", "pad_id", "unk_id", "bos_id", "eos_id")

_HELP = {
    "corpus": f"one of {', '.join(NAMES)}",
    "train": "your own text: one sentence per line, line i of TARGET translates line i of SOURCE",
    "valid": "sentences of yours that are kept out of the training, to measure progress",
    "out": (
        "folder for the model, its checkpoints, log.jsonl and curves.png; translate.py "
        "--model reads it"
    ),
    "preset": f"the size of the model: {', '.join(PRESETS)}",
    "set": (
        "change one setting of the model, e.g. --set d_model=128 --set norm=pre; may be repeated"
    ),
    "vocabulary_size": (
        "subwords of both languages together (default 8000; with --subwords none, all words)"
    ),
    "subwords": "sentencepiece, or none for text that is already cut (words, or BPE with @@)",
    "join": "add N pairs made by joining two or three pairs, for a corpus of short sentences",
    "copy": "add N pairs that teach the model to copy names, numbers and signs",
    "max_length": "leave out pairs with a side of more subwords than this",
    "batch_tokens": "padded tokens a batch may hold on each side",
    "accumulate": "batches whose gradients are added up for one update",
    "learning_rate": (
        "a factor on the paper's warm-up schedule (default: 1; after a shorter warm-up less, "
        f"so that the peak is the same; with --start-from {_TUNING_RATE} of that)"
    ),
    "warmup_steps": (
        "updates until the peak learning rate (default: a tenth of the default --steps, "
        f"at most {_PAPER['warmup_steps']}; with --start-from at most {_TUNING_WARMUP})"
    ),
    "clip": "shorten longer gradients to this length; 0 leaves them alone, as the paper does",
    "steps": (
        f"updates in all (default: {_EPOCHS} epochs, at least {_FEWEST_STEPS} and at "
        f"most {_PAPER['steps']}; with --start-from {_TUNING_EPOCHS} epochs, at least "
        f"{_FEWEST_TUNING_STEPS}; with --minutes {_PAPER['steps']})"
    ),
    "minutes": "stop after so many minutes, as if the steps were done; 0 for no limit",
    "valid_every": (
        "updates between validations; each writes a checkpoint (default: an epoch, but at least "
        f"{_FEWEST_VALID} and at most {_PAPER['valid_every']})"
    ),
    "save_every": "updates between further checkpoints, which are averaged as well; 0 for none",
    "log_every": "updates between log lines",
    "patience": (
        "stop when so many validations in a row brought neither BLEU nor perplexity "
        "forward; 0 never stops"
    ),
    "average": "how many of the last checkpoints are averaged for the model",
    "beam": "beam width for the test",
    "alpha": "length penalty for the test",
    "max_extra": "a translation has at most so many subwords more than its source",
    "seed": "of weights, data order and dropout",
    "replicas": "threads that share a batch, on each rank of CPUs; 0 takes one for each core",
    "start_from": "begin with the weights and subwords of this model folder: fine-tuning",
    "resume": (
        "go on from the last checkpoint in --out; settings that are given again change, others stay"
    ),
    "plan": (
        "measure some updates, say how much memory and time the run would take, and train nothing"
    ),
    "backend": "numpy or cupy (default: what MINITF_BACKEND says, else numpy)",
    "precision": f"of the factors in a GPU's matrix products: {', '.join(PRECISIONS)}",
}

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


_EXIT_CODES = """exit code: 0 after a completed run or one stopped by a signal; 2 after an error,
reported on one line; 3 if --minutes or --patience ended the run before its steps were done, and its
model scores less than 1 BLEU on the validation text: it cannot translate; 130 after a second
Ctrl-C."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        message = re.sub(r"^argument (\S+): must be", r"\1 must be", message)
        raise UserError(f"{message} (--help lists all options)")


def _whole_number(text):
    """Read 100000, 100_000 or 1e5."""
    try:
        return int(text)
    except ValueError:
        value = _number(text, "a whole number")
        if not value.is_integer():
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        return int(value)


def _number(text, what="a number"):
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}") from None


_READERS = {int: _whole_number, float: _number}


LESSON = "09_train_wmt.py"  # the program that runs the lesson where it gets no options


def as_typed(program):
    """Return the command that starts the program: that of a module needs Python."""
    return f"python -m {program}" if program.startswith("minitf.") else program


def parse(arguments, program=LESSON):
    """Return (Settings, the names of those that were given) of a command line. Raises UserError."""
    parser = _Parser(
        prog=as_typed(program),
        description="Train a Transformer to translate."
        + (
            " Without any of these options lesson 09 runs, which tells how."
            if program == LESSON
            else ""
        ),
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    hints = typing.get_type_hints(Settings)
    for field in dataclasses.fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        default = (
            f" (default {field.default})"
            if field.default not in (None, False, 0, dataclasses.MISSING)
            else ""
        )
        text = _HELP[field.name].replace("%", "%%") + default
        if field.name in ("train", "valid"):
            parser.add_argument(flag, nargs=2, metavar=("SOURCE", "TARGET"), help=text)
        elif field.name == "set":
            parser.add_argument(flag, action="append", metavar="KEY=VALUE", help=text)
        elif hints[field.name] is bool:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            hint = hints[field.name]
            kind = next(
                kind for kind in (int, float, str) if kind in (hint, *typing.get_args(hint))
            )
            parser.add_argument(
                flag, type=_READERS.get(kind, str), metavar=kind.__name__.upper(), help=text
            )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="train a tiny model on the built-in toy corpus, in three minutes",
    )
    parser.add_argument(
        "--score", nargs=2, metavar=("HYP", "REF"), help="train nothing: score HYP, plain text"
    )
    given = vars(parser.parse_args(arguments))
    if "score" in given:
        raise UserError("--score HYP REF trains nothing: leave the other options out")
    quick = QUICK if given.pop("quick", False) else {}
    settings = Settings(**{**quick, **given})
    _check(settings)
    _check_together(settings, given)
    return settings, set(given)


def _check(settings):
    """Refuse numbers and names that cannot be, before any time is spent on them."""
    least = {
        "vocabulary_size": 0,
        "batch_tokens": 2,
        "max_length": 1,
        "clip": 0,
        "minutes": 0,
        "learning_rate": 0,
    }
    least |= dict.fromkeys(
        ("accumulate", "warmup_steps", "steps", "valid_every", "log_every", "average", "beam"), 1
    )
    least |= dict.fromkeys(
        ("patience", "save_every", "join", "copy", "max_extra", "seed", "replicas", "alpha"), 0
    )
    most = {"batch_tokens": 10**9, "max_length": 10**9, "seed": 2**63 - 1, "replicas": 256}
    most |= {"beam": 1000, "alpha": 10, "max_extra": 10_000}  # as translate.py has it
    for name, smallest in least.items():
        value, largest = getattr(settings, name), most.get(name, 10**12)
        if value is not None and not smallest <= value <= largest:
            limit = f"at most {largest}" if value > largest else f"at least {smallest}"
            raise UserError(f"--{name.replace('_', '-')} must be {limit}, not {value}")
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
    for name in ("train", "valid"):
        files = getattr(settings, name)
        if files is not None and len(files) != 2:
            raise UserError(f"--{name} needs two files, SOURCE and TARGET")
    if not settings.out:
        raise UserError("--out must name a folder")
    Config.preset(settings.preset, **model_changes(settings.set))


def _check_together(settings, given):
    """Refuse what contradicts itself. given: what stood on the command line, not what
    --quick implies.
    """
    if settings.valid and not settings.train and not settings.resume:
        raise UserError(
            "--valid belongs to --train: a named corpus brings its own validation sentences"
        )
    if {"corpus", "train"} <= given.keys():
        raise UserError("--corpus names a corpus, --train gives your own text: give one of them")
    if settings.start_from and not settings.resume:
        for name in sorted(given.keys() & {"preset", "vocabulary_size", "subwords"}):
            flag = name.replace("_", "-")
            raise UserError(
                f"--start-from brings the model's own size and subwords: leave --{flag} out"
            )


def fill_in(settings, epoch):
    """Return the settings with values for those that are None, and what was chosen as
    command-line options.

    epoch: updates in an epoch of the text.

    >>> fill_in(Settings(), 250)[1]
    '--steps 10000 --warmup-steps 1000 --learning-rate 0.5 --valid-every 250'
    >>> fill_in(Settings(start_from="model"), 250)[1]
    '--steps 1250 --warmup-steps 50 --learning-rate 0.028 --valid-every 250'
    >>> fill_in(Settings(), 30_000)[1]
    '--steps 100000 --warmup-steps 4000 --learning-rate 1 --valid-every 1000'
    """
    s, tuning = settings, bool(settings.start_from)
    epochs, fewest = (_TUNING_EPOCHS, _FEWEST_TUNING_STEPS) if tuning else (_EPOCHS, _FEWEST_STEPS)
    length = s.steps or round(min(max(epochs * epoch, fewest), _PAPER["steps"]))
    longest_warmup = _TUNING_WARMUP if tuning else _PAPER["warmup_steps"]
    warmup = s.warmup_steps or min(max(1, length // 10), longest_warmup)
    # The peak of the schedule is factor * (d_model * warmup)^-0.5: so it is the paper's,
    # whatever the warm-up.
    factor = (_TUNING_RATE if tuning else 1) * min(1, warmup / _PAPER["warmup_steps"]) ** 0.5
    values = {
        "steps": _PAPER["steps"] if s.minutes else length,
        "warmup_steps": warmup,
        "learning_rate": float(f"{factor:.3g}"),
        "valid_every": round(min(max(epoch, _FEWEST_VALID), _PAPER["valid_every"])),
    }
    chosen = {name: value for name, value in values.items() if getattr(s, name) is None}
    options = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in chosen.items())
    return dataclasses.replace(s, **chosen), options


def check_model(settings, config, n_subwords):
    """Refuse a model that the text of these settings does not fit."""
    config.check_subwords(n_subwords)
    count, free = config.count_parameters(), free_memory()
    if free is not None and 16 * count > free:  # weights, gradients, and two moments
        raise UserError(
            f"a model of {count:,} parameters takes {16 * count / 1e9:,.1f} GB before it "
            f"reads a word, and {free / 1e9:,.1f} GB are free: choose a smaller --preset, "
            "or other sizes with --set"
        )
    if config.positions == "learned" and settings.max_length >= config.max_length:
        raise UserError(
            f"--max-length {settings.max_length} and the end mark are more than the "
            f"{config.max_length} positions that the model learns: take --max-length "
            f"{config.max_length - 1} or --set max_length={settings.max_length + 1}"
        )


def check_stored(stored):
    """Refuse settings of a checkpoint that no run can have had. Raises UserError."""
    check_types(Settings, _known(stored))
    _check(Settings(**_known(stored)))


def _known(stored):
    known = {field.name for field in dataclasses.fields(Settings)}
    return {name: value for name, value in stored.items() if name in known}


def resumed(settings, given, stored):
    """Give the settings to go on with: those of the checkpoint, changed by those that were given.

    stored: the dictionary in the checkpoint; what this version does not know of it is left out.
    Returns the settings, and {name: (before, now)} for what makes the run another one than it
    would have been.
    """
    stored = _PAPER | _known(stored)
    before = Settings(**stored)
    for name in _FIXED:
        if name in given and getattr(settings, name) != getattr(before, name):
            flag = name.replace("_", "-")
            raise UserError(
                f"--resume cannot change --{flag} {getattr(settings, name)} (it was "
                f"{getattr(before, name)}): leave it out, or begin a new run in another --out"
            )
    own = {name: getattr(settings, name) for name in given} | {"out": settings.out, "resume": True}
    if "corpus" in given:
        own |= {"train": None, "valid": None}
    merged = Settings(**{**stored, **own})
    if merged.valid and not merged.train:
        raise UserError(
            f"the checkpoint in {merged.out} has a text to validate on, but none to train "
            "on: name --train"
        )
    pairs = {name: (getattr(before, name), getattr(merged, name)) for name in _COURSE}
    return merged, {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def resumed_model(config, assignments):
    """Apply --set to the model of a run that goes on, which can change its rates and nothing else.

    Returns the Config and {name: (before, now)}. Raises UserError.
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
        raise UserError(f"--resume cannot change {what}: begin a new run in another --out")
    return config.replace(**changes), {
        name: (getattr(config, name), value) for name, value in changes.items()
    }


def model_changes(assignments):
    """Return the fields of Config that ["d_model=128", "norm=pre"] sets.

    Raises UserError for a wrong name or value.
    """
    hints = {
        name: hint for name, hint in typing.get_type_hints(Config).items() if name not in _NOT_SET
    }
    changes = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or name not in hints:
            raise UserError(
                f"--set {assignment}: write KEY=VALUE with a key among {', '.join(hints)}"
            )
        kind = next(
            kind
            for kind in (bool, int, float, str)
            if kind in (hints[name], *typing.get_args(hints[name]))
        )
        try:
            changes[name] = (
                {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
            )
        except (ValueError, KeyError):
            raise UserError(f"--set {assignment}: {value!r} is not {_KINDS[kind]}") from None
    return changes
