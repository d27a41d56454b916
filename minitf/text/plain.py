"""Which range of a line of plain text is translated: all but a list mark and a quote mark."""

import re

from minitf.text.normalise import normalise

# Tried at the left edge of a line until none fits.
_MARK = re.compile(
    r"\s+"
    r"|>+(?=\s|\w)(?!\w+<<)"  # of a quote; >>de<< names a language
    r"|(?:[-+*·–—]|#{1,6})(?=\s)"
    r"|[•‣⁃∙\uf0a7\uf0b7\u2190-\u21ff\u25a0-\u27bf\u2b00-\u2bff]\ufe0f?"  # bullets everywhere
    r"|[-–—](?=[^\W\d_])"  # what a second person says
    r"|(?:\(?(?:\d{1,3}|[A-Za-z]|[ivx]+)\)|(?:\d{1,3}\.)+\)?)(?=\s)"
    r"|[a-h]\.(?=\s+[A-Z]\w)"  # but z. B. and d. h. begin a sentence
)


def text_range(line: str) -> tuple[int, int]:
    """Return the start and the stop of what is translated of a line.

    A line without a letter stays as it is; one in which nothing is to be seen becomes empty.

    >>> text_range("  - Wash the car "), text_range("> 2. Go"), text_range("12:30")
    ((4, 16), (5, 7), (0, 0))
    """
    if not any(map(str.isalpha, line)):
        return 0, 0 if normalise(line) else len(line)
    start = 0
    while match := _MARK.match(line, start):
        start = match.end()
    return start, len(line.rstrip())
