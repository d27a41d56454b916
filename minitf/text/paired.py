"""Text to ids and back by two SentencePiece models and one list of their subwords."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from minitf.atomic import save_bytes
from minitf.errors import UserError, in_file
from minitf.text.opus import normalise
from minitf.text.sentencepiece_file import processor
from minitf.text.vocabulary import (
    SPECIALS,
    UNK,
    in_range,
    ordinary,
    printable,
    read,
    valid,
)

__all__ = ["PairedSubwords"]

_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")


class PairedSubwords:
    """Subwords of a source language and of a target language, in one list that gives the ids.

    Public models have them: the text is cut by `source.spm` or `target.spm`, and a subword's id is
    its place in the list. It has the methods of Subwords; a subword that is not in the list is UNK.

    source, target: the content of both SentencePiece files. pieces: the subwords with the ids
    4, 5, ... opus: whether lines are normalised as in `opus.normalise` first.
    Raises UserError for a damaged file, and if a subword repeats.
    """

    file_name = "vocabulary.json"
    source_name = "source.spm"
    target_name = "target.spm"

    def __init__(self, source: bytes, target: bytes, pieces: Iterable[str], opus: bool = True):
        self._models = {"source": source, "target": target}
        self._processors = {}
        for side, model in self._models.items():
            with in_file(self.source_name if side == "source" else self.target_name):
                self._processors[side] = processor(model)
        self.opus = opus
        self._pieces = [*SPECIALS, *pieces]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i >= len(SPECIALS)}
        if len(self._ids) != len(self._pieces) - len(SPECIALS):
            raise UserError("a subword of the list repeats: copy the file again")

    @classmethod
    def load(cls, path: str | Path) -> "PairedSubwords":
        """Return the subwords of a list and of the two files next to it. Raises UserError."""
        path, contents = Path(path), {}
        for name in (cls.file_name, cls.source_name, cls.target_name):
            with in_file(path.with_name(name)):
                contents[name] = read(path.with_name(name))
        with in_file(path):
            pieces, opus = _listed(contents[cls.file_name])
            return cls(contents[cls.source_name], contents[cls.target_name], pieces, opus)

    def save(self, path: str | Path) -> None:
        """Write the list, and both SentencePiece files next to it; the list comes last."""
        for name, content in reversed(self.contents().items()):
            save_bytes(Path(path).with_name(name), content)

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file, by name."""
        head = {"normalise": "opus" if self.opus else "none"}
        text = json.dumps(head | {"pieces": self.listed()}, ensure_ascii=False, indent=0)
        return {
            self.file_name: (text + "\n").encode(errors="replace"),
            self.source_name: self._models["source"],
            self.target_name: self._models["target"],
        }

    def listed(self) -> list[str]:
        """Return the subwords with the ids 4, 5, ..."""
        return self._pieces[len(SPECIALS) :]

    def vocabulary(self) -> list[str]:
        """Return the name of every subword, in the order of their ids."""
        return list(self._pieces)

    def languages(self) -> list[str]:
        """Return the tokens, such as `>>deu<<`, that tell the model its target language."""
        return [piece for piece in self._ids if _LANGUAGE.fullmatch(piece)]

    def __len__(self):
        return len(self._pieces)

    def encode(
        self, lines: Iterable[str], threads: int = 0, side: str = "source"
    ) -> list[list[int]]:
        """Return the ids of each line, without special ids; every string can be encoded.

        A `>>deu<<` at the beginning of a source line is one token. threads: of SentencePiece,
        0 for one on each core. side: the language of the lines, source or target.
        """
        tokens, rests = [], []
        for line in lines:
            ids, rest = self.split_language(valid(line)) if side == "source" else ([], valid(line))
            tokens.append(ids)
            rests.append(normalise(rest) if self.opus else rest)
        cut = self._processors[side].encode(rests, out_type=str, num_threads=threads or -1)
        return [
            ids + [self._ids.get(piece, UNK) for piece in pieces]
            for ids, pieces in zip(tokens, cut, strict=True)
        ]

    def language_of(self, line: str) -> str:
        """Return the `>>deu<<` that begins a line, known or not; "" if there is none."""
        match = _LANGUAGE.match(line)
        return match[1] if match else ""

    def split_language(self, line: str) -> tuple[list[int], str]:
        """Return the ids of the `>>deu<<` that begins a line, and the rest of the line."""
        match = _LANGUAGE.match(line)
        if not match or match[1] not in self._ids:
            return [], line
        return [self._ids[match[1]]], line[match.end() :]

    def decode(self, id_lists: Iterable[Iterable[int]], side: str = "target") -> list[str]:
        """Return the text of each list of ids, without special ids.

        side: the language of the text. Raises ValueError for an id out of range.
        """
        lists = [[self._pieces[i] for i in ordinary(ids, len(self))] for ids in id_lists]
        # Each by itself: for a list, SentencePiece starts threads, which takes longer. A subword
        # that only the other side's model knows comes back as it is, with the sign of a space.
        texts = [self._processors[side].decode(names) for names in lists]
        return [printable(text.replace("\u2581", " ").strip(" ")) for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the subword of each id, for tables and plots; U+2581 means a space."""
        names = [self._pieces[i] for i in in_range(ids, len(self))]
        return [printable(name) or repr(name) for name in names]


def _listed(content):
    """Return the subwords in the content of the list's file, and whether lines are normalised."""
    try:
        settings = json.loads(content)
        pieces, kind = settings["pieces"], settings["normalise"]
        if kind not in ("opus", "none") or not all(type(piece) is str for piece in pieces):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError("not a list of subwords: copy the file again") from None
    return pieces, kind == "opus"
