"""From a trained model to sentences: greedy decoding, beam search with the length penalty, and their cache.

Letters: B sentences, W beams of each, R = B * W rows that are decoded side by side, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from itertools import chain

import numpy as np

from minitf.backend import on_gpu, row_sums, to_device, to_numpy, xp
from minitf.tensor import Ids, Tensor, no_grad
from minitf.transformer import Decoder, DecoderLayer, MultiHeadAttention, Positions, Transformer

__all__ = ["Hypothesis", "beam_search", "greedy", "length_penalty"]


_ROOM = 8  # for how many words of each beam the caches have room at a time
_BLOCKS = (32, 25, 20, 16, 10, 8, 5, 4, 2, 1)  # how many scores may form a block
# The library's own versions of the methods that a cache relies on, kept to detect replacements.
_OWN = {
    kind: {name: getattr(kind, name) for name in names}
    for kind, *names in (
        (MultiHeadAttention, "__call__", "keys_and_values", "split_heads"),
        (DecoderLayer, "__call__"),
        (Decoder, "__call__"),
        (Positions, "__call__"),
        (Transformer, "decode"),
    )
}


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation as ids without the end mark, ln P of it, and the score by which beams are compared."""

    ids: list[int]
    log_probability: float
    score: float


def length_penalty(length: float, alpha: float = 0.6) -> float:
    """Give what ln P is divided by, so that a long translation can win against a short one.

        lp(Y) = ((5 + |Y|) / 6)^alpha

    |Y| counts the end mark.
    >>> length_penalty(1), round(length_penalty(13, alpha=1.0), 3)
    (1.0, 3.0)

    Source: section 6.1; Wu et al. 2016, eq. 14.
    """
    return ((5 + length) / 6) ** alpha


def evaluating(decode):
    """Let a way of decoding run without dropout and without recording, and leave the model as it was."""

    @functools.wraps(decode)
    def run(model, *arguments, **options):
        with model.evaluating(), no_grad():
            return decode(model, *arguments, **options)

    return run


@evaluating
def greedy(
    model: Transformer, source: Ids, max_extra: int = 50, cached: bool = True, alpha: float = 0.0
) -> list[Hypothesis]:
    """Write the most probable next word until the end mark: one Hypothesis per row of source ids (B, S).

    At most max_extra words more than the source has are written. With cached=False the whole prefix is run
    through the decoder at each step: slower, and the same. alpha: of the length penalty, by which the score is divided.
    """
    return write(model, source, lambda logits, alive: to_numpy(logits.argmax(axis=-1)), max_extra, cached, alpha)


def write(model, source, choose, max_extra=50, cached=True, alpha=0.0):
    """Translate each row of source ids (B, S) word by word, as `choose` says (see lengthen): one Hypothesis each."""
    source = checked(source, alpha)
    if len(source) == 0:
        return []
    prefixes = np.full((len(source), 1), model.config.bos_id)
    decoder = _Decoder(model, source, 1, cached)
    return lengthen(decoder, prefixes, _limits(model, source, max_extra), choose, model.config.eos_id, alpha)


def lengthen(decoder, prefixes, limits, choose, end_id=None, alpha=0.0):
    """Add words to each of the prefixes (R, t) until the end mark, or up to its limit: one Hypothesis each.

    decoder(prefixes) gives logits (R, V), on the device, and normalisers (R,): ln P = logit - normaliser.
    decoder.select(rows, rows) says which rows go on. choose(logits, alive) gives the next word of each row, NumPy
    integers; alive: the numbers of these rows.
    """
    ids = [[] for _ in limits]
    totals, lengths = np.zeros(len(limits)), np.zeros(len(limits), dtype=int)  # lengths with the end mark
    alive = np.arange(len(limits))
    while len(alive):
        logits, normalisers = decoder(prefixes)
        words = choose(logits, alive)
        totals[alive] += to_numpy(logits[xp.arange(len(words)), to_device(words)]) - normalisers
        lengths[alive] += 1
        for row, word in zip(alive, words, strict=True):
            if word != end_id:
                ids[row].append(int(word))
        going = (words != end_id) & (lengths[alive] < limits[alive])
        prefixes = np.concatenate([prefixes, words[:, None]], axis=1)
        if not going.all():
            alive, prefixes = alive[going], prefixes[going]
            decoder.select(np.flatnonzero(going), np.flatnonzero(going))
    scores = totals / length_penalty(lengths, alpha)
    return [Hypothesis(*found) for found in zip(ids, totals.tolist(), scores.tolist(), strict=True)]


