"""Public translation models to and from minitf's format; `python -m minitf public` is the command.

Nothing else is imported here, so that translate.py starts quickly.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["model_folder"]

# Names of other owners look like folders, so `python -m minitf public` has to be asked for them.
_NAME = re.compile(r"(Helsinki-NLP/)?opus-mt[-_][\w.-]+", re.ASCII)
# The address of a model's page, as a browser has it.
_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:[/?#].*)?"
)


def model_folder(model: str | Path, say: Callable[[str], object] = print) -> str | Path:
    """Return the folder of a model: of a public one, after it was downloaded and converted.

    A file or folder of that name comes first. The address of a page of Hugging Face names its
    model. Licence and size are said before a download.
    Raises UserError if the model cannot be had.
    """
    page = _PAGE.fullmatch(str(model))
    name = page[1] if page else str(model)
    if os.path.exists(model) or not (page or _NAME.fullmatch(name)):
        return model
    from minitf.public.remote import imported  # lazily: most translations need no network

    return imported(name, say)
