"""Faster decoding: the cache that the beams of a sentence share, and few next tokens to compare.

Both also serve minitf/gpu.

Letters: B sentences, W texts of each, R = B * W texts, n tokens in the cache of a sentence,
H heads, K d_k or d_v.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp
from minitf.forms import form_of

_CACHED = 1 << 17  # logits whose exponentials fit the processor's cache
_GROW_BY = 8  # tokens of each beam by which the caches grow
_BLOCK = 32  # scores in a block of continuations


class Layout:
    """The map from the tokens of the beams to the indices of the shared caches.

    A token stays at its cache index when its beam ends or continues as two, so nothing is copied
    from step to step, except when the caches grow.
    own: whether the token at a cache index belongs to a beam, bool (B, W, capacity).
    length, capacity: the number of cache indices in use, and of all cache indices.
    """

    def __init__(self, sentences, width):
        self.width, self.length, self.capacity = width, 0, 0
        self.own = np.zeros((sentences, width, 0), dtype=bool)
        self.newest = np.eye(width, dtype=bool)

    def add_newest(self):
        """Give the newest token of each beam the next cache index."""
        start, self.length = self.length, self.length + self.width
        self.own[:, :, start : self.length] = self.newest

    def grow(self):
        """Drop the tokens that no beam contains any more, and make space for new ones.

        Return the cache indices (B, n) of the tokens that are kept, which move to the front.
        """
        needed = self.own.any(axis=1)  # (B, capacity)
        self.length = int(needed.sum(axis=1).max(initial=0))
        needed_first = np.argsort(~needed, axis=1, kind="stable")  # in their order
        kept = needed_first[:, : self.length]
        self.capacity = self.length + _GROW_BY * self.width
        own = np.take_along_axis(self.own, kept[:, None], axis=2)
        self.own = np.pad(own, ((0, 0), (0, 0), (0, self.capacity - self.length)))
        return kept

    def moved(self, array, kept):
        """Return the tokens of a cache (B, H, n, K) at the indices `kept`, in a larger array."""
        sentences, heads, _, size = array.shape
        index = np.arange(sentences)[:, None, None], np.arange(heads)[:, None], kept[:, None]
        larger = xp.empty((sentences, heads, self.capacity, size), dtype=array.dtype)
        larger[:, :, : kept.shape[1]] = array[tuple(map(to_device, index))]
        return larger

    def select(self, rows):
        """Keep these rows of the texts; of each sentence all or none."""
        self.own = self.own.reshape(-1, self.capacity)[rows].reshape(-1, self.width, self.capacity)


@form_of(decode.continuations)
def continuations(logits, totals, count, never=(), allowed=None):
    """Return the best continuations, found among the few that may be among the best."""
    totals = totals - decode.rule_out(logits, never, allowed).reshape(totals.shape)
    return ranked(logits, totals, count)


def ranked(scores, totals, count):
    """Return the `count` greatest sums of a score and the total of its text, in each sentence.

    The scores are cut into blocks, and the greatest of each block is found. At least `count`
    continuations are as good as the block that comes in the place `count`, so no worse one is
    needed; the others are sorted. Block i contains the tokens i, i + stride, i + 2 * stride ..., so
    that the greatest of all blocks are found along one axis. The last tokens may be in no block.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count = min(count, beams * size)
    width = _BLOCK if beams * (size // _BLOCK) >= count else 1
    stride, on_device = size // width, to_device(totals)
    greatest = scores[:, : width * stride].reshape(n, beams, width, stride).max(axis=2)
    sums = (greatest + on_device[:, :, None]).reshape(n, -1)
    least = xp.partition(sums, sums.shape[1] - count, axis=-1)[:, -count, None]  # (B, 1)
    lower = least - 1e-12 * abs(least)  # as sum and difference were rounded
    with np.errstate(invalid="ignore"):  # of -inf - -inf
        limits = xp.where(least == -xp.inf, least, lower - on_device).astype(scores.dtype)
    candidates = xp.flatnonzero(scores >= xp.nextafter(limits, -xp.inf).reshape(-1, 1))

    values = to_numpy(scores.reshape(-1)[candidates]).astype(np.float64)
    candidates = to_numpy(candidates)
    values += totals.reshape(-1)[candidates // size]
    sentence = candidates // (beams * size)
    best_first = np.lexsort((-values, sentence))  # equals stay in the order of their index
    start = np.searchsorted(sentence, np.arange(n))
    best = best_first[start[:, None] + np.arange(count)]
    index = candidates[best] % (beams * size)
    return index % size, index // size, values[best]


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed for as many rows at a time as fit the cache.

    The sum of a row is its dot product with ones. In one product of all rows with ones, its
    rounding would depend on the other rows.
    """
    sums, size = np.empty(len(logits)), logits.shape[-1]
    n_rows, ones = max(1, _CACHED // size), np.ones(size, dtype=logits.dtype)
    for start in range(0, len(logits), n_rows):
        rows = slice(start, start + n_rows)
        greatest = logits[rows].max(axis=-1, keepdims=True)
        terms = logits[rows] - greatest
        np.exp(terms, out=terms)
        sums[rows] = np.log(np.vecdot(terms, ones)) + greatest[:, 0]
    return sums
