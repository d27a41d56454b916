"""Markup beside the words of a sentence, and where it stands in the translation.

A span such as a date is a word of its sentence, and a model copies its placeholder. A tag, the **
around a word, an arrow or a bracket is none: it is *markup*. A placeholder for it would make
another sentence of the words around. So the model reads the words alone; and in their translation
y_1 ... y_n the markup stands in the gap j where

    P(y_1 ... y_j, placeholder, y_j+1 ... y_n | x_1 ... x_i, placeholder, x_i+1 ... x_m)

is greatest, if it is in the gap i of the source. Its pieces keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

_SPAN = "\0"
# Markup begins and ends with neither a letter nor a digit, and belongs to a word that it touches.
_MARKUP = r"[\W_](?:.*[\W_])?"
_WORD_BEFORE = r"[\w.,:;!?)\]]$"
_WORD_AFTER = r"[\"'(\[]*\w"
_LETTER = r"[^\W\d_]"
_OF_WORD = "[^\\W_]|[\U000f0000-\U000fffff]"  # or a character that stands for a word
JOINT = r"[^\w\s()\[\]{}*~\\\U000f0000-\U0010ffff]"  # it neither opens nor closes anything
_STOPS = tuple(".,:;!?")
_ENDED = r"[^\W_]$|[.,:;!?]$"  # a word, or a word and its stop
_WORD = r"(\W*)(.*?)(\W*)"  # a word between its punctuation
_PENALTY = 1000  # nats
_FIRST_MARKUP = 0xE000  # characters for private use stand for it until a text is complete


class Markup(NamedTuple):
    """A piece of markup in a sentence.

    gap: the number of words before it. before, after: what it touches there, "" if that is a space.
    """

    text: str
    gap: int
    before: str = ""
    after: str = ""

    @property
    def is_behind(self) -> bool:
        """Whether it belongs to the word before it, and not to one after it, as * does in "*so"."""
        if not self.before or self.after in _STOPS:
            return self.after in _STOPS
        return self.before.isalnum() or self.before in _STOPS or not self.after.isalnum()

    @property
    def is_in_front(self) -> bool:
        """Whether it belongs to the word after it alone."""
        return bool(self.after) and not self.is_behind


def is_markup(span: str, before: str, after: str) -> bool:
    """Return whether a span between two texts is markup beside their words.

    A single character that joins two words is not: it stands for a word, as / for "or".

    >>> is_markup("**", "It is ", "not"), is_markup("<b>", "", "No"), is_markup("</b>", "No.", " I")
    (True, True, True)
    >>> is_markup("5%", "It is ", " of it"), is_markup("<name>", "Dear ", ", come")
    (False, False)
    >>> is_markup("/", "his", "her book"), is_markup("/", "his ", " her book")
    (False, True)
    """
    if re.fullmatch(JOINT, span) and re.search(rf"{_LETTER}$", before):
        return not re.match(_LETTER, after)
    if not re.search(_OF_WORD, span) or re.fullmatch(r"\\\w", span):
        return True
    if re.search(rf"{_LETTER}$", before) or re.match(_LETTER, after):
        return True
    is_beside = re.search(_WORD_BEFORE, before) or re.match(_WORD_AFTER, after)
    return bool(is_beside and re.fullmatch(_MARKUP, span))


def without_markup(
    texts: Sequence[str], spans: Sequence[str]
) -> tuple[list[str], list[str], list[Markup]]:
    """Return the texts around the spans that are words, these spans, and the markup.

    >>> without_markup(["It is ", "not", " ", " so."], ["**", "**", "5%"])[:2]
    (['It is not ', ' so.'], ['5%'])
    """
    read, words, markup = texts[0], [], []
    beside = zip(["", *spans], spans, [*spans[1:], ""], pairwise(texts), strict=False)
    for previous, span, following, (before, after) in beside:
        if not is_markup(span, before, after):
            words.append(span)
            read += (f" {_SPAN} " if re.fullmatch(JOINT, span) else _SPAN) + after
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
        markup.append(Markup(span, gap, *touched))
        read += after
    return read.split(_SPAN), words, markup


def place_markup(
    target: str,
    markup: Sequence[Markup],
    source: str,
    placeholder: str,
    log_probabilities: Callable[[Sequence[tuple[str, str]]], Sequence[float]] | None,
    spans: Collection[str] = (),
) -> str:
    """Return a translation with a character for each piece of markup, for `insert_markup`.

    placeholder: one that is not in the source. log_probabilities: a function from pairs of a source
    and a target to ln P of each target. Without one of the two, markup stands as far from the
    beginning as it does in the source. spans: the placeholders in source and target.
    """
    read, words = source.split(), target.split()
    gaps, n, n_source = range(len(words) + 1), max(1, len(words)), len(read)
    scores = [[-abs(piece.gap / n_source - gap / n) for gap in gaps] for piece in markup]
    scores = np.array(scores)
    inside = [number for number, piece in enumerate(markup) if 0 < piece.gap < n_source]
    if placeholder and log_probabilities and inside:
        among = [markup[number].gap for number in inside]
        sources = [" ".join([*read[:gap], placeholder, *read[gap:]]) for gap in among]
        targets = [" ".join([*words[:gap], placeholder, *words[gap:]]) for gap in gaps]
        pairs = list(product(sources, targets))
        scores[inside] = np.reshape(log_probabilities(pairs), (len(inside), len(gaps)))
    for piece, row in zip(markup, scores, strict=True):
        if piece.before in _STOPS:  # it touches one here as well, if there is another
            row[1:] -= _PENALTY * np.array([not word.endswith(piece.before) for word in words])
    value = "|".join([*map(re.escape, spans), r"\d+"])
    before = [
        np.cumsum([0, *(len(re.findall(value, word)) for word in each)]) for each in (read, words)
    ]
    return with_markup(target, markup, gaps_of(markup, *before, scores))


def gaps_of(
    markup: Sequence[Markup], in_source: np.ndarray, in_target: np.ndarray, scores: np.ndarray
) -> list[int]:
    """Return the best gap of each piece of markup in a translation, in the order of the source.

    in_source (m + 1,), in_target (n + 1,): how many spans are before each gap of the words of
    both. scores (K, n + 1): of each of K pieces in each gap. What is before all words of the source
    is before those of the translation, and the like behind them. Between two pieces are a word and
    as many spans, where the source has them there.
    """
    scores, n_source = np.array(scores, dtype=float), len(in_source) - 1
    n = scores.shape[1] - 1
    gaps = np.arange(n + 1)
    earlier = gaps[:, None]
    for piece, row in zip(markup, scores, strict=True):
        if re.fullmatch(JOINT, piece.text):  # it is between two spans, as | in "5 | 6"
            row -= _PENALTY * abs(in_target - in_source[piece.gap])
        if piece.gap in (0, n_source):
            row -= _PENALTY * (gaps != (0 if piece.gap == 0 else n))
        else:  # what touches a word needs one there
            row -= _PENALTY * ((gaps == 0) * piece.is_behind + (gaps == n) * piece.is_in_front)
    best, came_from = scores[0], []
    for (first, second), row in zip(pairwise(markup), scores[1:], strict=True):
        are_apart = first.gap != second.gap
        between = in_source[second.gap] - in_source[first.gap]
        faults = abs(in_target - in_target[:, None] - between) + (earlier == gaps) * are_apart
        moves = best[:, None] - _PENALTY * faults
        moves[earlier > gaps if are_apart else earlier != gaps] = -np.inf
        came_from.append(moves.argmax(axis=0))
        best = row + moves.max(axis=0)
    chosen = [int(np.argmax(best))]
    for before in reversed(came_from):
        chosen.insert(0, int(before[chosen[0]]))
    return chosen


def with_markup(text: str, markup: Sequence[Markup], gaps: Sequence[int]) -> str:
    """Return a text with a character for each piece of markup in its gap, for `insert_markup`.

    What touches a word in the source touches one here, on the same side of its punctuation.

    >>> markup = [Markup("(", 2, "", "i"), Markup(")", 4, "e", ".")]
    >>> insert_markup(with_markup("Komm, falls möglich.", markup, [1, 3]), markup, {})
    'Komm, (falls möglich).'
    """
    words = []
    for word in text.split():
        start, core, end = re.fullmatch(_WORD, word, re.DOTALL).groups()
        inner = {"opening": start, "before": "", "core": core, "after": "", "closing": end}
        words.append({"before all": "", **inner, "after all": ""})
    alone, in_front = ([[] for _ in range(len(words) + 1)] for _ in range(2))
    spaces = [" "] * len(words)
    for number, (piece, gap) in enumerate(zip(markup, gaps, strict=True)):
        character = chr(_FIRST_MARKUP + number)
        if gap and piece.is_behind and not alone[gap] and not in_front[gap]:
            place = "after all" if piece.before in _STOPS else "after"
            words[gap - 1][place] += character if piece.before else f" {character}"
            if piece.before and piece.after.isalnum() and gap < len(words):
                spaces[gap] = ""
        elif gap < len(words) and (piece.is_in_front or (piece.after and not gap)):
            in_front[gap].append((character, "before" if piece.after.isalnum() else "before all"))
        else:
            if in_front[gap]:
                alone[gap].append("".join(each for each, _ in in_front[gap]))
                in_front[gap].clear()
            if alone[gap] and piece.before and markup[number - 1].gap == piece.gap:
                alone[gap][-1] += character  # it touches the one before
            else:
                alone[gap].append(character)
    for word, those in zip(words, in_front, strict=False):
        for character, place in those:
            word[place] += character
    result = " ".join(alone[0])
    for space, word, after in zip(spaces, words, alone[1:], strict=True):
        result = " ".join([result + space + "".join(word.values()), *after])
    return result.strip()


def insert_markup(text: str, markup: Sequence[Markup], spans: Mapping[str, str]) -> str:
    """Return a text with markup and spans in the place of the characters for them.

    spans: {placeholder: span}, put back at once: a span may have a character for markup.
    """
    texts = {**spans, **{chr(_FIRST_MARKUP + n): piece.text for n, piece in enumerate(markup)}}
    patterns = [rf" ?{re.escape(each)} ?" for each in spans if re.fullmatch(JOINT, spans[each])]
    pattern = "|".join([*patterns, *map(re.escape, texts)]) or "(?!)"
    return re.sub(pattern, lambda match: texts[match[0].strip()], text)
