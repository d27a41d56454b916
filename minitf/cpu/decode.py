"""Decoding, faster: beams of a sentence share one cache, and few of their next words are compared.

`minitf/gpu/decode.py` runs the same program on CuPy, with one change.

Letters: B sentences, W beams of each, R = B * W rows, n words in the cache of a sentence.
"""

from itertools import chain

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp
from minitf.cpu.sums import row_sums
from minitf.forms import form_of
from minitf.tensor import Tensor

__all__ = ["SharedNextWords", "SourceCache", "continuations", "next_words", "normalisers_of"]

_GROW_BY = 8  # words of each beam for which the caches have room at a time
# Scores in a block: the first of these that divides the vocabulary.
_BLOCKS = (32, 25, 20, 16, 10, 8, 5, 4, 2, 1)


@form_of(decode.next_words)
def next_words(model, source, width, cached):
    """Return a scorer whose caches are shared by the beams of a sentence; there is none without."""
    if not cached or not decode.can_cache(model):
        return NotImplemented
    return SharedNextWords(model, source, width)


class SourceCache:
    """Keys and values (B, H, S, K) of the source, projected once for all beams of a sentence.

    positions, here and in the other cache: of the queries (1, W) and of the keys (1, n) or (B, n)
    in their texts.
    """

    def __init__(self):
        self.kept = self.positions = None

    def __call__(self, attention, memory):
        if self.kept is None:
            self.kept = [Tensor(self.laid_out(x.data)) for x in attention.keys_and_values(memory)]
        return self.kept

    def laid_out(self, array):
        """Return the array in the order in memory that suits the products of the library in use."""
        return array

    def select(self, sentences):
        """Keep these of the sentences."""
        self.kept = [Tensor(x.data[sentences]) for x in self.kept]


class SharedCache:
    """Keys and values (B, H, n, K) of the words that the beams of a sentence wrote.

    Masks say which of them belong to a beam. So a word stays where it is when its beam ends or goes
    on as two, and nothing is copied from step to step, except when the cache grows.
    """

    def __init__(self, width):
        self.arrays = None  # keys and values, with room for more words: (B, H, capacity, K)
        self.width, self.length, self.capacity, self.positions = width, 0, 0, None

    def grow(self, kept, capacity):
        """Keep these words (B, n) of each sentence, and make room for as many in all."""
        self.length, self.capacity = kept.shape[1], capacity
        if self.arrays is not None:
            n, heads, _, _ = self.arrays[0].shape
            index = (
                to_device(np.arange(n)[:, None, None]),
                to_device(np.arange(heads)[:, None]),
                to_device(kept[:, None]),
            )
            self.arrays = [self._wider(array[index]) for array in self.arrays]

    def _wider(self, array):
        wide = xp.empty((*array.shape[:2], self.capacity, array.shape[3]), dtype=array.dtype)
        wide[:, :, : array.shape[2]] = array
        return wide

    def __call__(self, attention, x):
        beams = x.reshape(-1, self.width, x.shape[-1])  # (B, W, D)
        new = [tensor.data for tensor in attention.keys_and_values(beams)]
        if self.arrays is None:
            self.arrays = [self._wider(array[:, :, :0]) for array in new]
        start, self.length = self.length, self.length + self.width
        for array, newest in zip(self.arrays, new, strict=True):
            array[:, :, start : self.length] = newest
        return [Tensor(array[:, :, : self.length]) for array in self.arrays]

    def select(self, sentences):
        """Keep these of the sentences."""
        self.arrays = [array[sentences] for array in self.arrays]


