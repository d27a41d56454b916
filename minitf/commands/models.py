"""The models for translate.py: the one that a name means, and the list of all that are known."""

import contextlib
import os
from pathlib import Path

from minitf.cli import say
from minitf.data.corpora import data_folder
from minitf.errors import UserError
from minitf.files.arrays import exists
from minitf.files.models import read_notes
from minitf.public import model_folder, public_name
from minitf.translation.languages import direction
from minitf.translation.loading import is_parser


def folder_of(model, bundled):
    """Return the folder of a model; a public one is first downloaded and converted.

    bundled: the folder of a model, or None; a message names the others beside it.
    """
    folder = model_folder(model, say)
    if exists(folder):
        return folder
    choices = [
        f"{near} ({languages})" if languages else near
        for near, languages in (_translators(Path(bundled).parent) if bundled else ())
    ]
    choices += [
        "the folder of a model that the trainer wrote",
        "or a public model, such as firefox-fr-en: --list-models lists all",
    ]
    raise UserError(f"{folder}: no such folder: choose {', '.join(choices)}")


def print_models(bundled):
    """Print a line for each model that is here, or in Mozilla's index of models for Firefox."""
    from minitf.public.firefox import firefox_models  # lazily: it loads what downloads

    lines = []
    if bundled:
        lines = [(*each, "bundled") for each in _translators(Path(bundled).parent)]
    downloaded = data_folder() / "models"
    for folder, languages in _translators(downloaded):
        name = Path(folder).name.replace("--", "/").removeprefix("Helsinki-NLP/")
        lines.append((name if public_name(name) else folder, languages, "downloaded"))
    known = {name for name, *_ in lines}
    try:
        models = firefox_models(say)
        for name, model in sorted(models.items()):
            best = models[f"firefox-{model.source_language}-{model.target_language}"]
            if name not in known and (model is not best or name != model.name):
                size = f"{model.size / 1e6:,.0f} MB{'' if model.rank > 1 else ', not released'}"
                lines.append((name, direction(model._asdict()), size))
    except UserError as error:
        say(f"notice   Firefox's models that are not here are not listed: {error}")
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())
    say(f"Give one of these names to --model. What it downloads is kept in {downloaded}.")
    say("There are also opus-mt-fr-en and the like: https://huggingface.co/Helsinki-NLP has them.")


def _translators(folder):
    """Yield the path and the languages of each translator in a folder of models."""
    for path in sorted(folder.glob("*/config.json")):
        with contextlib.suppress(UserError, ValueError):
            notes = read_notes(path.parent)
            if not is_parser(notes):
                yield os.path.relpath(path.parent), direction(notes)