@evaluating
def beam_search(
    model: Transformer,
    source: Ids,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    cached: bool = True,
) -> list[list[Hypothesis]]:
    """Keep the `beam` most probable beginnings of each translation, and finish the best of them.

    Gives for each row of source ids (B, S) its n_best hypotheses (n_best <= beam), best first, by

        score = ln P(Y) / lp(Y)

    Each step looks at the 2 * beam best continuations of a sentence. One that ends with the end mark is finished
    if it is among the best `beam` of them; the best `beam` of the others live on. A sentence is done when `beam`
    of its hypotheses are finished and no living one can reach the n_best, or at max_extra words more than
    its source has. What is cut off there, without an end mark, comes after all that are finished, whatever the scores:
    so n_best = 1 gives the first of n_best = 3.
    Source: section 6.1; Wu et al. 2016, section 7.
    """
    source = checked(source, alpha)
    if beam < 1:
        raise ValueError(f"the beam width must be at least 1, not {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be from 1 to the beam width {beam}, not {n_best}")
    if len(source) == 0:
        return []
    c, limits = model.config, _limits(model, source, max_extra)
    searches = [_Search(i, limit, beam, alpha, n_best, c.eos_id) for i, limit in enumerate(limits)]
    going = searches
    decoder = _Decoder(model, source, beam, cached)
    prefixes = np.full((len(going) * beam, 1), c.bos_id)
    totals = np.full((len(going), beam), -np.inf)  # ln P of each beginning; at first they are all the same one
    totals[:, 0] = 0
    while going:
        logits, normalisers = decoder(prefixes)
        words, origins, totals = _continuations(logits, totals - normalisers.reshape(totals.shape), 2 * beam)
        rows, next_words, next_totals = [], [], []
        for i, search in enumerate(going):
            kept = search.advance(words[i], origins[i], totals[i], prefixes[i * beam : (i + 1) * beam])
            rows.append(i * beam + origins[i][kept])
            next_words.append(words[i][kept])
            next_totals.append(totals[i][kept])
        alive = [i for i, search in enumerate(going) if not search.done]
        going = [going[i] for i in alive]
        if going:
            chosen = np.concatenate([rows[i] for i in alive])
            new = np.concatenate([next_words[i] for i in alive])
            prefixes = np.concatenate([prefixes[chosen], new[:, None]], axis=1)
            totals = np.stack([next_totals[i] for i in alive])
            decoder.select(chosen, np.array(alive))
    return [search.best() for search in searches]


class _Search:
    """The beam search of one sentence: what is finished, what was cut off at the limit, and whether it is done."""

    def __init__(self, number, limit, beam, alpha, n_best, eos_id):
        self.limit, self.beam, self.alpha, self.n_best, self.eos_id = limit, beam, alpha, n_best, eos_id
        self.finished, self.cut, self.done = [], [], False

    def advance(self, words, origins, totals, prefixes):
        """Take the best continuations, best first; returns which of them live on, `beam` in number."""
        length = prefixes.shape[1]  # of the continued hypotheses: the start mark does not count, an end mark does
        kept = []
        for rank, (word, total) in enumerate(zip(words, totals, strict=True)):
            if word != self.eos_id:
                kept.append(rank)
            elif rank < self.beam and total > -np.inf:
                self._add(self.finished, prefixes[origins[rank]][1:], total, length)
        # With a tiny vocabulary there may be too few that live: those that ended fill the beam, as dead rows.
        ended = [rank for rank in range(len(words)) if words[rank] == self.eos_id]
        kept, dead = kept[: self.beam], ended[: max(0, self.beam - len(kept))]
        totals[dead] = -np.inf
        living = totals[kept].max() if kept else -np.inf
        if length >= self.limit or living == -np.inf:
            for rank in kept:
                self._add(self.cut, [*prefixes[origins[rank]][1:], words[rank]], totals[rank], length)
            self.done = True
        elif len(self.finished) >= self.beam:
            scores = sorted((hypothesis.score for hypothesis in self.finished), reverse=True)
            # The penalty of the greatest length is the kindest one a living hypothesis can ever get.
            self.done = living / length_penalty(self.limit, self.alpha) <= scores[self.n_best - 1]
        return np.array(kept + dead, dtype=int)

    def _add(self, hypotheses, ids, total, length):
        if total > -np.inf:
            score = float(total) / length_penalty(length, self.alpha)
            hypotheses.append(Hypothesis([int(i) for i in ids], float(total), score))

    def best(self):
        """Give the n_best: those that finished, then those cut off, each sorted by score."""
        finished, cut = (sorted(found, key=lambda best: -best.score) for found in (self.finished, self.cut))
        return (finished + cut)[: self.n_best]


