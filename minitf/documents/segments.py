"""The texts of a document: what is translated, what is copied inside them, and both put back.

A format finds the spans between and inside its texts that are not translated; what lies between
two spans is text. Only the ranges of texts are replaced, so all else stays as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import accumulate, count
from typing import NamedTuple

from minitf.text.protected import FIRST_MARKUP, FIRST_WORD
from minitf.text.sentences import has_letters


class Kind(StrEnum):
    """What a span does to the text around it."""

    SEPARATOR = "separator"  # separates two texts: a tag <p>
    MARKUP = "markup"  # opens or closes something: <b>, **. At the edge of a text it is left out
    POSITIONAL = "positional"  # stands for a word, and such words keep their order: %s
    WORD = "word"  # stands for a word, and may move, but not across markup: {name}, `code`


class Span(NamedTuple):
    """A range of a document that is not translated; text: written in its place (default: it)."""

    start: int
    stop: int
    kind: Kind = Kind.MARKUP
    text: str | None = None


_MARKUP = Kind.MARKUP, None  # of a Span in whose place nothing else is written


class Escaping(NamedTuple):
    """How a format escapes a text.

    unescape: makes what a person reads of what the document has, as é of &eacute;. escape: the way
    back. finish(text, replaced): the last step, for a whole text with its markup; replaced: what
    the document had there.
    """

    unescape: Callable[[str], str] = str
    escape: Callable[[str], str] = str
    finish: Callable[[str, str], str] = lambda text, replaced: text


@dataclasses.dataclass(frozen=True)
class Segment:
    """One text of a document: a paragraph, a heading, a cell, an attribute, a string.

    start, stop: its range of the document. text: what is translated, in one line. spans: the spans
    in it, each by the character that stands for it in `text`, and in a translation.
    """

    start: int
    stop: int
    text: str
    spans: dict[str, Span]
    escaping: Escaping

    def split(self, text: str) -> list[str | Span]:
        """Return the texts and spans of a text alternately: a text, a span, a text, ..."""
        turns = re.split(f"([{''.join(self.spans)}])", text) if self.spans else [text]
        turns[1::2] = map(self.spans.get, turns[1::2])
        return turns

    def split_translation(self, translation: str) -> list[str | Span] | None:
        """Return a translation, split; None if a span is missing, doubled, or out of order.

        In another order a closing tag could come before its opening one, or a link inside another.
        None also if a word has crossed a tag, or if a text between two tags has become empty.
        """
        turns, source = self.split(translation), self.split(self.text)
        ordered = [span for span in turns[1::2] if span.kind != Kind.WORD]
        is_whole = ordered == sorted(ordered) and sorted(turns[1::2]) == sorted(source[1::2])
        (words, filled), (were_words, were_filled) = map(_between_markup, (turns, source))
        return turns if is_whole and words == were_words and filled >= were_filled else None


def _between_markup(turns):
    """Return after which markup each word stands, and after which a text up to the next one."""
    place, words, filled = None, set(), set()
    for span, text in zip([None, *turns[1::2]], turns[::2], strict=True):
        if span and span.kind == Kind.MARKUP:
            place = span
        if span and span.kind == Kind.WORD:
            words.add((place, span))
        if text.strip():
            filled.add(place)
    return words, filled - {None, place}


def segments_in(
    document: str, start: int, stop: int, spans: Iterable[Span], escaping: Escaping
) -> list[Segment]:
    """Return the segments of a range of a document: the texts between its separators.

    A span inside another one does not count. What has no letter is not a text.
    """
    segments, inside, place, begin = [], [], start, start
    spans = sorted(spans, key=lambda span: (span.start, -span.stop))
    for span in [*spans, Span(stop, stop, Kind.SEPARATOR)]:
        if span.start < place:
            continue
        place = span.stop
        if span.kind == Kind.SEPARATOR:
            segments += _segment(document, begin, span.start, inside, escaping)
            begin, inside = span.stop, []
        elif inside and inside[-1].stop == span.start and inside[-1][2:] == span[2:] == _MARKUP:
            inside[-1] = inside[-1]._replace(stop=span.stop)
        else:
            inside.append(span)
    return segments


def _segment(document, start, stop, spans, escaping):
    """Return the segment of a range, alone in a list: without space and markup at its edges."""
    while True:
        start = re.compile(r"\s*").match(document, start, stop).end()
        stop = start + len(document[start:stop].rstrip())
        if spans and spans[0].start == start and spans[0][2:] == _MARKUP:
            start = spans.pop(0).stop
        elif spans and spans[-1].stop == stop and spans[-1][2:] == _MARKUP:
            stop = spans.pop().start
        else:
            break
    text, by_character, place, raw = "", {}, start, document[start:stop]
    words, markup = (map(chr, count(first)) for first in (FIRST_WORD, FIRST_MARKUP))
    for span in spans:
        unused = markup if span.kind == Kind.MARKUP else words
        character = next(each for each in unused if each not in raw)
        by_character[character] = span
        text, place = text + escaping.unescape(document[place : span.start]) + character, span.stop
    text += escaping.unescape(document[place:stop])
    return [Segment(start, stop, text, by_character, escaping)] if has_letters(text) else []


def splice(document: str, translations: Sequence[tuple[Segment, list[str | Span]]]) -> str:
    """Return a document with each segment's translation, as `split`, in its place.

    A segment may lie inside a span of another one, as an attribute lies in its tag.
    """
    todo = sorted(translations, key=lambda each: (each[0].start, -each[0].stop), reverse=True)

    def written(start, stop):
        parts = []
        while todo and todo[-1][0].stop <= stop:
            segment, turns = todo.pop()
            spans = sorted(turn for turn in turns if isinstance(turn, Span))
            inside = {span: span.text or written(span.start, span.stop) for span in spans}
            text = "".join(
                inside[turn] if isinstance(turn, Span) else segment.escaping.escape(turn)
                for turn in turns
            )
            replaced = document[segment.start : segment.stop]
            parts += [document[start : segment.start], segment.escaping.finish(text, replaced)]
            start = segment.stop
        return "".join([*parts, document[start:stop]])

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


def char_offsets(data: bytes) -> list[int]:
    """Return the offset of the character that begins at each byte of UTF-8, for parsers of bytes.

    >>> char_offsets("né.".encode())
    [0, 1, 2, 2, 3]
    """
    return [0, *accumulate(int(byte & 0xC0 != 0x80) for byte in data)]
