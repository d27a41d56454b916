"""Tokens to ids and back, for text that is already cut into tokens, separated by spaces."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from minitf.errors import UserError, in_file
from minitf.text.vocabulary import (
    SPECIALS,
    UNK,
    Vocabulary,
    read,
    valid,
)

__all__ = ["Words", "join_cuts"]


class Words(Vocabulary):
    """A vocabulary for text that is already cut; `@@` at the end of a token marks a cut word.

    >>> words = Words.train(["ein klei@@ nes haus", "ein haus"])
    >>> words.encode(["ein haus klei@@ nes", "kein haus"])
    [[4, 5, 6, 7], [1, 5]]
    >>> words.decode([[4, 6, 7, 5, 3]])
    ['ein kleines haus']
    """

    file_name = "words.txt"

    def __init__(self, words: Iterable[str]):
        """Give the words the ids 4, 5, ...

        Raises UserError for a word that is empty, repeated, or contains a space.
        """
        super().__init__(words)
        self._ids = {word: i for i, word in enumerate(self._names) if i >= len(SPECIALS)}
        if len(self._ids) != len(self._names) - len(SPECIALS) or any(
            word.split() != [word] for word in self._ids
        ):
            raise UserError(
                "not a word list: each line must contain one word, and no word may repeat"
            )

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocabulary_size: int | None = None,
        log: Callable[[str], object] = print,
    ) -> "Words":
        """Return the most frequent tokens, equally frequent ones in alphabetical order.

        vocabulary_size: special ids included; None for all tokens. Raises UserError if there is no
        text.
        """
        counts = Counter(chain.from_iterable(valid(line).split() for line in lines))
        if not counts:
            raise UserError("no text to collect words from: the training lines are empty")
        words = sorted(counts, key=lambda word: (-counts[word], word))
        size = len(words) + len(SPECIALS)
        if vocabulary_size and vocabulary_size > size:
            log(
                f"notice   this text yields only {size} tokens, not {vocabulary_size}; {size} are "
                "used"
            )
        if vocabulary_size and vocabulary_size <= len(SPECIALS):
            raise UserError(
                f"a vocabulary of {vocabulary_size} is too small: choose a --vocabulary-size of "
                f"more than {len(SPECIALS)}"
            )
        return cls(words[: vocabulary_size - len(SPECIALS)] if vocabulary_size else words)

    @classmethod
    def load(cls, path: str | Path) -> "Words":
        """Return the words in a file. Raises UserError for a missing or damaged file."""
        try:
            with in_file(path):
                return cls(read(path).decode("utf-8").removesuffix("\n").split("\n"))
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8: copy the file again") from None

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file that belongs to the vocabulary: here, of one."""
        text = "".join(f"{word}\n" for word in self.listed())
        return {self.file_name: text.encode()}

    def encode(
        self, lines: Iterable[str], threads: int = 0, side: str = "source"
    ) -> list[list[int]]:
        """Return the ids of each line's tokens, UNK for unknown tokens. threads, side: not used."""
        return [[self._ids.get(word, UNK) for word in valid(line).split()] for line in lines]

    def _text(self, ids, side):
        return join_cuts(" ".join(self._names[i] for i in ids))


def join_cuts(line: str) -> str:
    """Return a line with the words joined that `@@` marks as cut.

    >>> join_cuts("klei@@ nes haus")
    'kleines haus'
    """
    return re.sub("@@( |$)", "", line)
