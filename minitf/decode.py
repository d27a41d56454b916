"""From a trained model to sentences: greedy decoding, beam search, the length penalty, the cache.

The *beam* of a sentence is the set of its W unfinished texts; `beam` and W are its width.

Letters: B sentences, W texts of each, R = B * W texts that are extended side by side, t tokens of
each text, V vocabulary, H heads, K d_k, U d_v, n tokens in a cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from minitf import functions as F
from minitf.backend import to_device, to_numpy, xp
from minitf.config import Config
from minitf.errors import UserError
from minitf.forms import accelerated, agree, off, say_once
from minitf.inputs import batch_of_ids
from minitf.tensor import Ids, Tensor, no_grad
from minitf.transformer import MultiHeadAttention, Transformer

__all__ = ["Decoding", "Hypothesis", "beam_search", "greedy", "length_penalty"]

_NOTHING_ALLOWED = "after some text no token is allowed"


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation: its ids without the end mark, its ln P, and the score that ranks it."""

    ids: list[int]
    log_probability: float
    score: float


class BeamStep(NamedTuple):
    """A decoding step of beam search for one sentence: its 2*W best continuations, best first.

    parents: the text of the step before, 0 to W - 1, that each continuation continues.
    tokens, log_probabilities: the token that each adds, and ln P of the text with it.
    finished: the places of those that end here with the end mark, as hypotheses.
    kept: the places of the W that go on; the first of them is text 0 of the next step.
    """

    parents: list[int]
    tokens: list[int]
    log_probabilities: list[float]
    finished: list[int]
    kept: list[int]


def length_penalty(length: float, alpha: float = 0.6) -> float:
    """Return the divisor of ln P that lets a long translation win over a short one.

        lp(Y) = ((5 + |Y|) / 6)^alpha

    |Y| counts the end mark.
    >>> length_penalty(1), round(length_penalty(13, alpha=1.0), 3)
    (1.0, 3.0)

    Source: section 6.1; Wu et al. 2016, eq. 14.
    """
    return ((5 + length) / 6) ** alpha


