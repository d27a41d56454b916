"""Text to ids and back by two SentencePiece models and one list of their subwords."""

import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from minitf.errors import UserError, in_file
from minitf.text.vocabulary import (
    SPECIALS,
    UNK,
    Vocabulary,
    processor,
    read,
    valid,
)

__all__ = ["PairedSubwords", "normalise_opus"]

_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")
# The last entry looks like a mistake, but the models have learned it.
_REPLACED = str.maketrans(
    dict(zip("，、∶：；？！（）《》「」", ',,::;?!()""""', strict=True))
    | dict(zip("”“’～━〈〉【】％", '""\'~-<>[]%', strict=True))
    | dict(zip("０２３４５６７８９", "023456789", strict=True))
    | {"…": "...", "１": '"'}
)
_STOP = re.compile("[。．] *")
_UNUSUAL = re.compile("[^ -~]")
_SPACES = re.compile("  +")


class PairedSubwords(Vocabulary):
    """Subwords of a source language and of a target language, in one list that gives the ids.

    Public models have them: the text is cut by `source.spm` or `target.spm`, and a subword's id is
    its place in the list. A subword that is not in the list is UNK.

    source, target: the content of both SentencePiece files. pieces: the subwords with the ids
    4, 5, ... opus: whether lines are normalised as in `normalise_opus` first.
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
        super().__init__(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._names) if i >= len(SPECIALS)}
        if len(self._ids) != len(self._names) - len(SPECIALS):
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

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file, by name."""
        head = {"normalise": "opus" if self.opus else "none"}
        text = json.dumps(head | {"pieces": self.listed()}, ensure_ascii=False, indent=0)
        return {
            self.file_name: (text + "\n").encode(errors="replace"),
            self.source_name: self._models["source"],
            self.target_name: self._models["target"],
        }

    def languages(self) -> list[str]:
        """Return the tokens, such as `>>deu<<`, that tell the model its target language."""
        return [piece for piece in self._ids if _LANGUAGE.fullmatch(piece)]

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
            rests.append(normalise_opus(rest) if self.opus else rest)
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

    def _text(self, ids, side):
        # A subword that only the other side's model knows comes back as it is, with its sign of a
        # space.
        text = self._processors[side].decode([self._names[i] for i in ids])
        return text.replace("\u2581", " ").strip(" ")


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


def normalise_opus(line: str) -> str:
    """Return a line as OPUS-MT's models were trained: punctuation as ASCII, and single spaces.

    Control characters and invisible ones become spaces.
    Source: OPUS-MT-train, scripts/preprocess-spm.sh.

    >>> normalise_opus("“Good…”　he  said。Then，")
    '"Good..."　he said. Then,'
    """
    line = _STOP.sub(". ", line).translate(_REPLACED)
    return _SPACES.sub(" ", _UNUSUAL.sub(_space_if_invisible, line)).strip(" ")


def _space_if_invisible(match):
    return " " if unicodedata.category(match[0]) in ("Cc", "Cf", "Co", "Cs") else match[0]
