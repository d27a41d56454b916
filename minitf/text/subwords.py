"""Text to ids and back: subwords, words, and batches by token count. Plain NumPy, no Tensor.

A line is cut into pieces (section 5.1 of the paper: byte-pair encoding, one vocabulary for both languages),
and pairs of about the same length share a batch that holds a given number of tokens.
"""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from minitf.errors import UserError, in_file

__all__ = ["Batch", "Subwords", "Words", "load_subwords", "make_batch", "plan_batches"]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
TRAINING_LINES = 2_000_000  # more of them change the pieces no more, only the time and memory it takes

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_CONTROL = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ASCII_BYTE = re.compile("^<0x((?!7F)[2-7][0-9A-F])>$")


def valid(line):
    """A line that can be written as UTF-8: every lone surrogate becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", line)


def printable(text):
    """Text without control characters: those that separate words become a blank, the others vanish."""
    return _CONTROL.sub("", _SPACE_CONTROL.sub(" ", text))


def join_cuts(line):
    """A line whose words were cut, each cut marked by `@@`, with whole words.

    >>> join_cuts("klei@@ nes haus")
    'kleines haus'
    """
    return re.sub("@@( |$)", "", line)


class Subwords:
    """Joint byte-pair encoding by SentencePiece; what it has never seen is spelled in bytes.

    The text is not normalised and blanks are kept: `decode(encode(lines)) == lines`, but for control
    characters, which decode never puts out, and for U+2581, SentencePiece's own sign for a blank.
    Source: Sennrich et al. 2016; Kudo and Richardson 2018.

    >>> subwords = Subwords.train(["the cat sat", "the hat"], 280, log=lambda notice: None)
    >>> subwords.decode(subwords.encode(["  the cat \N{CAT FACE}", ""]))
    ['  the cat \N{CAT FACE}', '']
    """

    file_name = "subwords.model"

    def __init__(self, model: bytes):
        """model: the content of a SentencePiece file. Raises UserError if it is none of ours."""
        self.model = model
        try:
            self._processor = _sentencepiece().SentencePieceProcessor(model_proto=model)
            names = self._processor.id_to_piece(list(range(len(SPECIALS))))
        except (RuntimeError, IndexError, UnicodeDecodeError):  # the last where its complaint quotes the damage
            names = []
        if names != list(SPECIALS):
            raise UserError("no SentencePiece model with <pad> <unk> <s> </s> as ids 0 to 3: copy the file again")

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int, log: Callable[[str], object] = print) -> "Subwords":
        """Learn pieces from lines of all languages together; the same lines give the same pieces.

        Of two million lines or more every second is taken, of four or more every third, and so on: 37,000 pieces
        from two million lines of 220 characters take 1.9 GB of memory. What can say its length and be read several
        times is not held. A size that the text is too small for is lowered, with a notice through `log`.
        Raises UserError if there is no text, or if the size is too small for its characters.
        """
        lines = lines if hasattr(lines, "__len__") else list(lines)
        stride = len(lines) // TRAINING_LINES + 1  # SentencePiece's own sampling may change from run to run

        def sample():  # read anew each time, for SentencePiece keeps a copy of its own
            return map(valid, islice(lines, 0, None, stride))

        if not any(line.strip() for line in sample()):
            raise UserError("no text to learn subwords from: the training lines are empty")
        try:
            return cls(_train(sample(), vocabulary_size))
        except RuntimeError as error:
            smaller = re.search(r"value <= (\d+)", str(error))
            larger = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if smaller:
            log(f"subwords: {vocabulary_size} are too many for this text, {smaller[1]} are used")
            return cls(_train(sample(), int(smaller[1])))
        if larger:
            raise UserError(f"a vocabulary of {vocabulary_size} is too small here: ask for more than {larger[1]}")
        raise UserError(f"no vocabulary of {vocabulary_size} can be learnt from this text: try another size")

    @classmethod
    def load(cls, path: str | Path) -> "Subwords":
        """Read what `save` wrote. Raises UserError for a missing or damaged file."""
        with in_file(path):
            return cls(_read(path))

    def save(self, path: str | Path) -> None:
        """Write the SentencePiece file whole or not at all."""
        _write(path, self.content())

    def content(self) -> bytes:
        """What the file holds."""
        return self.model

    def __len__(self):
        return self._processor.get_piece_size()

    def encode(self, lines: Iterable[str], threads: int = 0) -> list[list[int]]:
        """The piece ids of each line, without special ids. Any string will do.

        threads: how many share the lines inside SentencePiece, 0 for one on each core: on two cores twice as fast.
        """
        return self._processor.encode([valid(line) for line in lines], num_threads=threads or -1)

    def decode(self, id_lists: Iterable[Iterable[int]]) -> list[str]:
        """The text of each list of ids; special ids are skipped, bytes that are no UTF-8 become U+FFFD.

        Raises ValueError for an id out of range.
        """
        texts = self._processor.decode([_ordinary(ids, len(self)) for ids in id_lists])
        return [printable(text) for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece behind each id, for tables and plots; U+2581 stands for a blank."""
        names = self._processor.id_to_piece(_checked(ids, len(self)))
        names = [_ASCII_BYTE.sub(lambda byte: chr(int(byte[1], 16)), name) for name in names]
        return [printable(name) or repr(name) for name in names]


