"""Byte-pair encoding, merge by merge, and with some merges left out: BPE-dropout."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from minitf.text.vocabulary import SPECIALS

__all__ = ["SPACE_SIGN", "Merges", "words_of"]

SPACE_SIGN = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space
_BYTES = 256


def words_of(line: str) -> list[str]:
    """Return the words of a line, each with its space, as SentencePiece cuts them.

    >>> words_of("the  cat")
    ['▁the', '▁', '▁cat']
    """
    return [SPACE_SIGN + word for word in line.split(" ")]


class Merges:
    """The merges of a vocabulary: a piece that has a lower id is merged earlier.

    pieces: the subword of each id: the special ones, symbols (which are never cut, and merged with
    nothing, wherever they stand), a byte each, and then the merges in order, with all characters at
    the end.
    """

    def __init__(self, pieces: Sequence[str]):
        first = pieces.index("<0x00>")
        self._symbols = {piece: i for i, piece in enumerate(pieces) if len(SPECIALS) <= i < first}
        longest_first = sorted(self._symbols, key=len, reverse=True)
        self._symbol = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._bytes = range(first, first + _BYTES)
        self._ids = {piece: i for i, piece in enumerate(pieces) if i >= first + _BYTES}

    def cut(
        self, word: str, probability: float = 0.0, draw: Callable[[], float] = lambda: 1.0
    ) -> list[int]:
        """Return the ids of a word.

        Of all neighbours that make a piece, those of the lowest id are merged, as long as there are
        any. probability: of leaving a pair of neighbours out, each time; draw: returns a number
        from 0 to 1.
        Source: Sennrich et al. 2016; Provilkov et al. 2020, algorithm 1.

        >>> byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
        >>> merges = Merges([*SPECIALS, *byte_pieces, "lo", "low", "l", "o", "w", "▁"])
        >>> merges.cut("▁low"), merges.cut("▁low", 0.5, iter([0.3, 0.9]).__next__)
        ([265, 261], [265, 262, 263, 264])
        """
        ids, start = [], 0
        for match in self._symbol.finditer(word):
            ids += self._merged(word[start : match.start()], probability, draw)
            ids.append(self._symbols[match[0]])
            start = match.end()
        return ids + self._merged(word[start:], probability, draw)

    def _merged(self, text, probability, draw):
        """Return the ids of a text without symbols."""
        parts = list(text)
        while True:
            pairs = [
                (self._ids[left + right], i)
                for i, (left, right) in enumerate(pairwise(parts))
                if left + right in self._ids and draw() >= probability
            ]
            if not pairs:
                return [its for part in parts for its in self._spelled(part)]
            _, i = min(pairs)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]

    def _spelled(self, part):
        """Return the id of a part, or those of its bytes if no piece has this character."""
        if part in self._ids:
            return [self._ids[part]]
        return [self._bytes[byte] for byte in part.encode()]
