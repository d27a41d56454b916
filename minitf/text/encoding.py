"""From bytes to text: UTF-8, or UTF-16 by its byte-order mark; other encodings are refused."""

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator

from minitf.errors import UserError
from minitf.text.vocabulary import LOST

BOMS = {  # UTF-32's first: the mark of its little-endian form begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_FILES = {  # the first bytes of files that are not plain text
    rb"PK\x03\x04": "a Word, LibreOffice or zip file",
    rb"\xd0\xcf\x11\xe0": "an old Word file",
    rb"%PDF-": "a PDF",
    rb"\x89PNG|\xff\xd8\xff|GIF8": "a picture",
    rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd": "a compressed file",
    rb"\{\\rtf": "an RTF file",
}
_NOT_CP1252 = b"\0\x81\x8d\x8f\x90\x9d"  # all other bytes are text in cp1252


def not_text(start: bytes) -> str:
    """Return the kind of file that begins with these bytes; "" if it may be plain text.

    >>> not_text(b"%PDF-1.7"), not_text(b"The cat")
    ('a PDF', '')
    """
    return next((kind for bytes_of, kind in _FILES.items() if re.match(bytes_of, start)), "")


def as_utf8(read: Callable[[], bytes], name: str) -> Iterator[bytes]:
    """Yield what read() returns, up to b"", as UTF-8; a byte-order mark tells of UTF-16 or UTF-32.

    Raises UserError for a file that is not plain text, by its first bytes.
    """
    start, decoder, is_begun = b"", None, False
    while (data := read()) != b"":
        if not is_begun:
            start += data
            if any(bom.startswith(start) and bom != start for bom in BOMS):
                continue  # the rest of the mark has not come yet
            if kind := not_text(start):
                raise UserError(f"{name} is {kind}: save it as plain text, in UTF-8")
            if bom := next(filter(start.startswith, BOMS), b""):
                decoder = codecs.getincrementaldecoder(BOMS[bom])(errors="replace")
            data, is_begun = start[len(bom) :], True
        yield decoder.decode(data).encode() if decoder else data
    if decoder:  # U+FFFD for a character whose end is missing
        yield decoder.decode(b"", final=True).encode()
    elif not is_begun and start and start not in BOMS:  # nothing but the beginning of a mark
        yield start


class Damage:
    """Counts what could not be decoded, to tell damaged UTF-8 from another encoding.

    A few lost bytes are damage. A text that has lost more bytes than it has characters beyond
    ASCII, and more than one in a hundred lines, is in another encoding.
    """

    def __init__(self):
        self.lines = self.lost = self.well = 0

    def see(self, lines: Iterable[str]) -> None:
        """Count the next lines of a text that was decoded with errors="replace"."""
        for line in lines:
            self.lines += 1
            lost = len(LOST.findall(line))
            self.lost += lost
            if not line.isascii():
                self.well += len(line) - len(line.encode("ascii", "ignore")) - lost

    def is_other_encoding(self) -> bool:
        """Return whether the text seen so far is in another encoding."""
        return self.lost > max(self.well, self.lines // 100)


def refusal(name: str, data: bytes, file: str | os.PathLike = "") -> str:
    """Return why a text is refused, and the command that converts it.

    data: its bytes, or some of them. file: the name of the file, "" for a pipe.

    >>> refusal("a.txt", "Grüße".encode("utf-16-le"))
    'a.txt is not text, or in an unknown encoding: save it as plain text, in UTF-8'
    """
    if any(byte in data for byte in _NOT_CP1252):
        return f"{name} is not text, or in an unknown encoding: save it as plain text, in UTF-8"
    problem = f"{name} is not UTF-8 but probably cp1252"
    if os.name == "nt":  # which has no iconv
        return f"{problem}: save it in UTF-8 (in Notepad: Save as, Encoding)"
    command = "iconv -f cp1252 -t utf-8"
    if file:
        return f"{problem}: {command} {file} > NEW_FILE"
    return f"{problem}: pipe it through {command}"
