"""The form of the loss on NumPy: chunk by chunk, the logits become their gradient in place.

The logits are the largest array of a training step. One chunk of rows at a time is multiplied out,
turned into p - q, and multiplied back, so the logits of all positions are never in memory together.
Padding takes no part in the products.
"""

import numpy as np

from minitf import loss
from minitf.cpu.sums import add_product, blocks, column_sums, row_sums
from minitf.forms import form_of
from minitf.functions import as_rows
from minitf.tensor import gradient_out, is_recording, no_grad, record

CHUNK_ROWS = 512  # rows of logits held in memory at once; with fewer, products get slower
CHUNK = 1 << 23  # logits at most; a chunk has fewer rows then, but at least 256


@form_of(loss.projected_cross_entropy)
def projected_cross_entropy(
    x, weight, target, smoothing=0.1, pad_id=None, n_tokens=None, bias=None
):
    """Return the loss and the plain negative log-likelihood, and compute the gradients at once."""
    x_data, w, b = loss.projected_arrays(x, weight, bias)
    shape, dtype = x_data.shape, x_data.dtype
    rows, ids, n_tokens = loss.kept_targets(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    if smoothing >= 0.5:
        return NotImplemented  # q may not be larger for the true id: see `loss_and_gradient`
    hidden = as_rows(x_data)[rows]  # (N, D)
    g_hidden, g_weight = np.empty_like(hidden), np.empty_like(w) if is_recording() else None
    g_bias = None if b is None else np.zeros_like(b)
    total = total_nll = np.zeros((), dtype=dtype)
    size = min(CHUNK_ROWS, max(256, CHUNK // len(w)))
    for start in range(0, max(1, len(hidden)), size):  # at least once: gradients may be 0
        chunk = slice(start, start + size)
        chunk_hidden = hidden[chunk]
        logits = np.matmul(chunk_hidden, w.T)  # (n, V)
        if b is not None:
            logits += b
        losses, nlls = loss_and_gradient(logits, ids[chunk], smoothing)
        total, total_nll = total + losses.sum(), total_nll + nlls.sum()
        if is_recording():
            # `logits` now contains their gradient p - q.
            np.matmul(logits, w, out=g_hidden[chunk])
            for block in blocks(w.shape, 1 << 20):  # without another array as large as w
                add_product(logits.T[block], chunk_hidden, g_weight[block], start == 0)
            if b is not None:
                g_bias += column_sums(logits)
        del logits  # their memory is for those of the next chunk

    def backward(gy):
        scale = gy / n_tokens
        gx = np.zeros(shape, dtype=dtype)
        as_rows(gx)[rows] = g_hidden * scale
        scaled = np.multiply(g_weight, scale, out=gradient_out(weight, own=g_weight))
        return gx, scaled, None if b is None else g_bias * scale

    smoothed = record(total / n_tokens, (x, weight, bias), backward)
    with no_grad():
        nll = record(total_nll / n_tokens, (smoothed,), None)
    return smoothed, nll


def loss_and_gradient(logits, target, smoothing):
    """Turn logits (N, V) into p - q in place; return the smoothed and the plain loss of each row.

        loss = - sum_v q_v ln p_v = rest (log_sum - logit_true) + wrong sum_v (log_sum - logit_v)

    because ln p_v = logit_v - log_sum, and q_v is `wrong` for every id, plus `rest` for the true
    id. So no array of ln p is needed. `rest` has to be positive: if the true id is impossible, its
    ln p is -infinity. Other impossible ids, whose q_v is 0, are left out of the last sum.
    """
    smoothing = float(smoothing)  # a NumPy scalar would widen float32
    size = logits.shape[1]
    wrong = loss.probability_of_others(smoothing, size)
    rows = np.arange(len(logits))
    logits -= logits.max(axis=-1, keepdims=True)
    true, total = logits[rows, target], row_sums(logits)[:, 0]
    impossible = None
    if np.isneginf(total).any():
        impossible = np.isneginf(logits)
        size = size - np.count_nonzero(impossible, axis=1)  # one number for each row
        wrong = loss.probability_of_others(smoothing, size)
        total = row_sums(np.where(impossible, 0, logits))[:, 0]
    # Rounded only here: then a row has the same numbers whether or not others have impossible ids.
    size, wrong, rest = (np.asarray(x, logits.dtype) for x in (size, wrong, 1 - smoothing - wrong))
    p = np.exp(logits, out=logits)
    sums = row_sums(p)
    log_sums = np.log(sums[:, 0])
    nll = log_sums - true
    losses = rest * nll + wrong * (size * log_sums - total)
    p /= sums
    p -= wrong.reshape(-1, 1)
    if impossible is not None:
        impossible[rows, target] = False
        p[impossible] = 0  # as their q is
    p[rows, target] -= rest
    return losses, nll
