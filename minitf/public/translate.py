"""The command translate.py, which also takes the name of a public model."""

import re
from pathlib import Path

from minitf.translation import commandline
from minitf.translation.console import say

__all__ = ["main"]

_NAME = re.compile(r"(Helsinki-NLP/)?opus-mt[-_][\w.-]+")


def main(arguments=None, model=None, backend=""):
    """Run the command line; returns the exit code, as `translation.commandline.main`."""
    return commandline.main(arguments, model, backend, folder_of)


def folder_of(model):
    """Return the folder of a model: of a public one, after it was downloaded and converted."""
    if Path(model).exists() or not _NAME.fullmatch(str(model)):
        return model
    from minitf.public.remote import imported  # lazily: most translations need no network

    return imported(str(model), say)
