"""From a trained model to sentences: greedy decoding, beam search, the length penalty, the cache.

Letters: B sentences, W beams of each, R = B * W texts that are written side by side, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from minitf import functions as F
from minitf.backend import to_device, to_numpy, xp
from minitf.forms import accelerated
from minitf.nn import computes_as
from minitf.tensor import Ids, Tensor, no_grad
from minitf.transformer import Decoder, DecoderLayer, MultiHeadAttention, Positions, Transformer

__all__ = ["Hypothesis", "beam_search", "greedy", "length_penalty"]


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation: its ids without the end mark, its ln P, and the score that ranks it."""

    ids: list[int]
    log_probability: float
    score: float


def length_penalty(length: float, alpha: float = 0.6) -> float:
    """Return the divisor of ln P that lets a long translation win over a short one.

        lp(Y) = ((5 + |Y|) / 6)^alpha

    |Y| counts the end mark.
    >>> length_penalty(1), round(length_penalty(13, alpha=1.0), 3)
    (1.0, 3.0)

    Source: section 6.1; Wu et al. 2016, eq. 14.
    """
    return ((5 + length) / 6) ** alpha


def _evaluating(decode):
    """Decorate a function that decodes: it runs without dropout and without recording."""

    @functools.wraps(decode)
    def run(model, *arguments, **options):
        with model.evaluating(), no_grad():
            return decode(model, *arguments, **options)

    return run


def greedy(
    model: Transformer, source: Ids, max_extra: int = 50, cached: bool = True, alpha: float = 0.0
) -> list[Hypothesis]:
    """Write the most probable next token until the end mark: a Hypothesis for each sentence.

    source: ids (B, S).
    max_extra: a text has at most this many tokens more than its source.
    cached: with False, the decoder reads each text from its beginning at every step, which is
    slower and gives the same result.
    alpha: the exponent of the length penalty, which divides ln P in the score.
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
    """Write the tokens that `choose` picks until the end mark: a Hypothesis for each sentence.

    choose: see lengthen. Greedy decoding picks the most probable token, sampling draws one. The
    other arguments are those of greedy.
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
    """Add tokens to each text (R, t), up to the end mark or its limit: a Hypothesis for each.

    scorer: see next_words.
    choose: called as choose(logits, alive), it returns the next token of each text, NumPy integers
    (R,); alive: the rows of these texts in the original batch.
    limits: the greatest length of each text, NumPy integers (R,).
    """
    ids, totals = [[] for _ in limits], np.zeros(len(limits))
    lengths = np.zeros(len(limits), dtype=int)  # with the end mark
    alive = np.arange(len(limits))  # texts that go on
    while len(alive):
        logits, normalisers = scorer(texts)
        tokens = choose(logits, alive)
        chosen = logits[xp.arange(len(tokens)), to_device(tokens)]
        totals[alive] += to_numpy(chosen) - normalisers
        lengths[alive] += 1
        for row, token in zip(alive, tokens, strict=True):
            if token != end_id:
                ids[row].append(int(token))
        going = (tokens != end_id) & (lengths[alive] < limits[alive])
        texts = np.concatenate([texts, tokens[:, None]], axis=1)
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

    Return for each sentence of source ids (B, S) its n_best hypotheses, best first by

        score = ln P(Y) / lp(Y)

    Each step considers the 2 * beam best continuations of a sentence. One that ends with the end
    mark is finished if it is among the best `beam` of them; the best `beam` of the others go on.
    A sentence is done when `beam` of its hypotheses are finished and no other can still reach the
    n_best, or at max_extra tokens more than its source. A text that is cut off there, without an
    end mark, comes after all finished ones, whatever their scores.
    n_best: at most beam. The other arguments are those of greedy.
    Raises ValueError for a beam, n_best or alpha out of range.
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
    totals = np.full((len(going), beam), -np.inf)  # ln P of each text so far
    totals[:, 0] = 0  # at first all texts of a sentence are equal: only one of them counts
    while going:
        logits, normalisers = scorer(texts)
        totals -= normalisers.reshape(totals.shape)
        tokens, beams, totals = continuations(logits, totals, 2 * beam)  # (B, 2*W) each
        rows = np.arange(len(going))[:, None] * beam + beams  # of the texts that are continued
        longer = np.concatenate([texts[rows], tokens[:, :, None]], axis=2)  # (B, 2*W, t + 1)
        kept = [search.advance(longer[i], totals[i]) for i, search in enumerate(going)]
        alive = [i for i, search in enumerate(going) if not search.done]
        going = [going[i] for i in alive]
        if going:
            chosen = np.array(alive)[:, None], np.array(kept)[alive]  # (B, 1), (B, W)
            texts = longer[chosen].reshape(-1, longer.shape[2])
            totals = totals[chosen]
            scorer.select(rows[chosen].ravel())
    return [search.best() for search in searches]


