"""The command line of a training: its Settings, recipes, and what --resume makes of them."""

import argparse
import dataclasses

from minitf.cli import OptionParser
from minitf.config import Config
from minitf.errors import UserError
from minitf.training.settings import Settings, convert, flag, kind_of

__all__ = ["check", "model_changes", "parse", "resumed", "resumed_model", "stored_settings"]

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

# The fields of Config that --resume --set may change, and those that follow from the text.
_RATES = ("dropout", "attention_dropout", "feed_forward_dropout", "label_smoothing")
_NOT_SET = ("vocabulary_size", "pad_id", "unk_id", "bos_id", "eos_id")

_EXIT_CODES = """exit code: 0 after a completed run or one stopped by a signal; 2 after an error,
reported on one line; 3 if --minutes or --patience ended the run before its steps were done, and its
model scores less than 1 BLEU on the validation text: it cannot translate; 130 after Ctrl-C before
training begins, or after a second Ctrl-C."""


# The command line ---------------------------------------------------------------------------------


def parse(arguments, program=None):
    """Return the Settings of a command line, and the names of those given. Raises UserError.

    program: how it was started, for --help.
    """
    parser = OptionParser(
        prog=program,
        description="Train a Transformer to translate.",
        epilog=_EXIT_CODES,
        argument_default=argparse.SUPPRESS,
    )
    for field in dataclasses.fields(Settings):
        _add_option(parser, field)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="train a tiny model on the toy corpus in about three minutes",
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
    check(settings, set(given))
    return settings, set(given)


def _as_options(values):
    """Return settings as they are typed on the command line."""
    return " ".join(
        f"{flag(name)} {item}"
        for name, value in values.items()
        for item in (value if name == "set" else [value])
    )


def _add_option(parser, field):
    """Add the option of a setting; Settings converts and checks its value."""
    help, kind = field.metadata["help"].replace("%", "%%"), kind_of(field)
    if field.default:
        help += f" (default {field.default})"
    if field.metadata["files"]:
        how = {"nargs": 2, "metavar": ("SOURCE", "TARGET")}
    elif kind is bool:
        how = {"action": "store_true"}
    elif kind is list:
        how = {"action": "append", "metavar": "KEY=VALUE"}
    elif kind is str:
        how = {"metavar": "DIR" if field.name in ("out", "start_from") else "NAME"}
    else:
        how = {"metavar": "N"}
    parser.add_argument(flag(field.name), help=help, **how)


# Checks of several settings -----------------------------------------------------------------------


def check(settings, given=()):
    """Raise UserError for settings that contradict each other, before any time is spent on them.

    given: the names of the settings that were asked for, without those that --quick implies.
    """
    changes = model_changes(settings.set)
    if settings.resume or settings.start_from:  # the sizes of that model are not known yet
        changes = {name: value for name, value in changes.items() if name in _RATES}
    # Nor is the vocabulary's size. This one is so large that it refuses no suppressed id.
    Config.preset(settings.preset, 10**9, **changes)
    if settings.valid and not settings.train and not settings.resume:
        raise UserError(
            "--valid is only used with --train: leave it out, a named corpus has its own "
            "validation sentences"
        )
    if "corpus" in given and "train" in given:
        raise UserError("--corpus and --train are both given: choose one of them")
    if settings.start_from and not settings.resume:
        for name in ("preset", "subwords", "vocabulary_size"):
            if name in given:
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
    """Return the Settings of a checkpoint's dictionary. Raises UserError if no run had them."""
    names = {field.name for field in dataclasses.fields(Settings)}
    if other := stored.keys() ^ names:
        raise UserError(
            f"of another version of minitf (its setting {min(other)}): continue the run with that "
            "version, or begin a new one"
        )
    settings = Settings(**stored)
    check(dataclasses.replace(settings, resume=False))
    return settings


def resumed(settings, given, before):
    """Return the Settings of a resumed run, and the changes that matter.

    They are those of the checkpoint (`before`), replaced by those that were given. The changes,
    {name: (before, now)}, are those after which the run is not bit for bit the uninterrupted one.
    """
    merged = dataclasses.asdict(before)
    if "corpus" in given:  # in place of the files; the pairs of --add are added to it as well
        merged |= {"train": None, "valid": None}
    for field in dataclasses.fields(Settings):
        name, on_resume = field.name, field.metadata["on_resume"]
        if name not in given and on_resume != "session":
            continue
        old, new = getattr(before, name), getattr(settings, name)
        if on_resume == "refused" and new != old:
            raise UserError(
                f"--resume cannot change {flag(name)} {new} (it was {old}): leave it out, or start "
                "a new run in another folder with --out"
            )
        if on_resume == "added":  # the later of two values of a field counts
            new = list({item.partition("=")[0]: item for item in old + new}.values())
        merged[name] = new
    merged = Settings(**merged)
    check(dataclasses.replace(merged, resume=False))
    changes = {
        field.name: (getattr(before, field.name), getattr(merged, field.name))
        for field in dataclasses.fields(Settings)
        if field.metadata["on_resume"] == "noted" or (field.name == "steps" and merged.cooldown)
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
        changed = ", ".join(
            f"{name} of the model from {getattr(config, name)} to {changes[name]}" for name in fixed
        )
        raise UserError(
            f"--resume cannot change {changed}: start a new run in another folder with --out"
        )
    return config.replace(**changes), {
        name: (getattr(config, name), value) for name, value in changes.items()
    }
