"""What all vocabularies share, and Words, a vocabulary for text that is already tokenised."""

import functools
import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from minitf.atomic import save_bytes
from minitf.errors import UserError, in_file

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
SPACE_SYMBOL = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space

LOST = re.compile("[\0\ufffd]")  # in a line that has lost bytes
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_CONTROL = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]")
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Vocabulary:
    """The tokens of a text, each with its id: the base of Subwords, Words and PairedSubwords.

    They add `load`, `contents`, `encode` and `_text`, which `decode` calls.
    names: the name of every token in its file, in the order of the ids; the argument has those of
    the ids 4, 5, ...
    """

    file_name: str

    def __init__(self, names: Iterable[str]):
        self.names = [*SPECIALS, *names]

    def __len__(self):
        return len(self.names)

    def save(self, path: str | Path) -> None:
        """Write the file `path`, and beside it the others that belong to it."""
        for name, content in self.contents().items():
            save_bytes(path if name == self.file_name else Path(path).with_name(name), content)

    def decode(self, id_lists: Iterable[Iterable[int]], side: str = "target") -> list[str]:
        """Return the text of each list of ids, without special ids and control characters.

        Bytes that are not UTF-8 become U+FFFD. side: the language of the text, where each has
        subwords of its own.
        """
        # One by one: for a list, SentencePiece starts threads, which takes longer.
        lists = ([i for i in map(int, ids) if i >= len(SPECIALS)] for ids in id_lists)
        return [printable(self._text(ids, side)) for ids in lists]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id, for tables and plots; U+2581 means a space."""
        names = [self.names[i] for i in ids]
        return [printable(name) or repr(name) for name in names]

    @functools.cached_property
    def characters(self) -> frozenset[str]:
        """The characters that have a token, or are in one: a text with others is spelled in bytes.

        A letter is among them if it is there in another case: Ö may be too rare for a token.
        """
        text = "".join(name for name in self.names[len(SPECIALS) :] if not _BYTE.fullmatch(name))
        return frozenset(text + text.upper() + text.lower())

    @functools.cached_property
    def lone_symbols(self) -> frozenset[str]:
        """The symbols with a token of their own after a space; others rarely stand alone."""
        after_space = (name[1:] for name in self.names if name[:1] == SPACE_SYMBOL)
        return frozenset("".join(name for name in after_space if not any(map(str.isalnum, name))))

    def split_language(self, line: str) -> tuple[list[int], str]:
        """Return the ids of the token that names the language of a line, and the rest of it."""
        return [], line


def valid_unicode(line: str) -> str:
    """Return the line as valid Unicode: each lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", line)


def printable(text: str) -> str:
    """Return the text without control characters; those that separate words become spaces."""
    return _CONTROL.sub("", _SPACE_CONTROL.sub(" ", text))


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file. Raises UserError, without the path, if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}): name an existing file") from None


def processor(model: bytes):
    """Return the SentencePieceProcessor of a file's content. Raises UserError if it is damaged."""
    import sentencepiece  # here: `import minitf` need not wait for it

    sentencepiece.set_min_log_level(3)  # its errors reach the user as one line of ours
    try:
        loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
        if not loaded.get_piece_size():  # nothing is loaded from no bytes
            raise RuntimeError
        return loaded
    except (RuntimeError, UnicodeDecodeError):  # the latter: its message quotes the damaged bytes
        raise UserError("not a SentencePiece model: copy the file again") from None


# Words --------------------------------------------------------------------------------------------


class Words(Vocabulary):
    """A vocabulary for text that is already tokenised; a token ends in `@@` inside a split word.

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
        self._ids = {word: i for i, word in enumerate(self.names) if i >= len(SPECIALS)}
        if len(self._ids) != len(self.names) - len(SPECIALS) or any(
            word.split() != [word] for word in self._ids
        ):
            raise UserError(
                "not a word list: each line must contain one word, and no word may repeat"
            )

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int | None = None) -> "Words":
        """Return the most frequent tokens, equally frequent ones in alphabetical order.

        vocabulary_size: special ids included; None for all tokens. Raises UserError if there is no
        text.
        """
        counts = Counter(chain.from_iterable(valid_unicode(line).split() for line in lines))
        if not counts:
            raise UserError("no text to collect words from: the training lines are empty")
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(words[: vocabulary_size - len(SPECIALS)] if vocabulary_size else words)

    @classmethod
    def load(cls, path: str | Path) -> "Words":
        """Return the words in a file. Raises UserError for a missing or damaged file."""
        try:
            with in_file(path):
                return cls(read_bytes(path).decode("utf-8").removesuffix("\n").split("\n"))
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8: copy the file again") from None

    def contents(self) -> dict[str, bytes]:
        """Return the content of the vocabulary's only file, by its name."""
        text = "".join(f"{word}\n" for word in self.names[len(SPECIALS) :])
        return {self.file_name: text.encode()}

    def encode(self, lines: Iterable[str], side: str = "source") -> list[list[int]]:
        """Return the ids of each line's tokens, UNK for unknown tokens. side: not used."""
        lines = map(valid_unicode, lines)
        return [[self._ids.get(word, UNK) for word in line.split()] for line in lines]

    def _text(self, ids, side):
        return join_bpe(" ".join(self.names[i] for i in ids))


def join_bpe(line: str) -> str:
    """Return a line in which the words that `@@` marks as split are joined.

    >>> join_bpe("klei@@ nes haus")
    'kleines haus'
    """
    return re.sub("@@( |$)", "", line)
