"""Public translation models to and from minitf's format; `python -m minitf public` is the command.

Nothing else is imported here, so that translate.py starts quickly.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["model_folder", "name_on_hub"]

_OPUS = re.compile(r"(?:Helsinki-NLP/)?(opus-mt[-_][\w.-]+)", re.ASCII)
# The address of a model's page, as a browser has it.
_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:[/?#].*)?"
)


def name_on_hub(model: str) -> str | None:
    """Return the full name of a model of OPUS-MT, or of the one on a page of Hugging Face.

    >>> name_on_hub("opus-mt-en-de"), name_on_hub("https://huggingface.co/a/b/tree/main")
    ('Helsinki-NLP/opus-mt-en-de', 'a/b')
    >>> name_on_hub("runs/mine")  # other names look like folders
    """
    if opus := _OPUS.fullmatch(model):
        return f"Helsinki-NLP/{opus[1]}"
    page = _PAGE.fullmatch(model)
    return page[1] if page else None


def model_folder(model: str | Path, say: Callable[[str], object] = print) -> str | Path:
    """Return the folder of a model: of a public one, after it was downloaded and converted.

    A file or folder of that name comes first. Licence and size are said before a download.
    Raises UserError if the model cannot be had.
    """
    name = name_on_hub(str(model))
    if os.path.exists(model) or not name:
        return model
    from minitf.public.remote import imported  # lazily: most translations need no network

    return imported(name, say)