def _continuations(scores, totals, count):
    """Give the best `count` continuations of each sentence, best first: (words, origins, totals), each (B, count).

    scores: of each next word, (R, V). totals: float64, what to add to those of each beginning, (B, W). origins: which
    of the W. The sums are compared in float64; among equals the earlier beginning wins, and of that the lower id.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count = min(count, beams * size)
    # The best are in the blocks with the greatest maxima: so nearly all of them need not be compared one by one.
    # Block i is the words i, i + stride, i + 2 * stride ...: so the maxima of all blocks are those of whole rows.
    width = next(width for width in _BLOCKS if size % width == 0 and beams * size // width >= count)
    stride = size // width
    blocks = scores.reshape(n, beams, width, stride)
    negative = (to_device(-totals)[:, :, None] - blocks.max(axis=2)).reshape(n, -1)
    more = min(count + 1, beams * stride)  # one more than is needed, to see whether it is an equal of the last
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
    for i in np.flatnonzero(values[:, count - 1] == values[:, -1]):  # equals at the border: compare them all
        every = (to_numpy(scores[i * beams : (i + 1) * beams]) + totals[i, :, None]).ravel()
        best[i] = np.argsort(-every, kind="stable")[:more]
        values[i] = every[best[i]]
    best, values = best[:, :count], values[:, :count]
    return best % size, best // size, values


def checked(source, alpha):
    """Give the rows of source ids as an array (B, S)."""
    source = np.asarray(source)
    if source.ndim != 2 and source.shape != (0,):
        raise ValueError(f"source ids have the shape (B, S), one row for each sentence, not {source.shape}")
    if not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a number of at least 0, not {alpha}")
    return source


def _limits(model, source, max_extra):
    """How many words, end mark included, may be written for each row: those of the source, and max_extra."""
    special = (model.config.pad_id, model.config.eos_id)
    lengths = np.isin(source, special, invert=True).sum(axis=1) + max_extra
    if model.config.positions == "learned":
        lengths = np.minimum(lengths, model.config.max_length)
    return np.maximum(lengths, 1)


def normalisers_of(logits):
    """Give ln of the sum of the exponentials of each row of logits (R, V): float64 (R,), on the CPU."""
    greatest = logits.max(axis=-1, keepdims=True)
    differences = logits - greatest
    normalisers = xp.log(row_sums(xp.exp(differences, out=differences))) + greatest
    return to_numpy(normalisers)[:, 0].astype(np.float64)


def _can_cache(model):
    """Tell whether the model can be decoded with a cache.

    A module that cannot says `can_cache = False`. A module that changes a method on which the cache relies is decoded
    without one, which is slower and always right, unless it says `can_cache = True`. What acts on each position alone
    (the feed-forward network, norms, embeddings) needs to say nothing.
    """
    if not all(getattr(module, "can_cache", True) for module in model.modules()):
        return False
    if not isinstance(model, Transformer):
        return getattr(model, "can_cache", False)
    layers = getattr(model.decoder, "layers", ())
    parts = [(model, Transformer), (model.decoder, Decoder), (model.target_positions, Positions)]
    parts += [(layer, DecoderLayer) for layer in layers]
    parts += [(layer.self_attention, MultiHeadAttention) for layer in layers if hasattr(layer, "self_attention")]
    parts += [(layer.source_attention, MultiHeadAttention) for layer in layers if hasattr(layer, "source_attention")]
    return all(getattr(part, "can_cache", False) or _is_own(part, kind) for part, kind in parts)


def _is_own(part, kind):
    """Tell whether a part of the model is of this kind, with the library's methods where a cache relies on them."""
    if kind is not Transformer and _OWN[kind].keys() & vars(part).keys():  # replaced in this one object
        return False
    return isinstance(part, kind) and all(getattr(type(part), name) is own for name, own in _OWN[kind].items())


