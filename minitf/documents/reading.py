"""From the bytes of a document to its segments, and from their translations to its bytes."""

import codecs
import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import BinaryIO

from minitf.documents.markdown import read_markdown
from minitf.documents.segments import Segment, Span, splice
from minitf.documents.strings import read_json, read_po
from minitf.documents.subtitles import read_subtitles
from minitf.documents.tagged import read_html, read_xml
from minitf.errors import UserError
from minitf.text.encoding import BOMS, not_text, refusal
from minitf.text.sentences import has_letters

# The function of each format from a document to its segments. It also returns the document,
# because an empty target of .po and .xliff first gets its source.
READERS = {
    "html": read_html,
    "json": read_json,
    "markdown": read_markdown,
    "po": read_po,
    "subtitles": read_subtitles,
    "xml": read_xml,
}
_BOMS = {codecs.BOM_UTF8: "utf-8", **BOMS}
# What XML, HTML and gettext say about their encoding.
_DECLARED = rb"<\?xml[^>]*encoding=[\"']([\w-]+)|<meta[^>]*charset=[\"']?([\w-]+)"
_DECLARED += rb"|^\"Content-Type:.*charset=([\w-]+)"


@dataclasses.dataclass(frozen=True)
class Document:
    """The text of a document, and its segments.

    bom: the byte-order mark that it begins with. errors: for `str.encode`.
    """

    text: str
    segments: list[Segment]
    encoding: str = "utf-8"
    bom: bytes = b""
    errors: str = "strict"

    def translate(
        self,
        translate: Callable[[list[str]], list[list]],
        note: Callable[[list[list], int], object],
    ) -> bytes:
        """Return the document with its texts translated.

        translate: a Translator's. note: called with Translations that have given up something, and
        the number of lines before them. If a translation has the spans of a text in a wrong order,
        as a closing tag before its opening one, the texts between them are translated one by one.
        """
        translated, between, texts = [], [], [segment.text for segment in self.segments]
        for segment, best in zip(self.segments, translate(texts), strict=True):
            if best[0].problems:
                note([best], self.text.count("\n", 0, segment.start))
            translated.append(segment.split_translation(best[0].text))
            if translated[-1] is None:
                translated[-1] = turns = segment.split(segment.text)
                between += [(turns, i) for i in range(0, len(turns), 2) if has_letters(turns[i])]
        translations = translate([turns[i].strip() for turns, i in between])
        for (turns, i), (best, *_) in zip(between, translations, strict=True):
            turns[i] = turns[i].replace(turns[i].strip(), best.text)
        return self.with_translations(translated)

    def with_translations(self, translations: Sequence[list[str | Span]]) -> bytes:
        """Return the document with translations, as of `Segment.split`, in place of its segments.

        Raises UserError for a character that its encoding lacks.
        """
        text = splice(self.text, list(zip(self.segments, translations, strict=True)))
        try:
            return self.bom + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            lacks = f"its encoding, {self.encoding}, lacks {text[error.start]!r}"
            raise UserError(f"{lacks}: convert the document to UTF-8 first") from None


def read_document(file: BinaryIO, format: str, name: str) -> Document:
    """Return the document of an open file. Raises UserError if it is not of the format.

    name: the file's, for messages.
    """
    try:
        data = file.read() or b""
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}): name a document") from None
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
        text, segments = READERS[format](text)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    errors = "xmlcharrefreplace" if format in ("html", "xml") else "strict"  # &#1078;
    segments = sorted(segments, key=lambda segment: segment.start)
    return Document(text, segments, encoding, bom, errors)
