"""From a trained model to sentences: greedy decoding, beam search with the length penalty, and their cache.

Letters: B sentences, W beams of each, R = B * W rows that are decoded side by side, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from minitf import functions as F
from minitf.backend import to_device, to_numpy, xp
from minitf.forms import accelerated
from minitf.tensor import Ids, Tensor, no_grad
from minitf.transformer import Decoder, DecoderLayer, MultiHeadAttention, Positions, Transformer

__all__ = ["Hypothesis", "beam_search", "greedy", "length_penalty"]

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
    """Return the divisor of ln P that lets a long translation win against a short one.

        lp(Y) = ((5 + |Y|) / 6)^alpha

    |Y| counts the end mark.
    >>> length_penalty(1), round(length_penalty(13, alpha=1.0), 3)
    (1.0, 3.0)

    Source: section 6.1; Wu et al. 2016, eq. 14.
    """
    return ((5 + length) / 6) ** alpha


def _evaluating(decode):
    """Run a way of decoding without dropout and without recording, and leave the model as it was."""

    @functools.wraps(decode)
    def run(model, *arguments, **options):
        with model.evaluating(), no_grad():
            return decode(model, *arguments, **options)

    return run


def greedy(
    model: Transformer, source: Ids, max_extra: int = 50, cached: bool = True, alpha: float = 0.0
) -> list[Hypothesis]:
    """Write the most probable next word until the end mark; return one Hypothesis per row of source ids (B, S).

    At most max_extra words more than the source has are written. With cached=False the decoder reads the text from
    its beginning at each step: slower, and the same. alpha: of the length penalty, which divides the score.
    """
    return write(model, source, lambda logits, alive: to_numpy(logits.argmax(axis=-1)), max_extra, cached, alpha)


@_evaluating
def write(
    model: Transformer,
    source: Ids,
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    max_extra: int = 50,
    cached: bool = True,
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """Translate each row of source ids (B, S) with the words that `choose` picks (see lengthen): one Hypothesis each.

    Greedy decoding picks the most probable word, sampling draws one. The rest is as in greedy.
    """
    source = _checked(source, alpha)
    if len(source) == 0:
        return []
    texts = np.full((len(source), 1), model.config.bos_id)
    scorer = next_words(model, source, 1, cached)
    return lengthen(scorer, texts, _limits(model, source, max_extra), choose, model.config.eos_id, alpha)


def lengthen(
    scorer: Callable,
    texts: np.ndarray,
    limits: np.ndarray,
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    end_id: int | None = None,
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """Add words to each of the texts (R, t) until the end mark or its limit; return one Hypothesis each.

    scorer: scores the next words of the texts, as `next_words` describes. choose(logits, alive) returns the next
    word of each text, NumPy integers (R,); alive: the row of each text in the batch that was given.
    """
    ids = [[] for _ in limits]
    totals, lengths = np.zeros(len(limits)), np.zeros(len(limits), dtype=int)  # lengths with the end mark
    alive = np.arange(len(limits))
    while len(alive):
        logits, normalisers = scorer(texts)
        words = choose(logits, alive)
        totals[alive] += to_numpy(logits[xp.arange(len(words)), to_device(words)]) - normalisers
        lengths[alive] += 1
        for row, word in zip(alive, words, strict=True):
            if word != end_id:
                ids[row].append(int(word))
        going = (words != end_id) & (lengths[alive] < limits[alive])
        texts = np.concatenate([texts, words[:, None]], axis=1)
        if not going.all():
            alive, texts = alive[going], texts[going]
            scorer.select(np.flatnonzero(going))
    scores = totals / length_penalty(lengths, alpha)
    return [Hypothesis(*found) for found in zip(ids, totals.tolist(), scores.tolist(), strict=True)]


@_evaluating
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

    Return for each row of source ids (B, S) its n_best hypotheses (n_best <= beam), best first, by

        score = ln P(Y) / lp(Y)

    Each step looks at the 2 * beam best continuations of a sentence. One that ends with the end mark is finished
    if it is among the best `beam` of them; the best `beam` of the others live on. A sentence is done when `beam`
    of its hypotheses are finished and no living one can reach the n_best, or at max_extra words more than
    its source has. A text that is cut off there, without an end mark, comes after all that are finished, whatever
    their scores, so n_best = 1 gives the first of n_best = 3.
    Source: section 6.1; Wu et al. 2016, section 7.
    """
    source = _checked(source, alpha)
    if beam < 1:
        raise ValueError(f"the beam width must be at least 1, not {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be from 1 to the beam width {beam}, not {n_best}")
    if len(source) == 0:
        return []
    c, limits = model.config, _limits(model, source, max_extra)
    searches = [_Search(limit, beam, alpha, n_best, c.eos_id) for limit in limits]
    going = searches
    scorer = next_words(model, source, beam, cached)
    texts = np.full((len(going) * beam, 1), c.bos_id)
    totals = np.full((len(going), beam), -np.inf)  # ln P of each beginning; at first they are all the same one
    totals[:, 0] = 0
    while going:
        logits, normalisers = scorer(texts)
        words, beams, totals = continuations(logits, totals - normalisers.reshape(totals.shape), 2 * beam)
        kept = [search.advance(words[i], totals[i], texts[i * beam + beams[i]]) for i, search in enumerate(going)]
        alive = [i for i, search in enumerate(going) if not search.done]
        going = [going[i] for i in alive]
        if going:
            sentences, kept = np.array(alive)[:, None], np.stack([kept[i] for i in alive])  # (B, 1), (B, W)
            rows = (sentences * beam + beams[sentences, kept]).ravel()
            texts = np.concatenate([texts[rows], words[sentences, kept].reshape(-1, 1)], axis=1)
            totals = totals[sentences, kept]
            scorer.select(rows)
    return [search.best() for search in searches]