class _Decoder:
    """Scores every next word after the prefixes (R, t) that are being written, R = B * width.

    Gives logits (R, V), on the device, and normalisers (R,): ln P = logit - normaliser. So only the few words that
    can win are normalised.
    """

    def __init__(self, model, source, width, cached):
        self.model, self.width = model, width
        self.memory, self.mask = model.encode(source)
        layers = len(model.decoder.layers) if cached and _can_cache(model) else 0
        self.caches = [(_GrowingCache(width), _FixedCache()) for _ in range(layers)]
        self.places = np.empty((len(source), width, 0), dtype=int)  # where in the caches the words of each prefix stand
        self.positions = np.zeros((len(source), 0), dtype=int)  # in their texts, of the words in the caches
        self.length = self.room = 0  # of the caches: the words of all beams, and how many there is room for

    def __call__(self, prefixes):
        hidden = self._newest(prefixes) if self.caches else self._whole(prefixes)
        logits = self.model.logits(hidden[:, -1]).data
        normalisers = normalisers_of(logits)
        for never in (self.model.config.pad_id, self.model.config.bos_id):
            logits[:, never] = -xp.inf
        return logits, normalisers

    def _newest(self, prefixes):
        if self.length == self.room:
            self._make_room()
        newest = np.broadcast_to(self.length + np.arange(self.width)[:, None], (len(self.mask), self.width, 1))
        self.places, self.length = np.concatenate([self.places, newest], axis=2), self.length + self.width
        masks = [None if mask.all() else to_device(mask) for mask in (self.mask, self._own()[:, None])]
        start = prefixes.shape[1] - 1
        self.positions[:, self.length - self.width : self.length] = start
        queries, source = np.full((1, self.width), start), np.arange(self.mask.shape[-1])[None]
        for growing, fixed in self.caches:
            growing.positions = queries, self.positions[:, : self.length]
            fixed.positions = queries, source
        return self.model.decode(prefixes[:, -1:], self.memory, masks[0], start, self.caches, masks[1])

    def _own(self):
        """Tell which of the words in the cache of a sentence each beam attends to, its own: (B, W, length)."""
        own = np.zeros((len(self.mask), self.width, self.length), dtype=bool)
        np.put_along_axis(own, self.places, True, axis=2)
        return own

    def _make_room(self):
        """Drop the words that no beam continues any more from the caches, and make room for the next ones."""
        needed = self._own().any(axis=1)  # (B, length)
        self.length = int(needed.sum(axis=1).max(initial=0))
        kept = np.argsort(~needed, axis=1, kind="stable")[:, : self.length]  # those needed first, in their order
        self.places = np.take_along_axis(needed.cumsum(axis=1)[:, None] - 1, self.places, axis=2)
        self.room = self.length + _ROOM * self.width
        positions = np.take_along_axis(self.positions, kept, axis=1)
        self.positions = np.pad(positions, ((0, 0), (0, self.room - self.length)))
        for growing, _ in self.caches:
            growing.make_room(kept, self.room)

    def _whole(self, prefixes):
        rows = np.repeat(np.arange(len(self.mask)), self.width)
        return self.model.decode(prefixes, Tensor(self.memory.data[to_device(rows)]), self.mask[rows])

    def select(self, rows, sentences):
        """Go on with these of the rows, which belong to these of the sentences."""
        length = self.places.shape[2]
        self.places = self.places.reshape(len(self.mask) * self.width, length)[rows]
        self.places = self.places.reshape(len(sentences), self.width, length)
        if len(sentences) < len(self.mask):
            for cache in chain.from_iterable(self.caches):
                cache.select(to_device(sentences))
            self.memory = Tensor(self.memory.data[to_device(sentences)])
            self.mask, self.positions = self.mask[sentences], self.positions[sentences]


class _Cache:
    """Keys and values of one attention, once they are there: (B, H, n, K) each.

    positions: of the queries (1, W) and of the keys (1, n) or (B, n) in their texts, at the step that is computed.
    """

    def __init__(self):
        self.arrays = self.positions = None

    def select(self, sentences):
        """Go on with these of the sentences."""
        self.arrays = [array[sentences] for array in self.arrays]


class _GrowingCache(_Cache):
    """Keys and values (B, H, n, K) of the words that the beams of a sentence wrote: each is projected once.

    Masks say which of them belong to a beam. So a word stays where it is when its beam ends or goes on as two, and
    nothing is copied from step to step, but when room is made.
    """

    def __init__(self, width):
        super().__init__()
        self.width, self.length, self.room = width, 0, 0

    def make_room(self, kept, room):
        """Keep these words (B, n) of each sentence, and make room for as many in all."""
        self.length, self.room = kept.shape[1], room
        if self.arrays is not None:
            n, heads, _, _ = self.arrays[0].shape
            index = (
                to_device(np.arange(n)[:, None, None]),
                to_device(np.arange(heads)[:, None]),
                to_device(kept[:, None]),
            )
            self.arrays = [self._wider(array[index]) for array in self.arrays]

    def _wider(self, array):
        wide = xp.empty((*array.shape[:2], self.room, array.shape[3]), dtype=array.dtype)
        wide[:, :, : array.shape[2]] = array
        return wide

    def __call__(self, attention, x):
        new = [tensor.data for tensor in attention.keys_and_values(x.reshape(-1, self.width, x.shape[-1]))]
        if self.arrays is None:
            self.arrays = [self._wider(array[:, :, :0]) for array in new]
        start, self.length = self.length, self.length + self.width
        for array, newest in zip(self.arrays, new, strict=True):
            array[:, :, start : self.length] = newest
        return [Tensor(array[:, :, : self.length]) for array in self.arrays]


class _FixedCache(_Cache):
    """Keys and values (B, H, S, K) of the source: projected once, and shared by the beams of a sentence."""

    def __call__(self, attention, memory):
        if self.arrays is None:
            self.arrays = [tensor.data for tensor in attention.keys_and_values(memory)]
            if on_gpu():  # a GPU's products would copy heads that lie apart once for every word
                self.arrays = [xp.ascontiguousarray(array) for array in self.arrays]
        return [Tensor(array) for array in self.arrays]
