"""The losses on NumPy: the array of the logits becomes that of their gradient, in place.

The largest array of a training step is that of the logits. A chunk of rows at a time is multiplied
out, turned into p - q, and multiplied back at once, so that the logits of all positions never
exist together. Rows of padding are left out of the products.
"""

import math

import numpy as np

from minitf import loss
from minitf.cpu.sums import row_sums
from minitf.forms import form_of
from minitf.tensor import as_array, is_recording, record

CHUNK_ROWS = 512  # rows whose logits exist at a time; with fewer, products get slower


@form_of(loss.label_smoothed_cross_entropy)
def label_smoothed_cross_entropy(logits, target, smoothing=0.1, pad_id=None, n_tokens=None):
    """Return the loss; the gradient is computed with it, in one array."""
    z = as_array(logits)
    shape = z.shape
    rows, words, n_tokens = loss.real_rows(
        target, shape[:-1], shape[-1], smoothing, pad_id, n_tokens
    )
    flat = math.prod(shape[:-1]), shape[-1]
    gradient = z.reshape(flat)[rows]  # (N, V), a copy
    losses, _ = loss_and_gradient(gradient, words, smoothing)

    def backward(gy):
        g_logits = np.zeros(flat, dtype=gradient.dtype)
        g_logits[rows] = gradient * (gy / n_tokens)
        return g_logits.reshape(shape)

    return record(losses.sum() / n_tokens, (logits,), backward)


@form_of(loss.projected_cross_entropy)
def projected_cross_entropy(x, weight, target, smoothing=0.1, pad_id=None, n_tokens=None):
    """Return the loss and the plain likelihood, without the logits of all positions."""
    x_data, w = as_array(x), as_array(weight)
    shape, dtype = x_data.shape, x_data.dtype
    if shape[-1] != w.shape[1]:
        return NotImplemented  # the equation says what is wrong
    rows, words, n_tokens = loss.real_rows(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    flat = math.prod(shape[:-1]), shape[-1]
    hidden = x_data.reshape(flat)[rows]  # (N, D)
    g_hidden, g_weight = np.empty_like(hidden), None
    total = total_nll = np.zeros((), dtype=dtype)
    for start in range(0, max(1, len(hidden)), CHUNK_ROWS):  # once at least, for gradients of zero
        chunk = slice(start, start + CHUNK_ROWS)
        some = hidden[chunk]
        logits = np.matmul(some, w.T)  # (n, V)
        losses, nlls = loss_and_gradient(logits, words[chunk], smoothing)
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

    - sum_v q_v ln p_v  with  ln p_v = logit_v - log_sum, and q is `each` plus the rest on the true
    word: so the sum over all words needs no array of ln p.
    """
    n, size = logits.shape
    smoothing = float(smoothing)  # a NumPy scalar would make float32 wider
    each = smoothing / (size - 1) if smoothing else 0.0  # q of a wrong word
    rows = np.arange(n)
    logits -= logits.max(axis=-1, keepdims=True)
    true, total = logits[rows, target], row_sums(logits)[:, 0]
    p = np.exp(logits, out=logits)
    sums = row_sums(p)
    log_sums = np.log(sums[:, 0])
    nll = log_sums - true
    losses = (1 - smoothing - each) * nll
    if each:  # a logit of -inf makes the rest infinite, and 0 times that is not 0
        losses += each * (size * log_sums - total)
    p /= sums
    p -= each
    p[rows, target] -= 1 - smoothing - each
    return losses, nll
