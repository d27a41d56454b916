"""Training pairs on the disk: cut into subwords once, then mapped into memory.

A pair costs a few bytes of memory. The folder of a text contains three files:

    ids.bin      the ids of one pair after the other, each source before its target, so that a
                 pair is read from one place
    lengths.bin  the lengths of all sources, then those of all targets
    facts.json   the types of these numbers, the counts, and hashes
"""

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import time
from collections import Counter
from itertools import chain, islice

import numpy as np

from minitf.atomic import complete, filling
from minitf.cli import Progress
from minitf.data import corpora
from minitf.data.rows import encode_lines
from minitf.errors import UserError
from minitf.text import UNK
from minitf.text.batches import id_type

__all__ = ["Encoded", "encode_pairs"]

FORMAT = 2
IDS, LENGTHS, FACTS = "ids.bin", "lengths.bin", "facts.json"
_BLOCK = 20_000  # pairs that are cut into subwords at a time


class Encoded:
    """The pairs in a folder that `encode_pairs` has written.

    ids: all ids, mapped. lengths: (2, pairs), of sources and targets. ends: (2, pairs), the index
    in `ids` after the last id of each. counts: pairs left out by each rule, and kept. unknown: the
    number of ids that are UNK. digest: a hash of the content. It is pickled as its path: the
    receiving process checks and maps the same file. Raises UserError for a missing folder.
    """

    def __init__(self, folder, facts):
        self.folder, self.facts = folder, facts
        self.counts, self.unknown, self.digest = facts["counts"], facts["unknown"], facts["content"]
        try:
            self.ids = _mapped(folder / IDS, facts["type"])
            self.lengths = np.fromfile(folder / LENGTHS, facts["length_type"]).reshape(2, -1)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be read ({error.strerror}): all machines need the same data "
                "folder"
            ) from None
        dtype = np.uint32 if len(self.ids) < 1 << 32 else np.int64
        self.ends = np.empty(self.lengths.shape, dtype)
        np.cumsum(self.lengths.sum(axis=0, dtype=dtype), dtype=dtype, out=self.ends[1])
        np.subtract(self.ends[1], self.lengths[1], out=self.ends[0])

    def __reduce__(self):
        return _received, (self.folder, self.facts)

    def release(self):
        """Return the pages that were read to the system, which keeps them while there is room."""
        if hasattr(mmap, "MADV_DONTNEED") and len(self.ids):
            self.ids.base.madvise(mmap.MADV_DONTNEED)


def _received(folder, facts):
    """Return the Encoded of another process. Raises UserError if this machine has other files."""
    if folder.exists() and _facts(folder, facts["key"]) != facts:
        raise UserError(
            f"{folder} is damaged, or not that of rank 0: all machines need the same data folder"
        )
    return Encoded(folder, facts)


def _mapped(path, dtype):
    if not path.stat().st_size:
        return np.zeros(0, dtype)  # an empty file cannot be mapped
    ids = np.memmap(path, dtype, mode="r")
    if hasattr(mmap, "MADV_RANDOM"):  # the pairs of a batch are scattered: no reading ahead
        ids.base.madvise(mmap.MADV_RANDOM)
    return ids


def encode_pairs(name, pairs, subwords, max_length, log=print, threads=0):
    """Cut the pairs into subwords, leave out those that `corpora.clean` rejects; return Encoded.

    name: of the folder, together with a hash of all arguments, so that the same pairs are encoded
    once; a damaged folder is rebuilt. pairs: of Lines. threads: see Subwords.encode. Raises
    UserError if the folder cannot be written, and for a damaged one that cannot be removed.
    """
    key = _key(pairs, subwords, max_length)
    folder = corpora.encoded_folder() / f"{name}-{key[:16]}"
    facts = None
    if folder.exists():
        facts = _facts(folder, key)
        state = "exists already" if facts else "is damaged and will be rebuilt"
        log(f"encoded  {folder} {state}")
    if facts is None:
        started = time.monotonic()
        try:
            shutil.rmtree(folder, ignore_errors=True)
            facts = _make(folder, key, pairs, subwords, max_length, log, threads)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be written ({error.strerror or error}): free some space, or set "
                "MINITF_DATA to another folder"
            ) from None
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        minutes = (time.monotonic() - started) / 60
        log(
            f"encoded  {folder}, {size:.2f} GB in {minutes:.1f} minutes; delete it when no "
            "run needs it any more"
        )
    return Encoded(folder, facts)


