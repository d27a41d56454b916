"""Training pairs on the disk: cut into subwords once, then mapped into memory, so that a pair
costs a few bytes.

The file: one line of JSON, filled up to 4,096 bytes; the ids of pair after pair, each source
before its target, so that a pair is read from one place; the lengths of all sources; the lengths
of all targets.
"""

import contextlib
import hashlib
import json
import mmap
import os
import time
from collections import Counter
from itertools import chain, islice

import numpy as np

from minitf.data import corpora
from minitf.errors import UserError
from minitf.terminal import Progress
from minitf.text import UNK
from minitf.text.batches import id_type

__all__ = ["Encoded", "encode_pairs"]

FORMAT = 1
_HEADER = 4096
_BLOCK = 20_000  # pairs that are cut into subwords at a time
_FORSAKEN = 3600  # seconds without a change after which an unfinished file belongs to nobody


class Encoded:
    """The pairs in a file that `encode_pairs` has made.

    ids: all of them, mapped. lengths: (2, pairs), of sources and targets. ends: (2, pairs), where
    each one ends in the ids. counts: pairs left out, by rule, and kept. unknown: how many ids are
    UNK. digest: a hash of the content. Pickled it is no more than its name: another process maps
    the same file. Raises UserError where there is none.
    """

    def __init__(self, path, facts):
        self.path, self.facts = path, facts
        self.counts, self.unknown, self.digest = facts["counts"], facts["unknown"], facts["content"]
        n_ids, n_pairs = facts["ids"], self.counts["kept"]
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}): all machines need the same data folder"
            ) from None
        # The pairs of a batch are scattered: reading ahead would be in vain.
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        self.ids = np.frombuffer(self._map, facts["type"], n_ids, _HEADER)
        stored = np.frombuffer(
            self._map, facts["length_type"], 2 * n_pairs, _HEADER + self.ids.nbytes
        )
        self.lengths = stored.reshape(2, n_pairs).copy()
        kind = np.uint32 if n_ids < 1 << 32 else np.int64
        self.ends = np.empty((2, n_pairs), kind)
        np.cumsum(self.lengths.sum(axis=0, dtype=kind), dtype=kind, out=self.ends[1])
        np.subtract(self.ends[1], self.lengths[1], out=self.ends[0])
        self.release()

    def __reduce__(self):
        return Encoded, (self.path, self.facts)

    def release(self):
        """Return the pages that were read to the system, which still has them at hand but may
        need the room.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def encode_pairs(name, pairs, added, subwords, max_length, log=print, threads=0):
    """Cut the pairs into subwords, leave out what `corpora.clean` says, and give them as Encoded.

    name: of the file. pairs: of Lines. added: Pairs that are held, to follow them. threads:
    see Subwords.encode. The file is a function of everything else, and its name has a hash
    of that, so that it is made once. One that is damaged is made again. Raises UserError if it
    cannot be written.
    """
    key = _key(pairs, added, subwords, max_length)
    path = corpora.encoded_folder() / f"{name}-{key[:16]}.ids"
    facts = None
    if path.exists():
        facts, reason = _check(path, key)
        log(f"encoded  {path} is {reason}: made again" if reason else f"encoded  {path} is there")
    if facts is None:
        started = time.monotonic()
        _forget_forsaken(path)
        try:
            facts = _make(path, key, pairs, added, subwords, max_length, log, threads)
        except OSError as error:
            raise UserError(
                f"{path} cannot be written ({error.strerror or error}): make room there"
            ) from None
        size, minutes = path.stat().st_size / 1e9, (time.monotonic() - started) / 60
        log(
            f"encoded  {path}, {size:.2f} GB in {minutes:.1f} minutes; delete it when no training "
            "needs it any more"
        )
    return Encoded(path, facts)


def _key(pairs, added, subwords, max_length):
    parts = [
        FORMAT,
        pairs.source.sha256(),
        pairs.target.sha256(),
        max_length,
        corpora.MAX_RATIO,
        corpora.RATIO_FLOOR,
    ]
    digest = hashlib.sha256(
        json.dumps(parts).encode() + type(subwords).__name__.encode() + subwords.content()
    )
    for line in chain(*added):
        digest.update(line.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()


def _check(path, key):
    """Return the facts of a file and "", or None and the fault of the file."""
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(_HEADER))
            facts = header["facts"]
            if header["sha256"] != _hash(facts) or facts["key"] != key:
                return None, "of another text or damaged"
            digest = hashlib.sha256()
            with Progress(f"bytes of {path.name} checked", path.stat().st_size) as progress:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
                    progress.to(file.tell())
    except (OSError, ValueError, KeyError, TypeError):
        return None, "damaged"
    return (facts, "") if digest.hexdigest() == facts["content"] else (None, "damaged")


def _hash(facts):
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _forget_forsaken(path):
    """Delete what killed processes have left.

    Another process may be making the same file: it writes all the time.
    """
    for aside in path.parent.glob(f"{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - aside.stat().st_mtime > _FORSAKEN:
                aside.unlink()


def _make(path, key, pairs, added, subwords, max_length, log, threads):
    """Write the file aside, and give it its name when it is complete."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    kind = id_type(len(subwords))
    # An end mark has to fit as well.
    length_kind = np.dtype(np.uint16 if max_length < (1 << 16) - 1 else np.uint32)
    lengths, counts, unknown, n_ids, digest = [], Counter(), 0, 0, hashlib.sha256()
    try:
        with open(aside, "wb") as file:
            file.write(b" " * _HEADER)
            for ids, block_lengths, block_counts in _blocks(
                pairs, added, subwords, max_length, kind, log, threads
            ):
                n_ids, unknown = n_ids + len(ids), unknown + int(np.count_nonzero(ids == UNK))
                counts.update(block_counts)
                lengths.append(block_lengths.astype(length_kind))
                digest.update(ids)
                file.write(ids)
            for side in range(2):
                for block in lengths:
                    digest.update(block[side])
                    file.write(block[side])
            facts = {
                "key": key,
                "content": digest.hexdigest(),
                "counts": dict(counts),
                "unknown": unknown,
            }
            facts |= {"ids": n_ids, "type": kind.str, "length_type": length_kind.str}
            header = json.dumps({"facts": facts, "sha256": _hash(facts)}).encode()
            file.seek(0)
            file.write(header.ljust(_HEADER - 1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return facts


def _blocks(pairs, added, subwords, max_length, kind, log, threads):
    """Yield (ids, lengths (2, pairs kept), counts by rule) for some pairs at a time."""
    rows = chain(zip(*pairs, strict=True), zip(*added, strict=True))
    done, total = 0, len(pairs.source) + len(added.source)
    with Progress("pairs cut into subwords", total, say=log) as progress:
        while block := list(islice(rows, _BLOCK)):
            # source, target, source, target, ...
            ids = subwords.encode(list(chain.from_iterable(block)), threads)
            lengths = np.array([len(each) for each in ids]).reshape(-1, 2).T
            kept, counts = corpora.clean_lengths(*lengths, max_length)
            flat = chain.from_iterable(chain(ids[2 * i], ids[2 * i + 1]) for i in kept.tolist())
            yield np.fromiter(flat, kind), np.ascontiguousarray(lengths[:, kept]), counts
            done += len(block)
            progress.to(done)