class Words:
    """The same for text that is already cut: a token between blanks is a piece, `@@` marks a cut in a word.

    >>> words = Words.train(["ein klei@@ nes haus", "ein haus"])
    >>> words.encode(["ein haus klei@@ nes", "kein haus"])
    [[4, 5, 6, 7], [1, 5]]
    >>> words.decode([[4, 6, 7, 5, 3]])
    ['ein kleines haus']
    """

    file_name = "words.txt"

    def __init__(self, words: Iterable[str]):
        """words: those of ids 4, 5, ... Raises UserError for one that is there twice, empty or has blanks."""
        self.words = [*SPECIALS, *words]
        self._ids = {word: i for i, word in enumerate(self.words) if i >= len(SPECIALS)}
        if len(self._ids) != len(self.words) - len(SPECIALS) or any(word.split() != [word] for word in self._ids):
            raise UserError("not a word list: every line must hold one word, and each word once")

    @classmethod
    def train(
        cls, lines: Iterable[str], vocabulary_size: int | None = None, log: Callable[[str], object] = print
    ) -> "Words":
        """Take the most frequent tokens, ties alphabetical; all of them if no size is given.

        vocabulary_size: special ids included. Raises UserError if there is no text.
        """
        counts = Counter(chain.from_iterable(valid(line).split() for line in lines))
        if not counts:
            raise UserError("no text to collect words from: the training lines are empty")
        words = sorted(counts, key=lambda word: (-counts[word], word))
        size = len(words) + len(SPECIALS)
        if vocabulary_size and vocabulary_size > size:
            log(f"words: {vocabulary_size} are too many for this text, {size} are used")
        if vocabulary_size and vocabulary_size <= len(SPECIALS):
            raise UserError(f"a vocabulary of {vocabulary_size} is too small: ask for more than {len(SPECIALS)}")
        return cls(words[: vocabulary_size - len(SPECIALS)] if vocabulary_size else words)

    @classmethod
    def load(cls, path: str | Path) -> "Words":
        """Read what `save` wrote. Raises UserError for a missing or damaged file."""
        try:
            with in_file(path):
                return cls(_read(path).decode("utf-8").removesuffix("\n").split("\n"))
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8: copy the file again") from None

    def save(self, path: str | Path) -> None:
        """Write one word a line, whole or not at all."""
        _write(path, self.content())

    def content(self) -> bytes:
        """What the file holds."""
        return "".join(f"{word}\n" for word in self.words[len(SPECIALS) :]).encode()

    def __len__(self):
        return len(self.words)

    def encode(self, lines: Iterable[str], threads: int = 0) -> list[list[int]]:
        """The ids of each line's tokens; what the list does not have is UNK. It takes one thread."""
        return [[self._ids.get(word, UNK) for word in valid(line).split()] for line in lines]

    def decode(self, id_lists: Iterable[Iterable[int]]) -> list[str]:
        """The words of each list of ids, cuts joined, special ids skipped. Raises ValueError out of range."""
        lines = (" ".join(self.words[i] for i in _ordinary(ids, len(self))) for ids in id_lists)
        return [printable(join_cuts(line)) for line in lines]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The token behind each id."""
        return [self.words[i] for i in _checked(ids, len(self))]


def load_subwords(directory: str | Path) -> Subwords | Words:
    """Read the subwords or the words that a model's folder holds. Raises UserError if it holds neither."""
    for kind in (Subwords, Words):
        path = Path(directory) / kind.file_name
        if path.exists():
            return kind.load(path)
    raise UserError(
        f"{directory}: neither {Subwords.file_name} nor {Words.file_name} is there: is this a model's folder?"
    )


