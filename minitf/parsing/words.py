"""A line of text to the words of a treebank: signs are cut off at the edges of words."""

import re

__all__ = ["cut"]

# A line with one of these between blanks is cut already.
_SIGNS = re.compile(r"(?<!\S)(?:[.,;:?!()\[\]{}\"“”]|``|''|n't|'s|-LRB-|-RRB-)(?!\S)")
_FRONT = re.compile(r"[\"“”‘'$£€(\[{]")
_BACK = re.compile(r"[\"“”’',;:?!%)\]}]")
_CLITIC = re.compile(r"(?<=[^\W\d_])(?:n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OPENED = {closing: opening for opening, closing in _PAIRS.items()}
_DOTS = re.compile(r"(?<!\.)\.{3,}$")  # a search takes time in proportion to the line
_ENCLOSED = re.compile(r"\([^()]*[^\W\d_]{2}[^()]*\)|\[[^\[\]]*[^\W\d_]{2}[^\[\]]*\]")
_ABBREVIATION = re.compile(r"(?:.*\..|[^\W\d_])$", re.DOTALL)  # U.S, e.g, or one letter


def cut(line: str) -> list[str]:
    """Return the words of a line: those between blanks, with the signs at their edges cut off.

    The Penn Treebank's rules, as far as they concern edges: ( " , ; % and others, n't and 's, and
    the full stop that ends the line. These stay: a bracket that belongs to a word, as in f(x), what
    the Penn Treebank cuts inside words (cannot, gonna), dashes, and quotation marks such as « ».
    A line in which any such sign is between blanks already is cut at blanks only.

    >>> cut('He said, "The cat doesn\\'t sleep (much)."')
    ['He', 'said', ',', '"', 'The', 'cat', 'does', "n't", 'sleep', '(', 'much', ')', '.', '"']
    >>> cut("Mr. Smith lives in the U.S.")
    ['Mr.', 'Smith', 'lives', 'in', 'the', 'U.S.']
    """
    parts = line.split()
    if _SIGNS.search(line):
        return parts
    return [word for i, part in enumerate(parts, 1) for word in _cut(part, i == len(parts))]


def _cut(word, is_last):
    """Return a word with its signs; is_last: in its line."""
    front, back = [], []
    while len(word) > 1:
        if dots := _DOTS.search(word, 1):
            back.insert(0, dots[0])
            word = word[: dots.start()]
        elif is_last and word[-1] == "." and not _ABBREVIATION.match(word[:-1]):
            is_last = False  # of several full stops, one is cut off
            back.insert(0, word[-1])
            word = word[:-1]
        elif _BACK.match(word[-1]) and not _is_opened(word):
            back.insert(0, word[-1])
            word = word[:-1]
        elif _FRONT.match(word) and not _is_closed(word):
            front.append(word[0])
            word = word[1:]
        elif word[0] in "([" and _ENCLOSED.fullmatch(word):
            front.append(word[0])
            back.insert(0, word[-1])
            word = word[1:-1]
        else:
            break
    clitic = _CLITIC.search(word)
    if clitic:
        back.insert(0, clitic[0])
        word = word[: clitic.start()]
    return [*front, word, *back]


def _is_opened(word):
    """Return whether the closing bracket at the end of a word has its opening one in it."""
    opening = _OPENED.get(word[-1])
    return bool(opening) and word.count(opening) >= word.count(word[-1])


def _is_closed(word):
    """Return whether the opening bracket at the front of a word has its closing one in it."""
    closing = _PAIRS.get(word[0])
    return bool(closing) and word.count(closing) >= word.count(word[0])
