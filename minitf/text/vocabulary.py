"""What all vocabularies share: special ids, files, the characters of a line, SentencePiece."""

import re
from collections.abc import Iterable
from pathlib import Path

from minitf.atomic import save_bytes
from minitf.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
SPACE_SIGN = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space

LOST = re.compile("[\0\ufffd]")  # in a line of which some bytes are lost
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_CONTROL = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Vocabulary:
    """The tokens of a text, each with its id: the base of Subwords, Words and PairedSubwords.

    They add `load`, `contents`, `encode` and what `decode` is made of.
    names: those of the ids 4, 5, ...
    """

    file_name: str

    def __init__(self, names: Iterable[str]):
        self._names = [*SPECIALS, *names]

    def __len__(self):
        return len(self._names)

    def vocabulary(self) -> list[str]:
        """Return the name of every token, as its file has it, in the order of the ids."""
        return list(self._names)

    def listed(self) -> list[str]:
        """Return the names of the ids 4, 5, ..."""
        return self._names[len(SPECIALS) :]

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file that belongs to the vocabulary, by name."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the file `path`, and last of all; others that belong to it are beside it."""
        for name, content in reversed(self.contents().items()):
            save_bytes(path if name == self.file_name else Path(path).with_name(name), content)

    def decode(self, id_lists: Iterable[Iterable[int]], side: str = "target") -> list[str]:
        """Return the text of each list of ids, without special ids and control characters.

        Bytes that are not UTF-8 become U+FFFD. side: the language of the text, where each has
        subwords of its own. Raises ValueError for an id out of range.
        """
        # Each by itself: for a list, SentencePiece starts threads, which takes longer.
        return [printable(self._text(ordinary(ids, len(self)), side)) for ids in id_lists]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id, for tables and plots; U+2581 means a space."""
        names = [self._names[i] for i in in_range(ids, len(self))]
        return [printable(name) or repr(name) for name in names]

    def _text(self, ids: list[int], side: str) -> str:
        raise NotImplementedError

    def languages(self) -> list[str]:
        """Return the tokens, such as `>>deu<<`, that tell the model its target language."""
        return []

    def split_language(self, line: str) -> tuple[list[int], str]:
        """Return the ids of the token that names the language of a line, and the rest of it."""
        return [], line


def valid(line: str) -> str:
    """Return the line as valid Unicode: each lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", line)


def printable(text: str) -> str:
    """Return the text without control characters; those that separate words become spaces."""
    return _CONTROL.sub("", _SPACE_CONTROL.sub(" ", text))


def in_range(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids as a list. Raises ValueError for an id outside the vocabulary."""
    ids = [int(i) for i in ids]
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(i for i in ids if not 0 <= i < size)
        raise ValueError(f"id {wrong} is not in a vocabulary of {size}")
    return ids


def ordinary(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids without the special ones. Raises ValueError as `in_range` does."""
    return [i for i in in_range(ids, size) if i >= len(SPECIALS)]


def read(path: str | Path) -> bytes:
    """Return the content of a file. Raises UserError, without the path, if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}): name an existing file") from None


def sentencepiece():
    """Return the module; `import minitf` need not wait for it."""
    import sentencepiece

    sentencepiece.set_min_log_level(3)  # its errors reach the user as one line of ours
    return sentencepiece


def processor(model: bytes):
    """Return the SentencePieceProcessor of a file's content. Raises UserError if it is damaged."""
    try:
        loaded = sentencepiece().SentencePieceProcessor(model_proto=model)
        if not loaded.get_piece_size():  # nothing is loaded from no bytes
            raise RuntimeError
        return loaded
    except (RuntimeError, UnicodeDecodeError):  # the latter: its message quotes the damaged bytes
        raise UserError("not a SentencePiece model: copy the file again") from None
