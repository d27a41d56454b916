"""The special ids, the characters of a line, and the file: shared by Subwords and Words."""

import re
from collections.abc import Iterable
from pathlib import Path

from minitf.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
SPACE_SIGN = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space

LOST = re.compile("[\0\ufffd]")  # in a line of which some bytes are lost
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_CONTROL = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def valid(line: str) -> str:
    """Return the line as valid Unicode: each lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", line)


def printable(text: str) -> str:
    """Return the text without control characters; those that separate words become spaces."""
    return _CONTROL.sub("", _SPACE_CONTROL.sub(" ", text))


def in_range(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids as a list. Raises ValueError for an id outside the vocabulary."""
    ids = [int(i) for i in ids]
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(i for i in ids if not 0 <= i < size)
        raise ValueError(f"id {wrong} is not in a vocabulary of {size}")
    return ids


def ordinary(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids without the special ones. Raises ValueError as `in_range` does."""
    return [i for i in in_range(ids, size) if i >= len(SPECIALS)]


def read(path: str | Path) -> bytes:
    """Return the content of a file. Raises UserError, without the path, if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}): name an existing file") from None
