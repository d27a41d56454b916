"""Lines of text to the parts that a model reads at once, and the translations of each.

A line is cut into its sentences, because a model that learned from single sentences leaves some out
where several follow each other; and a sentence that is too long into slices, because it reads a
limited number of subwords at once. A placeholder stands for each value that is not translated.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from itertools import chain, count, cycle, groupby, islice, pairwise

from minitf.errors import UserError
from minitf.text import Vocabulary
from minitf.text.frames import Span
from minitf.text.kept import (
    PLACEHOLDERS,
    has_no_values,
    protected_pattern,
    split_protected,
    with_placeholders,
)
from minitf.text.normalise import normalise
from minitf.text.sentences import sentences
from minitf.text.vocabulary import printable, valid

__all__ = [
    "PLACEHOLDER",
    "Line",
    "Part",
    "Text",
    "Translation",
    "cut_texts",
    "in_small_letters",
    "join",
    "protect_values",
    "read_spans",
]

PLACEHOLDER = re.compile(f"[{PLACEHOLDERS}]")
# A sentence that is too long is cut after a clause; a clause that is too long, after a word.
_CLAUSE = r"[,;:–—)]\s+|[，、；：]\s*"
_WORD = r"\s+"
_LETTERS = r"[^\W\d_]+"
# Words whose small letters would have as few subwords.
_AS_IT_IS = "I|USA|UK|EU|UN|UNO|NATO|NASA|FBI|CIA|IBM|UFO|DNA|IQ|HIV|AIDS|UNESCO|UNICEF|CEO"
# The characters of Chinese and Japanese, which have no spaces between sentences or words.
_WIDE = ("\u3000", "\u30ff"), ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uff00", "\uffef")


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a line: its text, ln P of it, and the score that ranked it.

    Both figures are sums over the parts, where a line was translated in parts. given_up: what is
    lost in it, for its reader, such as "a sentence is too long for the model".
    """

    text: str
    log_probability: float
    score: float
    given_up: tuple[str, ...] = ()


