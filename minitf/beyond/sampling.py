"""Texts drawn token by token instead of searched for: translations, continuations of prompts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from minitf.backend import to_numpy
from minitf.decode import Allowed, Decoding, Hypothesis, Scorer, decode_with, write_texts
from minitf.tensor import ArrayLike, Ids, as_array, no_grad
from minitf.transformer import Transformer

__all__ = ["generate", "sample"]


def sample(
    model: Transformer | Decoding,
    source: Ids,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    max_extra: int = 50,
    alpha: float = 0.0,
    rows: Ids | None = None,
    allowed: Allowed | None = None,
) -> list[Hypothesis]:
    """Draw a translation of each row of source ids (B, S), token by token: one Hypothesis each.

        P(token) = softmax(logits / temperature)

    Below a temperature of 1 probable tokens become more probable; 0 is greedy decoding. top_k: only
    the k most probable tokens can be drawn (0: all). top_p: of these, only the fewest whose
    probabilities sum to top_p. A draw depends on the seed, the row and the position alone.
    rows: a key for each row, integers (B,) or (B, n), by default its number in the batch: with
    other keys a sentence gets the same draws in any batch. The other arguments are those of greedy;
    ln P is the model's, without temperature, top_k and top_p.
    Source: Fan et al. 2018 (top_k); Holtzman et al. 2020 (top_p).
    """
    if rows is not None and len(rows) != len(source):
        raise ValueError(
            f"rows has {len(rows)} keys, but source has {len(source)} rows: "
            "give one key for each row"
        )
    choose = _chooser(temperature, top_k, top_p, seed, rows)
    return decode_with(choose, model, source, max_extra, alpha, allowed)


def generate(
    next_logits: Callable[[np.ndarray], ArrayLike],
    prompts: Ids,
    length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    end_id: int | None = None,
) -> list[Hypothesis]:
    """Draw a continuation of each prompt, ids (R, t): one Hypothesis each, without the prompt.

    next_logits: a function that scores the token after each text, ids (R, t) -> logits (R, V), such
    as the last position of a language model; switch its dropout off first, with model.eval().
    length: the number of tokens written, fewer if the token end_id is drawn. The other arguments
    are those of sample.
    """
    prompts = np.asarray(prompts)
    if prompts.ndim != 2:
        raise ValueError(
            f"prompts are ids of the shape (R, t), one row for each text, not {prompts.shape}"
        )
    if length < 1:
        raise ValueError(f"length must be at least 1, not {length}")
    choose = _chooser(temperature, top_k, top_p, seed)
    with no_grad():
        limits = np.full(len(prompts), length)
        return write_texts(prompts, _Rereading(next_logits), choose, limits, end_id=end_id)


class _Rereading(Scorer):
    """The Scorer whose function reads the texts from the beginning for each token."""

    def __init__(self, next_logits):
        self.next_logits = next_logits

    def __call__(self, texts):
        logits = as_array(self.next_logits(texts))
        if logits.ndim != 2 or len(logits) != len(texts):
            raise ValueError(
                f"next_logits must return logits (R, V) for ids {texts.shape}, not {logits.shape}"
            )
        return logits

    def select(self, rows, width=1):
        """Do nothing: there is no cache."""


def _chooser(temperature, top_k, top_p, seed, rows=None):
    """Return the function choose(logits, sentences) that draws a token for each text."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a number of at least 0, not {temperature}")
    if operator.index(top_k) < 0:
        raise ValueError(f"top_k must be at least 1, or 0 for all tokens, not {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be more than 0 and at most 1, not {top_p}")
    generators = {}  # by row: each draws one number for each token

    def number(row):
        if row not in generators:  # as spawn_key, the key is never mixed up with a large seed
            key = tuple(np.ravel(row if rows is None else rows[row]).tolist())
            generators[row] = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        return generators[row].random()

    def choose(logits, sentences):
        weights = _token_weights(to_numpy(logits).astype(np.float64), temperature, top_k, top_p)
        sums = weights.cumsum(axis=-1)
        drawn = np.array([number(row) for row in sentences])[:, None]
        return (sums > drawn * sums[:, -1:]).argmax(axis=-1)

    return choose


def _token_weights(logits, temperature, top_k, top_p):
    """Return unnormalised probabilities (R, V), 0 for tokens that cannot be drawn."""
    size = logits.shape[-1]
    if temperature == 0:
        return np.arange(size) == logits.argmax(axis=-1)[:, None]
    weights = np.exp((logits - logits.max(axis=-1, keepdims=True)) / temperature)
    count = min(top_k or size, size)
    if count == size and top_p == 1:
        return weights
    largest = -np.partition(-weights, count - 1, axis=-1)[:, :count]  # faster than to sort all
    ordered = -np.sort(-largest, axis=-1)
    sums = ordered.cumsum(axis=-1)
    counts = np.minimum(1 + (sums < top_p * sums[:, -1:]).sum(axis=-1, keepdims=True), count)
    least = np.take_along_axis(ordered, counts - 1, axis=-1)  # of the tokens that can be drawn
    greater, equal = weights > least, weights == least
    # Among the tokens of the least weight, the lowest ids come first, up to `counts` tokens in all.
    n_equal = counts - greater.sum(axis=-1, keepdims=True)
    return weights * (greater | equal & (equal.cumsum(axis=-1) <= n_equal))
