"""Faster decoding: the cache that the beams of a sentence share, and few next tokens to compare.

Both also serve minitf/gpu.

Letters: B sentences, W texts of each, R = B * W texts, n tokens in the cache of a sentence,
H heads, K d_k or d_v.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp
from minitf.forms import form_of

__all__ = ["Layout", "continuations", "normalisers_of"]

_CACHED = 1 << 17  # logits; the terms of so many fit the cache
_GROW_BY = 8  # tokens of each beam; the caches grow by so many
# Scores in a block of continuations; the first that leaves enough blocks is used.
_BLOCKS = (32, 16, 8, 4, 2, 1)


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

    def is_full(self):
        """Return whether the newest tokens of a step have no cache index left."""
        return self.length == self.capacity

    def add_newest(self):
        """Give the newest token of each beam the next cache index."""
        start, self.length = self.length, self.length + self.width
        self.own[:, :, start : self.length] = self.newest

    def mask(self):
        """Return the mask (B, 1, W, n) of the tokens in the cache that belong to each beam."""
        return self.own[:, None, :, : self.length]

    def grow(self):
        """Drop the tokens that no beam contains any more, and make room for new ones.

        Return the cache indices (B, n) of the tokens that are kept, which move to the front.
        """
        needed = self.own.any(axis=1)  # (B, capacity)
        self.length = int(needed.sum(axis=1).max(initial=0))
        needed_first = np.argsort(~needed, axis=1, kind="stable")  # in their order
        kept = needed_first[:, : self.length]
        self.capacity = self.length + _GROW_BY * self.width
        room = self.capacity - self.length
        own = np.take_along_axis(self.own, kept[:, None], axis=2)
        self.own = np.pad(own, ((0, 0), (0, 0), (0, room)))
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
def continuations(scores, totals, count):
    """Return the best continuations, found among the blocks of scores with the greatest maxima.

    The best `count` scores are in the `count` blocks with the greatest maxima, so few scores are
    compared one by one. Block i contains the tokens i, i + stride, i + 2 * stride ..., so that the
    maxima of all blocks are those along one axis. The last tokens, too few for one more row of
    blocks, are always compared.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count = min(count, beams * size)
    width = next(width for width in _BLOCKS if beams * (size // width) >= count)
    stride = size // width
    blocks = scores[:, : width * stride].reshape(n, beams, width, stride)
    more = min(count + 1, beams * stride)  # one more, to see whether its score equals the last

    # Of each sentence, the blocks with the greatest maxima, (B, more).
    negative = (to_device(-totals)[:, :, None] - blocks.max(axis=2)).reshape(n, -1)
    chosen = to_numpy(xp.argpartition(negative, more - 1, axis=-1)[:, :more])
    sentence, beam, block = np.arange(n)[:, None], chosen // stride, chosen % stride

    # All continuations in them: indices in the flat scores of a sentence, and totals.
    index = sentence[:, :, None], beam[:, :, None], np.arange(width), block[:, :, None]
    values = to_numpy(blocks[tuple(map(to_device, index))]).astype(np.float64)  # (B, more, width)
    values = (values + totals[sentence, beam, None]).reshape(n, -1)
    best = (beam[:, :, None] * size + np.arange(width) * stride + block[:, :, None]).reshape(n, -1)
    if last := size - width * stride:
        rest = to_numpy(scores[:, size - last :]).astype(np.float64).reshape(n, beams, last)
        values = np.concatenate([values, (rest + totals[:, :, None]).reshape(n, -1)], axis=1)
        tokens = np.arange(beams)[:, None] * size + np.arange(size - last, size)  # (beams, last)
        best = np.concatenate([best, np.broadcast_to(tokens.ravel(), (n, tokens.size))], axis=1)

    # The best of them, sorted; equals by their index.
    first = np.argpartition(-values, more - 1, axis=-1)[:, :more]
    best, values = best[sentence, first], values[sentence, first]
    order = np.lexsort((best, -values))
    best, values = best[sentence, order], values[sentence, order]

    # If these scores are equal, a block that was not chosen may contain a lower index.
    equal = values[:, count - 1] == values[:, -1]
    for i in np.flatnonzero(equal):
        sums = (to_numpy(scores[i * beams : (i + 1) * beams]) + totals[i, :, None]).ravel()
        best[i] = np.argsort(-sums, kind="stable")[:more]
        values[i] = sums[best[i]]
    best, values = best[:, :count], values[:, :count]
    return best % size, best // size, values


@form_of(decode.normalisers_of)
def normalisers_of(logits):
    """Return the normalisers, computed for as many rows at a time as fit the cache.

    The sum of a row is its dot product with ones. In one product of all rows with ones, its
    rounding would depend on the other rows.
    """
    normalisers, size = np.empty(len(logits)), logits.shape[-1]
    n_rows, ones = max(1, _CACHED // size), np.ones(size, dtype=logits.dtype)
    for start in range(0, len(logits), n_rows):
        rows = slice(start, start + n_rows)
        greatest = logits[rows].max(axis=-1, keepdims=True)
        terms = logits[rows] - greatest
        np.exp(terms, out=terms)
        normalisers[rows] = np.log(np.vecdot(terms, ones)) + greatest[:, 0]
    return normalisers