class Allowed(Protocol):
    """Says which tokens may come next, where output must be well-formed: a tree, or text."""

    def __call__(self, texts: np.ndarray, sentences: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return for each text whether each token of the vocabulary may follow: bool (R, V).

        The array is NumPy's, or one of the library in use.
        texts: ids (R, t), each with the start mark. sentences: the number of the sentence of each.
        left: how many tokens each text may still get, the end mark included.
        Some token must be allowed after each text that can occur. In a beam some texts may be
        impossible: nothing of what may follow them is used.
        """


def greedy(
    model: Transformer | Decoding,
    source: Ids,
    max_extra: int = 50,
    alpha: float = 0.0,
    allowed: Allowed | None = None,
) -> list[Hypothesis]:
    """Add the most probable next token until the end mark: a Hypothesis for each sentence.

    model: a model, which is decoded by its `fastest_decoding`, or a Decoding of it: one that was
    made once for several calls, or Decoding(model, cached=False).
    source: ids (B, S).
    max_extra: a translation, with its end mark, has at most this many tokens more than its source
    has without one, and at least one.
    alpha: the exponent of the length penalty, which divides ln P in the score.
    allowed: says which tokens may come next; by default all but padding and the start mark. ln P
    is the model's own: it is not normalised over the allowed tokens.
    """
    return decode_with(
        lambda logits, _: to_numpy(logits.argmax(axis=-1)), model, source, max_extra, alpha, allowed
    )


def decode_with(
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    model: Transformer | Decoding,
    source: Ids,
    max_extra: int = 50,
    alpha: float = 0.0,
    allowed: Allowed | None = None,
) -> list[Hypothesis]:
    """Translate with the tokens that `choose` picks: a Hypothesis for each sentence.

    choose: see write_texts. Greedy decoding picks the most probable token, sampling draws one. The
    other arguments are those of greedy.
    """
    decoding, source = _decoding_and_source(model, source, alpha)
    if len(source) == 0:
        return []
    c, limits = decoding.model.config, greatest_lengths(decoding.model, source, max_extra)
    texts = np.full((len(source), 1), c.bos_id)
    with decoding.model.evaluating(), no_grad():
        scorer = decoding.start(source)
        never = c.pad_id, c.bos_id
        return write_texts(texts, scorer, choose, limits, never, c.eos_id, alpha, allowed)


class Scorer(Protocol):
    """Scores the next tokens of texts that are extended side by side.

    ids: the ids that a shortlist leaves to each sentence (B, n), or None for all. The logits of a
    text are those of its sentence's ids, (R, n).
    """

    ids: np.ndarray | None = None

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Return the logits (R, V) of the tokens after texts, ids (R, t).

        They may be changed by the caller. A scorer may have a cache. So the first call is for one
        text of each sentence, of one token, and each later one for the same texts, or those of
        `select`, with one token more.
        """

    def select(self, rows: np.ndarray, width: int = 1) -> None:
        """Continue with these texts only, in this order: `width` of each sentence that is left.

        rows: those of the texts. The sentences may come in another order. A row may occur several
        times: one text then continues as several.
        """


def write_texts(
    texts: np.ndarray,
    scorer: Scorer,
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
    limits: np.ndarray,
    never: Sequence[int] = (),
    end_id: int | None = None,
    alpha: float = 0.0,
    allowed: Allowed | None = None,
) -> list[Hypothesis]:
    """Add tokens to each text (R, t), up to the end mark or its limit: a Hypothesis for each.

    choose: called as choose(logits, sentences), it returns the next token of each text that goes
    on, NumPy integers; sentences: the number of the sentence of each, its row in the batch.
    limits: how many tokens each text may get, the end mark included, NumPy integers (R,).
    never, allowed: see `rule_out`.
    """
    ids, totals = [[] for _ in limits], np.zeros(len(limits))
    lengths = np.zeros(len(limits), dtype=int)  # with the end mark
    first, sentences = texts.shape[1], np.arange(len(limits))  # those whose texts go on
    while len(sentences):
        logits = scorer(texts)
        left = limits[sentences] - lengths[sentences]
        sums = rule_out(logits, *_ruled_out(scorer, never, allowed, texts, sentences, left))
        tokens = choose(logits, sentences)
        chosen = to_numpy(logits[xp.arange(len(tokens)), to_device(tokens)])
        if scorer.ids is not None:
            tokens = scorer.ids[sentences, tokens]
        if allowed is not None and np.isneginf(chosen).any():
            raise ValueError(_NOTHING_ALLOWED)
        totals[sentences] += chosen - sums
        lengths[sentences] += 1
        texts = np.concatenate([texts, tokens[:, None]], axis=1)
        done = (tokens == end_id) | (left <= 1)
        if done.any():
            for i in done.nonzero()[0]:
                end = -1 if tokens[i] == end_id else None
                ids[sentences[i]] = texts[i, first:end].tolist()
            rows = _without(done)
            sentences, texts = sentences[rows], texts[rows]
            scorer.select(rows)
    scores = totals / length_penalty(lengths, alpha)
    return [Hypothesis(*each) for each in zip(ids, totals.tolist(), scores.tolist(), strict=True)]


def _ruled_out(scorer, never, allowed, texts, sentences, left):
    """Return what `rule_out` rules out of a scorer's logits, as two of its arguments.

    With a shortlist the logits of the ids `never` are -infinity, or not there.
    """
    may_follow = None if allowed is None else allowed(texts, sentences, left)
    if scorer.ids is None:
        return never, may_follow
    if may_follow is not None:
        may_follow = of_columns(to_device(may_follow), scorer.ids[sentences])
    return (), may_follow


def of_columns(array, columns):
    """Return other columns of each row of an array (R, V): those of `columns`, (R, n)."""
    return array[xp.arange(len(columns))[:, None], to_device(columns)]


def rule_out(
    logits: np.ndarray, never: Sequence[int] = (), allowed: np.ndarray | None = None
) -> np.ndarray:
    """Return the logsumexp (R,) of logits (R, V), and rule out tokens, in place.

        ln P(token) = logit - logsumexp

    The difference is left to the caller, who needs it for few tokens, and in float64: ln P(Y) is a
    sum over many tokens. Ruled out are the ids `never`, such as padding and the start mark, and
    those where allowed, bool (R, V), is False: their logits become -infinity, after the logsumexp
    was computed, so ln P of the others is the model's own.
    Raises UserError if a logsumexp, and so ln P of every token, is NaN or infinite.
    """
    sums = logsumexp(logits)
    refuse_infinite(sums)
    for token in never:
        logits[:, token] = -xp.inf
    if allowed is not None:
        xp.copyto(logits, -np.inf, where=~to_device(allowed))
    return sums


def refuse_infinite(sums: np.ndarray) -> None:
    """Raise UserError if a logsumexp, and so ln P of every token, is NaN or infinite."""
    if not np.isfinite(sums).all():
        raise UserError("the model outputs NaN: its weights are broken, use another model")


def beam_search(
    model: Transformer | Decoding,
    source: Ids,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    allowed: Allowed | None = None,
    trace: list[list[BeamStep]] | None = None,
    like: str = "paper",
) -> list[list[Hypothesis]]:
    """Keep the `beam` most probable beginnings of each translation, and finish the best of them.

    Return for each sentence of source ids (B, S) its n_best hypotheses, best first by

        score = ln P(Y) / lp(Y)

    Each step considers the 2 * beam best continuations of a sentence. At most `beam` of these end,
    one for each beginning, so at least `beam` can go on. A continuation that ends with the end mark
    is finished if it is among the best `beam`; the best `beam` of the others go on.
    A sentence is done when `beam` of its hypotheses are finished and no other can still reach the
    n_best, or at max_extra tokens more than its source. A text that is cut off there, without an
    end mark, comes after all finished ones, whatever their scores.
    n_best: at most beam. The other arguments are those of greedy.
    trace: a list to which the BeamSteps of each sentence are added, as one list for each sentence.
    like: "paper", or "marian" for Marian's search: its length penalty is |Y|^alpha, a text that
    ends leaves its place in the beam empty, and a sentence is done when all `beam` have ended.
    Raises ValueError for a beam, n_best, alpha or `like` out of range.
    Source: section 6.1; Wu et al. 2016, section 7.
    """
    decoding, source = _decoding_and_source(model, source, alpha)
    if beam < 1:
        raise ValueError(f"the beam width must be at least 1, not {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be from 1 to the beam width {beam}, not {n_best}")
    if like not in ("paper", "marian"):
        raise ValueError(f"like must be paper or marian, not {like!r}")
    if len(source) == 0:
        return []
    c, limits = decoding.model.config, greatest_lengths(decoding.model, source, max_extra)
    search = _Search(limits, beam, alpha, n_best, c.eos_id, trace is not None, like)
    with decoding.model.evaluating(), no_grad():
        scorer = decoding.start(source)
        _search_together(search, scorer, allowed, pad_id=c.pad_id, start_id=c.bos_id)
    if trace is not None:
        trace += search.steps
    return search.best()


def _search_together(search, scorer, allowed, pad_id, start_id):
    """Advance the search of all sentences side by side, a token at a time, until each is done.

    The texts are rows of one array. For B = 2 sentences with W = 2 texts each:

        row       0  1  2  3
        sentence  0  0  1  1
        text      0  1  0  1

    If the 2*W best continuations of sentence 1 have the `parents` [1, 0, 0, 1], they continue the
    rows [3, 2, 2, 3]. If the first of these ends, `kept` has the places [1, 2] of those that go on,
    and sentence 1 continues twice with row 2.
    """
    count, sentences = 2 * search.beam, np.arange(len(search.limits))  # those that are not done
    texts = np.full((len(sentences), 1), start_id)
    totals = np.zeros((len(sentences), 1))  # ln P of each text so far: at first there is one
    while len(sentences):
        width, logits, each = totals.shape[1], scorer(texts), sentences.repeat(totals.shape[1])
        left = search.limits[each] - (texts.shape[1] - 1)
        ruled_out = _ruled_out(scorer, (pad_id, start_id), allowed, texts, each, left)
        tokens, parents, totals = continuations(logits, totals, count, *ruled_out)
        if scorer.ids is not None:
            tokens = scorer.ids[sentences[:, None], tokens]
        if (missing := count - tokens.shape[1]) > 0:  # fewer tokens than continuations
            pads, fillers = ((0, 0), (0, missing)), (start_id, 0, -np.inf)
            pairs = zip((tokens, parents, totals), fillers, strict=True)
            tokens, parents, totals = (np.pad(x, pads, constant_values=y) for x, y in pairs)
        kept, done = search.advance(sentences, texts, parents, tokens, totals)
        active = _without(done)
        sentences, kept = sentences[active], (active[:, None], kept[active])
        totals, rows = totals[kept], (active[:, None] * width + parents[kept]).ravel()
        texts = np.concatenate([texts[rows], tokens[kept].reshape(-1, 1)], axis=1)
        scorer.select(rows, search.beam)


def _without(done):
    """Return the places of the sentences that are not done; the last fill the gaps, few move.

    >>> _without(np.array([False, True, False, False, True, False]))
    array([0, 5, 2, 3])
    """
    places = np.arange(len(done) - np.count_nonzero(done))
    places[done[: len(places)]] = len(places) + np.flatnonzero(~done[len(places) :])
    return places


class _Search:
    """The search of all sentences: the greatest length of each, its hypotheses, and its steps.

    hypotheses: for each sentence those that finished, best first; then those cut off at the limit.
    steps: the BeamSteps of each sentence, or None if nobody asks for them.
    """

    def __init__(self, limits, beam, alpha, n_best, eos_id, traced, like):
        self.limits, self.beam, self.n_best, self.eos_id = limits, beam, n_best, eos_id
        self.narrows = like == "marian"
        self.penalty = lambda n: n**alpha if self.narrows else length_penalty(n, alpha)
        self.hypotheses, self.n_finished = [[] for _ in limits], np.zeros(len(limits), int)
        self.steps = [[] for _ in limits] if traced else None

    def advance(self, sentences, texts, parents, tokens, totals):
        """Finish the texts that end; return the places of the W that go on, and who is done.

        Each of these sentences has texts, rows of (R, t), and 2*W continuations, best first: the
        text that each continues, 0 to W - 1, the token that it adds, and ln P of both, (B, 2*W).
        ln P becomes -inf in the places that a narrower beam has lost.
        """
        length = texts.shape[1]  # without the start mark, with the new token
        texts = texts.reshape(len(sentences), -1, length)  # (B, W, t)
        if self.narrows:  # those that have ended keep their places
            ended = self.n_finished[sentences, None]
            totals[np.arange(2 * self.beam) >= self.beam - ended] = -np.inf
        ends = tokens == self.eos_id
        for i, place in zip(*ends[:, : self.beam].nonzero(), strict=True):  # not further down
            own, ids = sentences[i], texts[i, parents[i, place], 1:].tolist()
            self._add(own, ids, totals[i, place], length)
            self.hypotheses[own].sort(key=lambda hypothesis: -hypothesis.score)
            self.n_finished[own] = len(self.hypotheses[own])
        # At least W go on: at most one continuation of each of the W texts ends.
        kept = ends.argsort(axis=1, kind="stable")[:, : self.beam]
        highest = totals[np.arange(len(sentences)), kept[:, 0]]
        done = (self.limits[sentences] <= length) | (highest == -np.inf)  # or nothing is possible
        for i in done.nonzero()[0]:
            for place in kept[i]:
                ids = [*texts[i, parents[i, place], 1:].tolist(), int(tokens[i, place])]
                self._add(sentences[i], ids, totals[i, place], length)
        for i in (~done & (self.n_finished[sentences] >= self.beam)).nonzero()[0]:
            # ln P is at most 0 and falls with every token. So no text can get a score above the
            # highest current ln P divided by the largest penalty, that of the greatest length.
            bound = highest[i] / self.penalty(self.limits[sentences[i]])
            done[i] = bound <= self.hypotheses[sentences[i]][self.n_best - 1].score
        if self.steps is not None:
            finished = ends & (totals > -np.inf)
            for i, sentence in enumerate(sentences):
                lists = (array[i].tolist() for array in (parents, tokens, totals))
                places = np.flatnonzero(finished[i, : self.beam]).tolist()
                self.steps[sentence].append(BeamStep(*lists, places, kept[i].tolist()))
        return kept, done

    def _add(self, sentence, ids, total, length):
        if total > -np.inf:
            score = total / self.penalty(length)
            self.hypotheses[sentence].append(Hypothesis(ids, float(total), float(score)))

    def best(self):
        """Return the n_best of each; raise ValueError if nothing was allowed in one."""
        if not all(self.hypotheses):
            raise ValueError(_NOTHING_ALLOWED)
        return [hypotheses[: self.n_best] for hypotheses in self.hypotheses]


@accelerated
def continuations(
    logits: np.ndarray,
    totals: np.ndarray,
    count: int,
    never: Sequence[int] = (),
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best `count` continuations of each sentence, best first: three arrays (B, count).

    The arrays are the tokens, the texts that they continue (0 to W - 1), and the new totals.
    logits: for each next token one (R, V). totals: ln P of each text so far (B, W); ln P of the
    token is added to it in float64. never, allowed: see `rule_out`. Among equal ones the earlier
    text comes first, and in one text the lower id.
    """
    n, width = totals.shape
    size = logits.shape[-1]
    totals = totals - rule_out(logits, never, allowed).reshape(n, width)
    sums = totals[:, :, None] + to_numpy(logits).astype(np.float64).reshape(n, width, size)
    sums = sums.reshape(n, width * size)
    best = np.argsort(-sums, axis=-1, kind="stable")[:, :count]
    return best % size, best // size, np.take_along_axis(sums, best, axis=-1)


def _decoding_and_source(model, source, alpha):
    """Return a Decoding, the fastest if a model is given, and source ids as an array (B, S).

    Raises the errors of `batch_of_ids`, and ValueError for alpha.
    """
    source = np.asarray(source)
    if source.shape[:1] != (0,):  # else there is nothing to translate
        source = batch_of_ids(source, "source", "(B, S)")
    if not 0 <= alpha <= 10:
        raise ValueError(f"alpha must be at least 0 and at most 10, not {alpha}")
    return model if isinstance(model, Decoding) else fastest_decoding(model), source


def greatest_lengths(model: Transformer, source: np.ndarray, max_extra: int) -> np.ndarray:
    """Return the greatest length (B,) of each translation of source (B, S), with its end mark.

    max_extra tokens more than the source has, without its end mark and padding; no more than there
    are positions, if these are learned.
    """
    if max_extra < 0:
        raise ValueError(f"max_extra must be at least 0, not {max_extra}")
    special = (model.config.pad_id, model.config.eos_id)
    lengths = np.isin(source, special, invert=True).sum(axis=1) + max_extra
    if model.config.positions == "learned":
        lengths = np.minimum(lengths, model.config.max_length)
    return np.maximum(lengths, 1)


@dataclasses.dataclass
class Decoding:
    """A model with the program that scores the next tokens of its texts: its own modules.

    cached: whether they keep the keys and values of earlier tokens. With False, the decoder reads
    each text from its beginning for every token, which is slower and gives the same result.
    shortlist: called with the source, it returns the only ids that may be written for each sentence
    (B, n): see minitf/beyond/shortlist.py.
    """

    model: Transformer
    cached: bool = True
    shortlist: Callable[[np.ndarray], np.ndarray] | None = None

    def start(self, source: Ids) -> Scorer:
        """Return the Scorer of one text for each sentence of source ids (B, S)."""
        return TokenScorer(self, source)


@accelerated
def fast_decoding(model: Transformer, shortlist: Callable | None = None) -> Decoding | None:
    """Return a faster program for the whole decoder of a model, if a form makes one."""
    return None


def fastest_decoding(model: Transformer, shortlist: Callable | None = None) -> Decoding:
    """Return the first of three Decodings of a model that has the logits of its modules.

    They are the program of a form, the modules with a cache, and the modules without. In a changed
    model the keys and values of earlier tokens may be outdated, as when a position is counted from
    the end of the text: the translation would be wrong, without an error. A module for which a
    short text cannot tell says `can_cache = False`.
    """
    if fast := fast_decoding(model, shortlist):
        if has_logits_of_modules(fast):
            return fast
        say_once("fast_decoding computes other numbers: the layers decode, which is slower")
    cached = Decoding(model, shortlist=shortlist)
    if all(module.can_cache for module in model.modules()) and has_logits_of_modules(cached):
        return cached
    return Decoding(model, False, shortlist)


def has_logits_of_modules(decoding: Decoding) -> bool:
    """Return whether a Decoding has the logits that the model's modules compute uncached.

    They are compared after three tokens: what a Scorer keeps of the first ones is in the logits
    after the last. One that raises an error, as for a layer that knows no cache, does not agree.
    Raises UserError for a model that outputs NaN.
    """
    model = decoding.model
    source, texts = made_up_texts(model.config)
    texts = texts[:, :4]  # with the start mark
    with off(), model.evaluating(), no_grad():
        expected = Decoding(model, False, decoding.shortlist).start(source)(texts)
        refuse_infinite(logsumexp(expected))
        return agree(lambda: [last_logits(decoding, source, texts)], [to_numpy(expected)])


def last_logits(decoding: Decoding, source: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return the logits of the tokens after texts (R, t), which a Scorer reads token by token."""
    scorer = decoding.start(source)
    *_, logits = (scorer(texts[:, :end]) for end in range(1, texts.shape[1] + 1))
    return to_numpy(logits)


def made_up_texts(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return a source and a target (2, length) for comparing programs that compute a model.

    The second sentence of the source has padding. They must never change, because some of their
    logits are saved with models.
    """
    c = config
    length = min(8, c.max_length)
    ids = np.linspace(1, c.vocabulary_size - 1, length).astype(np.int64)
    ids[np.isin(ids, (c.pad_id, *c.suppressed_ids))] = c.eos_id  # no finite logit for the latter
    source, target = np.stack([ids, ids[::-1]]), np.stack([ids[::-1], ids])
    source[1, length // 2 :] = c.pad_id
    target[:, 0] = c.bos_id
    return source, target


class TokenScorer(Scorer):
    """The Scorer that calls the model's modules: the R texts are rows of one batch.

    caches: for each layer a pair, for self-attention and for attention to the source; None if
    nothing is cached, or if the model has no layers to cache.
    """

    def __init__(self, decoding: Decoding, source: Ids):
        self.model = model = decoding.model
        self.memory, self.mask = model.encode(source)
        if decoding.shortlist:
            self.ids = self.columns = decoding.shortlist(source)
        parts = getattr(model, "decoder", None) if decoding.cached else None
        layers = getattr(parts, "layers", None)
        self.caches = layers and [(Cache(grows=True), Cache(grows=False)) for _ in layers]

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Return the logits, as Scorer says."""
        if self.caches is None:
            hidden = self.model.decode(texts, self.memory, self.mask)
        else:
            last = texts.shape[1] - 1
            hidden = self.model.decode(texts[:, -1:], self.memory, self.mask, last, self.caches)
        logits = self.model.logits(hidden[:, -1]).data
        if self.ids is None:
            return logits
        return of_columns(logits, self.columns)

    def select(self, rows: np.ndarray, width: int = 1) -> None:
        """Continue with these texts only, as Scorer says."""
        if self.ids is not None:
            self.columns = self.columns[rows]
        self.memory, self.mask = self.memory[to_device(rows)], self.mask[rows]
        for caches in self.caches or ():
            for cache in caches:
                cache.select(rows)


@accelerated
def logsumexp(logits: np.ndarray) -> np.ndarray:
    """Return the log of the sum of the exponentials of each row of logits (R, V).

        logsumexp = ln sum_j exp(logit_j)

    They are float64 (R,), and NumPy's.
    """
    greatest = logits.max(axis=-1, keepdims=True)  # subtracted first, or exp could overflow
    sums = xp.log(xp.exp(logits - greatest).sum(axis=-1, keepdims=True)) + greatest
    return to_numpy(sums)[:, 0].astype(np.float64)


class Cache:
    """The keys (R, H, n, K) and values (R, H, n, U) of one attention, kept from token to token.

    Elsewhere called a KV cache.
    grows: whether each call adds the newest token, as in self-attention; the source is the same in
    all calls.
    arrays: the keys and the values. state: what an SSRU keeps instead, (R, D); at first None.
    positions: where the queries (1, 1) and the keys (1, n) of the latest call are in their texts.
    """

    def __init__(self, grows: bool):
        self.grows, self.arrays, self.n_calls = grows, [], 0
        self.positions = self.state = None

    def __call__(self, attention: MultiHeadAttention, x: Tensor) -> Sequence[Tensor]:
        """Return all keys and values, those of x included: a new token, or the source."""
        if self.grows or not self.arrays:
            new = attention.keys_and_values(x)
            pairs = zip(self.arrays, new, strict=True)
            self.arrays = [F.concatenate(pair, axis=2) for pair in pairs] if self.arrays else new
        self.positions = np.array([[self.n_calls]]), np.arange(self.arrays[0].shape[2])[None]
        self.n_calls += 1
        return self.arrays

    def select(self, rows: np.ndarray) -> None:
        """Keep the texts of these rows, in this order."""
        self.arrays = [array[to_device(rows)] for array in self.arrays]
        self.state = None if self.state is None else self.state[to_device(rows)]
