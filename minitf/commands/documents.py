"""Documents for translate.py: each of their texts is translated, and put back in its place."""

from collections.abc import Callable

from minitf.commands.output import LostText
from minitf.documents.reading import Document, read_document
from minitf.errors import UserError
from minitf.translation import Translation


def read_input(file, options) -> Document:
    """Return the document of an open file. Raises UserError if it is none of its format."""
    name = "the input" if options.input in (None, "-") else options.input
    try:
        data = file.read()
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}): name a document") from None
    return read_document(data or b"", options.format_in, name)


def translated(
    document: Document, translate: Callable[..., list[list[Translation]]], lost: LostText
) -> bytes:
    """Return a document with its texts translated; what was lost is noted, with their lines.

    translate(lines, protected=...): as of a Translator. Where a translation has the marks of a text
    in another order, as a closing tag before its opening one, the texts between the marks are
    translated by themselves.
    """
    units = document.units
    found = translate([unit.text for unit in units], protected=[unit.protected for unit in units])
    pieces = [unit.pieces_of(best.text) for unit, (best, *_) in zip(units, found, strict=True)]
    for unit, best in zip(units, found, strict=True):
        if best[0].given_up:
            lost.note([best], document.text.count("\n", 0, unit.start))
    apart = [number for number, each in enumerate(pieces) if each is None]
    for number in apart:
        pieces[number] = units[number].pieces()
    texts = [
        (pieces[number], i)
        for number in apart
        for i in range(0, len(pieces[number]), 2)
        if any(map(str.isalpha, pieces[number][i]))
    ]
    between = translate([turns[i].strip() for turns, i in texts])
    for (turns, i), (best, *_) in zip(texts, between, strict=True):
        turns[i] = turns[i].replace(turns[i].strip(), best.text)
    return document.written(pieces)
