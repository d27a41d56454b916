"""Label-smoothed cross-entropy: of logits, and of hidden states times the output embedding.

The target distribution q of a position gives the true word 1 - eps, and divides eps among the other
V - 1 words:

    q_v = 1 - eps if v is the true word, else eps / (V - 1)
    loss = - sum_v q_v ln p_v        with p = softmax(logits)

Its gradient with respect to the logits is p - q. Positions whose target is `pad_id` do not count;
without a `pad_id` every position counts. A word with the logit -inf is impossible: if q gives it
any probability the loss is infinite, otherwise it has no effect.

The sum is divided by `n_tokens`, the number of target tokens of the update, even if the update is
computed in several batches: if each batch were divided by its own number, a token of a small batch
would weigh more than a token of a large one.
Source: section 5.4; Szegedy et al. 2016, section 7. The form eps/(V-1) is tensor2tensor's.
"""

from __future__ import annotations

import numpy as np

from minitf.backend import to_device, xp
from minitf.forms import accelerated
from minitf.functions import integers, linear, log_softmax
from minitf.tensor import ArrayLike, Ids, Tensor, arrays_of, as_array, record

__all__ = ["label_smoothed_cross_entropy", "projected_cross_entropy"]


def label_smoothed_cross_entropy(
    logits: ArrayLike,
    target: Ids,
    smoothing: float = 0.1,
    pad_id: int | None = None,
    n_tokens: float | None = None,
) -> Tensor:
    """Return the mean cross-entropy between the smoothed targets and the predictions.

        loss = - 1/n sum_t sum_v q_tv ln p_tv

    logits: (..., V)   target: int (...)   ->   ()
    n_tokens defaults to the number of targets that are not padding.
    Raises IndexError for a target outside the vocabulary, TypeError for targets that are not
    integers, ValueError for targets of another shape, for an n_tokens that is not positive, and for
    smoothing over a vocabulary of one word.
    Source: section 5.4.
    """
    z = as_array(logits)
    size = z.shape[-1]
    rows, words, n = real_rows(target, z.shape[:-1], size, smoothing, pad_id, n_tokens)
    log_p = log_softmax(z.reshape(-1, size)[rows]).data  # (N, V), without the padding
    q = _smoothed(words, size, smoothing, z.dtype)  # (N, V)
    loss = -(q * xp.where(q > 0, log_p, 0)).sum() / n  # 0 ln 0 is 0

    def backward(gy):
        g_logits = xp.zeros_like(z).reshape(-1, size)
        g_logits[rows] = (xp.exp(log_p) - q) * (gy / n)
        return g_logits.reshape(z.shape)

    return record(loss, (logits,), backward)


@accelerated
def projected_cross_entropy(
    x: ArrayLike,
    weight: ArrayLike,
    target: Ids,
    smoothing: float = 0.1,
    pad_id: int | None = None,
    n_tokens: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the loss of the logits x E^T, and their plain negative log-likelihood.

        loss = label_smoothed_cross_entropy(x E^T, target)

    x: (..., D)   weight: (V, D)   target: int (...)   ->   (), ()
    The second result has smoothing 0 and no gradient. Summed over the batches of an update, its
    exponential is the perplexity. The forms never hold the logits of all positions at once. Raises
    the errors of `label_smoothed_cross_entropy`.
    Source: sections 3.4, 5.4.
    """
    x_data, w = arrays_of(x, weight)
    if x_data.shape[-1] != w.shape[1]:
        raise ValueError(
            f"projected_cross_entropy: x has {x_data.shape[-1]} features, but the weight has "
            f"{w.shape[1]}"
        )
    logits = linear(x, weight.transpose() if isinstance(weight, Tensor) else w.T)
    loss = label_smoothed_cross_entropy(logits, target, smoothing, pad_id, n_tokens)
    nll = label_smoothed_cross_entropy(logits.data, target, 0.0, pad_id, n_tokens)
    return loss, nll


def _smoothed(words, size, smoothing, dtype):
    """Return the target distributions q: (N,) -> (N, V)."""
    q = xp.full((len(words), size), wrong_word(smoothing, size), dtype=dtype)
    q[xp.arange(len(words)), words] = 1 - smoothing
    return q


def wrong_word(smoothing, size):
    """Return the probability in q of each word but the true one."""
    return smoothing / (size - 1) if smoothing else 0.0


def real_rows(target, shape, size, smoothing, pad_id, n_tokens):
    """Return the indices of the targets that are not padding, these targets, and the divisor.

    target: int (...) of the given shape   ->   int (N,), int (N,), a float
    """
    target = integers(target, "targets")
    if target.shape != shape:
        raise ValueError(f"targets of shape {target.shape} for predictions of shape {shape}")
    if n_tokens is not None and not n_tokens > 0:
        raise ValueError(
            f"n_tokens is {n_tokens}: the loss is divided by it, so it must be more than 0"
        )
    if size < (2 if smoothing else 1):
        raise ValueError(
            f"predictions over {size} words: the loss needs one, and label smoothing a second"
        )
    target = target.ravel()
    rows = np.arange(target.size) if pad_id is None else np.flatnonzero(target != pad_id)
    words = target[rows]
    if words.size and not (words.min() >= 0 and words.max() < size):
        raise IndexError(f"targets from {words.min()} to {words.max()} do not fit {size} words")
    n_tokens = max(1, len(rows)) if n_tokens is None else n_tokens
    return to_device(rows), to_device(words), float(n_tokens)  # int64 would widen float32
