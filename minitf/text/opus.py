"""The text normalisation with which OPUS-MT's models were trained."""

import re
import unicodedata

__all__ = ["normalise"]

# The last entry looks like a mistake, but the models have learned it.
_REPLACED = str.maketrans(
    dict(zip("，、∶：；？！（）《》「」", ',,::;?!()""""', strict=True))
    | dict(zip("”“’～━〈〉【】％", '""\'~-<>[]%', strict=True))
    | dict(zip("０２３４５６７８９", "023456789", strict=True))
    | {"…": "...", "１": '"'}
)
_STOP = re.compile("[。．] *")
_UNUSUAL = re.compile("[^ -~]")
_SPACES = re.compile("  +")


def normalise(line: str) -> str:
    """Return a line with wide and curly punctuation as ASCII, and with single spaces.

    Control characters and invisible ones become spaces.
    Source: OPUS-MT-train, scripts/preprocess-spm.sh.

    >>> normalise("“Good…”　he  said。Then，")
    '"Good..."　he said. Then,'
    """
    line = _STOP.sub(". ", line).translate(_REPLACED)
    return _SPACES.sub(" ", _UNUSUAL.sub(_space_if_invisible, line)).strip(" ")


def _space_if_invisible(match):
    return " " if unicodedata.category(match[0]) in ("Cc", "Cf", "Co", "Cs") else match[0]
