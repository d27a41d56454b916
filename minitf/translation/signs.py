"""Signs beside the words of a sentence, and where each stands in the translation.

A value such as a date is a word of its sentence, and a model copies its placeholder. A sign is
not: a bracket, a tag, an arrow, the ** around a word. A placeholder for it would make another
sentence of the words around. So the model reads the words alone; and in their translation
y_1 ... y_n the sign stands in the gap j where

    P(y_1 ... y_j, placeholder, y_j+1 ... y_n | x_1 ... x_i, placeholder, x_i+1 ... x_m)

is greatest, if it is in the gap i of the source. Several signs keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

_VALUE = "\0"
# Markup begins and ends with neither letter nor figure, and belongs to a word that it touches.
_MARKUP = r"[\W_](?:.*[\W_])?"
_WORD_BEFORE = r"[\w.,:;!?)\]]$"
_WORD_AFTER = r"[\"'(\[]*\w"
_LETTER = r"[^\W\d_]"
_OF_WORD = "[^\\W_]|[\U000f0000-\U000fffff]"  # or a character that stands for a word
JOINT = r"[^\w\s()\[\]{}*~\\\U000f0000-\U0010ffff]"  # a sign that neither opens nor closes anything
_STOPS = tuple(".,:;!?")
_ENDED = r"[^\W_]$|[.,:;!?]$"  # a word, or a word and its stop
_WORD = r"(\W*)(.*?)(\W*)"  # a word between its punctuation
_PENALTY = 1000  # nats
_FIRST_SIGN = 0xE000  # characters for private use stand for signs until a text is complete


class Sign(NamedTuple):
    """A sign in a sentence.

    gap: the number of words before it. before, after: what it touches there, "" if that is a space.
    """

    text: str
    gap: int
    before: str = ""
    after: str = ""

    @property
    def is_behind(self) -> bool:
        """Whether it belongs to the word before it: not to one after it, as *so in "*so"."""
        if not self.before or self.after in _STOPS:
            return self.after in _STOPS
        return self.before.isalnum() or self.before in _STOPS or not self.after.isalnum()

    @property
    def is_in_front(self) -> bool:
        """Whether it belongs to the word after it alone."""
        return bool(self.after) and not self.is_behind


def is_sign(value: str, before: str, after: str) -> bool:
    """Return whether a value between two texts is a sign beside their words.

    A single character that joins two words is not one: it stands for a word, as / for "or".

    >>> is_sign("**", "It is ", "not"), is_sign("<b>", "", "No"), is_sign("</b>", "No.", " One")
    (True, True, True)
    >>> is_sign("5%", "It is ", " of it"), is_sign("<name>", "Dear ", ", come")
    (False, False)
    >>> is_sign("/", "his", "her book"), is_sign("/", "his ", " her book")
    (False, True)
    """
    if re.fullmatch(JOINT, value) and re.search(rf"{_LETTER}$", before):
        return not re.match(_LETTER, after)
    if not re.search(_OF_WORD, value) or re.fullmatch(r"\\\w", value):
        return True
    if re.search(rf"{_LETTER}$", before) or re.match(_LETTER, after):
        return True
    is_beside = re.search(_WORD_BEFORE, before) or re.match(_WORD_AFTER, after)
    return bool(is_beside and re.fullmatch(_MARKUP, value))


def without_signs(
    texts: Sequence[str], values: Sequence[str]
) -> tuple[list[str], list[str], list[Sign]]:
    """Return the texts around the values that are words, these values, and the signs.

    >>> without_signs(["It is ", "not", " ", " so."], ["**", "**", "5%"])[:2]
    (['It is not ', ' so.'], ['5%'])
    """
    read, words, signs = texts[0], [], []
    beside = zip(["", *values], values, [*values[1:], ""], pairwise(texts), strict=False)
    for previous, value, following, (before, after) in beside:
        if not is_sign(value, before, after):
            words.append(value)
            read += (f" {_VALUE} " if re.fullmatch(JOINT, value) else _VALUE) + after
            continue
        touched = (before or previous)[-1:].strip(), (after or following)[:1].strip()
        if touched[1] in _STOPS or read[-1:] in ("", " "):
            read, after = read.rstrip(" "), after.lstrip(" ")
            read += " " * bool(read and (after or following) and touched[1] not in _STOPS)
        elif re.match(_WORD_AFTER, after or following) and re.search(_ENDED, read):  # he/she
            read += " "
        gap = len(read.split())
        if gap and touched[1].isalnum() and not read[-1:].isspace():  # behind a quote
            gap -= 1
        signs.append(Sign(value, gap, *touched))
        read += after
    return read.split(_VALUE), words, signs


def with_extra_word(text: str, gap: int, word: str) -> str:
    """Return a text with an extra word after its first `gap` words.

    >>> with_extra_word("Das ist so.", 1, "①")
    'Das ① ist so.'
    """
    words = text.split()
    return " ".join([*words[:gap], word, *words[gap:]])


def place_signs(
    target: str,
    signs: Sequence[Sign],
    source: str,
    placeholder: str,
    log_probabilities: Callable[[Sequence[tuple[str, str]]], Sequence[float]] | None,
) -> str:
    """Return a translation with a character for each sign, which `insert_signs` replaces.

    placeholder: one that is not in the source. log_probabilities: of pairs of a source and a
    target, it returns ln P of each target. Without one of them, a sign stands as far from the
    beginning as it does in the source.
    """
    n_source, words = len(source.split()), target.split()
    n, gaps = len(words), range(len(words) + 1)
    scores = [[-abs(sign.gap / n_source - gap / max(n, 1)) for gap in gaps] for sign in signs]
    scores = np.array(scores)
    inside = [number for number, sign in enumerate(signs) if 0 < sign.gap < n_source]
    if placeholder and log_probabilities and inside:
        sources = [with_extra_word(source, signs[number].gap, placeholder) for number in inside]
        targets = [with_extra_word(target, gap, placeholder) for gap in gaps]
        pairs = list(product(sources, targets))
        scores[inside] = np.reshape(log_probabilities(pairs), (len(inside), n + 1))
    for sign, row in zip(signs, scores, strict=True):
        if sign.before in _STOPS:  # it touches one here as well, if there is another
            row[1:] -= _PENALTY * np.array([not word.endswith(sign.before) for word in words])
    return with_signs(target, signs, gaps_of(signs, n_source, scores))


def gaps_of(signs: Sequence[Sign], n_source: int, scores: np.ndarray) -> list[int]:
    """Return the best gap of each sign in a translation; signs keep the order of the source.

    n_source: the number of words of the source. scores (K, n + 1): of each of K signs in each gap
    of n words. What is before all words of the source is before those of the translation, and the
    like behind them. Between two signs is a word where the source has one.
    """
    scores = np.array(scores, dtype=float)
    n = scores.shape[1] - 1
    gaps = np.arange(n + 1)
    for sign, row in zip(signs, scores, strict=True):
        if sign.gap in (0, n_source):
            row -= _PENALTY * (gaps != (0 if sign.gap == 0 else n))
        else:  # what touches a word needs one there
            row -= _PENALTY * ((gaps == 0) * sign.is_behind + (gaps == n) * sign.is_in_front)
    best, came_from = scores[0], []
    for (first, second), row in zip(pairwise(signs), scores[1:], strict=True):
        if first.gap == second.gap:
            before = gaps
        else:  # the best of the gaps before each; nothing is before the first
            before = np.array([np.argmax(best[: max(1, gap)]) for gap in gaps])
            row = row - _PENALTY * (gaps == 0)
        came_from.append(before)
        best = row + best[before]
    chosen = [int(np.argmax(best))]
    for before in reversed(came_from):
        chosen.insert(0, int(before[chosen[0]]))
    return chosen


def with_signs(text: str, signs: Sequence[Sign], gaps: Sequence[int]) -> str:
    """Return a text with a character for each sign in its gap, which `insert_signs` replaces.

    A sign that touches a word in the source touches one here, on the same side of its punctuation.

    >>> signs = [Sign("(", 2, "", "i"), Sign(")", 4, "e", ".")]
    >>> insert_signs(with_signs("Komm, falls möglich.", signs, [1, 3]), signs, {})
    'Komm, (falls möglich).'
    """
    words = []
    for word in text.split():
        start, core, end = re.fullmatch(_WORD, word, re.DOTALL).groups()
        inner = {"opening": start, "before": "", "core": core, "after": "", "closing": end}
        words.append({"before all": "", **inner, "after all": ""})
    alone = [[] for _ in range(len(words) + 1)]
    spaces = [" "] * len(words)
    for number, (sign, gap) in enumerate(zip(signs, gaps, strict=True)):
        character = chr(_FIRST_SIGN + number)
        if gap and sign.is_behind:
            place = "after all" if sign.before in _STOPS else "after"
            words[gap - 1][place] += character if sign.before else f" {character}"
            if sign.before and sign.after.isalnum() and gap < len(words):
                spaces[gap] = ""
        elif gap < len(words) and sign.is_in_front:
            words[gap]["before" if sign.after.isalnum() else "before all"] += character
        else:
            alone[gap].append(character)
    result = " ".join(alone[0])
    for space, word, after in zip(spaces, words, alone[1:], strict=True):
        result = " ".join([result + space + "".join(word.values()), *after])
    return result.strip()


def insert_signs(text: str, signs: Sequence[Sign], values: Mapping[str, str]) -> str:
    """Return a text with the signs in the place of their characters.

    values: {placeholder: value}, put back at once: a value may have the character of a sign.
    """
    texts = {**values, **{chr(_FIRST_SIGN + n): sign.text for n, sign in enumerate(signs)}}
    patterns = [rf" ?{re.escape(each)} ?" for each in values if re.fullmatch(JOINT, values[each])]
    pattern = "|".join([*patterns, *map(re.escape, texts)]) or "(?!)"
    return re.sub(pattern, lambda match: texts[match[0].strip()], text)