def _key(pairs, subwords, max_length):
    """Return a hash of everything that the content of the folder depends on."""
    texts = [pairs.source.sha256(), pairs.target.sha256()]
    rules = [max_length, corpora.MAX_RATIO, corpora.RATIO_FLOOR]
    digest = hashlib.sha256(json.dumps([FORMAT, *texts, *rules]).encode())
    digest.update(type(subwords).__name__.encode() + b"".join(subwords.contents().values()))
    return digest.hexdigest()


def _facts(folder, key):
    """Return the facts of a folder, or None if it is damaged."""
    try:
        stored = json.loads((folder / FACTS).read_text())
        facts = stored["facts"]
        complete = stored["sha256"] == _hash(facts) and facts["key"] == key
        complete = complete and _content(folder) == facts["content"]
    except (OSError, ValueError, KeyError, TypeError):
        complete = False
    return facts if complete else None


def _hash(facts):
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _content(folder):
    """Return the sha256 of the ids and the lengths."""
    digest, paths = hashlib.sha256(), [folder / IDS, folder / LENGTHS]
    total, done = sum(path.stat().st_size for path in paths), 0
    with Progress(f"bytes of {folder.name} checked", total) as progress:
        for path in paths:
            with open(path, "rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
                    done += len(chunk)
                    progress.update_to(done)
    return digest.hexdigest()


def _make(folder, key, pairs, subwords, max_length, log, threads):
    """Write the files under another name, and rename their folder when it is complete."""
    dtype = id_type(len(subwords))
    # The length with the end mark has to fit.
    length_dtype = np.dtype(np.uint16 if max_length < (1 << 16) - 1 else np.uint32)
    lengths, counts, unknown, digest = [], Counter(), 0, hashlib.sha256()
    with filling(folder) as temporary:
        with _durable(temporary / IDS) as file:
            for ids, block_lengths, block_counts in _blocks(
                pairs, subwords, max_length, dtype, log, threads
            ):
                unknown += int(np.count_nonzero(ids == UNK))
                counts.update(block_counts)
                lengths.append(block_lengths.astype(length_dtype))
                digest.update(ids)
                file.write(ids)
        with _durable(temporary / LENGTHS) as file:
            for side in range(2):
                for block in lengths:
                    digest.update(block[side])
                    file.write(block[side])
        facts = {"key": key, "content": digest.hexdigest(), "counts": dict(counts)}
        facts |= {"unknown": unknown, "type": dtype.str, "length_type": length_dtype.str}
        with _durable(temporary / FACTS) as file:
            file.write(json.dumps({"facts": facts, "sha256": _hash(facts)}).encode())
        # Either another process has made the same folder meanwhile, or a damaged one could not be
        # removed: it belongs to another user.
        if not complete(temporary, folder) and _facts(folder, key) is None:
            raise UserError(
                f"{folder} is damaged and cannot be replaced: ask its owner to delete it, or set "
                "MINITF_DATA to another folder"
            )
    return facts


@contextlib.contextmanager
def _durable(path):
    """Open a file for writing; its content is on the disk when the block ends."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _blocks(pairs, subwords, max_length, dtype, log, threads):
    """Yield (ids, lengths (2, pairs kept), counts by rule) for a block of pairs at a time."""
    rows = zip(*pairs, strict=True)
    done = 0
    with Progress("pairs cut into subwords", len(pairs.source), say=log) as progress:
        while block := list(islice(rows, _BLOCK)):
            sides = zip(*block, strict=True)
            sources = encode_lines(subwords, next(sides), "source", threads)
            targets = encode_lines(subwords, next(sides), "target", threads)
            lengths = np.array([[len(ids) for ids in side] for side in (sources, targets)])
            kept, counts = corpora.clean_lengths(*lengths, max_length)
            flat = chain.from_iterable(chain(sources[i], targets[i]) for i in kept.tolist())
            yield np.fromiter(flat, dtype), np.ascontiguousarray(lengths[:, kept]), counts
            done += len(block)
            progress.update_to(done)