class _Search:
    """The search of one sentence: its texts that finished, and those cut off at the limit."""

    def __init__(self, limit, beam, alpha, n_best, eos_id):
        self.limit, self.beam, self.alpha = limit, beam, alpha
        self.n_best, self.eos_id = n_best, eos_id
        self.finished, self.cut, self.done = [], [], False

    def advance(self, texts, totals):
        """Finish the texts that end, and return the ranks of the `beam` texts that go on.

        texts (2*W, t), totals (2*W,): the continuations and their ln P, best first. Those that go
        on but can never win get the total -infinity.
        """
        length = texts.shape[1] - 1  # without the start mark, with the end mark
        ends = (texts[:, -1] == self.eos_id).tolist()
        for rank in range(self.beam):
            if ends[rank]:
                self._add(self.finished, texts[rank, 1:-1], totals[rank], length)
        kept = [rank for rank, end in enumerate(ends) if not end][: self.beam]
        # With a tiny vocabulary too few may go on: some that ended fill the beam, and never win.
        dead = [rank for rank, end in enumerate(ends) if end][: self.beam - len(kept)]
        totals[dead] = -np.inf
        highest = totals[kept[0]] if kept else -np.inf
        if length >= self.limit or highest == -np.inf:
            for rank in kept:
                self._add(self.cut, texts[rank, 1:], totals[rank], length)
            self.done = True
        elif len(self.finished) >= self.beam:
            scores = sorted((hypothesis.score for hypothesis in self.finished), reverse=True)
            # No text that goes on can get a larger divisor than that of the greatest length.
            self.done = highest / length_penalty(self.limit, self.alpha) <= scores[self.n_best - 1]
        return kept + dead

    def _add(self, hypotheses, ids, total, length):
        if total > -np.inf:
            score = float(total) / length_penalty(length, self.alpha)
            hypotheses.append(Hypothesis(ids.tolist(), float(total), score))

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

    The arrays are the tokens, their beams and their totals. scores: of each next token (R, V), on
    the device. totals: of each text so far (B, W), to which the scores are added in float64. Among
    equal ones the earlier beam comes first, and of one beam the lower id.
    """
    n, beams = totals.shape
    size = scores.shape[-1]
    sums = totals[:, :, None] + to_numpy(scores).astype(np.float64).reshape(n, beams, size)
    sums = sums.reshape(n, beams * size)
    best = np.argsort(-sums, axis=-1, kind="stable")[:, :count]
    return best % size, best // size, np.take_along_axis(sums, best, axis=-1)


def _checked(source, alpha):
    """Return source ids as an array (B, S). Raises ValueError for other shapes, and for alpha."""
    source = np.asarray(source)
    if source.ndim != 2 and source.shape != (0,):
        raise ValueError(
            f"source ids have the shape (B, S), one row for each sentence, not {source.shape}"
        )
    if not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a number of at least 0, not {alpha}")
    return source


def _limits(model, source, max_extra):
    """Return the greatest length of each translation, with its end mark."""
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

    def fits(module, kind, *methods):
        return getattr(module, "can_cache", False) or computes_as(kind, module, methods=methods)

    layers = getattr(model.decoder, "layers", ())
    names = ("self_attention", "source_attention")
    attentions = [
        getattr(layer, name) for layer in layers for name in names if hasattr(layer, name)
    ]
    of_attention = ("__call__", "keys_and_values", "split_heads", "merge_heads")
    return (
        fits(model, Transformer, "decode")
        and fits(model.target_positions, Positions, "__call__")
        and fits(model.decoder, Decoder, "__call__")
        and all(fits(layer, DecoderLayer, "__call__") for layer in layers)
        and all(fits(attention, MultiHeadAttention, *of_attention) for attention in attentions)
    )


@accelerated
def next_words(model: Transformer, source: Ids, width: int, cached: bool) -> Callable:
    """Return a scorer of the next tokens of texts, `width` texts for each row of source.

    Called with the texts, ids (R, t), it returns logits (R, V), on the device, and normalisers:

        ln P(token) = logit - normaliser

    Its method select(rows) keeps these of the texts; the sentences stay in their order, and each
    keeps `width` texts, or none. cached: whether the decoder reads only the newest token of each
    text, if the model can be decoded so.
    """
    return _NextWords(model, source, width, cached)


class _NextWords:
    """The scorer of `next_words` for which the R = B * width texts are rows of one batch."""

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
    """Return the logits (R, V) and normalisers (R,) of the decoder's output (R, D).

    Padding and the start mark, which no text may contain, get logits of -infinity.
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
    greatest = logits.max(axis=-1, keepdims=True)  # subtracted first, or exp could overflow
    normalisers = xp.log(xp.exp(logits - greatest).sum(axis=-1, keepdims=True)) + greatest
    return to_numpy(normalisers)[:, 0].astype(np.float64)


class Cache:
    """The keys and values (R, H, n, K) of one attention, kept from step to step.

    grows: whether each step adds the newest token, as in self-attention; the source is the same at
    all steps.
    positions: of the queries (1, 1) and of the keys (1, n) in their texts, at the latest step.
    """

    def __init__(self, grows: bool):
        self.grows, self.kept, self.steps = grows, None, 0

    def __call__(self, attention: MultiHeadAttention, x: Tensor) -> list[Tensor]:
        """Return all keys and values, those of x (R, n, D) included: a new token, or the source."""
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
