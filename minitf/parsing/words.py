"""A line of text to the words of a treebank: signs are cut off at the edges of words."""

import re
from collections import Counter

__all__ = ["cut"]

# A line with one of these between spaces is cut already.
_SIGNS = re.compile(r"(?<!\S)(?:[.,;:?!()\[\]{}\"“”]|``|''|n't|'s|-LRB-|-RRB-)(?!\S)")
_FRONT = frozenset("\"“”‘'$£€([{")
_BACK = frozenset("\"“”’',;:?!%)]}")
# After a digit, 's alone: Pax6's, but not 5'd.
_CLITIC = re.compile(
    r"(?<=[^\W\d_])(?:n['’]t|['’](?:s|re|ve|ll|d|m))$|(?<=\d)['’]s$", re.IGNORECASE
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OPENED = {closing: opening for opening, closing in _PAIRS.items()}
# The end of U.S. or e.g. keeps its full stop. Not that of 3.5. and not a single letter's: of the
# sentences of CRAFT, 84 end with a decimal before a full stop of its own (p < 0.05 .), and 85 with
# a letter before one (vitamin C .), but none with 0.05. or C. as one word.
_ABBREVIATION = re.compile(r"[^\W\d_]\.[^\W\d_]\.")


def cut(line: str) -> list[str]:
    """Return the words of a line: those between spaces, with the signs at their edges cut off.

    The Penn Treebank's rules, as far as they concern edges: ( " , ; % and others, n't and 's, and
    the full stop that ends the line. These stay: a bracket that belongs to a word, as in f(x), what
    the Penn Treebank cuts inside words (cannot, gonna), dashes, and quotation marks such as « ».
    A line in which any such sign is between spaces already is cut at spaces only.

    >>> cut('He said, "The cat doesn\\'t sleep (much)."')
    ['He', 'said', ',', '"', 'The', 'cat', 'does', "n't", 'sleep', '(', 'much', ')', '.', '"']
    >>> cut("Mr. Smith lives in the U.S.")
    ['Mr.', 'Smith', 'lives', 'in', 'the', 'U.S.']
    >>> cut("It costs 3.5.")
    ['It', 'costs', '3.5', '.']
    """
    parts = line.split()
    if _SIGNS.search(line):
        return parts
    return [word for i, part in enumerate(parts, 1) for word in _cut(part, i == len(parts))]


def _cut(word, is_last):
    """Return a word with its signs; is_last: in its line.

    What is left of the word is word[start:end]. A copy of it for each sign that is cut off would
    take time in proportion to the square of their number; so would a count of its brackets.
    """
    start, end = 0, len(word)
    front, back = [], []  # back: the last sign first
    brackets = Counter({sign: word.count(sign) for sign in (*_PAIRS, *_OPENED)})  # between these
    while end - start > 1:
        first, last = word[start], word[end - 1]
        is_enclosed = end - start > 2 and last == _PAIRS.get(first) and brackets[first] == 1
        dots = _dots(word, start, end)
        if 3 <= dots < end - start:
            back.append("." * dots)
            end -= dots
        elif (
            is_last
            and 1 <= dots <= 2
            and not _ABBREVIATION.fullmatch(word, max(start, end - 4), end)
        ):
            is_last = False  # of several full stops, one is cut off
            back.append(last)
            end -= 1
        elif last in _BACK and not _has_other(last, _OPENED, brackets):
            back.append(last)
            brackets[last] -= 1
            end -= 1
        elif first in _FRONT and not _has_other(first, _PAIRS, brackets):
            front.append(first)
            brackets[first] -= 1
            start += 1
        elif is_enclosed:  # (left), [8]: cut at both ends, but not the brackets of f(x)
            front.append(first)
            back.append(last)
            brackets.subtract((first, last))
            start, end = start + 1, end - 1
        else:
            break
    word = word[start:end]
    clitic = _CLITIC.search(word)
    if clitic:
        back.append(clitic[0])
        word = word[: clitic.start()]
    return [*front, word, *reversed(back)]


def _dots(word, start, end):
    """Return the number of dots at the end of word[start:end]."""
    stop = end
    while stop > start and word[stop - 1] == ".":
        stop -= 1
    return end - stop


def _has_other(sign, others, brackets):
    """Return whether a bracket at an edge of a word has its other one in the word."""
    return sign in others and brackets[others[sign]] >= brackets[sign]
