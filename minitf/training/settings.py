"""The settings of a training run: their table, the command line, and what --resume may change."""

# ruff: noqa: RUF009 (`setting` returns a field of a dataclass, not a shared default)

import argparse
import dataclasses
import os
import reprlib
import types
import typing

from minitf.cli import OptionParser, whole_number
from minitf.config import PRESETS, Config
from minitf.data.corpora import NAMES
from minitf.errors import UserError
from minitf.translation import Search


def setting(
    default, *, help, minimum=0, maximum=10**12, choices=(), files=False, folder=False, resume="may"
):
    """Return a field of Settings, a row of the table.

    default: None if the size of the text or the backend decides. help: its line of --help.
    minimum, maximum: of a number. choices: all allowed values. files: whether the value is
    two files. folder: whether it is a folder. resume: whether --resume "may" change it, or "cannot"
    because the weights depend on it, or "always" does: it is of a session, not of the run.
    """
    facts = {"limits": (minimum, maximum), "choices": choices, "files": files, "folder": folder}
    return dataclasses.field(default=default, metadata=facts | {"resume": resume, "help": help})


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
    vocabulary_size: int = setting(0, resume="cannot",
        help="subwords of both languages together (default: 15 times the root of the number of "
        "pairs, between 1000 and 32000; with --subwords none, all tokens)")
    subwords: str = setting("sentencepiece", choices=("sentencepiece", "none"), resume="cannot",
        help="how the text is split: sentencepiece, or none if it is split (words, or BPE with "
        "@@)")
    max_length: int = setting(250, minimum=1, maximum=10**9, resume="cannot",
        help="leave out pairs in which either side has more subwords than this")

    # The model
    preset: str = setting("tiny", resume="cannot",
        help=f"size of the model: {', '.join(PRESETS)}")
    set: list[str] = setting((), resume="cannot",
        help="change one setting of the model, e.g. --set d_model=128 --set norm=pre; may be "
        "repeated")
    start_from: str | None = setting(None, folder=True, resume="cannot",
        help="fine-tune: start with the weights and subwords of the model in this folder, or of a "
        "public one such as opus-mt-en-de, which is downloaded once")

    # An update
    batch_tokens: int = setting(4096, minimum=2, maximum=10**9,
        help="maximum tokens of a batch on each side, padding included")
    accumulate: int = setting(1, minimum=1,
        help="batches whose gradients are added up for one update; several small ones, each of "
        "another length, teach more than a large one")
    learning_rate: float | None = setting(None, minimum=1e-12,
        help="a factor on the paper's warm-up schedule (default: 1; less after a shorter warm-up, "
        "so that the peak is the same; with --start-from, a quarter of that)")
    warmup_steps: int | None = setting(None, minimum=1,
        help="number of updates during which the learning rate rises (default: a tenth of --steps "
        "or, if that is not given, of its default without --minutes; at most 4000; with "
        "--start-from, at most 50; a longer one is shortened to a tenth where it would be over a "
        "third of the default of --steps)")
    cooldown: float = setting(0.0, maximum=1,
        help="fraction of --steps, at their end, in which the learning rate falls linearly to 0, "
        "such as 0.3; only checkpoints of these are averaged, and --patience does not apply "
        "(default 0: none, as in the paper)")
    clip: float = setting(0.0,
        help="if the norm of the gradient exceeds N, scale it down to N (default 0: no clipping, "
        "as in the paper)")

    # The length of the run
    steps: int | None = setting(None, minimum=1,
        help="total number of updates (steps) (default: 40 epochs, at least 1000 and at most "
        "100000; with --start-from, 5 epochs, at least 100; with --minutes, 100000)")
    minutes: float = setting(0.0,
        help="stop this session after N minutes (a resumed run gets N more), and then finish as "
        "after the last step: average, validate, test (default 0: no limit)")
    valid_every: int | None = setting(None, minimum=1,
        help="updates between validations; each writes a checkpoint (default: an epoch, but at "
        "least 50 and at most 1000)")
    save_every: int = setting(0,
        help="updates between additional checkpoints, which are averaged as well (default 0: none)")
    log_every: int = setting(50, minimum=1, help="updates between log lines")
    patience: int = setting(10,
        help="stop after N validations in a row that improved neither BLEU nor perplexity; 0 never "
        "stops")

    # Its model, and the test
    average: int = setting(5, minimum=1,
        help="the model is the average of the last N checkpoints, or the last one alone, if its "
        "validation BLEU is higher")
    beam: int = setting(Search.beam, minimum=1, maximum=1000, help="beam width for the test")
    alpha: float = setting(Search.alpha, maximum=10, help="length penalty for the test")
    max_extra: int = setting(Search.max_extra, maximum=10_000,
        help="limit a translation to N subwords more than its source")

    # The session, and the machine
    out: str = setting("runs/latest", folder=True, resume="always",
        help="folder for the model, its checkpoints, log.jsonl and curves.png; translate.py "
        "--model reads it")
    resume: bool = setting(False, resume="always",
        help="continue from the last checkpoint in --out; settings that are given again change, "
        "others stay")
    plan: bool = setting(False, resume="always",
        help="train nothing: measure slices (some rows) of batches, and estimate the memory and "
        "the time of the run")
    seed: int = setting(0, maximum=2**63 - 1, resume="cannot",
        help="seed of the weights, the data order and dropout (default 0)")
    replicas: int = setting(0, maximum=256,
        help="copies of the model that share each batch, one thread each, in every process "
        "(default 0: one for each core)")
    backend: str | None = setting(None,
        help="numpy or cupy (default: the environment variable MINITF_BACKEND, else numpy)")
    precision: str = setting("float32", choices=("float32", "tf32", "bfloat16"),
        help="precision of the operands of a GPU's matrix products: float32, tf32, bfloat16")
    # fmt: on

    def __post_init__(self):
        for field in dataclasses.fields(self):
            setattr(self, field.name, _setting_value(field, getattr(self, field.name)))


