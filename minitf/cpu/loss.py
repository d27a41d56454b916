"""The form of the loss on NumPy: chunk by chunk, the logits become their gradient in place.

The logits are the largest array of a training step. One chunk of rows at a time is multiplied out,
turned into p - q, and multiplied back, so the logits of all positions are never in memory together.
Padding takes no part in the products.
"""

import math

import numpy as np

from minitf import loss
from minitf.cpu.sums import row_sums
from minitf.forms import form_of
from minitf.tensor import arrays_of, is_recording, record

CHUNK_ROWS = 512  # rows of logits held in memory at once; with fewer, products get slower


@form_of(loss.projected_cross_entropy)
def projected_cross_entropy(x, weight, target, smoothing=0.1, pad_id=None, n_tokens=None):
    """Return the loss and the plain negative log-likelihood; compute the gradients with them."""
    x_data, w = arrays_of(x, weight)
    shape, dtype = x_data.shape, x_data.dtype
    if shape[-1] != w.shape[1]:
        return NotImplemented  # the equation raises the error
    rows, ids, n_tokens = loss.real_rows(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    if smoothing >= 0.5:
        return NotImplemented  # q may not be larger for the true id: see `loss_and_gradient`
    flat = math.prod(shape[:-1]), shape[-1]
    hidden = x_data.reshape(flat)[rows]  # (N, D)
    g_hidden, g_weight = np.empty_like(hidden), None
    total = total_nll = np.zeros((), dtype=dtype)
    for start in range(0, max(1, len(hidden)), CHUNK_ROWS):  # once at least, for gradients of zero
        chunk = slice(start, start + CHUNK_ROWS)
        some = hidden[chunk]
        logits = np.matmul(some, w.T)  # (n, V)
        losses, nlls = loss_and_gradient(logits, ids[chunk], smoothing)
        total, total_nll = total + losses.sum(), total_nll + nlls.sum()
        if is_recording():
            np.matmul(logits, w, out=g_hidden[chunk])
            if g_weight is None:
                g_weight = np.matmul(logits.T, some)  # (V, D)
            else:
                g_weight += np.matmul(logits.T, some)

    def backward(gy):
        nonlocal g_weight
        scale = gy / n_tokens
        gx = np.zeros(flat, dtype=dtype)
        gx[rows] = g_hidden * scale
        g_weight *= scale
        return gx.reshape(shape), g_weight

    smoothed = record(total / n_tokens, (x, weight), backward)
    return smoothed, record(total_nll / n_tokens, (), None)


def loss_and_gradient(logits, target, smoothing):
    """Turn logits (N, V) into p - q in place; return the smoothed and the plain loss of each row.

    The loss is - sum_v q_v ln p_v, with ln p_v = logit_v - log_sum. q_v is `wrong` for every id,
    plus the rest for the true id, so the sum over all ids needs no array of ln p. The rest has
    to be positive: if the true id is impossible, its ln p is -infinity.
    """
    n, size = logits.shape
    smoothing = float(smoothing)  # a NumPy scalar would widen float32
    wrong = loss.probability_of_others(smoothing, size)
    rest = 1 - smoothing - wrong
    rows = np.arange(n)
    logits -= logits.max(axis=-1, keepdims=True)
    true, total = logits[rows, target], row_sums(logits)[:, 0]
    p = np.exp(logits, out=logits)
    sums = row_sums(p)
    log_sums = np.log(sums[:, 0])
    nll = log_sums - true
    losses = rest * nll
    if wrong:  # a logit of -inf makes the sum infinite, and 0 times infinity is NaN
        losses += wrong * (size * log_sums - total)
    p /= sums
    p -= wrong
    p[rows, target] -= rest
    return losses, nll
