"""Batches of sentence pairs: planned by the number of tokens, padded to one length."""

from __future__ import annotations  # numpy.random is loaded only where it is used

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from minitf.text.vocabulary import BOS, EOS, PAD


@dataclass
class Batch:
    """Padded ids of some pairs: the source, the decoder's input, and the tokens to predict.

    source: (B, S)   target_in: (B, T), begins with BOS   target_out: (B, T), ends with EOS
    All are int32, padded with PAD.
    first_row: the index of the first row in the batch that this one is a part of.
    """

    source: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray
    first_row: int = 0

    @property
    def n_tokens(self) -> int:
        """Return the number of target tokens to predict, end marks included."""
        return int(np.count_nonzero(self.target_out != PAD))

    def rows(self, start: int, stop: int) -> Batch:
        """Return rows start to stop, padded to the width of the whole batch.

        `first_row` makes their dropout masks those of the whole batch.
        """
        rows, first = slice(start, stop), self.first_row + start
        return Batch(self.source[rows], self.target_in[rows], self.target_out[rows], first)


def make_batch(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocabulary_size: int
) -> Batch:
    """Pad lists of ids to a batch, with EOS after each row, and BOS before each decoder input.

    Raises ValueError for an id outside the vocabulary, and for different numbers of sources and
    targets.

    >>> batch = make_batch([[7, 8], [9]], [[5], [6, 4]], vocabulary_size=10)
    >>> batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist(), batch.n_tokens
    ([[7, 8, 3], [9, 3, 0]], [[2, 5, 0], [2, 6, 4]], [[5, 3, 0], [6, 4, 3]], 5)
    """
    if len(sources) != len(targets):
        rows = f"{len(sources)} rows of source, but {len(targets)} of target"
        raise ValueError(f"{rows}: give one target for each source")
    return batch_of(_concatenate(sources), _concatenate(targets), vocabulary_size)


def batch_of(
    sources: tuple[np.ndarray, np.ndarray],
    targets: tuple[np.ndarray, np.ndarray],
    vocabulary_size: int,
) -> Batch:
    """Pad rows to a batch as `make_batch` does; a side is (ids of all rows, length of each row)."""
    return Batch(
        _pad(*sources, vocabulary_size, last=EOS),
        _pad(*targets, vocabulary_size, first=BOS),
        _pad(*targets, vocabulary_size, last=EOS),
    )


def pad_rows(
    id_lists: Sequence[Sequence[int]],
    vocabulary_size: int,
    first: int | None = None,
    last: int | None = None,
) -> np.ndarray:
    """Return lists of ids as one int32 array (B, longest), padded with PAD.

    first, last: ids to put before and after each list. Raises ValueError for an id outside
    1 .. vocabulary_size - 1: CuPy would wrap it silently, and PAD inside a row would mask it.

    >>> pad_rows([[7], [8, 9]], 10, last=EOS).tolist()
    [[7, 3, 0], [8, 9, 3]]
    """
    return _pad(*_concatenate(id_lists), vocabulary_size, first, last)


def _concatenate(id_lists):
    """Return the ids of all lists in one array, and the length of each list."""
    lengths = np.array([len(ids) for ids in id_lists], np.int64)
    return np.fromiter(chain.from_iterable(id_lists), np.int64, lengths.sum()), lengths


def _pad(ids, lengths, vocabulary_size, first=None, last=None):
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
    """Group pairs of about equal length, so that batches contain little padding.

        rows * longest source <= batch_tokens   and   rows * longest target <= batch_tokens

    source_lengths, target_lengths: end marks included. rng: draws the order of pairs of equal
    lengths and the order of the batches. Return arrays of indices, each index once; a pair that
    exceeds the budget makes a batch by itself.
    Planning needs about 30 bytes a pair while it runs, and 4 for the plan: 1 GB for 36 million
    pairs.
    Source: section 5.1.

    >>> plan = plan_batches([3, 9, 3, 40], [4, 8, 2, 9], 20, np.random.default_rng(0))
    >>> sorted(batch.tolist() for batch in plan)
    [[1], [2, 0], [3]]
    """
    source_lengths, target_lengths = np.asarray(source_lengths), np.asarray(target_lengths)
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
    """Return an order in which neighbours have about equal lengths on both sides.

    Pairs are sorted by target length; among equal targets by source length, ascending and
    descending in turn, so that neighbours differ little. This fills batches of sentences 2% better
    than sorting by the longer side. The types are small because there may be 36 million pairs, and
    NumPy sorts keys of two bytes three times as fast.
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
    """Return the smaller dtype, uint16 or int32, that holds every id of the vocabulary."""
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32)