class SharedNextWords:
    """The scorer of `decode.next_words` that keeps each sentence once for all of its beams."""

    source_cache = SourceCache

    def __init__(self, model, source, width):
        self.model, self.width = model, width
        self.memory, self.mask = model.encode(source)
        self.caches = [(SharedCache(width), self.source_cache()) for _ in model.decoder.layers]
        # indices: the cache index of every word of every text, (B, W, t).
        # positions: the position in its text of every word in the cache, (B, n).
        # length, capacity: words in the cache of a sentence, and the room for them.
        self.indices = np.empty((len(source), width, 0), dtype=int)
        self.positions = np.zeros((len(source), 0), dtype=int)
        self.length = self.capacity = 0

    def __call__(self, texts):
        if self.length == self.capacity:
            self._grow()
        newest = self.length + np.arange(self.width)[:, None]
        newest = np.broadcast_to(newest, (len(self.mask), self.width, 1))
        self.indices = np.concatenate([self.indices, newest], axis=2)
        self.length += self.width
        masks = self.mask, self._own()[:, None]
        of_source, own = (None if mask.all() else to_device(mask) for mask in masks)
        start = texts.shape[1] - 1
        self.positions[:, self.length - self.width : self.length] = start
        queries, source = np.full((1, self.width), start), np.arange(self.mask.shape[-1])[None]
        for shared, fixed in self.caches:
            shared.positions = queries, self.positions[:, : self.length]
            fixed.positions = queries, source
        newest = texts[:, -1:]
        hidden = self.model.decode(newest, self.memory, of_source, start, self.caches, own)
        return decode.scores_of(self.model, hidden[:, -1])

    def _own(self):
        """Return the mask (B, W, n) of the words in the cache that belong to each beam."""
        own = np.zeros((len(self.mask), self.width, self.length), dtype=bool)
        np.put_along_axis(own, self.indices, True, axis=2)
        return own

    def _grow(self):
        """Drop words that no beam continues any more from the caches; make room for the next."""
        needed = self._own().any(axis=1)  # (B, n)
        self.length = int(needed.sum(axis=1).max(initial=0))
        needed_first = np.argsort(~needed, axis=1, kind="stable")  # and in their order
        kept = needed_first[:, : self.length]
        self.indices = np.take_along_axis(needed.cumsum(axis=1)[:, None] - 1, self.indices, axis=2)
        self.capacity = self.length + _GROW_BY * self.width
        positions = np.take_along_axis(self.positions, kept, axis=1)
        self.positions = np.pad(positions, ((0, 0), (0, self.capacity - self.length)))
        for shared, _ in self.caches:
            shared.grow(kept, self.capacity)

    def select(self, rows):
        """Keep these rows of the texts, in this order."""
        sentences = rows[:: self.width] // self.width
        length = self.indices.shape[2]
        self.indices = self.indices.reshape(len(self.mask) * self.width, length)[rows]
        self.indices = self.indices.reshape(len(sentences), self.width, length)
        if len(sentences) < len(self.mask):
            for cache in chain.from_iterable(self.caches):
                cache.select(to_device(sentences))
            self.memory = Tensor(self.memory.data[to_device(sentences)])
            self.mask, self.positions = self.mask[sentences], self.positions[sentences]


@form_of(decode.continuations)
def continuations(scores, totals, count):
    """Return the best continuations, from the few blocks of scores with the greatest maxima.

    The best are in these blocks: so nearly all scores need not be compared one by one. Block i is
    the words i, i + stride, i + 2 * stride ...: then the maxima of all blocks are those of rows of
    an array.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count = min(count, beams * size)
    width = next(width for width in _BLOCKS if size % width == 0 and beams * size // width >= count)
    stride = size // width
    blocks = scores.reshape(n, beams, width, stride)
    negative = (to_device(-totals)[:, :, None] - blocks.max(axis=2)).reshape(n, -1)
    more = min(count + 1, beams * stride)  # one more, to see whether it is an equal of the last
    chosen = to_numpy(xp.argpartition(negative, more - 1, axis=-1)[:, :more])  # (B, more)
    sentence, beam, block = np.arange(n)[:, None], chosen // stride, chosen % stride
    index = sentence[:, :, None], beam[:, :, None], np.arange(width), block[:, :, None]
    values = to_numpy(blocks[tuple(map(to_device, index))]).astype(np.float64)  # (B, more, width)
    values = (values + totals[sentence, beam, None]).reshape(n, -1)
    best = (beam[:, :, None] * size + np.arange(width) * stride + block[:, :, None]).reshape(n, -1)
    first = np.argpartition(-values, more - 1, axis=-1)[:, :more]
    best, values = np.take_along_axis(best, first, -1), np.take_along_axis(values, first, -1)
    order = np.lexsort((best, -values))
    best, values = np.take_along_axis(best, order, -1), np.take_along_axis(values, order, -1)
    equal = values[:, count - 1] == values[:, -1]  # at the border: then all have to be compared
    for i in np.flatnonzero(equal):
        every = (to_numpy(scores[i * beams : (i + 1) * beams]) + totals[i, :, None]).ravel()
        best[i] = np.argsort(-every, kind="stable")[:more]
        values[i] = every[best[i]]
    best, values = best[:, :count], values[:, :count]
    return best % size, best // size, values


@form_of(decode.normalisers_of)
def normalisers_of(logits):
    """Return the normalisers with one array of the size of the logits, summed by a product."""
    greatest = logits.max(axis=-1, keepdims=True)
    differences = logits - greatest
    normalisers = np.log(row_sums(np.exp(differences, out=differences))) + greatest
    return normalisers[:, 0].astype(np.float64)