class _Search:
    """The beam search of one sentence: its finished texts, those cut off at the limit, and whether it is done."""

    def __init__(self, limit, beam, alpha, n_best, eos_id):
        self.limit, self.beam, self.alpha, self.n_best, self.eos_id = limit, beam, alpha, n_best, eos_id
        self.finished, self.cut, self.done = [], [], False

    def advance(self, words, totals, texts):
        """Take the best continuations, best first, as words and the texts they continue; return the ranks that go on.

        There are `beam` of them. Those that cannot win any more get the total -infinity.
        """
        length = texts.shape[1]  # of the continued texts: the start mark does not count, an end mark does
        kept = []
        for rank, (word, total) in enumerate(zip(words, totals, strict=True)):
            if word != self.eos_id:
                kept.append(rank)
            elif rank < self.beam:
                self._add(self.finished, texts[rank][1:], total, length)
        # With a tiny vocabulary there may be too few that go on: those that ended fill the beam, as dead rows.
        ended = [rank for rank in range(len(words)) if words[rank] == self.eos_id]
        kept, dead = kept[: self.beam], ended[: max(0, self.beam - len(kept))]
        totals[dead] = -np.inf
        living = totals[kept].max() if kept else -np.inf
        if length >= self.limit or living == -np.inf:
            for rank in kept:
                self._add(self.cut, [*texts[rank][1:], words[rank]], totals[rank], length)
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
        """Return the n_best: those that finished, then those cut off, each sorted by score."""
        finished, cut = (sorted(found, key=lambda best: -best.score) for found in (self.finished, self.cut))
        return (finished + cut)[: self.n_best]


