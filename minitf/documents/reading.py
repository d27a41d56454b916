"""From the bytes of a document to its units, and from their translations to its bytes."""

import codecs
import contextlib
import dataclasses
import re
from collections.abc import Sequence

from minitf.documents.markdown import read_markdown
from minitf.documents.strings import read_json, read_po
from minitf.documents.subtitles import read_subtitles
from minitf.documents.tagged import read_html, read_xml
from minitf.documents.units import Mark, Unit, splice
from minitf.errors import UserError
from minitf.text.encoding import not_text, refusal

__all__ = ["READERS", "Document", "read_document"]

# The function of each format from a document to its units. It returns the document, too, because
# an empty target of .po and .xliff first gets its source.
READERS = {
    "html": read_html,
    "json": read_json,
    "markdown": read_markdown,
    "po": read_po,
    "subtitles": read_subtitles,
    "xml": read_xml,
}
_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# What XML, HTML and gettext say about their encoding.
_DECLARED = rb"<\?xml[^>]*encoding=[\"']([\w-]+)|<meta[^>]*charset=[\"']?([\w-]+)"
_DECLARED += rb"|^\"Content-Type:.*charset=([\w-]+)"


@dataclasses.dataclass(frozen=True)
class Document:
    """The text of a document, and its units.

    bom: the byte-order mark that it begins with. errors: as of `str.encode`.
    """

    text: str
    units: list[Unit]
    encoding: str = "utf-8"
    bom: bytes = b""
    errors: str = "strict"

    def written(self, translations: Sequence[list[str | Mark]]) -> bytes:
        """Return the document with a translation, as `Unit.pieces`, in the place of each unit.

        Raises UserError for a character that its encoding lacks.
        """
        text = splice(self.text, list(zip(self.units, translations, strict=True)))
        try:
            return self.bom + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            lacks = f"its encoding, {self.encoding}, lacks {text[error.start]!r}"
            raise UserError(f"{lacks}: convert the document to UTF-8 first") from None


def read_document(data: bytes, format: str, name: str) -> Document:
    """Return the document of some bytes. Raises UserError for what is not a document of the format.

    name: that of the file, for messages.
    """
    bom = next((bom for bom in _BOMS if data.startswith(bom)), b"")
    encoding = _BOMS.get(bom, "utf-8")
    if not bom and (declared := re.search(_DECLARED, data, re.MULTILINE)):
        label = declared[declared.lastindex]
        # Not the CHARSET of a new .pot, nor rot13, nor UTF-16 in what could be read as ASCII.
        with contextlib.suppress(LookupError, UnicodeError):
            if label.decode(label.decode()) == label.decode():
                encoding = codecs.lookup(label.decode()).name
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeError:
        if kind := not_text(data):
            raise UserError(f"{name} is {kind}: give a document of text") from None
        raise UserError(refusal(name, data, name)) from None
    try:
        text, units = READERS[format](text)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    errors = "xmlcharrefreplace" if format in ("html", "xml") else "strict"  # &#1078;
    units = sorted(units, key=lambda unit: unit.start)
    return Document(text, units, encoding, bom, errors)
