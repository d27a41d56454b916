"""From a trained model to sentences: greedy decoding, beam search, the length penalty, the cache.

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
    """A translation: its ids without the end mark, its ln P, and the score that ranks it."""

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
    """Run a way of decoding without dropout and without recording; leave the model as it was."""

    @functools.wraps(decode)
    def run(model, *arguments, **options):
        with model.evaluating(), no_grad():
            return decode(model, *arguments, **options)

    return run


def greedy(
    model: Transformer, source: Ids, max_extra: int = 50, cached: bool = True, alpha: float = 0.0
) -> list[Hypothesis]:
    """Write the most probable next word until the end mark: a Hypothesis for each row of source.

    source: ids (B, S). At most max_extra words more than the source has are written. With
    cached=False the decoder reads the text from its beginning at each step: slower, and the same.
    alpha: of the length penalty, which divides ln P in the score.
    """

    def most_probable(logits, alive):
        return to_numpy(logits.argmax(axis=-1))

    return write(model, source, most_probable, max_extra, cached, alpha)


@_evaluating
def write(
    model: Transformer,
    source: Ids,
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    max_extra: int = 50,
    cached: bool = True,
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """Write words that `choose` picks until the end mark: a Hypothesis for each row of source.

    choose: see lengthen. Greedy decoding picks the most probable word, sampling draws one. The
    rest is as in greedy.
    """
    source = _checked(source, alpha)
    if len(source) == 0:
        return []
    c, limits = model.config, _limits(model, source, max_extra)
    texts = np.full((len(source), 1), c.bos_id)
    return lengthen(next_words(model, source, 1, cached), texts, limits, choose, c.eos_id, alpha)


def lengthen(
    scorer: Callable,
    texts: np.ndarray,
    limits: np.ndarray,
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    end_id: int | None = None,
    alpha: float = 0.0,
) -> list[Hypothesis]:
    """Add words to each text (R, t), until the end mark or its limit: a Hypothesis for each.

    scorer: see next_words. choose(logits, alive) returns the next word of each text, NumPy integers
    (R,); alive: the rows of these texts in the batch that was given.
    """
    ids, totals = [[] for _ in limits], np.zeros(len(limits))
    lengths = np.zeros(len(limits), dtype=int)  # with the end mark
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

    Each step looks at the 2 * beam best continuations of a sentence. One that ends with the end
    mark is finished if it is among the best `beam` of them; the best `beam` of the others live on.
    A sentence is done when `beam` of its hypotheses are finished and no living one can reach the
    n_best, or at max_extra words more than its source has. A text that is cut off there, without an
    end mark, comes after all that are finished, whatever their scores, so n_best = 1 gives the
    first of n_best = 3.
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
    totals = np.full((len(going), beam), -np.inf)  # ln P of each beginning
    totals[:, 0] = 0  # at first they are all the same one
    while going:
        logits, normalisers = scorer(texts)
        totals -= normalisers.reshape(totals.shape)
        words, beams, totals = continuations(logits, totals, 2 * beam)
        kept = []
        for i, search in enumerate(going):
            kept.append(search.advance(words[i], totals[i], texts[i * beam + beams[i]]))
        alive = [i for i, search in enumerate(going) if not search.done]
        going = [going[i] for i in alive]
        if going:
            sentences = np.array(alive)[:, None]  # (B, 1)
            kept = np.stack([kept[i] for i in alive])  # (B, W)
            rows = (sentences * beam + beams[sentences, kept]).ravel()
            texts = np.concatenate([texts[rows], words[sentences, kept].reshape(-1, 1)], axis=1)
            totals = totals[sentences, kept]
            scorer.select(rows)
    return [search.best() for search in searches]


class _Search:
    """The search of one sentence: its finished texts, those cut off at the limit, its end."""

    def __init__(self, limit, beam, alpha, n_best, eos_id):
        self.limit, self.beam, self.alpha = limit, beam, alpha
        self.n_best, self.eos_id = n_best, eos_id
        self.finished, self.cut, self.done = [], [], False

    def advance(self, words, totals, texts):
        """Finish the texts that end, and return the ranks of the `beam` continuations that go on.

        words, totals, texts: the new word, ln P and beginning of each continuation, best first.
        Those that go on but can never win get the total -infinity.
        """
        length = texts.shape[1]  # when continued: the start mark does not count, an end mark does
        kept = []
        for rank, (word, total) in enumerate(zip(words, totals, strict=True)):
            if word != self.eos_id:
                kept.append(rank)
            elif rank < self.beam:
                self._add(self.finished, texts[rank][1:], total, length)
        # With a tiny vocabulary too few may go on: those that ended fill the beam, as dead rows.
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
            # The greatest length has the kindest penalty that a living hypothesis can ever get.
            self.done = living / length_penalty(self.limit, self.alpha) <= scores[self.n_best - 1]
        return np.array(kept + dead, dtype=int)

    def _add(self, hypotheses, ids, total, length):
        if total > -np.inf:
            score = float(total) / length_penalty(length, self.alpha)
            hypotheses.append(Hypothesis([int(i) for i in ids], float(total), score))

    def best(self):
        """Return the n_best: those that finished, then those cut off, each sorted by score."""
        found = []
        for hypotheses in (self.finished, self.cut):
            found += sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
        return found[: self.n_best]


@accelerated
def continuations(
    scores: np.ndarray, totals: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best `count` continuations of each sentence, best first: three arrays (B, count).

    The arrays are the words, their beams and their totals. scores: of each next word (R, V), on the
    device. totals: of each beginning (B, W), to which the scores are added in float64. Among equals
    the earlier beam wins, and of one beam the lower id.
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
        raise ValueError(
            f"source ids have the shape (B, S), one row for each sentence, not {source.shape}"
        )
    if not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a number of at least 0, not {alpha}")
    return source


def _limits(model, source, max_extra):
    """Return the most words of each translation, end mark included: the source's, and max_extra."""
    special = (model.config.pad_id, model.config.eos_id)
    lengths = np.isin(source, special, invert=True).sum(axis=1) + max_extra
    if model.config.positions == "learned":
        lengths = np.minimum(lengths, model.config.max_length)
    return np.maximum(lengths, 1)


