"""The ids of all lines of a text, in one flat array: in memory, or in a file.

A text that is too long for the memory is split into subwords once; then its ids are mapped, and a
pair costs a few bytes of memory. The folder of such a text contains

    ids.bin       the ids of one pair after the other, each source before its target, so that a
                  pair is read from one place
    lengths.npy   (2, pairs), the lengths of sources and targets
    counts.json   how many pairs were kept, and left out by each rule; how many ids are UNK
"""

import hashlib
import json
import os
from collections import Counter
from itertools import chain, islice

import numpy as np

from minitf.atomic import atomic_folder
from minitf.cli import Progress
from minitf.data import corpora
from minitf.errors import UserError
from minitf.text import UNK
from minitf.text.batches import id_type

_BLOCK = 20_000  # lines that are encoded at a time
_FORMAT = 3


def encode_lines(subwords, lines, side):
    """Return the ids of each line; a line of spaces has none, though SentencePiece has subwords."""
    return subwords.encode([line if line.strip() else "" for line in lines], side=side)


class Rows:
    """Rows of ids in one flat array: two bytes an id, where Python's lists take 36.

    WMT has half a billion ids.

    ids: an array or a mapped file. lengths: of each row. ends: the index in `ids` after each row.

    >>> rows = Rows(np.array([5, 6, 7], np.uint16), np.array([2, 0, 1]), np.array([2, 2, 3]))
    >>> len(rows), [ids.tolist() for ids in rows], rows[2].tolist()
    (3, [[5, 6], [], [7]], [7])
    """

    def __init__(self, ids, lengths, ends):
        self.ids, self.lengths, self.ends = ids, lengths, ends

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        end = self.ends[row]
        return self.ids[end - self.lengths[row] : end]

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def flat(self, rows):
        """Return the ids of these rows in one array, and the length of each row."""
        lengths = self.lengths[rows].astype(np.int64)
        # from the index of an id in the result to its index in self.ids
        shifts = self.ends[rows] - np.cumsum(lengths)
        return self.ids[np.arange(lengths.sum()) + np.repeat(shifts, lengths)], lengths


class EncodedPairs:
    """Pairs as ids: in memory, or in a folder that `encode_pairs` has written.

    ids: of one pair after the other, each source before its target. lengths: (2, pairs). counts:
    pairs left out by each rule, and kept. unknown: the number of ids that are UNK. folder: that of
    the file to which `ids` is mapped. It is pickled as the path of the folder: the receiving
    process maps the same file.
    sources, targets: Rows.
    """

    def __init__(self, ids, lengths, counts, unknown, folder=None):
        self.ids, self.counts, self.unknown, self.folder = ids, counts, unknown, folder
        kind = np.uint32 if len(ids) < 1 << 32 else np.int64
        ends = np.cumsum(lengths.sum(axis=0, dtype=kind), dtype=kind)
        self.sources = Rows(ids, lengths[0], ends - lengths[1])
        self.targets = Rows(ids, lengths[1], ends)

    @classmethod
    def load(cls, folder, dtype):
        """Map the pairs of a folder. Raises UserError if it is missing or incomplete."""
        try:
            facts = json.loads((folder / "counts.json").read_text())
            lengths = np.load(folder / "lengths.npy")
            path = folder / "ids.bin"  # an empty file cannot be mapped
            ids = np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
            if len(ids) != lengths.sum(dtype=np.int64):
                raise ValueError("ids.bin is too short or too long")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"{folder} cannot be read ({reason}): delete it, and it is made again; all "
                "machines need the same data folder"
            ) from None
        return cls(ids, lengths, facts["counts"], facts["unknown"], folder)

    def __reduce__(self):
        mapped = EncodedPairs.load, (self.folder, self.ids.dtype)
        return mapped if self.folder else super().__reduce__()

    def flat(self, rows):
        """Return `Rows.flat` of both sides of these pairs."""
        return self.sources.flat(rows), self.targets.flat(rows)

    def fingerprint(self):
        """Return a hash of all pairs: an exact resume needs the same ones."""
        if self.folder:
            return self.folder.name.rpartition("-")[2]
        digest = hashlib.sha256()
        for side in (self.sources, self.targets):
            ids, lengths = side.flat(np.arange(len(side)))
            digest.update(ids.astype("<i4").tobytes() + lengths.astype("<i8").tobytes())
        return digest.hexdigest()


def encode_pairs(name, pairs, subwords, max_length, log=print):
    """Split the pairs into subwords, leave out those that `corpora.select` rejects.

    name: of the folder, together with a hash of all arguments, so that the same pairs are encoded
    once. pairs: of Lines. Raises UserError if the folder cannot be written.
    """
    key = _key(pairs, subwords, max_length)[:16]
    folder = corpora.data_folder() / "encoded" / f"{name}-{key}"
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            _write(temporary, pairs, subwords, max_length)
    log(f"encoded  {folder}: delete it when no run needs it any more")
    return EncodedPairs.load(folder, id_type(len(subwords)))


def _key(pairs, subwords, max_length):
    """Return a hash of everything that the content of the folder depends on."""
    texts = [pairs.source.sha256(), pairs.target.sha256()]
    rules = [max_length, corpora.MAX_RATIO, corpora.RATIO_FLOOR]
    digest = hashlib.sha256(json.dumps([_FORMAT, *texts, *rules]).encode())
    digest.update(type(subwords).__name__.encode() + b"".join(subwords.contents().values()))
    return digest.hexdigest()


def _write(folder, pairs, subwords, max_length):
    with open(folder / "ids.bin", "wb") as file:
        lengths, counts, unknown = _encode(pairs, subwords, max_length, file.write)
        file.flush()
        os.fsync(file.fileno())
    np.save(folder / "lengths.npy", lengths)
    (folder / "counts.json").write_text(json.dumps({"counts": counts, "unknown": unknown}))


def in_memory(pairs, subwords, max_length):
    """Return the EncodedPairs of a text that fits into the memory."""
    blocks = []
    lengths, counts, unknown = _encode(pairs, subwords, max_length, blocks.append)
    return EncodedPairs(np.concatenate(blocks), lengths, counts, unknown)


def _encode(pairs, subwords, max_length, keep):
    """Call `keep` with the ids of a block of pairs after the other.

    Return their lengths (2, n), how many pairs were kept and left out, and how many ids are UNK.
    """
    # The length with the end mark has to fit.
    dtype = np.uint16 if max_length < (1 << 16) - 1 else np.uint32
    rows, done = zip(*pairs, strict=True), 0
    lengths, counts, unknown = [np.zeros((2, 0), dtype)], Counter(), 0
    with Progress("pairs split into subwords", len(pairs.source)) as progress:
        while block := list(islice(rows, _BLOCK)):
            texts = zip(*block, strict=True)
            sources = encode_lines(subwords, next(texts), "source")
            targets = encode_lines(subwords, next(texts), "target")
            of_block = np.array([[len(ids) for ids in side] for side in (sources, targets)])
            kept, counts_of_block = corpora.select(*of_block, max_length)
            flat = chain.from_iterable(chain(sources[i], targets[i]) for i in kept.tolist())
            ids = np.fromiter(flat, id_type(len(subwords)))
            keep(ids)
            unknown += int(np.count_nonzero(ids == UNK))
            counts.update(counts_of_block)
            lengths.append(np.ascontiguousarray(of_block[:, kept], dtype))
            done += len(block)
            progress.update_to(done)
    return np.concatenate(lengths, axis=1), counts, unknown
