"""A line as the parts that a model reads at once, and the translations of each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from itertools import count, groupby, islice

from minitf.text.kept import MARKS, marked

__all__ = ["A_MARK", "Line", "Part", "Text", "Translation"]

A_MARK = re.compile(f"[{MARKS}]")


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

    text: with a mark in the place of each value, if that is kept. head: the ids of a token that
    names a language, or none. in_capitals: whether its translation is written so. cut: what a model
    reads at once, in its order.
    """

    text: str
    values: list[str] = dataclasses.field(default_factory=list)
    head: list[int] = dataclasses.field(default_factory=list)
    in_capitals: bool = False
    cut: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Part:
    """What a model reads at once: the texts around some values, and a mark for each value.

    place: the number of its line, and its own number in that line; of a text around a value, its
    number in the part as well. head, in_capitals: as of a Text. translations: found by a
    Translator, the best first; none if each of them has lost a value.
    """

    place: tuple[int, ...]
    head: list[int]
    texts: list[str]
    values: list[str]
    in_capitals: bool
    translations: list[Translation] = dataclasses.field(
        default_factory=list, init=False, compare=False
    )

    def read(self, marks: Sequence[str]) -> str:
        """Return the text with marks."""
        return marked(self.texts, marks)

    def copied(self) -> list[Translation]:
        """Return the text as its own translation if no letter is around its values, else none."""
        if not self.values or any(map(str.isalpha, "".join(self.texts))):
            return []
        return [Translation(self.read(self.values), 0.0, 0.0)]

    def around(self) -> Line:
        """Return the texts as parts of their own, and between them the values, to be copied."""
        items = []
        for number, (text, value) in enumerate(zip(self.texts, [*self.values, ""], strict=True)):
            core = text.strip()
            before = text[: len(text) - len(text.lstrip())]
            if any(map(str.isalpha, core)):
                place = *self.place, number
                part = dataclasses.replace(self, place=place, texts=[core], values=[])
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
        """Make a Part of each piece of the Texts, with the values that it has marks for.

        number: of the line. A str is copied.
        """
        items, head, places = [], [], count()
        for text in texts:
            if isinstance(text, str):
                items.append(text)
                continue
            head = text.head or head  # the language of a line is that of its cells
            left = iter(text.values)
            for read in text.cut:
                around = A_MARK.split(read) if text.values else [read]
                values = list(islice(left, len(around) - 1))
                place = number, next(places)
                items.append(Part(place, head, around, values, text.in_capitals))
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
