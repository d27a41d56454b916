"""What is translated of a line of plain text: all but a list mark and a quote mark."""

import re
from collections.abc import Iterable

from minitf.text.normalise import normalise

# Tried at the left edge of a line until none fits.
_MARK = re.compile(
    r"\s+"
    r"|>+(?=\s|\w)(?!\w+<<)"  # of a quote; >>de<< names a language
    r"|(?:[-+*·–—]|#{1,6})(?=\s)"
    r"|[•‣⁃∙\uf0a7\uf0b7\u2190-\u21ff\u25a0-\u27bf\u2b00-\u2bff]\ufe0f?"  # bullets everywhere
    r"|[-–—](?=[^\W\d_])"  # before direct speech
    r"|(?:\(?(?:\d{1,3}|[A-Za-z]|[ivx]+)\)|(?:\d{1,3}\.)+\)?)(?=\s)"
    r"|[a-h]\.(?=\s+[A-Z]\w)"  # but z. B. and d. h. begin a sentence
    r"|(?:[A-Z]:|\[[ xX]\])(?=\s)"  # Q: and A:, or a task [x]
)
_BETWEEN_TABS = re.compile(r"\S(?:[^\t]*\S)?")


def has_letters(texts: Iterable[str]) -> bool:
    """Return whether a text, or one of several, has something to translate."""
    return any(map(str.isalpha, "".join(texts)))


def text_ranges(line: str) -> list[tuple[int, int]]:
    """Return the start and the stop of each text of a line: tabs separate texts, as lines do.

    What has no letter is not a text. A line in which nothing is visible becomes empty.

    >>> text_ranges("  - Wash the car "), text_ranges("> 2. Go\\t12\\tNow"), text_ranges("12:30")
    ([(4, 16)], [(5, 7), (11, 14)], [])
    """
    start = 0
    while match := _MARK.match(line, start):
        start = match.end()
    texts = _BETWEEN_TABS.finditer(line, start)
    ranges = [text.span() for text in texts if has_letters(text[0])]
    return ranges if ranges or normalise(line) else [(0, len(line))]
