"""The tokens that may come next in a text: those that leave it valid UTF-8, without loops."""

import functools

import numpy as np

from minitf.backend import to_device
from minitf.decode import Allowed
from minitf.text import Vocabulary, Words
from minitf.text.vocabulary import SPACE_SYMBOL, SPECIALS

REPEATS = 3  # times that an n-gram may stand in a row
LONGEST_NGRAM = 8  # tokens
_ZEROS = 6  # in a number that the source spells out: a million
_LONGEST_CHARACTER = 4  # bytes
_BETWEEN_DIGITS = ("", ".", ",", "'", "\N{RIGHT SINGLE QUOTATION MARK}")


class Wellformed:
    """Makes the `Allowed` of `decode` with which a model writes text, and nothing else.

    - Where characters are spelled in bytes, the bytes so far can go on to valid UTF-8. No text ends
      inside a character, not even at its greatest length. U+FFFD, which stands for a character that
      was lost, is not written.
    - No n-gram of up to eight tokens stands more than three times in a row, or more often than the
      source repeats one. A digit may stand in a row as often as in the source, whatever separates
      the digits (10,000 and 10000), or six times if the source has no digits (a million).
    - Inside a word no subword that begins with a capital follows a lower-case letter, unless the
      source has such a word (PhD). It would show that a subword was lost: "aM" for "an ATM".

    subwords: the model's; its bytes are called <0x00> to <0xFF>.
    """

    def __init__(self, subwords: Vocabulary):
        self._names = names = list(subwords.names)
        ids, self._byte = {name: i for i, name in enumerate(names)}, np.full(len(names), -1)
        for byte in range(256):
            if i := ids.get(f"<0x{byte:02X}>"):
                self._byte[i] = byte
                if byte < 0x80:  # a character without a subword of its own, often a digit
                    names[i] = chr(byte)
        self._non_ascii = np.flatnonzero(self._byte >= 0x80)  # the ids of bytes beyond ASCII
        self._ends_small = np.array([name[-1:].islower() for name in names])
        may_continue = not isinstance(subwords, Words)  # a word; a token of Words begins one
        self._begins_capital = np.array([may_continue and name[:1].isupper() for name in names])
        anything = self._may_follow(b"", _LONGEST_CHARACTER)
        # What may follow most tokens, (2, V): row 1 is for those that end in lower case.
        self._may_usually_follow = np.array([anything, anything & ~self._begins_capital])

    def allowed(self, source: np.ndarray) -> Allowed:
        """Return what may be written for each row of source ids (B, S)."""
        pairs = self._ends_small[source[:, :-1]] & self._begins_capital[source[:, 1:]]
        return functools.partial(self._allowed, source, ~pairs.any(axis=1))

    def _allowed(self, source, no_capitals, texts, sentences, left):
        in_word = (self._ends_small[texts[:, -1]] & no_capitals[sentences]).astype(int)
        allowed = to_device(self._may_usually_follow)[to_device(in_word)]
        others = {}  # masks for the few texts after which something else may follow
        for i in np.flatnonzero((self._byte[texts[:, -1]] >= 0x80) | (left < _LONGEST_CHARACTER)):
            begun = _partial_character(self._byte[texts[i, 1 - _LONGEST_CHARACTER :]])
            others[i] = self._may_follow(begun, min(left[i], _LONGEST_CHARACTER))
            if in_word[i]:
                others[i] &= ~self._begins_capital
        for i, size in _repeats(texts):
            first = texts[i, -size]  # of the n-gram; a byte inside a character may follow
            if not 0x80 <= self._byte[first] < 0xC0 and self._too_often(
                texts[i], size, source[sentences[i]]
            ):
                others.setdefault(i, self._may_usually_follow[in_word[i]].copy())
                others[i][first] = False
        if others:
            allowed[to_device(np.array(list(others)))] = to_device(np.array(list(others.values())))
        return allowed

    # Bytes ----------------------------------------------------------------------------------------

    def _may_follow(self, begun, left):
        """Return whether each token may follow the bytes `begun` of a character: bool (V,).

        left: the number of tokens that may still follow, this one included.
        """
        mask = (self._byte < 0x80) & (not begun)
        missing = [
            _n_missing(begun + bytes([byte])) for byte in self._byte[self._non_ascii].tolist()
        ]
        mask[self._non_ascii] = [n is not None and n < left for n in missing]
        return mask

    # Loops ----------------------------------------------------------------------------------------

    def _strings(self, ids):
        return [self._names[i].strip(SPACE_SYMBOL) for i in ids]

    def _too_often(self, text, size, source):
        """Return whether a text must not repeat its last `size` tokens once more."""
        source, limit = source[source >= len(SPECIALS)], REPEATS
        if all(map(str.isdigit, self._strings(text[-size:]))):
            text, source = (x[~np.isin(self._strings(x), _BETWEEN_DIGITS)] for x in (text, source))
            limit = REPEATS if any(map(str.isdigit, self._strings(source))) else _ZEROS
        run = size  # the tokens at the end of the text that repeat the n-gram, in part at last
        while text[-run - 1] == text[-run - 1 + size]:  # false at the start mark, at the latest
            run += 1
        return run + 1 > size * max(limit, _most_repeats(source))


def _partial_character(latest):
    """Return the bytes of a character that is not complete yet, at the end of a text.

    latest: the bytes of its last tokens, -1 for a token that is no byte.
    """
    for start in range(len(latest)):
        if (latest[start:] >= 0x80).all() and _n_missing(bytes(latest[start:].tolist())):
            return bytes(latest[start:].tolist())
    return b""


@functools.cache
def _n_missing(begun):
    """Return how many bytes a character that begins so in UTF-8 lacks, None if there is none.

    >>> _n_missing("é".encode()), _n_missing("🙂".encode()[:1]), _n_missing(b"\\xff")
    (0, 3, None)
    """
    size = 2 if begun[0] < 0xE0 else 3 if begun[0] < 0xF0 else 4
    completed = (begun.ljust(size, byte).decode(errors="replace") for byte in (b"\x80", b"\xbf"))
    is_one = any("\N{REPLACEMENT CHARACTER}" not in text for text in completed)
    return size - len(begun) if is_one else None


def _repeats(texts):
    """Return the number of each text (R, t) that ends in one n-gram REPEATS times, and its size.

    A text's last token is compared first: few tokens are repeated at all.
    """
    longest = min(LONGEST_NGRAM, (texts.shape[1] - 1) // REPEATS)  # the start mark does not count
    latest = texts[:, ::-1]
    rows, before = (latest[:, 1 : longest + 1] == latest[:, :1]).nonzero()
    return [
        (i, size)
        for i, size in zip(rows, before + 1, strict=True)
        if (latest[i, size : REPEATS * size] == latest[i, : (REPEATS - 1) * size]).all()
    ]


def _most_repeats(ids):
    """Return the most times that an n-gram of ids (n,) stands in a row; a part of one counts.

    >>> _most_repeats(np.array([7, 5, 6, 5, 6, 5]))
    2.5
    """
    repeats = 1.0
    for size in range(1, min(LONGEST_NGRAM, len(ids) // 2) + 1):
        run = 0
        for same in (ids[size:] == ids[:-size]).tolist():
            run = run + 1 if same else 0
            repeats = max(repeats, (size + run) / size)
    return repeats
