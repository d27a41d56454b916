"""A line as the parts that a model reads, and the translations of its parts as one line."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from minitf.text.kept import MARKS, marked
from minitf.translation.cutting import join
from minitf.translation.rejoin import without_added_stop

__all__ = ["Part", "Translation", "joined", "parts_of", "restored"]

_A_MARK = re.compile(f"[{MARKS}]")


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


@dataclasses.dataclass(frozen=True)
class Part:
    """What a model reads at once: the texts around some values, and a mark for each value.

    place: the number of its line, and its own number in that line. head: the ids of a token that
    names a language, or none. loud: whether the translation is written in capitals.
    """

    place: tuple[int, int]
    head: list[int]
    texts: list[str]
    values: list[str]
    loud: bool

    def read(self, marks: Sequence[str]) -> str:
        """Return the text with marks."""
        return marked(self.texts, marks)

    def is_copied(self) -> bool:
        """Return whether there are values and no letter around them: nothing to translate."""
        return bool(self.values) and not any(map(str.isalpha, "".join(self.texts)))

    def around(self) -> list[Part | str]:
        """Return the texts as parts of their own, and between them the values, to be copied."""
        items = []
        for number, (text, value) in enumerate(zip(self.texts, [*self.values, ""], strict=True)):
            core = text.strip()
            before = text[: len(text) - len(text.lstrip())]
            if any(map(str.isalpha, core)):
                place = self.place[0], 1000 * (self.place[1] + 1) + number
                part = dataclasses.replace(self, place=place, texts=[core], values=[])
                items += [before, part, text[len(before) + len(core) :] + value]
            else:
                items.append(text + value)
        return items


def parts_of(
    line: int, first: int, head: list[int], texts: Sequence[str], values: Sequence[str], loud: bool
) -> Iterator[Part]:
    """Yield the parts of a line, whose values have left marks in the texts, in their order.

    first: the number of the first part.
    """
    left = iter(values)
    for number, text in enumerate(texts, first):
        between = _A_MARK.split(text) if values else [text]
        here = list(islice(left, len(between) - 1))
        yield Part((line, number), head, between, here, loud)


def restored(
    part: Part,
    translations: Sequence[Translation],
    marks: Sequence[str],
    wellformed: bool = True,
) -> list[Translation]:
    """Return the translations that have each mark of the part once, with its values in their place.

    wellformed: leave out a full stop that the source has not.
    Those that are the same then are returned once.
    """
    if part.is_copied():
        return [Translation(part.read(part.values), 0.0, 0.0)]
    given = dict(zip(marks, part.values, strict=False))
    if len(given) < len(part.values):
        return []
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(mark)}(?!\w)" for mark in marks) or "(?!)")
    source, distinct = part.read(part.values).rstrip(), {}
    for each in translations:
        found = pattern.findall(each.text) if marks else []
        if part.values and (
            Counter(found) != Counter(list(given))
            or sum(map(each.text.count, marks)) != len(given)  # one in a word
        ):
            continue
        text = each.text.upper() if part.loud else each.text
        if part.values:
            text = pattern.sub(lambda mark: given[mark[0]], text)
        elif marks:
            text = _A_MARK.sub("", text)  # the source has none
        if wellformed:
            text = without_added_stop(text, source)
        distinct.setdefault(text, dataclasses.replace(each, text=text))
    return list(distinct.values())


def joined(items: Sequence[str | list[Translation]], n: int) -> list[Translation]:
    """Return the n best translations of a line, made of those of its parts.

    items: the translations of each part, and texts that are copied. Two parts that follow each
    other are joined as sentences are.
    """
    lists = [[Translation(item, 0.0, 0.0)] if isinstance(item, str) else item for item in items]
    if not lists:
        return [Translation("", 0.0, 0.0)]
    copied = [isinstance(item, str) for item in items]
    best = lists[0]
    for (before, here), following in zip(pairwise(copied), lists[1:], strict=True):
        glue = "".join if before or here else join
        best = _together(best, following, n, glue)
    return best


def _together(first, second, n, glue):
    """Return the n best translations of two parts together, the best first.

    Scores are added. A pair of the i-th best of one part and the j-th best of the other is behind
    i j - 1 other pairs, so only those with i j <= n can be among the n best.
    """
    pairs = [(a, b) for i, a in enumerate(first, 1) for j, b in enumerate(second, 1) if i * j <= n]
    best, *others = (
        Translation(
            glue([t.text for t in pair if t.text]),
            sum(t.log_probability for t in pair),
            sum(t.score for t in pair),
            tuple(dict.fromkeys(what for t in pair for what in t.given_up)),
        )
        for pair in pairs
    )
    by_text = {}
    for each in (best, *sorted(others, key=lambda t: -t.score)):
        by_text.setdefault(each.text, each)
    return list(by_text.values())[:n]