def can_cache(model: Transformer) -> bool:
    """Return whether the model can be decoded with a cache.

    A module that cannot says `can_cache = False`. A module that changes a method on which the cache
    relies is decoded without one, which is slower and always right, unless it says
    `can_cache = True`. Modules that act on each position alone (the feed-forward network, norms,
    embeddings) need to say nothing.
    """
    if not all(getattr(module, "can_cache", True) for module in model.modules()):
        return False
    if not isinstance(model, Transformer):
        return getattr(model, "can_cache", False)
    relied_on = [(model, Transformer), (model.decoder, Decoder)]
    relied_on.append((model.target_positions, Positions))
    for layer in getattr(model.decoder, "layers", ()):
        relied_on.append((layer, DecoderLayer))
        for name in ("self_attention", "source_attention"):
            if hasattr(layer, name):
                relied_on.append((getattr(layer, name), MultiHeadAttention))
    return all(getattr(m, "can_cache", False) or _is_own(m, kind) for m, kind in relied_on)


def _is_own(module, kind):
    """Return whether a module is of this kind, and has its methods on which a cache relies."""
    own = _OWN[kind]
    if kind is not Transformer and own.keys() & vars(module).keys():  # replaced in this one object
        return False
    replaced = any(getattr(type(module), name, None) is not own[name] for name in own)
    return isinstance(module, kind) and not replaced


@accelerated
def next_words(model: Transformer, source: Ids, width: int, cached: bool) -> Callable:
    """Return an object that scores the next words of texts, `width` of them for each row of source.

    Called with the texts, ids (R, t), it returns logits (R, V), on the device, and normalisers:

        ln P(word) = logit - normaliser

    Its method select(rows) keeps these rows of the texts; the sentences stay in their order, and
    each keeps `width` rows, or none. cached: whether the decoder reads only the newest word of each
    text, if the model can be decoded so.
    """
    return _NextWords(model, source, width, cached)


class _NextWords:
    """See next_words. R = B * width texts are independent rows of one batch."""

    def __init__(self, model, source, width, cached):
        memory, mask = model.encode(source)
        rows = np.repeat(np.arange(len(source)), width)
        self.model, self.memory, self.mask = model, memory[to_device(rows)], mask[rows]
        self.caches = None
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
    """Return logits (R, V) and normalisers (R,) of the decoder's output (R, D).

    Padding and start marks have logits of -infinity: no text contains them.
    """
    logits = model.logits(hidden).data
    normalisers = normalisers_of(logits)
    for never in (model.config.pad_id, model.config.bos_id):
        logits[:, never] = -xp.inf
    return logits, normalisers


@accelerated
def normalisers_of(logits: np.ndarray) -> np.ndarray:
    """Return the log of the sum of the exponentials of each row of logits (R, V).

        normaliser = ln sum_j exp(logit_j)

    They are float64 (R,), on the CPU.
    """
    greatest = logits.max(axis=-1, keepdims=True)  # subtracted first, or exp would overflow
    normalisers = xp.log(xp.exp(logits - greatest).sum(axis=-1, keepdims=True)) + greatest
    return to_numpy(normalisers)[:, 0].astype(np.float64)


class Cache:
    """Keys and values (R, H, n, K) of one attention, kept from step to step: a row for each text.

    grows: whether each step adds those of the newest word, as in self-attention; those of the
    source are the same at all steps.
    positions: of the queries (1, 1) and of the keys (1, n) in their texts, at the latest step.
    """

    def __init__(self, grows: bool):
        self.grows, self.kept, self.steps = grows, None, 0

    def __call__(self, attention: MultiHeadAttention, x: Tensor) -> list[Tensor]:
        """Return the keys and values, with those of x (R, n, D): a new word, or the source."""
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
