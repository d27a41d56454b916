"""Named corpora of sentence pairs: where they lie, how they are read, which pairs are left out."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.backend import UserError

MAX_RATIO = 3.0  # a pair whose one side is this many times longer than the other is seldom a translation
RATIO_FLOOR = 10  # up to this length anything goes: one piece may well mean six in another language


class Pairs(NamedTuple):
    """Sentence i of `source` means sentence i of `target`."""

    source: list[str]
    target: list[str]


@dataclass
class Corpus:
    """What a model is trained, validated and tested on.

    tests: the first is the main one. cut: the text is already cut into subwords, with blanks between (class
    `Words`). tokenized: the references have blanks around punctuation, so that BLEU is counted without
    cutting them once more.
    """

    name: str
    source_language: str
    target_language: str
    train: Pairs
    valid: Pairs
    tests: dict[str, Pairs]
    cut: bool = False
    tokenized: bool = False


class _Place(NamedTuple):
    folder: str
    source_language: str
    target_language: str
    valid: str
    tests: tuple[str, ...]
    cut: bool = False
    tokenized: bool = False


_PLACES = {
    "multi30k": _Place("multi30k", "en", "de", "val", ("test_2016_flickr",)),
    "multi30k-tok": _Place("multi30k/tok", "en", "de", "val", ("test_2016_flickr",), tokenized=True),
    "multi30k-bpe10k": _Place("multi30k/bpe10k", "en", "de", "val", ("test_2016_flickr",), True, True),
    "tatoeba-en-de": _Place("tatoeba-en-de", "en", "de", "val", ("test",)),
    "tatoeba-en-fr": _Place("tatoeba-en-fr", "en", "fr", "val", ("test",)),
    "wmt14-standin": _Place("wmt14-standin", "en", "de", "dev", ("test",), tokenized=True),
}
NAMES = ("toy", *_PLACES)


def load(name: str) -> Corpus:
    """Read a named corpus: `toy` is made here, the others lie in `MINITF_DATA` or else in the cache folder.

    Raises UserError for an unknown name, and for files that are not there.
    """
    if name == "toy":
        from minitf import toy  # here, because only this corpus needs its grammar

        splits = {split: Pairs(*pairs) for split, pairs in toy.splits().items()}
        train, valid = splits.pop("train"), splits.pop("valid")
        return Corpus(name, "en", "de", train, valid, splits)
    if name not in _PLACES:
        raise UserError(f"unknown corpus {name!r}: choose from {', '.join(NAMES)}")
    place = _PLACES[name]
    folder = data_folder() / place.folder
    if not folder.is_dir():
        raise UserError(f"{folder} is not there: set MINITF_DATA to the folder that holds {place.folder}")

    def read(split):
        return read_pairs(*(folder / f"{split}.{language}" for language in languages))

    languages = place.source_language, place.target_language
    tests = {split: read(split) for split in place.tests}
    return Corpus(name, *languages, read("train"), read(place.valid), tests, place.cut, place.tokenized)


def data_folder() -> Path:
    """Where corpora are kept: `MINITF_DATA`, else `minitf` in the user's cache folder."""
    if os.environ.get("MINITF_DATA"):
        return Path(os.environ["MINITF_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "minitf"


def read_lines(path) -> list[str]:
    """The lines of a UTF-8 file: a line ends at a line feed and nowhere else, as other tools count.

    A carriage return before the line feed is dropped, bytes that are no UTF-8 become U+FFFD, a byte-order
    mark is no text. Raises UserError if the file cannot be read.
    """
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder: name a text file")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): name an existing text file") from None
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()  # what follows the last line feed is a line only if there is something
    return [line.removesuffix("\r") for line in lines]


def read_pairs(source_path, target_path) -> Pairs:
    """Two files, line i of one for line i of the other. Raises UserError for unequal line counts."""
    pairs = Pairs(read_lines(source_path), read_lines(target_path))
    if len(pairs.source) != len(pairs.target):
        raise UserError(
            f"{source_path} has {len(pairs.source)} lines but {target_path} has {len(pairs.target)}: "
            "line i of one must translate line i of the other"
        )
    return pairs


def clean(sources, targets, max_length: int, max_ratio=MAX_RATIO) -> tuple[np.ndarray, dict[str, int]]:
    """Which pairs of id lists to train on: the indices kept, and how many pairs fell to which rule.

    empty: a side without ids. too long: a side of more than max_length ids. ratio: the longer side has more
    than max_ratio times the ids of the shorter one, and more than 10. Only the first rule that a pair breaks
    is counted.

    >>> kept, counts = clean([[5], [], [5] * 30, [5] * 12], [[6] * 4, [6], [6] * 30, [6] * 3], max_length=20)
    >>> kept.tolist(), counts
    ([0], {'empty': 1, 'too long': 1, 'ratio': 1, 'kept': 1})
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources but {len(targets)} targets")
    lengths = np.array([[len(ids) for ids in side] for side in (sources, targets)], np.int64)
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = (longer > max_length) & ~empty
    ratio = (longer > np.maximum(max_ratio * shorter, RATIO_FLOOR)) & ~empty & ~too_long
    kept = np.flatnonzero(~(empty | too_long | ratio))
    rules = {"empty": empty, "too long": too_long, "ratio": ratio}
    return kept, {name: int(fell.sum()) for name, fell in rules.items()} | {"kept": len(kept)}
