"""Label-smoothed cross-entropy: of logits, and of hidden states times the output embedding.

At each position the target distribution q gives the true id 1 - smoothing, and divides the rest
equally among the other ids that are possible. n ids are: all of the vocabulary, but those with the
logit -inf, which a model gives to ids that it never writes.

    q_v = 1 - smoothing          if v is the true id
    q_v = 0                      if v is another id and impossible
    q_v = smoothing / (n - 1)    otherwise
    loss = - sum_v q_v ln p_v    with p = softmax(z), z the logits

The gradient is p - q:

    ln p_v = z_v - ln sum_w exp(z_w),  so  d(ln p_v)/dz_w = delta_vw - p_w
    dloss/dz_w = - sum_v q_v (delta_vw - p_w) = p_w - q_w        since the q_v sum to 1

If the true id is impossible the loss is infinite. Positions whose target is `pad_id`, if one is
given, do not count.

The sum is divided by `n_tokens`, the number of target tokens of the update, even if the update is
computed in several batches: if each batch were divided by its own number, a token of a small batch
would weigh more than a token of a large one.
Source: section 5.4; Szegedy et al. 2016, section 7. Dividing by n - 1 follows tensor2tensor.
"""

from __future__ import annotations

import numpy as np

from minitf.backend import to_device, xp
from minitf.forms import accelerated
from minitf.functions import linear, log_softmax
from minitf.inputs import integers
from minitf.tensor import ArrayLike, Ids, Tensor, arrays_of, as_array, no_grad, record

__all__ = ["label_smoothed_cross_entropy", "projected_cross_entropy"]


def label_smoothed_cross_entropy(
    logits: ArrayLike,
    target: Ids,
    smoothing: float = 0.1,
    pad_id: int | None = None,
    n_tokens: float | None = None,
) -> Tensor:
    """Return the mean cross-entropy between the smoothed targets and the predictions.

        loss = - 1/n_tokens sum_t sum_v q_tv ln p_tv
        gz_tv = (p_tv - q_tv) gloss / n_tokens, and 0 where the target t is left out

    logits: (..., V)   target: int (...)   ->   ()
    Targets that are padding are left out; n_tokens defaults to the number of the others.
    Raises IndexError for a target outside the vocabulary, TypeError for targets that are not
    integers, ValueError for targets of another shape, for an n_tokens that is not positive, for a
    smoothing that is no probability, and for smoothing over a vocabulary of one id.
    Source: section 5.4.
    """
    z = as_array(logits)
    if not z.ndim:
        raise ValueError("the logits need an axis for the vocabulary, not shape ()")
    size = z.shape[-1]
    rows, ids, n = kept_targets(target, z.shape[:-1], size, smoothing, pad_id, n_tokens)
    # (N, V): the N targets that count. z is a plain array, so nothing is recorded.
    log_p = log_softmax(z.reshape(-1, size)[rows]).data
    impossible = log_p == -xp.inf
    n_possible = size - impossible.sum(axis=-1, keepdims=True, dtype=z.dtype)  # (N, 1)
    q = xp.where(impossible, 0, probability_of_others(smoothing, n_possible))  # (N, V)
    q[xp.arange(len(ids)), ids] = 1 - smoothing
    loss = -(q * xp.where(q > 0, log_p, 0)).sum() / n  # where: 0 * -infinity would be NaN

    def backward(gy):
        g_logits = xp.zeros_like(z).reshape(-1, size)
        g_logits[rows] = (xp.exp(log_p) - q) * (gy / n)  # p - q
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
    bias: ArrayLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the loss of the logits x E^T + b, and their plain negative log-likelihood.

        loss = label_smoothed_cross_entropy(x E^T + b, target)    with E = weight, b = bias

    x: (..., D)   weight: (V, D)   target: int (...)   bias: (V,)   ->   (), ()
    The second result, the nll, has smoothing 0 and no graph: its backward() raises RuntimeError. If
    n_tokens counts the complete update, exp(sum of the nll of its batches) is the perplexity. This
    composition is an op so that a form can compute it without the logits of all positions in memory
    at once.
    Raises the errors of `label_smoothed_cross_entropy`.
    Source: sections 3.4, 5.4.
    """
    _, w, _ = projected_arrays(x, weight, bias)
    logits = linear(x, weight.transpose() if isinstance(weight, Tensor) else w.T, bias)
    loss = label_smoothed_cross_entropy(logits, target, smoothing, pad_id, n_tokens)
    with no_grad():
        nll = label_smoothed_cross_entropy(logits, target, 0.0, pad_id, n_tokens)
    return loss, nll


def projected_arrays(x, weight, bias):
    """Return the arrays of the projection's arguments. Raises ValueError for sizes that differ."""
    x, w, b = (*arrays_of(x, weight), None) if bias is None else arrays_of(x, weight, bias)
    if w.ndim != 2 or x.shape[-1:] != w.shape[1:]:
        raise ValueError(
            "projected_cross_entropy takes x (..., D) and a weight (V, D), not the shapes "
            f"{x.shape} and {w.shape}"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(
            f"projected_cross_entropy: the bias has shape {b.shape}, but {len(w)} logits need "
            f"({len(w)},)"
        )
    return x, w, b


def probability_of_others(smoothing, n_possible):
    """Return q_v of a possible id that is not the true one: a number, or one for each row."""
    return float(smoothing) / (n_possible - 1 + (n_possible == 1))  # an id alone has no others


def kept_targets(target, shape, size, smoothing, pad_id, n_tokens):
    """Return the indices of the targets that count, these targets, and the divisor of the loss.

    target: int (...) of the given shape   ->   int (N,), int (N,), a float
    """
    target = integers(target, "targets")
    if target.shape != shape:
        raise ValueError(f"targets have shape {target.shape}, but the predictions need {shape}")
    target = target.ravel()
    counts = np.ones(target.shape, dtype=bool) if pad_id is None else target != pad_id
    rows = np.flatnonzero(counts)
    ids = target[rows]
    if n_tokens is None:
        n_tokens = max(1, len(rows))
    if not n_tokens > 0:
        raise ValueError(
            f"n_tokens is {n_tokens}: the loss is divided by it, so it must be more than 0"
        )
    if not 0 <= smoothing <= 1:
        raise ValueError(f"the smoothing must be at least 0 and at most 1, not {smoothing}")
    if size < (2 if smoothing else 1):
        raise ValueError(
            f"the loss needs at least {2 if smoothing else 1} ids in the vocabulary, not {size}"
            f"{': label smoothing needs another one' if smoothing else ''}"
        )
    if ids.size and not (ids.min() >= 0 and ids.max() < size):
        raise IndexError(
            f"targets must be from 0 to {size - 1}, but range from {ids.min()} to {ids.max()}"
        )
    # A Python float: in NumPy 2 an int64 scalar times a float32 array is a float64 array.
    return to_device(rows), to_device(ids), float(n_tokens)