@dataclasses.dataclass
class Text:
    """A text of a line, between what frames it, before it is cut into parts.

    text: with a placeholder for each value that is protected. head: the ids of a token that
    names a language, or none. in_capitals: whether its translation is written so. cut: what a model
    reads at once, in its order, with the ids.
    """

    text: str
    values: list[str] = dataclasses.field(default_factory=list)
    head: list[int] = dataclasses.field(default_factory=list)
    in_capitals: bool = False
    cut: list[tuple[str, list[int]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Part:
    """What a model reads at once: the texts around some values, and a placeholder for each.

    place: the number of its line, and its own number in that line; of a text around a value, its
    number in the part as well. head, in_capitals: as of a Text. ids: what a model reads, if there
    are no values; None if it is not known yet. translations: found by a Translator, the best first;
    none if each of them has lost a value.
    """

    place: tuple[int, ...]
    head: list[int]
    texts: list[str]
    values: list[str]
    in_capitals: bool
    ids: list[int] | None = dataclasses.field(default=None, compare=False)
    translations: list[Translation] = dataclasses.field(
        default_factory=list, init=False, compare=False
    )

    def read(self, placeholders: Sequence[str]) -> str:
        """Return the text with placeholders, or with the values themselves."""
        return with_placeholders(self.texts, placeholders)

    def copied(self) -> list[Translation]:
        """Return the text as its own translation if no letter is around its values, else none."""
        if not self.values or any(map(str.isalpha, "".join(self.texts))):
            return []
        return [Translation(self.read(self.values), 0.0, 0.0)]

    def pieces_between_values(self) -> Line:
        """Return the texts as parts of their own, and between them the values, to be copied."""
        items = []
        for number, (text, value) in enumerate(zip(self.texts, [*self.values, ""], strict=True)):
            core = text.strip()
            before = text[: len(text) - len(text.lstrip())]
            if any(map(str.isalpha, core)):
                place = *self.place, number
                part = dataclasses.replace(self, place=place, texts=[core], values=[], ids=None)
                items += [before, part, text[len(before) + len(core) :] + value]
            else:
                items.append(text + value)
        return Line(items, is_sentence=True)


@dataclasses.dataclass
class Line:
    """A line as its parts, and between them texts that are copied, in their order.

    is_sentence: whether it is a single sentence, of which the texts between the parts are values.
    """

    items: list[str | Part]
    is_sentence: bool = False

    @classmethod
    def from_texts(cls, number: int, texts: Iterable[str | Text]) -> Line:
        """Make a Part of each piece of the Texts, with the values that it has placeholders for.

        number: of the line. A str is copied.
        """
        items, head, places = [], [], count()
        for text in texts:
            if isinstance(text, str):
                items.append(text)
                continue
            head = text.head or head  # the language of a line is that of its cells
            left = iter(text.values)
            for read, ids in text.cut:
                around = PLACEHOLDER.split(read) if text.values else [read]
                values = list(islice(left, len(around) - 1))
                place = number, next(places)
                known = None if values else ids
                items.append(Part(place, head, around, values, text.in_capitals, known))
        return cls(items)

    @property
    def parts(self) -> list[Part]:
        """Return the parts, without the texts between them."""
        return [item for item in self.items if isinstance(item, Part)]

    def runs(self) -> list[list[Part]]:
        """Return the parts between two copied texts, as a list each; those of a sentence as one."""
        if self.is_sentence:
            return [self.parts]
        runs = groupby(self.items, lambda item: isinstance(item, Part))
        return [list(parts) for are_parts, parts in runs if are_parts]


# From a line to Texts -----------------------------------------------------------------------------


def read_spans(spans: Iterable[Span]) -> list[str | Text]:
    """Return the spans of a line: what is copied as it is, the others as Texts, normalised.

    None of a line in which nothing is to be seen.
    """
    spans = list(spans)
    normal = [normalise(text) for text, _ in spans]
    if not any(normal):
        return []
    return [
        _in_one_line(text) if is_kept else Text(read)
        for (text, is_kept), read in zip(spans, normal, strict=True)
    ]


def _in_one_line(text):
    """Return a text as it may stand in a line of the output; tabs separate columns."""
    return "\t".join(printable(valid(each)) for each in text.split("\t"))


def protect_values(texts: Iterable[Text], subwords: Vocabulary, keep: tuple[str, ...]) -> None:
    """Put a placeholder in the place of each value of some Texts, which is not translated.

    keep: a person's own patterns. Raises UserError for one that is none.
    """
    for text in texts:
        if keep or not has_no_values(text.text):
            around, text.values = split_protected(text.text, _pattern(keep, subwords))
            text.text = with_placeholders(around, cycle(PLACEHOLDERS))


@functools.lru_cache(maxsize=8)
def _pattern(own, subwords):
    """Return the pattern of what is kept: also words with a character that has no subword.

    A capital letter that is too rare for a subword, such as Ö, was spelled in bytes in the training
    text, too.
    """
    for each in own:
        try:
            re.compile(f"(?:{each})")  # as it will be read: (?i) would hold for all kinds
        except re.error as error:
            raise UserError(f"{each!r} is no regular expression: {error}") from None
    text = "".join(subwords.names)
    return protected_pattern(own, frozenset(text + text.upper() + text.lower()))


# From a text to its parts -------------------------------------------------------------------------


def cut_texts(
    texts: Sequence[str], subwords: Vocabulary, max_subwords: int, max_unsplit: int
) -> list[list[tuple[str, list[int]]]]:
    """Cut each text into its sentences, and a sentence that is too long after clauses or words.

    Return the parts of each text, with their ids.

    max_subwords: the most subwords of a part. max_unsplit: a text of up to so many subwords is a
    single part, whatever its sentences. A text without any subwords has no part.
    """
    cut = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        parts = [text] if len(ids) <= max_unsplit else sentences(text)
        if len(parts) == 1:
            cut.append(_parts(text, ids, subwords, max_subwords, (_CLAUSE, _WORD)))
        else:
            cut.append(_all_parts(parts, subwords, max_subwords, (_CLAUSE, _WORD)))
    return cut


def join(texts: Sequence[str]) -> str:
    """Return some texts as one, with a space between two of them where their script has spaces.

    >>> join(["Der Hund.", "Er schläft."]), join(["我喜欢它。", "他也喜欢。", "OK."])
    ('Der Hund. Er schläft.', '我喜欢它。他也喜欢。 OK.')
    """
    between = (
        "" if _is_wide(first[-1:]) and _is_wide(second[:1]) else " "
        for first, second in pairwise(texts)
    )
    return "".join(chain(*zip(texts, chain(between, [""]), strict=False)))


def _is_wide(character):
    return any(first <= character <= last for first, last in _WIDE)


def in_small_letters(lines: Sequence[str], subwords: Vocabulary) -> list[str]:
    """Return the lines, those IN CAPITALS as they would be written otherwise.

    A model that has read few words in capitals cuts them into many subwords, and makes nonsense of
    them. So a line is taken for one in capitals if it has no small letter, and fewer subwords when
    written small. Each word is written in the way that has the fewest subwords: the, Tom, Straße
    for STRASSE, TV. The first of a sentence begins with a capital letter. No line is changed if all
    of the text is in capitals that the model learned from.
    """
    lines = list(lines)
    in_capitals = [row for row, line in enumerate(lines) if line.isupper()]
    if not in_capitals:
        return lines
    words = {word for row in in_capitals for word in re.findall(_LETTERS, lines[row])}
    small = _small_forms(sorted(words), subwords)
    texts = ["".join(_small(each, small) for each in sentences(lines[row])) for row in in_capitals]
    lengths = [
        map(len, subwords.encode(texts)) for texts in ([lines[i] for i in in_capitals], texts)
    ]
    for row, text, n_capitals, n_small in zip(in_capitals, texts, *lengths, strict=True):
        if n_small < n_capitals:
            lines[row] = text
    return lines


def _small_forms(words, subwords):
    """Return {word in capitals: the same as it is probably written}."""
    forms = {}
    for word in words:
        low = word.lower()
        sharp = low[:1] + low[1:].replace("ss", "ß")  # no word begins with it: SSD
        small = [low, word[0] + word[1:].lower(), sharp, word[0] + sharp[1:]]
        forms[word] = [word] if re.fullmatch(_AS_IT_IS, word) else [*small, word]
    lengths = map(len, subwords.encode([form for each in forms.values() for form in each]))
    best = {}
    for word, each in forms.items():
        counts = [next(lengths) for _ in each]
        least = min(counts)
        # What is no subword in any form, and no shorter in small letters, is an abbreviation.
        best[word] = word if counts[-1] == least > 1 else each[counts.index(least)]
    return best


def _small(sentence, forms):
    """Return a sentence in small letters; a quote before it is none."""
    text = re.sub(_LETTERS, lambda match: forms[match[0]], sentence)
    first = next((i for i, sign in enumerate(text) if sign.isalnum()), 0)
    return text[:first] + text[first : first + 1].upper() + text[first + 1 :]


def _all_parts(texts, subwords, max_subwords, cuts):
    """Return the parts of all texts in one list."""
    texts = [text.strip() for text in texts]
    parts = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        parts += _parts(text, ids, subwords, max_subwords, cuts)
    return parts


def _parts(text, ids, subwords, max_subwords, cuts):
    """Return the parts of one text, which is cut if it has too many ids.

    cuts: the patterns after which it may be cut, the best first.
    """
    if len(ids) <= max_subwords or (not cuts and len(text) == 1):
        return [(text, ids)] if ids else []
    if cuts:
        slices = _joined(_slices(text, cuts[0]), subwords, max_subwords)
    else:  # One endless word: between two characters, never inside the bytes of one.
        middle = len(text) // 2
        slices = [text[:middle], text[middle:]]
    return _all_parts(slices, subwords, max_subwords, cuts[1:])


def _joined(texts, subwords, max_subwords):
    """Join neighboring texts that together are not too long."""
    joined, size = [], 0
    lengths = map(len, subwords.encode([text.strip() for text in texts]))
    for text, length in zip(texts, lengths, strict=True):
        if joined and size + length <= max_subwords:
            joined[-1] += text
            size += length
        else:
            joined.append(text)
            size = length
    return joined


def _slices(text, end):
    """Cut a text after each match of the pattern; joined, the slices are the text."""
    ends = [match.end() for match in re.finditer(end, text)]
    return [text[start:stop] for start, stop in pairwise([0, *ends, len(text)])]
