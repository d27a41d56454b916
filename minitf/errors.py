"""The exception for mistakes of the user, and the name of the file that it is about."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["UserError", "in_file"]


class UserError(Exception):
    """A mistake that the user can mend. Its text is one line: what is wrong, and what to do."""


@contextlib.contextmanager
def in_file(path: str | os.PathLike) -> Iterator[None]:
    """Prefix any UserError raised in this block with the path of the file that it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
