"""Cut lines of text into the parts that a model reads at once.

A line is cut into its sentences, because a model that learned from single sentences leaves some out
where several follow each other; and a sentence that is too long into slices, because it reads a
limited number of subwords at once. A placeholder stands for each span that is not translated.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from minitf.errors import UserError
from minitf.text import Vocabulary
from minitf.text.normalise import normalise, with_and, without_entities, word_for_and
from minitf.text.protected import (
    PLACEHOLDERS,
    has_no_spans,
    interleave,
    protected_pattern,
    split_protected,
)
from minitf.text.sentences import has_letters, sentences
from minitf.translation.markup import Markup, is_markup, without_markup

PLACEHOLDER = re.compile(f"[{PLACEHOLDERS}]")
_DASH = r"(?<!\S)[-\u2013](?!\S)"
_NUMBER = re.compile(rf"\w*\d\w*|{_DASH}|\"")  # or a dash, or a quotation mark
# Characters that stand for spans; several with punctuation alone between them are one span.
_STAND_INS = r"[\U000f0000-\U0010ffff](?:[^\w\s]*[\U000f0000-\U0010ffff])*"
# What is too long is cut after a clause, else after a word, else between two characters: never
# inside the bytes of one.
_ENDS = r"[,;:–—)]\s+|[，、；：]\s*", r"\s+", r"(?s:.)"
_LETTERS = r"[^\W\d_]+"
# Abbreviations that would have as few subwords in lower case.
_ABBREVIATIONS = "I|USA|UK|EU|UN|UNO|NATO|NASA|FBI|CIA|IBM|UFO|DNA|IQ|HIV|AIDS|UNESCO|UNICEF|CEO"
# The characters of Chinese and Japanese, which have no spaces between sentences or words.
_WIDE = "[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]"


class Translation(NamedTuple):
    """One translation of a line: its text, ln P of it, and the score that ranked it.

    Both figures are sums over the parts of a line that was translated in parts. problems: what was
    lost, in words for its reader, such as "a sentence is too long for the model".
    """

    text: str
    log_probability: float
    score: float
    problems: tuple[str, ...] = ()


class Text(NamedTuple):
    """A line before it is cut into parts, normalised, with a placeholder for each of its spans.

    prefix: the ids of a language's token, or none. in_capitals: whether the line was written so.
    """

    text: str
    spans: tuple[str, ...] = ()
    prefix: Sequence[int] = ()
    in_capitals: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """What a model reads at once.

    place: the number of its line, and its own number in that line; a text around a span also has
    its number in the part. all_texts, all_spans: its texts, and the spans between them: some are
    words that a model copies, others are markup, which it does not read. prefix, in_capitals: as in
    Text. ids: the text's, None if it is not encoded yet.
    texts, spans: what is left of them without markup, as the model reads it. markup: the rest.
    """

    place: tuple[int, ...]
    all_texts: tuple[str, ...]
    all_spans: tuple[str, ...] = ()
    prefix: Sequence[int] = ()
    in_capitals: bool = False
    ids: list[int] | None = dataclasses.field(default=None, compare=False)
    texts: tuple[str, ...] = dataclasses.field(init=False, compare=False)
    spans: tuple[str, ...] = dataclasses.field(init=False, compare=False)
    markup: tuple[Markup, ...] = dataclasses.field(init=False, compare=False)

    def __post_init__(self):
        read = self.all_texts, self.all_spans, ()
        if self.all_spans and has_letters(self.all_texts):
            read = without_markup(self.all_texts, self.all_spans)
        for name, strings in zip(("texts", "spans", "markup"), read, strict=True):
            object.__setattr__(self, name, tuple(strings))  # it is frozen

    @property
    def has_choice(self) -> bool:
        """Return whether the best translation may lack something that another one has."""
        return bool(self.spans) or any('"' in text for text in self.texts)

    @property
    def source(self) -> str:
        """Return the text with its spans."""
        return interleave(self.texts, self.spans)

    def input(self, placeholders: Sequence[str]) -> str:
        """Return what the model reads: the text with placeholders in the place of spans."""
        return interleave(self.texts, cycle(placeholders or PLACEHOLDERS))

    def as_translation(self) -> list[Translation]:
        """Return the text as its only translation if all its letters are in spans, else none."""
        is_copied = self.spans and not has_letters(self.texts)
        return [Translation(self.source, 0.0, 0.0)] if is_copied else []

    def fallback(self) -> Line:
        """Return what to read when every translation has lost a span, number, dash or quote.

        At first its numbers and the like become spans; then the texts between spans are parts.
        """
        part_of = functools.partial(dataclasses.replace, self, ids=None)
        if numbers_of("".join(self.texts)):
            texts, spans = [], []
            for i, text in enumerate(self.all_texts):
                between, numbers = split_protected(text, _NUMBER)
                texts += between
                spans += [*numbers, *self.all_spans[i : i + 1]]
            return Line((part_of(all_texts=tuple(texts), all_spans=tuple(spans)),))
        texts, spans, parts, around = self.all_texts, self.all_spans, [], [""]
        ends = [i for i, span in enumerate(spans) if not is_markup(span, *texts[i : i + 2])]
        for number, (start, stop) in enumerate(pairwise([-1, *ends, len(spans)])):
            run, markup = [*texts[start + 1 : stop + 1]], spans[start + 1 : stop]
            span = "".join(spans[stop : stop + 1])
            if not has_letters(run):
                around[-1] += interleave(run, markup) + span
                continue
            around[-1] += run[0][: -len(run[0].lstrip()) or None]
            around.append(run[-1][len(run[-1].rstrip()) :] + span)
            run[0] = run[0].lstrip()
            run[-1] = run[-1].rstrip()
            place = (*self.place, number)
            parts.append(part_of(place=place, all_texts=tuple(run), all_spans=markup))
        return Line(tuple(parts), tuple(around))


def numbers_of(text: str) -> list[str]:
    """Return the numbers, dashes and quotes of a text; its translation must have the same.

    >>> numbers_of("It's 5pm - no. 12"), numbers_of("the „12th“ - at 5")
    (['-', '12', '5'], ['"', '"', '-', '12', '5'])
    """
    return sorted(re.findall(rf"\d+|{_DASH}|\"", normalise(text)))


class Line(NamedTuple):
    """A line as its parts.

    around: if these are pieces of one sentence, what is copied before, between and after them.
    """

    parts: tuple[Part, ...]
    around: tuple[str, ...] = ()

    @classmethod
    def from_text(cls, number: int, text: Text, cut: Iterable[tuple[str, list[int]]]) -> Line:
        """Return a line with a Part for each piece of a Text, and the spans that are in it.

        number: the line's. cut: the pieces that a model reads at once, with their ids.
        """
        parts, left = [], iter(text.spans)
        for i, (piece, ids) in enumerate(cut):
            texts = tuple(PLACEHOLDER.split(piece)) if text.spans else (piece,)
            spans = tuple(islice(left, len(texts) - 1))
            known = None if spans else ids
            parts.append(Part((number, i), texts, spans, text.prefix, text.in_capitals, known))
        return cls(tuple(parts))


# From a line to a Text ----------------------------------------------------------------------------


def read_text(
    line: str, subwords: Vocabulary, keep: Iterable[str], language: str = ""
) -> tuple[str, list[str]]:
    """Return a line as a model reads it, with a placeholder for each span, and the spans.

    Spans are what `minitf.text.protected` finds, and characters that stand for something else.
    keep: a person's regular expressions; UserError says which is none. language: the line's.
    """
    text = normalise(without_entities(line))
    if "&" in text:
        text = with_and(text, word_for_and(language, subwords.characters))
    if not keep and has_no_spans(text):
        return text, []
    texts, spans = split_protected(text, _pattern(tuple(keep), subwords))
    return interleave(texts, cycle(PLACEHOLDERS)), spans


@functools.lru_cache(maxsize=8)
def _pattern(own, subwords):
    """Return the pattern of what is kept: also each character that has no subword."""
    for each in own:
        try:
            re.compile(f"(?:{each})")  # as it will be read: (?i) would hold for all kinds
        except re.error as error:
            raise UserError(f"{each!r} is not a regular expression: {error}") from None
    return protected_pattern((_STAND_INS, *own), subwords.characters, subwords.lone_symbols)


# From a text to its parts -------------------------------------------------------------------------


def cut_texts(
    texts: Sequence[str], subwords: Vocabulary, max_subwords: int, max_unsplit: int
) -> list[list[tuple[str, list[int]]]]:
    """Cut each text into its sentences, and a sentence that is too long in two, again and again.

    Return the parts of each text, with their ids.

    max_subwords: the most subwords of a part. max_unsplit: a text of up to this many subwords is a
    single part, whatever its sentences. A text without any subwords has no part.
    """
    cut = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        parts = [text] if len(ids) <= max_unsplit else sentences(text)
        if len(parts) > 1 or len(ids) > max_subwords:
            cut.append(_split_long(parts, subwords, max_subwords))
        else:
            cut.append([(text, ids)] if ids else [])
    return cut


def join_texts(texts: Sequence[str]) -> str:
    """Join texts, with a space between two of them where their script has spaces.

    >>> join_texts(["Der Hund.", "Er schläft."]), join_texts(["我喜欢它。", "他也喜欢。", "OK."])
    ('Der Hund. Er schläft.', '我喜欢它。他也喜欢。 OK.')
    """
    joined, *others = texts or [""]
    for text in others:
        is_wide = re.fullmatch(f"{_WIDE}{{2}}", joined[-1:] + text[:1])
        joined += text if is_wide else f" {text}"
    return joined


def truecase(line: str, subwords: Vocabulary) -> str:
    """Return a line IN CAPITALS as it is usually written, and any other line unchanged.

    A model that has read few words in capitals cuts them into many subwords, and makes nonsense of
    them. So a line counts as one in capitals if it has no lower-case letter, and fewer subwords in
    lower case. Each word is written in the way that has the fewest subwords: the, Tom, Straße for
    STRASSE, TV. The first word of a sentence begins with a capital letter.
    """
    if not line.isupper():
        return line
    small = "".join(_truecase_sentence(sentence, subwords) for sentence in sentences(line))
    return min(line, small, key=lambda text: len(subwords.encode([text])[0]))


def _truecase_sentence(sentence, subwords):
    """Return a sentence in lower case, with a capital for its first letter."""
    text = re.sub(_LETTERS, lambda match: _truecase_word(match[0], subwords), sentence)
    return re.sub(r"[^\W_]", lambda first: first[0].upper(), text, count=1)


def _truecase_word(word, subwords):
    """Return a word in capitals as it is probably written elsewhere."""
    if re.fullmatch(_ABBREVIATIONS, word):
        return word
    low = word.lower()
    sharp = low[:1] + low[1:].replace("ss", "ß")  # no word begins with it: SSD
    forms = [low, word[0] + low[1:], sharp, word[0] + sharp[1:], word]
    counts = list(map(len, subwords.encode(forms)))
    least = min(counts)
    # A word that is no subword in any form, and no shorter in lower case, is an abbreviation.
    return word if counts[-1] == least > 1 else forms[counts.index(least)]


def _split_long(texts, subwords, max_subwords):
    """Return texts with their ids; one that has too many is cut in two, again and again."""
    texts, fitting = [text.strip() for text in texts], []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        if len(ids) > max_subwords and len(text) > 1:
            n = -(-len(ids) // max_subwords)  # parts
            middle = _nearest_end(text, len(text) * (n - n // 2) / n)
            fitting += _split_long([text[:middle], text[middle:]], subwords, max_subwords)
        elif ids:
            fitting.append((text, ids))
    return fitting


def _nearest_end(text, place):
    """Return where a text is best cut in two: at the best kind of end it has, the nearest one."""
    for end in _ENDS:
        ends = [match.end() for match in re.finditer(end, text) if match.end() < len(text)]
        if ends:
            return min(ends, key=lambda end: abs(end - place))
