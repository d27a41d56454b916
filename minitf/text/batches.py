"""Batches of sentence pairs: planned by the number of tokens, padded to one length."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from minitf.text.vocabulary import BOS, EOS, PAD

__all__ = ["Batch", "id_type", "make_batch", "pad_rows", "plan_batches"]


@dataclass
class Batch:
    """Padded ids of some pairs: the source, the target as the decoder reads it, the target
    it should write.

    source: (B, S)   target_in: (B, T), from BOS   target_out: (B, T), to EOS
    All are int32, filled up with PAD.
    first_row: where this batch's rows begin in the batch it was cut from.
    """

    source: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray
    first_row: int = 0

    @property
    def n_tokens(self) -> int:
        """Return the number of target tokens to predict, end marks included."""
        return int(np.count_nonzero(self.target_out != PAD))

    def rows(self, start: int, stop: int) -> "Batch":
        """Return rows start to stop at the width of the batch: dropout, drawn by row, is
        that of the batch.
        """
        cut = slice(start, stop)
        return Batch(
            self.source[cut], self.target_in[cut], self.target_out[cut], self.first_row + start
        )


def make_batch(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocabulary_size: int
) -> Batch:
    """Pad lists of ids to a batch, with BOS and EOS around the targets.

    Raises ValueError for an id that is not in a vocabulary of this size, and for unequal numbers of
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


def pad_rows(
    id_lists: Sequence[Sequence[int]],
    vocabulary_size: int,
    first: int | None = None,
    last: int | None = None,
) -> np.ndarray:
    """Return lists of ids as one int32 array (B, longest), filled up with PAD; `first` and `last`
    go around each.

    Raises ValueError for an id outside 1 .. vocabulary_size - 1: CuPy would wrap it silently, and
    PAD inside a line would hide it.

    >>> pad_rows([[7], [8, 9]], 10, last=EOS).tolist()
    [[7, 3, 0], [8, 9, 3]]
    """
    lengths = np.array([len(ids) for ids in id_lists], np.int64)
    ids = np.fromiter(chain.from_iterable(id_lists), np.int64, lengths.sum())
    if ids.size and not (ids.min() > PAD and ids.max() < vocabulary_size):
        wrong = ids[(ids <= PAD) | (ids >= vocabulary_size)][0]
        raise ValueError(
            f"id {wrong} is not in a vocabulary of {vocabulary_size} (1 to {vocabulary_size - 1})"
        )
    before, after = int(first is not None), int(last is not None)
    padded = np.full((len(lengths), lengths.max(initial=0) + before + after), PAD, np.int32)
    column = np.arange(padded.shape[1]) - before
    padded[(column >= 0) & (column < lengths[:, None])] = ids
    if before:
        padded[:, 0] = first
    if after:
        padded[np.arange(len(lengths)), lengths + before] = last
    return padded


def plan_batches(
    source_lengths: Sequence[int] | np.ndarray,
    target_lengths: Sequence[int] | np.ndarray,
    batch_tokens: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Put pairs of about the same length together, so that a batch is full of tokens and
    not of padding.

        rows * longest source <= batch_tokens   and   rows * longest target <= batch_tokens

    source_lengths, target_lengths: end marks included. rng: a numpy Generator; it draws the order
    among pairs of equal lengths and the order of the batches. Returns arrays of indices, each index
    once; a pair that is over the budget has a batch of its own.
    Planning takes about 30 bytes a pair for as long as it lasts, and 4 for the plan:
    of 36 million pairs 1 GB.
    Source: section 5.1.

    >>> plan = plan_batches([3, 9, 3, 40], [4, 8, 2, 9], 20, np.random.default_rng(0))
    >>> sorted(batch.tolist() for batch in plan)
    [[1], [2, 0], [3]]
    """
    source_lengths, target_lengths = np.asarray(source_lengths), np.asarray(target_lengths)
    if source_lengths.shape != target_lengths.shape or source_lengths.ndim != 1:
        raise ValueError(
            f"{source_lengths.shape} source lengths but {target_lengths.shape} target lengths"
        )
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
    """Return the order in which neighbours have about the same lengths on both sides.

    By target, and by source where targets are equal: up and down in turn, so that no step between
    two rows is large. On sentences this fills 2% more of a batch than sorting by the longer of the
    two. Small types, because there may be 36 million pairs; keys of two bytes NumPy sorts three
    times as fast.
    """
    size = int(source_lengths.max()) + 1
    kind = np.min_scalar_type((int(target_lengths.max()) + 1) * size)
    source, target = source_lengths.astype(kind), target_lengths.astype(kind)
    key = target * kind.type(size) + np.where(target % 2, source, kind.type(size - 1) - source)
    del source, target
    ties = np.arange(len(key), dtype=np.int32 if len(key) < 1 << 31 else np.int64)
    rng.shuffle(ties)
    return ties[np.argsort(key[ties], kind="stable")]


def id_type(vocabulary_size: int) -> np.dtype:
    """Return the smallest type of number that holds every id of a vocabulary, for
    keeping much text.
    """
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)
