"""Named corpora of sentence pairs: where they are kept, how they are read, which
pairs are left out.

`python -m minitf.data wmt14-en-de` fetches one, so that a training finds it.
"""

import functools
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.data import recipes
from minitf.errors import UserError
from minitf.terminal import Progress

__all__ = [
    "Corpus",
    "Lines",
    "Pairs",
    "clean",
    "data_folder",
    "load",
    "open_pairs",
    "read_lines",
    "read_pairs",
]

HINT = "`python -m minitf.data wmt14-en-de` fetches one, so that a training finds it."
# A pair whose one side is this many times longer than the other is seldom a translation.
MAX_RATIO = 3.0
RATIO_FLOOR = 10  # up to this length anything goes: one piece may well mean six in another language
# bytes: a text of two larger files is not held in memory, but read line by line each time.
HELD = 1 << 28


class Lines:
    """The lines of text files, one file after the other, read from the disk each time that they
    are asked for.

    A line ends at a line feed and nowhere else, as other tools count. A carriage return before the
    line feed is dropped, bytes that are not UTF-8 become U+FFFD, a byte-order mark is skipped.
    """

    def __init__(self, *paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            with _opened(path) as file:
                for i, line in enumerate(file):
                    line = line.removeprefix(b"\xef\xbb\xbf") if i == 0 else line
                    if line:
                        yield (
                            line.removesuffix(b"\n")
                            .removesuffix(b"\r")
                            .decode("utf-8", errors="replace")
                        )

    def __len__(self):
        return sum(count for count, _ in map(_scan, self.paths))

    def __add__(self, other):
        return Lines(*self.paths, *other.paths)

    def sha256(self):
        """Return a hash of the content of each file, together in one string."""
        return " ".join(sha256 for _, sha256 in map(_scan, self.paths))


class Pairs(NamedTuple):
    """Sentence i of `source` means sentence i of `target`: lists, or Lines where there are
    too many to hold.
    """

    source: list[str] | Lines
    target: list[str] | Lines


@dataclass
class Corpus:
    """The texts to train, validate and test a model.

    tests: the first is the main one. cut: the text is already cut into subwords, with blanks
    between (class `Words`). tokenized: the references have blanks around punctuation, so that BLEU
    is counted without cutting them once more.
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
    """The texts of a corpus, each as the path of its two files in the data folder, without the
    languages' endings.
    """

    source_language: str
    target_language: str
    train: str
    valid: str
    tests: dict[str, str]
    cut: bool = False
    tokenized: bool = False

    def stems(self):
        return [self.train, self.valid, *self.tests.values()]


def _in_one_folder(folder, target_language, valid, test, **kind):
    tests = {test: f"{folder}/{test}"}
    return _Place("en", target_language, f"{folder}/train", f"{folder}/{valid}", tests, **kind)


def _wmt14(pair):
    return _Place(
        *pair.split("-"),
        f"wmt14-{pair}/train",
        "newstest2013/test",
        {"newstest2014": f"newstest2014/{pair}/test"},
    )


_PLACES = {
    "multi30k": _in_one_folder("multi30k", "de", "val", "test_2016_flickr"),
    "multi30k-tok": _in_one_folder("multi30k/tok", "de", "val", "test_2016_flickr", tokenized=True),
    "multi30k-bpe10k": _in_one_folder(
        "multi30k/bpe10k", "de", "val", "test_2016_flickr", cut=True, tokenized=True
    ),
    "tatoeba-en-de": _in_one_folder("tatoeba-en-de", "de", "val", "test"),
    "tatoeba-en-fr": _in_one_folder("tatoeba-en-fr", "fr", "val", "test"),
    "wmt14-en-de": _wmt14("en-de"),
    "wmt14-en-fr": _wmt14("en-fr"),
    "wmt14-standin": _in_one_folder("wmt14-standin", "de", "dev", "test", tokenized=True),
}
NAMES = ("toy", *_PLACES)


def load(name: str, say=print) -> Corpus:
    """Return a named corpus: `toy` is made here, the others are in `MINITF_DATA` or else in
    the cache folder.

    A corpus that is missing is fetched, if its address is known. The training text of WMT is too
    long to be held: it comes as Lines. Raises UserError for an unknown name, and for files that are
    not there and cannot be fetched.
    """
    if name == "toy":
        from minitf.data import toy  # here, because only this corpus needs its grammar

        splits = {split: Pairs(*pairs) for split, pairs in toy.splits().items()}
        train, valid = splits.pop("train"), splits.pop("valid")
        return Corpus(name, "en", "de", train, valid, splits)
    if name not in _PLACES:
        raise UserError(f"unknown corpus {name!r}: choose from {', '.join(NAMES)}")
    place = _PLACES[name]
    data, languages = data_folder(), (place.source_language, place.target_language)
    _complete(place, data, languages, say)

    def paths(stem):
        return (data / f"{stem}.{language}" for language in languages)

    tests = {split: read_pairs(*paths(stem)) for split, stem in place.tests.items()}
    train, valid = open_pairs(*paths(place.train)), read_pairs(*paths(place.valid))
    return Corpus(name, *languages, train, valid, tests, place.cut, place.tokenized)


def _complete(place, data, languages, say):
    """Make the folders that are missing, or that lack a file which is the same for everybody."""
    missing = []
    for stem in place.stems():
        folder = stem.rpartition("/")[0]
        recipe = recipes.RECIPES.get(folder)
        there = (data / folder).is_dir()
        if not there and not recipe:
            raise UserError(
                f"{data / folder} is not there: set MINITF_DATA to the folder that holds {folder}"
            )
        if not there or (
            recipe
            and recipe.fixed
            and not all((data / f"{stem}.{each}").exists() for each in languages)
        ):
            missing.append(folder)
    if missing:
        recipes.make(missing, data, say)


def data_folder() -> Path:
    """Return the folder of the corpora: `MINITF_DATA`, else `minitf` in the user's cache folder."""
    if named := os.environ.get("MINITF_DATA"):
        try:
            return Path(named).expanduser()
        except RuntimeError:
            raise UserError(
                f"MINITF_DATA={named}: there is no such home folder, name it in full"
            ) from None
    return _cache_folder()


def _cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "minitf"


def encoded_folder() -> Path:
    """Return the folder of text that is cut into subwords: in the data folder, or in the cache if
    that is read-only.
    """
    for folder in (data_folder() / "encoded", _cache_folder() / "encoded"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise UserError(
        f"{data_folder()} cannot be written, nor can {_cache_folder()}: set MINITF_DATA to "
        "another folder"
    )


def read_lines(path) -> list[str]:
    """Return the lines of a file, as the class Lines has them.

    Raises UserError if it cannot be read.
    """
    # Without iter, list would ask for the length, which is one more reading.
    return list(iter(Lines(path)))


def undecoded(path, lines) -> str:
    """Return a notice if lines of this file were not UTF-8, so that letters are lost; else
    an empty text.
    """
    odd = [i for i, line in enumerate(lines, 1) if "\ufffd" in line]
    if not odd:
        return ""
    what = "1 line is" if len(odd) == 1 else f"{len(odd):,} lines are"
    return (
        f"{path}: {what} no UTF-8 (the first: line {odd[0]}): convert the file, as by iconv -f "
        "latin1 -t utf-8"
    )


def read_pairs(source_path, target_path) -> Pairs:
    """Return the pairs of two files, line i of one for line i of the other.

    Raises UserError for unequal counts.
    """
    return _equally_long(
        Pairs(read_lines(source_path), read_lines(target_path)), source_path, target_path
    )


def open_pairs(source_path, target_path) -> Pairs:
    """Return the pairs of a text to train on, as Lines if it is too long to be held in memory."""
    paths = Path(source_path), Path(target_path)
    if all(path.is_file() for path in paths) and sum(path.stat().st_size for path in paths) > HELD:
        return _equally_long(Pairs(*map(Lines, paths)), source_path, target_path)
    # A pipe, say, cannot be read twice and has to be held.
    return read_pairs(source_path, target_path)


def _equally_long(pairs, source_path, target_path):
    if len(pairs.source) != len(pairs.target):
        raise UserError(
            f"{source_path} has {len(pairs.source)} lines but {target_path} has "
            f"{len(pairs.target)}: line i of one must translate line i of the other"
        )
    return pairs


def _opened(path):
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder: name a text file")
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): name an existing text file"
        ) from None


