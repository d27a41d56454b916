"""A model's folder, or the name of a public model in its place: for all commands that load one."""

import os
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["folder_of"]

# Names of other owners look like folders, so `python -m minitf.public` has to be asked for them.
_NAME = re.compile(r"(Helsinki-NLP/)?opus-mt[-_][\w.-]+", re.ASCII)


def folder_of(model: str | Path, say: Callable[[str], object] = print) -> str | Path:
    """Return the folder of a model: of a public one, after it was downloaded and converted.

    A file or folder of that name comes first. Licence and size are said before a download.
    Raises UserError if the model cannot be had.
    """
    if os.path.exists(model) or not _NAME.fullmatch(str(model)):
        return model
    from minitf.public.remote import imported  # lazily: most translations need no network

    return imported(str(model), say)
