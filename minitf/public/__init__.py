"""Public translation models to and from minitf's format; `python -m minitf public` is the command.

Nothing else is imported here, so that translate.py starts quickly.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

_OPUS = re.compile(r"(?:Helsinki-NLP/)?(opus-mt[-_][\w.-]+)", re.ASCII)
_FIREFOX = re.compile(r"firefox-[\w-]+", re.ASCII)
# The address of a model's page, as a browser has it.
_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:[/?#].*)?"
)


def public_name(model: str) -> str | None:
    """Return the full name of a model of OPUS-MT or Firefox, or of one on a page of Hugging Face.

    >>> public_name("opus-mt-en-de"), public_name("https://huggingface.co/a/b/tree/main")
    ('Helsinki-NLP/opus-mt-en-de', 'a/b')
    >>> public_name("firefox-en-fr")  # it has no owner
    'firefox-en-fr'
    >>> public_name("runs/mine")  # other names look like folders
    """
    if opus := _OPUS.fullmatch(model):
        return f"Helsinki-NLP/{opus[1]}"
    page = _PAGE.fullmatch(model)
    return model if _FIREFOX.fullmatch(model) else page and page[1]


def model_folder(model: str | Path, say: Callable[[str], object] = print) -> str | Path:
    """Return the folder of a model: of a public one, after it was downloaded and converted.

    A file or folder of that name comes first. Licence and size are said before a download.
    Raises UserError if the model cannot be had.
    """
    name = public_name(str(model))
    if os.path.exists(model) or not name:
        return model
    from minitf.public.remote import download_and_convert  # lazily: most need no network

    return download_and_convert(name, say)
