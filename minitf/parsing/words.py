"""Tokenisation as in a treebank: punctuation is split off at the edges of words."""

import re

# A line with one of these between spaces is tokenised already.
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
_ABBREVIATION = re.compile(r"[^\W\d_]\.[^\W\d_]\.$")
_MAX_WORD = 1000  # characters; a longer word stays as it is


def tokenise(line: str) -> list[str]:
    """Return the tokens of a line: what is between spaces, without the punctuation at its edges.

    The Penn Treebank's rules, as far as they concern edges: ( " , ; % and others, n't and 's, and
    the full stop that ends the line. These stay: a bracket that belongs to a word, as in f(x), what
    the Penn Treebank splits inside words (cannot, gonna), dashes, and quotation marks such as « ».
    A line in which any of these is between spaces already is split at spaces only.

    >>> tokenise('He said, "The cat doesn\\'t sleep (much)."')
    ['He', 'said', ',', '"', 'The', 'cat', 'does', "n't", 'sleep', '(', 'much', ')', '.', '"']
    >>> tokenise("Mr. Smith lives in the U.S.")
    ['Mr.', 'Smith', 'lives', 'in', 'the', 'U.S.']
    >>> tokenise("It costs 3.5.")
    ['It', 'costs', '3.5', '.']
    """
    parts = line.split()
    if _SIGNS.search(line):
        return parts
    return [word for i, part in enumerate(parts, 1) for word in _split_edges(part, i == len(parts))]


def _split_edges(word, is_last):
    """Return a word and the punctuation at its edges, as tokens; is_last: in its line."""
    front, back = [], []  # back: the last one first
    while 1 < len(word) <= _MAX_WORD:
        first, last = word[0], word[-1]
        is_enclosed = len(word) > 2 and last == _PAIRS.get(first) and word.count(first) == 1
        dots = len(word) - len(word.rstrip("."))
        if 3 <= dots < len(word):
            back.append("." * dots)
            word = word[:-dots]
        elif is_last and 1 <= dots <= 2 and not _ABBREVIATION.search(word):
            is_last = False  # of several full stops, one is split off
            back.append(last)
            word = word[:-1]
        elif last in _BACK and not _has_other(last, _OPENED, word):
            back.append(last)
            word = word[:-1]
        elif first in _FRONT and not _has_other(first, _PAIRS, word):
            front.append(first)
            word = word[1:]
        elif is_enclosed:  # (left), [8]: split at both ends, but not the brackets of f(x)
            front.append(first)
            back.append(last)
            word = word[1:-1]
        else:
            break
    clitic = _CLITIC.search(word)
    if clitic:
        back.append(clitic[0])
        word = word[: clitic.start()]
    return [*front, word, *reversed(back)]


def _has_other(sign, others, word):
    """Return whether a bracket at an edge of a word has its other one in the word."""
    return sign in others and word.count(others[sign]) >= word.count(sign)