def id_type(vocabulary_size):
    """The smallest type of number that holds every id of a vocabulary, for keeping much text."""
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)


def plan_batches(
    source_lengths: Sequence[int] | np.ndarray,
    target_lengths: Sequence[int] | np.ndarray,
    batch_tokens: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Put pairs of about the same length together, so that a batch is full of tokens and not of padding.

        rows * longest source <= batch_tokens   and   rows * longest target <= batch_tokens

    source_lengths, target_lengths: end marks included. rng: a numpy Generator; it draws the order among pairs
    of equal lengths and the order of the batches. Gives arrays of indices, each index once; a pair that is
    over the budget is alone.
    Planning takes about 30 bytes a pair for as long as it lasts, and 4 for the plan: of 36 million pairs 1 GB.
    Source: section 5.1.

    >>> plan = plan_batches([3, 9, 3, 40], [4, 8, 2, 9], 20, np.random.default_rng(0))
    >>> sorted(batch.tolist() for batch in plan)
    [[1], [2, 0], [3]]
    """
    source_lengths, target_lengths = np.asarray(source_lengths), np.asarray(target_lengths)
    if source_lengths.shape != target_lengths.shape or source_lengths.ndim != 1:
        raise ValueError(f"{source_lengths.shape} source lengths but {target_lengths.shape} target lengths")
    if not len(source_lengths):
        return []
    order = _by_length(source_lengths, target_lengths, rng)
    longest = np.maximum(source_lengths, target_lengths)[order]

    batches, start = [], 0
    while start < len(order):
        ahead = longest[start : start + batch_tokens // max(int(longest[start]), 1)]
        tokens = np.arange(1, len(ahead) + 1) * np.maximum.accumulate(ahead)
        rows = max(int(np.searchsorted(tokens, batch_tokens, side="right")), 1)
        batches.append(order[start : start + rows])
        start += rows
    return [batches[i] for i in rng.permutation(len(batches))]


def _by_length(source_lengths, target_lengths, rng):
    """The order in which each pair stands beside others of about its lengths on both sides.

    By target, and by source where targets are equal: up and down in turn, so that no step between two rows is large.
    On sentences this fills 2% more of a batch than sorting by the longer of the two. Small types, because there may
    be 36 million pairs; keys of two bytes NumPy sorts three times as fast.
    """
    size = int(source_lengths.max()) + 1
    kind = np.min_scalar_type((int(target_lengths.max()) + 1) * size)
    source, target = source_lengths.astype(kind), target_lengths.astype(kind)
    key = target * kind.type(size) + np.where(target % 2, source, kind.type(size - 1) - source)
    del source, target
    ties = np.arange(len(key), dtype=np.int32 if len(key) < 1 << 31 else np.int64)
    rng.shuffle(ties)
    return ties[np.argsort(key[ties], kind="stable")]


@dataclass
class Batch:
    """Padded ids of some pairs: what is read, what is written so far, and what should be written next.

    source: (B, S)   target_in: (B, T), from BOS   target_out: (B, T), to EOS; all int32, filled up with PAD.
    first_row: where this batch's rows begin in the batch it was cut from.
    """

    source: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray
    first_row: int = 0

    @property
    def n_tokens(self) -> int:
        """How many target tokens there are to predict, end marks included."""
        return int(np.count_nonzero(self.target_out != PAD))

    def rows(self, start: int, stop: int) -> "Batch":
        """Rows start to stop, as wide as they were: dropout drawn by row is that of the whole batch."""
        cut = slice(start, stop)
        return Batch(self.source[cut], self.target_in[cut], self.target_out[cut], self.first_row + start)


def make_batch(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocabulary_size: int) -> Batch:
    """Pad lists of ids to a batch; BOS and EOS are added here.

    Raises ValueError for an id that is no piece of a vocabulary of this size, and for unequal numbers of
    sources and targets.

    >>> batch = make_batch([[7, 8], [9]], [[5], [6, 4]], vocabulary_size=10)
    >>> batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist(), batch.n_tokens
    ([[7, 8, 3], [9, 3, 0]], [[2, 5, 0], [2, 6, 4]], [[5, 3, 0], [6, 4, 3]], 5)
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources but {len(targets)} targets")
    target_in = pad_rows(targets, vocabulary_size, first=BOS)
    target_out = pad_rows(targets, vocabulary_size, last=EOS)
    return Batch(pad_rows(sources, vocabulary_size, last=EOS), target_in, target_out)


def pad_rows(id_lists, vocabulary_size: int, first: int | None = None, last: int | None = None) -> np.ndarray:
    """Lists of ids as one int32 array (B, longest), filled up with PAD; `first` and `last` go around each.

    Raises ValueError for an id outside 1 .. vocabulary_size - 1: CuPy would wrap it silently, and PAD inside
    a line would hide it.

    >>> pad_rows([[7], [8, 9]], 10, last=EOS).tolist()
    [[7, 3, 0], [8, 9, 3]]
    """
    lengths = np.array([len(ids) for ids in id_lists], np.int64)
    ids = np.fromiter(chain.from_iterable(id_lists), np.int64, lengths.sum())
    if ids.size and not (ids.min() > PAD and ids.max() < vocabulary_size):
        wrong = ids[(ids <= PAD) | (ids >= vocabulary_size)][0]
        raise ValueError(f"id {wrong} is no piece of a vocabulary of {vocabulary_size} (1 to {vocabulary_size - 1})")
    before, after = int(first is not None), int(last is not None)
    padded = np.full((len(lengths), lengths.max(initial=0) + before + after), PAD, np.int32)
    column = np.arange(padded.shape[1]) - before
    padded[(column >= 0) & (column < lengths[:, None])] = ids
    if before:
        padded[:, 0] = first
    if after:
        padded[np.arange(len(lengths)), lengths + before] = last
    return padded


def _sentencepiece():
    import sentencepiece  # lazily: time that `import minitf` need not take

    sentencepiece.set_min_log_level(3)  # its complaints reach the user as our one line
    return sentencepiece


def _train(lines, vocabulary_size):
    model = io.BytesIO()
    _sentencepiece().SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type="bpe",
        vocab_size=vocabulary_size,
        character_coverage=0.9995,
        byte_fallback=True,
        max_sentence_length=100_000,  # bytes; longer lines are passed over
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
    )
    return model.getvalue()


def _checked(ids, size):
    ids = [int(i) for i in ids]
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(i for i in ids if not 0 <= i < size)
        raise ValueError(f"id {wrong} is not in a vocabulary of {size}")
    return ids


def _ordinary(ids, size):
    return [i for i in _checked(ids, size) if i >= len(SPECIALS)]


def _read(path):
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}): name an existing file") from None


def _write(path, content):
    aside = Path(f"{path}.tmp")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
