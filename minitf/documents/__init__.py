"""Documents: a format tells which texts of a file are translated; all else stays as it is."""

import os

# The format of each ending of a file's name, as `minitf.documents.reading.READERS` calls it.
FORMATS = {
    "htm": "html",
    "html": "html",
    "json": "json",
    "markdown": "markdown",
    "md": "markdown",
    "po": "po",
    "pot": "po",
    "srt": "subtitles",
    "vtt": "subtitles",
    "xlf": "xml",
    "xliff": "xml",
    "xml": "xml",
}


def format_of(path: str | os.PathLike) -> str | None:
    """Return the format that the ending of a file's name stands for, None for plain text.

    >>> format_of("strings.de.JSON"), format_of("letter.txt")
    ('json', None)
    """
    return FORMATS.get(os.path.splitext(path)[1][1:].lower())