@accelerated
def continuations(scores: np.ndarray, totals: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best `count` continuations of each sentence, best first: (words, beams, totals), each (B, count).

    scores: of each next word (R, V), an array of the library in use. totals: of each beginning (B, W), to which the
    scores are added in float64. Among equals the earlier beam wins, and of one beam the lower id.
    """
    n, beams = totals.shape
    size = scores.shape[-1]
    every = to_numpy(scores).astype(np.float64).reshape(n, beams, size) + totals[:, :, None]
    every = every.reshape(n, beams * size)
    best = np.argsort(-every, axis=-1, kind="stable")[:, :count]
    return best % size, best // size, np.take_along_axis(every, best, axis=-1)


def _checked(source, alpha):
    """Return the rows of source ids as an array (B, S)."""
    source = np.asarray(source)
    if source.ndim != 2 and source.shape != (0,):
        raise ValueError(f"source ids have the shape (B, S), one row for each sentence, not {source.shape}")
    if not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a number of at least 0, not {alpha}")
    return source


def _limits(model, source, max_extra):
    """Return the most words, end mark included, of a translation of each row: as many as the source, and max_extra."""
    special = (model.config.pad_id, model.config.eos_id)
    lengths = np.isin(source, special, invert=True).sum(axis=1) + max_extra
    if model.config.positions == "learned":
        lengths = np.minimum(lengths, model.config.max_length)
    return np.maximum(lengths, 1)


def can_cache(model: Transformer) -> bool:
    """Return whether the model can be decoded with a cache.

    A module that cannot says `can_cache = False`. A module that changes a method on which the cache relies is decoded
    without one, which is slower and always right, unless it says `can_cache = True`. Modules that act on each position
    alone (the feed-forward network, norms, embeddings) need to say nothing.
    """
    if not all(getattr(module, "can_cache", True) for module in model.modules()):
        return False
    if not isinstance(model, Transformer):
        return getattr(model, "can_cache", False)
    relied_on = [(model, Transformer), (model.decoder, Decoder), (model.target_positions, Positions)]
    for layer in getattr(model.decoder, "layers", ()):
        relied_on.append((layer, DecoderLayer))
        for name in ("self_attention", "source_attention"):
            if hasattr(layer, name):
                relied_on.append((getattr(layer, name), MultiHeadAttention))
    return all(getattr(module, "can_cache", False) or _is_own(module, kind) for module, kind in relied_on)


def _is_own(module, kind):
    """Return whether a module is of this kind, with the library's methods where a cache relies on them."""
    if kind is not Transformer and _OWN[kind].keys() & vars(module).keys():  # replaced in this one object
        return False
    return isinstance(module, kind) and all(getattr(type(module), name) is own for name, own in _OWN[kind].items())


@accelerated
def next_words(model: Transformer, source: Ids, width: int, cached: bool) -> Callable:
    """Return an object that scores the next words of the texts being written, `width` for each row of source ids.

    Called with these texts, ids (R, t), it returns logits (R, V), on the device, and normalisers (R,):

        ln P(word) = logit - normaliser

    Its method select(rows) keeps these rows of the texts, in this order; each sentence keeps `width` of them, or none.
    cached: whether the decoder reads the newest word only, where the model can.
    """
    return _NextWords(model, source, width, cached)


class _NextWords:
    """See next_words. R = B * width texts are independent rows of one batch."""

    def __init__(self, model, source, width, cached):
        memory, mask = model.encode(source)
        rows = np.repeat(np.arange(len(source)), width)
        self.model, self.memory, self.mask, self.caches = model, memory[to_device(rows)], mask[rows], None
        if cached and can_cache(model):
            self.caches = [(Cache(grows=True), Cache(grows=False)) for _ in model.decoder.layers]

    def __call__(self, texts):
        if self.caches is None:
            hidden = self.model.decode(texts, self.memory, self.mask)
        else:
            start = texts.shape[1] - 1
            hidden = self.model.decode(texts[:, -1:], self.memory, self.mask, start, self.caches)
        return scores_of(self.model, hidden[:, -1])

    def select(self, rows):
        self.memory, self.mask = self.memory[to_device(rows)], self.mask[rows]
        for caches in self.caches or ():
            for cache in caches:
                cache.select(rows)


def scores_of(model: Transformer, hidden: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (R, V) and normalisers (R,) of the decoder's output (R, D); no text has padding or start marks."""
    logits = model.logits(hidden).data
    normalisers = normalisers_of(logits)
    for never in (model.config.pad_id, model.config.bos_id):
        logits[:, never] = -xp.inf
    return logits, normalisers


@accelerated
def normalisers_of(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of the exponentials of each row of logits (R, V): float64 (R,), on the CPU.

    normaliser = ln sum_j exp(logit_j)
    """
    greatest = logits.max(axis=-1, keepdims=True)  # subtracted first, or exp would overflow
    normalisers = xp.log(xp.exp(logits - greatest).sum(axis=-1, keepdims=True)) + greatest
    return to_numpy(normalisers)[:, 0].astype(np.float64)


class Cache:
    """The keys and values (R, H, n, K) of one attention, one row for each text, kept from step to step.

    grows: whether each step adds those of the newest word, as in self-attention; those of the source stay the same.
    positions: of the queries (1, 1) and of the keys (1, n) in their texts, at the latest step.
    """

    def __init__(self, grows: bool):
        self.grows, self.kept, self.steps = grows, None, 0

    def __call__(self, attention: MultiHeadAttention, x: Tensor) -> list[Tensor]:
        """Return the keys and values of this step; x (R, n, D): the newest words, or the source."""
        if self.kept is None:
            self.kept = attention.keys_and_values(x)
        elif self.grows:
            new = attention.keys_and_values(x)
            self.kept = [F.concatenate(pair, axis=2) for pair in zip(self.kept, new, strict=True)]
        self.positions = np.array([[self.steps]]), np.arange(self.kept[0].shape[2])[None]
        self.steps += 1
        return self.kept

    def select(self, rows: np.ndarray) -> None:
        """Keep these of the texts, in this order."""
        self.kept = [array[to_device(rows)] for array in self.kept]
