"""The exception for mistakes of the user, with the name of the file concerned."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator

__all__ = ["UserError", "in_file", "number"]


class UserError(Exception):
    """A mistake that the user can correct. Its one-line text says what is wrong and what to do."""


@contextlib.contextmanager
def in_file(path: str | os.PathLike) -> Iterator[None]:
    """Prefix any UserError raised in this block with the path of a file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def number(
    kind: type[int] | type[float], least: float | None = None, most: float | None = None
) -> Callable[[str], float]:
    """Return a reader of numbers for argparse, with a message that a beginner understands.

    kind: int, which may be written 100000, 100_000 or 1e5, or float. least, most: both limits of
    the number, or neither.
    """
    description = "a whole number" if kind is int else "a number"
    if least is not None:
        description += f" from {least} to {most}"

    def read(text):
        with contextlib.suppress(ValueError):
            value = _read(kind, text)
            if least is None or most is None or least <= value <= most:
                return value
        raise argparse.ArgumentTypeError(f"must be {description}, not {text!r}")

    return read


def _read(kind, text):
    if kind is int:
        with contextlib.suppress(ValueError):
            return int(text)
        if not float(text).is_integer():
            raise ValueError(text)
        return int(float(text))
    return float(text)