def _scan(path):
    """Return the number of lines of a file, and the sha256 of its content."""
    with _opened(path) as file:
        status = os.fstat(file.fileno())
        return _scan_once(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _scan_once(path, size, changed):
    count, digest, chunk = 0, hashlib.sha256(), b""
    with _opened(path) as file, Progress(f"bytes of {path} read", size) as progress:
        while more := file.read(1 << 20):
            chunk = more
            digest.update(chunk)
            count += chunk.count(b"\n")
            progress.to(file.tell())
    return count + (chunk[-1:] not in (b"", b"\n")), digest.hexdigest()


def clean(
    sources, targets, max_length: int, max_ratio=MAX_RATIO
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the indices of the pairs to train on, and the number of pairs that each
    rule has left out.

    empty: a side without ids. too long: a side of more than max_length ids. ratio: the longer side
    has more than max_ratio times the ids of the shorter one, and more than 10. Only the first rule
    that a pair breaks is counted.

    >>> sources, targets = [[5], [], [5] * 30, [5] * 12], [[6] * 4, [6], [6] * 30, [6] * 3]
    >>> kept, counts = clean(sources, targets, max_length=20)
    >>> kept.tolist(), counts
    ([0], {'empty': 1, 'too long': 1, 'ratio': 1, 'kept': 1})
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources but {len(targets)} targets")
    lengths = (np.array([len(ids) for ids in side], np.int64) for side in (sources, targets))
    return clean_lengths(*lengths, max_length, max_ratio)


def clean_lengths(source_lengths, target_lengths, max_length: int, max_ratio=MAX_RATIO):
    """Return the same from arrays of lengths: for a part of a text that is read in parts."""
    shorter, longer = (
        np.minimum(source_lengths, target_lengths),
        np.maximum(source_lengths, target_lengths),
    )
    empty = shorter == 0
    too_long = (longer > max_length) & ~empty
    ratio = (longer > np.maximum(max_ratio * shorter, RATIO_FLOOR)) & ~empty & ~too_long
    kept = np.flatnonzero(~(empty | too_long | ratio))
    rules = {"empty": empty, "too long": too_long, "ratio": ratio}
    return kept, {name: int(fell.sum()) for name, fell in rules.items()} | {"kept": len(kept)}


def main(names) -> int:
    """Fetch the named corpora and print their sizes; returns the exit code."""
    try:
        if {"-h", "--help"} & set(names):
            print(f"usage: python -m minitf.data NAME ...\n{HINT}\nNames: {', '.join(NAMES)}.")
            return 0
        if not names:
            raise UserError(f"name a corpus: {', '.join(NAMES)}")
        for name in names:
            corpus = load(name)
            texts = {"train": corpus.train, "valid": corpus.valid, **corpus.tests}
            counts = ", ".join(
                f"{text} {len(pairs.source):,} pairs" for text, pairs in texts.items()
            )
            print(
                f"{name}: {counts}; in {data_folder()}"
                if name != "toy"
                else f"{name}: {counts}; built in"
            )
        return 0
    except UserError as error:
        print(f"minitf.data: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minitf.data: stopped; the same command goes on from here", file=sys.stderr)
        return 130
