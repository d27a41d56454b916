"""Named corpora of sentence pairs: their files, how they are read, and which pairs are left out.

`python -m minitf data wmt14-en-de` downloads a corpus in advance.
"""

import contextlib
import functools
import hashlib
import os
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.cli import Progress, amount, exit_code, quote
from minitf.data import downloads, read_table, treebank
from minitf.errors import UserError
from minitf.text.encoding import BOMS, Damage, not_text, refusal
from minitf.text.trees import WITH_WORDS
from minitf.text.vocabulary import LOST

MAX_RATIO = 3.0  # longer side / shorter side; beyond it a pair is seldom a translation
RATIO_FLOOR = 10  # subwords; shorter sides may differ by any ratio, as one word may mean six
_BOM = b"\xef\xbb\xbf"  # the byte-order mark, in UTF-8
MAX_IN_MEMORY = 1 << 28  # bytes of both files together; a larger text is streamed from the disk


class Lines:
    """The lines of one text file or several, read from the disk at each iteration.

    A line ends at a line feed only, as in other tools. A carriage return before the line feed is
    dropped, bytes that are not UTF-8 become U+FFFD, and a byte-order mark is skipped.
    """

    def __init__(self, *paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            with _open_text(path) as file:
                for i, line in enumerate(file):
                    line = line.removeprefix(_BOM) if i == 0 else line
                    if line:
                        text = line.removesuffix(b"\n").removesuffix(b"\r")
                        yield text.decode("utf-8", errors="replace")

    def __len__(self):
        return sum(count for count, _ in map(_scan, self.paths))

    def __add__(self, other):
        return Lines(*self.paths, *other.paths)

    def sha256(self):
        """Return the sha256 of each file, separated by spaces."""
        return " ".join(sha256 for _, sha256 in map(_scan, self.paths))


class Pairs(NamedTuple):
    """Two texts: line i of `target` translates line i of `source`.

    Lists, or Lines for texts that are too long for the memory.
    """

    source: list[str] | Lines
    target: list[str] | Lines


@dataclass
class Corpus:
    """The texts to train, validate and test a model.

    tests: the first is the main one. tokenised: the references have spaces around punctuation, so
    BLEU is computed without tokenising them again. added: pairs that follow the training text; no
    subwords are learned from them. symbols: words of the targets that are a subword each, such as
    the brackets of trees.
    """

    name: str
    source_language: str
    target_language: str
    train: Pairs
    valid: Pairs
    tests: dict[str, Pairs]
    tokenised: bool = False
    added: Pairs = field(default_factory=lambda: Pairs([], []))
    symbols: tuple[str, ...] = ()


class _Layout(NamedTuple):
    """A row of corpora.txt: the path of each text in the data folder, without the language."""

    source_language: str
    target_language: str
    train: str
    valid: str
    test: str
    test_name: str

    def files(self, stem, data):
        return [data / f"{stem}.{side}" for side in (self.source_language, self.target_language)]


_TABLE = read_table(Path(__file__).parent, "corpora.txt")
_CORPORA = {name: _Layout(*columns) for name, *columns in _TABLE}
_CRAFT = {"craft": False, "craft-words": True}  # with the words in the trees, instead of XX
NAMES = ("toy", *_CORPORA, *_CRAFT)
_LEAST_HELD_OUT = 500  # trees of craft
HELP = f"""usage: python -m minitf data NAME ...
Download corpora in advance, such as wmt14-en-de, into the folder that MINITF_DATA names, or else
into ~/.cache/minitf. A training command downloads its corpus itself if it is missing.
Names: {", ".join(NAMES)}."""


def load(name: str, say=print) -> Corpus:
    """Return the corpus of this name, downloading it first if it is missing.

    Its files are in `MINITF_DATA`, or else in the cache folder; `toy` is built in. The training
    text of WMT is too long for the memory: it is returned as Lines. Raises UserError for an unknown
    name, and for missing files that cannot be downloaded.
    """
    if name == "toy":
        from minitf.data import toy  # here, because only this corpus needs the grammar

        splits = {split: Pairs(*pairs) for split, pairs in toy.splits().items()}
        train, valid = splits.pop("train"), splits.pop("valid")
        return Corpus(name, "en", "de", train, valid, splits)
    if name in _CRAFT:
        return _load_craft(name, data_folder(), _CRAFT[name], say)
    if name not in _CORPORA:
        raise UserError(f"unknown corpus {name!r}: choose from {', '.join(NAMES)}")
    layout, data = _CORPORA[name], data_folder()
    _make_missing(map(os.path.dirname, (layout.train, layout.valid, layout.test)), data, say)
    train, valid = layout.files(layout.train, data), layout.files(layout.valid, data)
    tests = {layout.test_name: read_pairs(*layout.files(layout.test, data))}
    languages = layout.source_language, layout.target_language
    return Corpus(name, *languages, open_pairs(*train), read_pairs(*valid), tests)


def _make_missing(folders, data, say):
    if missing := [folder for folder in folders if not (data / folder).is_dir()]:
        downloads.make(missing, data, say)


def _load_craft(name, data, with_words, say):
    """Return biomedical articles and their trees: Table 4 of the paper on text that is free.

    Validated on articles that are held out of the training text, so `dev` decides nothing.
    """
    folder = data / "craft"
    _make_missing(("craft/train", "craft/dev"), data, say)
    train, valid = treebank.held_out(treebank.articles(folder / "train"), least=_LEAST_HELD_OUT)
    parts = train, valid, treebank.articles(folder / "dev")
    splits = [list(chain.from_iterable(articles)) for articles in parts]
    train, valid, dev = (Pairs(*treebank.as_pairs(trees, with_words)) for trees in splits)
    target = WITH_WORDS if with_words else "trees"
    symbols = tuple(treebank.symbols(splits[0], with_words))
    return Corpus(name, "en", target, train, valid, {"dev": dev}, tokenised=True, symbols=symbols)


def data_folder() -> Path:
    """Return the folder of the corpora: `MINITF_DATA`, else `minitf` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get("MINITF_DATA") or f"{cache}/minitf"
    try:
        folder = Path(named).expanduser()
        with contextlib.suppress(FileNotFoundError):
            os.stat(folder / "downloads")  # raises an error if nothing in it can be read
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "this home folder does not exist"
        raise UserError(
            f"{named}: cannot be read ({reason}): set MINITF_DATA to another folder"
        ) from None
    return folder


def read_lines(path) -> list[str]:
    """Return the lines of a file, split as by the class Lines.

    Raises UserError if the file cannot be read.
    """
    # list(Lines(path)) would ask for the length first, and so read the file twice.
    return list(iter(Lines(path)))


def decoding_warning(path, lines) -> str:
    """Return a warning if some of these lines of a file were not UTF-8, else an empty text.

    Raises UserError if the file is in another encoding.
    """
    damage, damaged = Damage(), []
    for number, line in enumerate(lines, 1):
        damage.see([line])
        if LOST.search(line):
            damaged.append(number)
    if damage.is_other_encoding():
        with _open_text(path) as file:
            raise UserError(refusal(path, file.read(MAX_IN_MEMORY), quote(str(path))))
    if not damaged:
        return ""
    count = "1 line has" if len(damaged) == 1 else f"{len(damaged):,} lines have"
    return f"{path}: {count} bytes that are not UTF-8, and are lost (the first: line {damaged[0]})"


def read_pairs(source_path, target_path, streamed=False) -> Pairs:
    """Return the pairs of two files: line i of one with line i of the other.

    streamed: as Lines, for a text that is too long for the memory. Raises UserError for different
    numbers of lines, and for a pipe to stream, which can be read only once.
    """
    paths = source_path, target_path
    for path in paths:
        # os.path.exists first: Path.is_fifo raises errors for names that are too long.
        if streamed and os.path.exists(path) and Path(path).is_fifo():
            raise UserError(f"{path} is a pipe, which can be read only once: name a file")
    pairs = Pairs(*map(Lines if streamed else read_lines, paths))
    if len(pairs.source) != len(pairs.target):
        for path, lines in zip(paths, pairs, strict=True):
            decoding_warning(path, lines)  # UTF-16 without its mark has other lines
        raise UserError(
            f"{source_path} has {amount(len(pairs.source), 'line')} but {target_path} has "
            f"{len(pairs.target):,}: line i of one must translate line i of the other"
        )
    return pairs


def open_pairs(source_path, target_path) -> Pairs:
    """Return the pairs of a training text, as Lines if it is too long for the memory."""
    paths = source_path, target_path
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return read_pairs(*paths, streamed=len(sizes) == 2 and sum(sizes) > MAX_IN_MEMORY)


def _open_text(path):
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder: name a text file")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            start = file.peek(8)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}): name an existing text file"
            ) from None
        if kind := not_text(start):
            raise UserError(f"{path} is {kind}: save it as plain text, in UTF-8")
        if mark := next(filter(start.startswith, BOMS), None):
            encoding = BOMS[mark].removesuffix("-le").removesuffix("-be")
            command = f"iconv -f {encoding} -t utf-8 {quote(str(path))} > NEW_FILE"
            raise UserError(f"{path} is in {encoding.upper()}: {command}")
        stack.pop_all()
    return file


def _scan(path):
    """Return the number of lines of a file and the sha256 of its content."""
    with _open_text(path) as file:
        status = os.fstat(file.fileno())
        return _scan_once(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _scan_once(path, size, changed):
    count, digest, chunk = 0, hashlib.sha256(), b""
    with _open_text(path) as file, Progress(f"bytes of {Path(path).name} read", size) as progress:
        while more := file.read(1 << 20):
            chunk = more
            digest.update(chunk)
            count += chunk.count(b"\n")
            progress.update_to(file.tell())
    unended = chunk[-1:] not in (b"", b"\n") and not (size == len(_BOM) and chunk == _BOM)
    return count + unended, digest.hexdigest()


def select(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int, max_ratio=MAX_RATIO
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the indices of the pairs to train on, and the number of pairs left out by each rule.

    source_lengths, target_lengths: ids of each side. empty: a side without ids. too long: a side of
    more than max_length ids. ratio: the longer side has more than max_ratio times the ids of the
    shorter one, and more than 10. A pair is counted for the first rule that it breaks.

    >>> kept, counts = select(np.array([1, 0, 30, 12]), np.array([4, 1, 30, 3]), max_length=20)
    >>> kept.tolist(), counts
    ([0], {'empty': 1, 'too long': 1, 'ratio': 1, 'kept': 1})
    """
    shorter = np.minimum(source_lengths, target_lengths)
    longer = np.maximum(source_lengths, target_lengths)
    empty = shorter == 0
    too_long = (longer > max_length) & ~empty
    ratio = (longer > np.maximum(max_ratio * shorter, RATIO_FLOOR)) & ~empty & ~too_long
    kept = np.flatnonzero(~(empty | too_long | ratio))
    rules = {"empty": empty, "too long": too_long, "ratio": ratio}
    counts = {name: int(broken.sum()) for name, broken in rules.items()}
    return kept, counts | {"kept": len(kept)}


def main(names) -> int:
    """Download the named corpora and print their sizes; return the exit code."""
    return exit_code("minitf data", lambda: _print_sizes(names))


def _print_sizes(names):
    if {"-h", "--help"} & set(names):
        print(HELP)
        return
    if not names:
        raise UserError(f"name a corpus: {', '.join(NAMES)}")
    for name in names:
        try:
            corpus = load(name)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command continues from here") from None
        texts = {"train": corpus.train, "valid": corpus.valid, **corpus.tests}
        counts = ", ".join(
            f"{text} {amount(len(pairs.source), 'pair')}" for text, pairs in texts.items()
        )
        folder = "built in" if name == "toy" else f"in {data_folder()}"
        print(f"{name}: {counts}; {folder}")
