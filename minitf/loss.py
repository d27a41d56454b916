"""Label-smoothed cross-entropy, plain and fused with the product by the vocabulary.

The target distribution q of a position gives the true word 1 - eps and shares eps among the other V - 1:

    q_v = 1 - eps if v is the true word, else eps / (V - 1)
    loss = - sum_v q_v ln p_v        with p = softmax(logits)

Its gradient with respect to the logits is p - q. Positions whose target is padding count nothing. The sum is
divided by `n_tokens`, the number of target tokens of the whole update, however many parts the update is cut
into: dividing each part by its own count would weigh the words of short sentences more.
Source: section 5.4; Szegedy et al. 2016, section 7. The form, eps/(V-1), is tensor2tensor's.
"""

import math

import numpy as np

from minitf import fused
from minitf.backend import has_kernels, row_sums, to_device, xp
from minitf.products import add_product, as_factor, matmul
from minitf.tensor import as_array, is_recording, record

__all__ = ["label_smoothed_cross_entropy", "projected_cross_entropy"]

_CHUNK = 512  # of how many rows the logits exist at a time, however long the batch; with fewer, products get slower
_CHUNK_ON_GPU = 4096


def label_smoothed_cross_entropy(logits, target, smoothing=0.1, pad_id=0, n_tokens=None):
    """Measure how far the predicted distributions are from the smoothed true words.

        loss = - 1/n sum_t sum_v q_tv ln p_tv

    logits: (..., V)   target: int (...)   ->   ()
    n_tokens defaults to the number of targets that are not padding.
    Raises IndexError for a target that is no word, ValueError for targets of another shape.
    Source: section 5.4.
    """
    z = as_array(logits)
    rows, target, n_tokens = _real_rows(target, z.shape[:-1], z.shape[-1], pad_id, n_tokens)
    gradient = z.reshape(-1, z.shape[-1])[rows]  # (N, V), a copy
    losses, _ = _loss_and_gradient(gradient, target, smoothing)

    def backward(gy):
        g_logits = xp.zeros_like(z).reshape(-1, z.shape[-1])
        g_logits[rows] = gradient * (gy / n_tokens)
        return g_logits.reshape(z.shape)

    return record(losses.sum() / n_tokens, (logits,), backward)


def projected_cross_entropy(x, weight, target, smoothing=0.1, pad_id=0, n_tokens=None):
    """Compute the loss of logits = x E^T without ever holding the logits of all positions.

        loss = label_smoothed_cross_entropy(x E^T, target)

    x: (..., D)   weight: (V, D)   target: int (...)   ->   (), ()
    A chunk of rows is multiplied out, its logits are turned into their gradient in place, and that is multiplied
    back at once. Padded rows never get there. The second result, without gradient, is the plain negative
    log-likelihood (smoothing 0), whose exponential is the perplexity. Raises as above.
    Source: sections 3.4, 5.4.
    """
    x_data, w = as_array(x), as_array(weight)
    rows, target, n_tokens = _real_rows(target, x_data.shape[:-1], len(w), pad_id, n_tokens)
    shape, dtype = x_data.shape, x_data.dtype
    hidden = x_data.reshape(-1, shape[-1])[rows]  # (N, D)
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
        gx = xp.zeros((math.prod(shape[:-1]), shape[-1]), dtype=dtype)
        gx[rows] = g_hidden * scale
        g_weight *= scale
        return gx.reshape(shape), g_weight

    return record(loss / n_tokens, (x, weight), backward), record(nll / n_tokens, (), None)


def _real_rows(target, shape, size, pad_id, n_tokens):
    """Find the positions that are not padding: their numbers, their targets, and the count to divide by."""
    target = np.asarray(target)
    if target.shape != shape:
        raise ValueError(f"targets of shape {target.shape} for predictions of shape {shape}")
    target = target.ravel()
    rows = np.flatnonzero(target != pad_id)
    words = target[rows]
    if words.size and not (words.min() >= 0 and words.max() < size):
        raise IndexError(f"targets from {words.min()} to {words.max()} do not fit {size} words")
    n_tokens = max(1, len(rows)) if n_tokens is None else n_tokens
    return to_device(rows), to_device(words), float(n_tokens)  # an int64 would make float32 wider


def _loss_and_gradient(logits, target, smoothing):
    """Turn logits (N, V) into p - q in place; give the smoothed and the plain loss of each row."""
    if has_kernels(logits):
        return fused.cross_entropy(logits, target, smoothing)
    n, size = logits.shape
    each = smoothing / (size - 1)  # q of a wrong word
    rows = xp.arange(n)
    logits -= logits.max(axis=-1, keepdims=True)
    true, total = logits[rows, target], row_sums(logits)[:, 0]
    p = xp.exp(logits, out=logits)
    sums = row_sums(p)
    log_sums = xp.log(sums[:, 0])
    nll = log_sums - true
    # - sum_v q_v ln p_v, where ln p_v = logit_v - log_sum, and q is `each` plus the rest on the true word
    losses = (1 - smoothing - each) * nll + each * (size * log_sums - total)
    p /= sums
    p -= each
    p[rows, target] -= 1 - smoothing - each
    return losses, nll