def flag(name):
    """Return the option of the command line that sets this setting."""
    return "--" + name.replace("_", "-")


def _setting_value(field, value):
    """Return the value of a setting as its type. Raises UserError if the setting cannot have it."""
    if value is None and field.default is None:
        return None
    name, facts, kind = flag(field.name), field.metadata, kind_of(field)
    value = convert(name, value, kind)
    low, high = facts["limits"]
    if kind in (int, float) and not low <= value <= high:
        limit = f"most {high}" if value > high else f"least {low}"
        raise UserError(f"{name} must be at {limit}, not {value}")
    if facts["choices"] and value not in facts["choices"]:
        raise UserError(f"{name} must be one of {', '.join(facts['choices'])}, not {value!r}")
    if facts["files"] and len(value) != 2:
        raise UserError(f"{name} needs two files: SOURCE TARGET")
    return value


# Types --------------------------------------------------------------------------------------------


# For each type: the function that converts a value to it, its name in messages, and how an option
# of it is declared. A value comes from the command line, as text, or from a Python program, such as
# a Path or an np.int64; a checkpoint can store the result.
TYPES = {
    bool: (
        lambda value: {"true": True, "false": False}[str(value).lower()],
        "true or false",
        {"action": "store_true"},
    ),
    int: (whole_number, "a whole number", {"metavar": "N"}),
    float: (float, "a number", {"metavar": "N"}),
    str: (os.fspath, "a name", {"metavar": "NAME"}),
    tuple: (  # of a Config only
        lambda text: tuple(map(whole_number, text.split(","))) if text else (),
        "a list of whole numbers such as 1,5",
        {},
    ),
    list: (
        lambda values: [os.fspath(value) for value in values],
        "a list of texts",
        {"action": "append", "metavar": "KEY=VALUE"},
    ),
}


def kind_of(field):
    """Return the type of a field: int for `int | None`, list for `list[str]`."""
    hint = field.type.__args__[0] if isinstance(field.type, types.UnionType) else field.type
    return typing.get_origin(hint) or hint


