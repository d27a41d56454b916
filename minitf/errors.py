"""Mistakes of the user: their exception, and the file that they are in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["UserError", "in_file"]


class UserError(Exception):
    """A mistake that the user can correct. Its one-line text says what is wrong and what to do."""


@contextlib.contextmanager
def in_file(path: str | os.PathLike) -> Iterator[None]:
    """Prefix any UserError raised in this block with the path of a file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
