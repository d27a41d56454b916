"""The texts of a document: what is translated, what is copied inside, and both put back.

A format finds the marks between and inside its texts; what lies between two marks is text. Whatever
is outside of the texts stays as it is, because only their ranges are replaced.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import accumulate, count
from typing import NamedTuple

from minitf.text.plain import has_letters
from minitf.text.protected import FIRST_SIGN, FIRST_WORD


class Kind(StrEnum):
    """What a mark is for the text around it."""

    SEPARATOR = "separator"  # it separates two texts: a tag <p>
    MARKUP = "markup"  # it opens or closes something: <b>, **. At the edge of a text it is left out
    POSITIONAL = "positional"  # it stands for a word, and such words keep their order: %s
    WORD = "word"  # it stands for a word, and may move, but across no markup: {name}, `code`


class Mark(NamedTuple):
    """A range of a document that is not translated; text: written in its place (default: it)."""

    start: int
    stop: int
    kind: Kind = Kind.MARKUP
    text: str | None = None


class Escaping(NamedTuple):
    """How a format escapes a text.

    unescape: from the document to what a person reads, as &eacute; to é. escape: back.
    finish(text, replaced): finally, of all of a text, with its markup; replaced: what the document
    had there.
    """

    unescape: Callable[[str], str] = str
    escape: Callable[[str], str] = str
    finish: Callable[[str, str], str] = lambda text, replaced: text


@dataclasses.dataclass(frozen=True)
class Unit:
    """One text of a document: a paragraph, a heading, a cell, an attribute, a string.

    start, stop: its range of the document. text: what is translated, in one line. marks: those in
    it, each by the character that stands for it in `text`, and in a translation.
    """

    start: int
    stop: int
    text: str
    marks: dict[str, Mark]
    escaping: Escaping

    def segments(self, text: str) -> list[str | Mark]:
        """Return texts and marks alternately: a text, a mark, a text, ..."""
        segments = re.split(f"([{''.join(self.marks)}])", text) if self.marks else [text]
        segments[1::2] = map(self.marks.get, segments[1::2])
        return segments

    def segments_of(self, translation: str) -> list[str | Mark] | None:
        """Return a translation as `segments`; None if a mark is missing, doubled, or out of order.

        In another order a closing tag could come before its opening one, or a link inside another.
        None also if a word has crossed a tag, or if nothing is left between two that had a text.
        """
        segments, source = self.segments(translation), self.segments(self.text)
        ordered = [mark for mark in segments[1::2] if mark.kind != Kind.WORD]
        is_whole = ordered == sorted(ordered) and sorted(segments[1::2]) == sorted(source[1::2])
        (words, filled), (were_words, were_filled) = map(_between_markup, (segments, source))
        return segments if is_whole and words == were_words and filled >= were_filled else None


def _between_markup(segments):
    """Return after which markup each word stands, and after which markup there is a text."""
    place, words, filled = None, set(), set()
    for mark, text in zip([None, *segments[1::2]], segments[::2], strict=True):
        if mark and mark.kind == Kind.MARKUP:
            place = mark
        if mark and mark.kind == Kind.WORD:
            words.add((place, mark))
        if text.strip():
            filled.add(place)
    return words, filled


def units_between(
    document: str, start: int, stop: int, marks: Iterable[Mark], escaping: Escaping
) -> list[Unit]:
    """Return the units of a range of a document: its texts between the marks that separate them.

    Of marks inside another one, only the outer counts. What has no letter is not a text.
    """
    units, inside, place, begin = [], [], start, start
    marks = sorted(marks, key=lambda mark: (mark.start, -mark.stop))
    for mark in [*marks, Mark(stop, stop, Kind.SEPARATOR)]:
        if mark.start < place:
            continue
        place = mark.stop
        if mark.kind != Kind.SEPARATOR:
            markup = mark.start, Kind.MARKUP, None
            if inside and inside[-1][1:] == markup == (mark.start, *mark[2:]):
                mark = inside.pop()._replace(stop=mark.stop)
            inside.append(mark)
            continue
        units += _unit(document, begin, mark.start, inside, escaping)
        begin, inside = mark.stop, []
    return units


def _unit(document, start, stop, marks, escaping):
    """Return the unit of a range in a list, or none, without spaces and markup at its edges."""
    while True:
        start = re.compile(r"\s*").match(document, start, stop).end()
        stop = start + len(document[start:stop].rstrip())
        if marks and marks[0] == (start, marks[0].stop, Kind.MARKUP, None):
            start = marks.pop(0).stop
        elif marks and marks[-1] == (marks[-1].start, stop, Kind.MARKUP, None):
            stop = marks.pop().start
        else:
            break
    text, by_character, place, raw = "", {}, start, document[start:stop]
    words, signs = (map(chr, count(first)) for first in (FIRST_WORD, FIRST_SIGN))
    for mark in marks:
        those = signs if mark.kind == Kind.MARKUP else words
        character = next(each for each in those if each not in raw)
        by_character[character] = mark
        text, place = text + escaping.unescape(document[place : mark.start]) + character, mark.stop
    text += escaping.unescape(document[place:stop])
    return [Unit(start, stop, text, by_character, escaping)] if has_letters(text) else []


def splice(document: str, translations: Sequence[tuple[Unit, list[str | Mark]]]) -> str:
    """Return a document with each unit's translation, as `segments`, in its place.

    A unit may lie inside a mark of another one, as an attribute lies in its tag.
    """
    todo = sorted(translations, key=lambda each: (each[0].start, -each[0].stop), reverse=True)

    def written(start, stop):
        parts = []
        while todo and todo[-1][0].stop <= stop:
            unit, segments = todo.pop()
            text = "".join(write_segments(unit, segments))
            replaced = document[unit.start : unit.stop]
            parts += [document[start : unit.start], unit.escaping.finish(text, replaced)]
            start = unit.stop
        return "".join([*parts, document[start:stop]])

    def write_segments(unit, segments):
        marks = {
            mark: written(mark.start, mark.stop) if mark.text is None else mark.text
            for mark in sorted(segment for segment in segments if isinstance(segment, Mark))
        }
        for segment in segments:
            yield marks[segment] if isinstance(segment, Mark) else unit.escaping.escape(segment)

    return written(0, len(document))


def edit(document: str, edits: Iterable[tuple]) -> tuple[str, list[tuple[int, int]]]:
    """Return a document with ranges replaced, and the ranges where texts stand in it now.

    edits: (start, stop, what is written there, whether it is a text), in order.

    >>> edit('msgstr ""', [(8, 8, "Hello", True)])
    ('msgstr "Hello"', [(8, 13)])
    """
    written, ranges, place, length = [], [], 0, 0
    for start, stop, new, is_text in edits:
        length += start - place
        if is_text:
            ranges.append((length, length + len(new)))
        written += [document[place:start], new]
        place, length = stop, length + len(new)
    return "".join([*written, document[place:]]), ranges


def characters_of(data: bytes) -> list[int]:
    """Return the number of the character that begins at each byte of UTF-8, for parsers of bytes.

    >>> characters_of("né.".encode())
    [0, 1, 2, 2, 3]
    """
    return [0, *accumulate(int(byte & 0xC0 != 0x80) for byte in data)]