def convert(name, value, kind):
    """Return a value as one of this type, a key of TYPES. Raises UserError, which has the name."""
    reader, called, _ = TYPES[kind]
    try:
        return reader(value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UserError(f"{name} must be {called}, not {reprlib.repr(value)}") from None


# Recipes and the command line ---------------------------------------------------------------------

# Named sets of defaults, for --recipe.
RECIPES = {
    # A tiny model that learns the toy corpus in under three minutes on two cores.
    "quick": {
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
    },
    # For a hundred thousand pairs, on one computer. Its rate has a peak of 2e-3 (learning_rate is
    # a factor on the paper's schedule), nearly three times the peak of base: a smaller model bears
    # larger steps.
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
        "corpus": "craft-words",
        "preset": "small",
        "vocabulary_size": 3000,
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

# The fields of Config that follow from the text.
_NOT_SET = ("vocabulary_size", "pad_id", "unk_id", "bos_id", "eos_id")

_EXIT_CODES = """exit code: 0 after a completed run or one stopped by a signal; 2 after an error,
reported on one line; 3 if --minutes or --patience ended the run before its steps were done, and its
model scores less than 1 BLEU on the validation text: it cannot translate; 130 after Ctrl-C before
training begins, or after a second Ctrl-C."""


def parse(arguments, program=None):
    """Return the Settings of a command line, and the set of those that it names. Raises UserError.

    program: how it was started, for --help.
    """
    parser = OptionParser(
        prog=program,
        description="Train a Transformer to translate.",
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
    )
    for field in dataclasses.fields(Settings):
        facts, (*_, option) = field.metadata, TYPES[kind_of(field)]
        if facts["files"]:
            option = {"nargs": 2, "type": _one_of_two, "metavar": ("SOURCE", "TARGET")}
        elif facts["folder"]:
            option = {"metavar": "DIR"}
        help = facts["help"] + (f" (default {field.default})" if field.default else "")
        parser.add_argument(flag(field.name), help=help.replace("%", "%%"), **option)
    parser.add_argument(
        "--recipe",
        choices=sorted(RECIPES),
        metavar="NAME",
        help="other defaults than the paper's. "
        + "; ".join(f"{name}: {_as_options(recipe)}" for name, recipe in RECIPES.items()),
    )
    parser.add_argument(
        "--quick",
        action="store_const",
        dest="recipe",
        const="quick",
        help="train a tiny model on the toy corpus in about three minutes (--recipe quick)",
    )
    parser.add_argument(
        "--score",
        nargs=2,
        type=_one_of_two,
        metavar=("HYP", "REF"),
        help="train nothing: score the translations in file HYP against the references in file "
        "REF (plain text; the name of REF ends in its language, .de or .fr)",
    )
    options = vars(parser.parse_args(arguments))
    if "score" in options:
        raise UserError("--score HYP REF trains nothing: leave the other options out")
    defaults = RECIPES[options.pop("recipe")] if "recipe" in options else {}
    for name in options.keys() & {"start_from", "resume"} if defaults else ():
        raise UserError(
            "--recipe and --quick are for a new model of your own: leave them out, or "
            f"leave out {flag(name)}"
        )
    if "set" in options:  # the later of two values of a field counts
        options["set"] = defaults.get("set", []) + options["set"]
    settings = Settings(**{**defaults, **options})
    check(settings, set(options))
    return settings, set(options)


def _as_options(values):
    """Return settings as they are typed on the command line."""
    return " ".join(
        f"{flag(name)} {item}"
        for name, value in values.items()
        for item in (value if name == "set" else [value])
    )


def _one_of_two(value):
    """Return one of an option's two values; in Python 3.14 the next option may arrive as one."""
    if value.startswith("-"):
        raise argparse.ArgumentTypeError("expected 2 arguments")
    return value


# Checks of several settings -----------------------------------------------------------------------


def check(settings, chosen=()):
    """Raise UserError for settings that contradict each other, before any time is spent on them.

    chosen: the names of the settings that the user chose, without those that --recipe implies.
    """
    changes = model_changes(settings.set)
    if not settings.resume and not settings.start_from:  # else the sizes are another model's
        # The vocabulary's size is not known yet. This one refuses no suppressed id.
        Config.preset(settings.preset, 10**9, **changes)
    if settings.valid and not settings.train and not settings.resume:
        raise UserError(
            "--valid is only used with --train: leave it out, a named corpus has its own "
            "validation sentences"
        )
    if "corpus" in chosen and "train" in chosen:
        raise UserError("--corpus and --train are both given: choose one of them")
    if settings.start_from and not settings.resume:
        for name in ("preset", "subwords", "vocabulary_size"):
            if name in chosen:
                raise UserError(
                    f"--start-from uses that model's size and subwords: leave out {flag(name)}"
                )


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
        changes[name] = convert(f"--set {name}", value, kinds[name])
    return changes


# A resumed run ------------------------------------------------------------------------------------


def stored_settings(stored):
    """Return the Settings of a checkpoint's dictionary. Raises UserError for another version's."""
    if other := stored.keys() ^ vars(Settings()).keys():
        raise UserError(
            f"saved by another version of minitf (its setting {min(other)}): continue "
            "the run with that version, or begin a new one"
        )
    return Settings(**stored)


def merge(settings, chosen, before):
    """Return the Settings of a resumed run, and the changes: {option: (before, now)}.

    They are those of the checkpoint, `before`, replaced by the chosen ones.
    Raises UserError for a change of what the weights depend on.
    """
    rule = {field.name: field.metadata["resume"] for field in dataclasses.fields(Settings)}
    for name in rule:
        old, new = getattr(before, name), getattr(settings, name)
        same = set(new) <= set(old) if name == "set" else new == old
        if rule[name] == "cannot" and name in chosen and not same:
            had = _as_options({name: old}) if old else "none"
            raise UserError(
                f"--resume cannot change {flag(name)} (the run has {had}): leave it out, or begin "
                f"a new run, for example with --start-from {settings.out}"
            )
    # A corpus takes the place of the files; the pairs of --add are added to it as well.
    files = {"train": None, "valid": None} if "corpus" in chosen else {}
    given = {*chosen} - {"set"}  # what --set has is in the run
    new = [name for name in rule if name in given or rule[name] == "always"]
    merged = dataclasses.replace(before, **files | {name: getattr(settings, name) for name in new})
    check(dataclasses.replace(merged, resume=False))
    changes = {
        flag(name): (old, new)
        for name, new in vars(merged).items()
        if (old := getattr(before, name)) != new and rule[name] != "always"
    }
    return merged, changes
