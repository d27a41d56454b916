"""Faster decoding: the beams of a sentence share one cache, and few next tokens are compared.

minitf/gpu/decode.py runs the same program on CuPy.

Letters: B sentences, W texts of each, R = B * W texts, n tokens in the cache of a sentence,
H heads, K d_k or d_v.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp
from minitf.forms import form_of
from minitf.tensor import Tensor

__all__ = ["SharedTokenScorer", "continuations", "normalisers_of"]

_CACHED = 1 << 17  # logits; the terms of so many fit the cache
_GROW_BY = 8  # tokens of each beam; the caches grow by so many
# Scores in a block of continuations; the first that leaves enough blocks is used.
_BLOCKS = (32, 16, 8, 4, 2, 1)


class SharedTokenScorer:
    """The Scorer that gives the model the newest tokens of all beams of a sentence as one row.

    These tokens are ids (B, W). They attend to one cache for all beams of their sentence; a
    mask hides the tokens of other beams.
    arranged: a function that returns the source's keys and values in another memory layout.
    """

    def __init__(self, model, source, width, arranged=lambda array: array):
        self.model, self.width = model, width
        self.memory, self.mask = model.encode(source)
        self.layout = Layout(len(source), width)
        self.caches = [
            (TextCache(self.layout), SourceCache(self.layout, arranged))
            for _ in model.decoder.layers
        ]

    def __call__(self, texts):
        if self.layout.is_full():
            kept = self.layout.grow()
            for text_cache, _ in self.caches:
                text_cache.grow(kept)
        self.layout.add_newest()
        newest = texts[:, -1].reshape(-1, self.width)  # (B, W)
        start = texts.shape[1] - 1
        masks = self.mask, self.layout.mask()
        of_source, own = (None if mask.all() else to_device(mask) for mask in masks)
        hidden = self.model.decode(newest, self.memory, of_source, start, self.caches, own)
        logits = self.model.logits(hidden.reshape(-1, hidden.shape[-1])).data
        return decode.with_normalisers(logits, self.model.config)

    def select(self, rows):
        """Keep these rows of the texts, in this order."""
        sentences = rows[:: self.width] // self.width
        if len(sentences) < len(self.mask):
            for text_cache, source_cache in self.caches:
                text_cache.select(to_device(sentences))
                source_cache.select(to_device(sentences))
            self.memory = Tensor(self.memory.data[to_device(sentences)])
            self.mask = self.mask[sentences]
        self.layout.select(sentences, rows)


class Layout:
    """The map from the tokens of the beams to the indices of the shared caches.

    A token stays at its cache index when its beam ends or continues as two, so nothing is copied
    from step to step, except when the caches grow.
    own: whether the token at a cache index belongs to a beam, bool (B, W, capacity).
    positions: the position in its text of the token at every cache index, (B, capacity).
    queries: the position of the newest token of each beam, (1, W).
    length, capacity: the number of cache indices in use, and of all cache indices.
    """

    def __init__(self, sentences, width):
        self.width, self.length, self.capacity, self.steps = width, 0, 0, 0
        self.own = np.zeros((sentences, width, 0), dtype=bool)
        self.positions = np.zeros((sentences, 0), dtype=int)
        self.newest = np.eye(width, dtype=bool)

    @property
    def queries(self):
        return np.full((1, self.width), self.steps - 1)

    def is_full(self):
        """Return whether the newest tokens of a step have no cache index left."""
        return self.length == self.capacity

    def add_newest(self):
        """Give the newest token of each beam the next cache index."""
        start, self.length = self.length, self.length + self.width
        self.own[:, :, start : self.length] = self.newest
        self.positions[:, start : self.length] = self.steps
        self.steps += 1

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
        self.positions = np.pad(
            np.take_along_axis(self.positions, kept, axis=1), ((0, 0), (0, room))
        )
        return kept

    def moved(self, array, kept):
        """Return the tokens of a cache (B, H, n, K) at the indices `kept`, in a larger array."""
        sentences, heads, _, size = array.shape
        index = np.arange(sentences)[:, None, None], np.arange(heads)[:, None], kept[:, None]
        larger = xp.empty((sentences, heads, self.capacity, size), dtype=array.dtype)
        larger[:, :, : kept.shape[1]] = array[tuple(map(to_device, index))]
        return larger

    def select(self, sentences, rows):
        """Keep these of the sentences, and these rows of the texts."""
        self.own = self.own.reshape(-1, self.capacity)[rows].reshape(-1, self.width, self.capacity)
        self.positions = self.positions[sentences]


class TextCache:
    """The keys and values of the tokens that the beams of a sentence wrote, (B, H, n, K)."""

    def __init__(self, layout):
        self.layout = layout
        self.arrays = []  # keys and values, each (B, H, capacity, K)

    @property
    def positions(self):
        """The positions of the queries (1, W) and of the keys (B, n) in their texts."""
        return self.layout.queries, self.layout.positions[:, : self.layout.length]

    def __call__(self, attention, x):
        """Return all keys and values, those of the newest tokens x (B, W, D) included."""
        new = [tensor.data for tensor in attention.keys_and_values(x)]  # (B, H, W, K)
        length, width = self.layout.length, self.layout.width
        if not self.arrays:
            none = np.empty((len(new[0]), 0), dtype=int)
            self.arrays = [self.layout.moved(array[:, :, :0], none) for array in new]
        for array, newest in zip(self.arrays, new, strict=True):
            array[:, :, length - width : length] = newest
        return [Tensor(array[:, :, :length]) for array in self.arrays]

    def grow(self, kept):
        """Keep the tokens at these cache indices (B, n), with as much room as in the layout."""
        self.arrays = [self.layout.moved(array, kept) for array in self.arrays]

    def select(self, sentences):
        """Keep these of the sentences."""
        self.arrays = [array[sentences] for array in self.arrays]


class SourceCache:
    """The keys and values (B, H, S, K) of the source, projected once for all beams."""

    def __init__(self, layout, arranged):
        self.layout, self.arranged = layout, arranged
        self.kept, self.keys = [], None

    @property
    def positions(self):
        """The positions of the queries (1, W) and of the keys (1, S) in their texts."""
        return self.layout.queries, self.keys

    def __call__(self, attention, memory):
        """Return the keys and values of the memory (B, S, D), projected at the first step."""
        if not self.kept:
            self.keys = np.arange(memory.shape[1])[None]
            projected = attention.keys_and_values(memory)
            self.kept = [Tensor(self.arranged(x.data)) for x in projected]
        return self.kept

    def select(self, sentences):
        """Keep these of the sentences."""
        self.kept = [Tensor(x.data[sentences]) for x in self.kept]


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
