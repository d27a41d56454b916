"""Label-smoothed cross-entropy, plain and fused with the product by the vocabulary.

The target distribution q of a position gives the true word 1 - eps and shares eps among the other V - 1:

    q_v = 1 - eps if v is the true word, else eps / (V - 1)
    loss = - sum_v q_v ln p_v        with p = softmax(logits)

Its gradient with respect to the logits is p - q. Positions whose target is `pad_id` count nothing; without a
`pad_id` every position counts. A word whose logit is -inf is impossible: the loss is infinite if q_v > 0 there, which
with smoothing is so for every word, and without it only for the true one; the gradient stays p - q. The sum is
divided by `n_tokens`, the number of target tokens of the whole update, however many parts the update is cut
into: dividing each part by its own count would weigh the words of short sentences more.
Source: section 5.4; Szegedy et al. 2016, section 7. The form, eps/(V-1), is tensor2tensor's.
"""

from __future__ import annotations

import math

import numpy as np

from minitf.backend import has_kernels, row_sums, to_device, xp
from minitf.functions import integers
from minitf.gpu import ops
from minitf.gpu.matmul import add_product, as_factor, matmul
from minitf.tensor import ArrayLike, Ids, Tensor, as_array, is_recording, record

__all__ = ["label_smoothed_cross_entropy", "projected_cross_entropy"]

_CHUNK = 512  # of how many rows the logits exist at a time, however long the batch; with fewer, products get slower
_CHUNK_ON_GPU = 4096


def label_smoothed_cross_entropy(
    logits: ArrayLike, target: Ids, smoothing: float = 0.1, pad_id: int | None = None, n_tokens: float | None = None
) -> Tensor:
    """Measure how far the predicted distributions are from the smoothed true words.

        loss = - 1/n sum_t sum_v q_tv ln p_tv

    logits: (..., V)   target: int (...)   ->   ()
    n_tokens defaults to the number of targets that are not padding.
    Raises IndexError for a target that is not a word, TypeError for targets that are not integers, ValueError for
    targets of another shape, an n_tokens that is not positive, and smoothing that has no other word to go to.
    Source: section 5.4.
    """
    z = as_array(logits)
    rows, target, n_tokens = _real_rows(target, z.shape[:-1], z.shape[-1], smoothing, pad_id, n_tokens)
    flat = math.prod(z.shape[:-1]), z.shape[-1]
    gradient = z.reshape(flat)[rows]  # (N, V), a copy
    losses, _ = _loss_and_gradient(gradient, target, smoothing)

    def backward(gy):
        g_logits = xp.zeros(flat, dtype=z.dtype)
        g_logits[rows] = gradient * (gy / n_tokens)
        return g_logits.reshape(z.shape)

    return record(losses.sum() / n_tokens, (logits,), backward)


def projected_cross_entropy(
    x: ArrayLike,
    weight: ArrayLike,
    target: Ids,
    smoothing: float = 0.1,
    pad_id: int | None = None,
    n_tokens: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the loss of logits = x E^T without ever holding the logits of all positions.

        loss = label_smoothed_cross_entropy(x E^T, target)

    x: (..., D)   weight: (V, D)   target: int (...)   ->   (), ()
    A chunk of rows is multiplied out, its logits are turned into their gradient in place, and that is multiplied
    back at once. Padded rows never get there. The second result, without gradient, is the plain negative
    log-likelihood (smoothing 0), whose exponential is the perplexity. Raises as above.
    Source: sections 3.4, 5.4.
    """
    x_data, w = as_array(x), as_array(weight)
    shape, dtype = x_data.shape, x_data.dtype
    if shape[-1] != w.shape[1]:
        raise ValueError(f"projected_cross_entropy: x has {shape[-1]} features, the weight has {w.shape[1]}")
    rows, target, n_tokens = _real_rows(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    flat = math.prod(shape[:-1]), shape[-1]
    hidden = x_data.reshape(flat)[rows]  # (N, D)
    g_hidden, g_weight = xp.empty_like(hidden), None
    loss = nll = xp.zeros((), dtype=dtype)
    table = as_factor(w)
    size = _CHUNK_ON_GPU if has_kernels(w) else _CHUNK
    for start in range(0, max(1, len(hidden)), size):  # once at least, for gradients of zero
        chunk = slice(start, start + size)
        some = as_factor(hidden[chunk])
        logits = matmul(some, table.T)  # (n, V)
        losses, nlls = _loss_and_gradient(logits, target[chunk], smoothing)
        loss, nll = loss + losses.sum(), nll + nlls.sum()
        if is_recording():
            logits = as_factor(logits)
            matmul(logits, table, out=g_hidden[chunk])
            if g_weight is None:
                g_weight = matmul(logits.T, some)  # (V, D)
            else:
                add_product(logits.T, some, g_weight)

    def backward(gy):
        nonlocal g_weight
        scale = gy / n_tokens
        gx = xp.zeros(flat, dtype=dtype)
        gx[rows] = g_hidden * scale
        g_weight *= scale
        return gx.reshape(shape), g_weight

    return record(loss / n_tokens, (x, weight), backward), record(nll / n_tokens, (), None)


def _real_rows(target, shape, size, smoothing, pad_id, n_tokens):
    """Find the positions that are not padding: their numbers, their targets, and the count to divide by."""
    target = integers(target, "targets")
    if target.shape != shape:
        raise ValueError(f"targets of shape {target.shape} for predictions of shape {shape}")
    if n_tokens is not None and not n_tokens > 0:
        raise ValueError(f"n_tokens is {n_tokens}: the loss is divided by it, so it must be more than 0")
    if size < (2 if smoothing else 1):
        raise ValueError(f"predictions over {size} words: the loss needs one, and label smoothing a second")
    target = target.ravel()
    rows = np.arange(target.size) if pad_id is None else np.flatnonzero(target != pad_id)
    words = target[rows]
    if words.size and not (words.min() >= 0 and words.max() < size):
        raise IndexError(f"targets from {words.min()} to {words.max()} do not fit {size} words")
    n_tokens = max(1, len(rows)) if n_tokens is None else n_tokens
    return to_device(rows), to_device(words), float(n_tokens)  # an int64 would make float32 wider


def _loss_and_gradient(logits, target, smoothing):
    """Turn logits (N, V) into p - q in place; give the smoothed and the plain loss of each row."""
    if has_kernels(logits):
        return ops.cross_entropy(logits, target, smoothing)
    n, size = logits.shape
    each = smoothing / (size - 1) if smoothing else 0.0  # q of a wrong word
    rows = xp.arange(n)
    logits -= logits.max(axis=-1, keepdims=True)
    true, total = logits[rows, target], row_sums(logits)[:, 0]
    p = xp.exp(logits, out=logits)
    sums = row_sums(p)
    log_sums = xp.log(sums[:, 0])
    nll = log_sums - true
    # - sum_v q_v ln p_v, where ln p_v = logit_v - log_sum, and q is `each` plus the rest on the true word
    losses = (1 - smoothing - each) * nll
    if each:  # a logit of -inf makes the rest infinite, and 0 times that is not 0
        losses += each * (size * log_sums - total)
    p /= sums
    p -= each
    p[rows, target] -= 1 - smoothing - each
    return losses, nll
