"""The form of the loss on a GPU: chunk by chunk, a kernel turns logits into their gradient."""

import math

from minitf import loss
from minitf.backend import xp
from minitf.forms import form_of
from minitf.gpu import fused, kernels
from minitf.gpu.launch import has_kernels, launch
from minitf.gpu.matmul import add_product, as_operand, matmul
from minitf.tensor import gradient_out, is_recording, no_grad, record

CHUNK_ROWS = 4096  # rows of logits held in memory at once
# Threads of a block, which reads a row of logits twice. The fewer rows are under way at a time, the
# more of them are still in the cache at the second reading: with 256 threads few would be.
ROW_THREADS = 1024


@form_of(loss.projected_cross_entropy)
def projected_cross_entropy(
    x, weight, target, smoothing=0.1, pad_id=None, n_tokens=None, bias=None
):
    """Return the loss and the negative log-likelihood, with products in the chosen precision."""
    x_data, w, b = loss.projected_arrays(x, weight, bias)
    shape, dtype = x_data.shape, x_data.dtype
    if not has_kernels(x_data, w, b):
        return NotImplemented
    rows, ids, n_tokens = loss.kept_targets(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    if smoothing >= 0.5:
        return NotImplemented  # the kernel needs a q that is larger for the true id
    flat = math.prod(shape[:-1]), shape[-1]
    hidden = x_data.reshape(flat)[rows]  # (N, D)
    g_hidden, g_weight = xp.empty_like(hidden), None
    g_bias = None if b is None else xp.zeros_like(b)
    totals = None  # the sums of the smoothed and of the plain losses
    table = as_operand(w)
    for start in range(0, max(1, len(hidden)), CHUNK_ROWS):  # once at least, for gradients of zero
        chunk = slice(start, start + CHUNK_ROWS)
        chunk_hidden = as_operand(hidden[chunk])
        logits = matmul(chunk_hidden, table.T)  # (n, V)
        if b is not None:
            logits += b
        # In bfloat16, the gradient is written rounded, unless a bias needs the sum of its rows.
        rounded = table.dtype == xp.uint16 and b is None and is_recording()
        gradient = xp.empty_like(logits, dtype=xp.uint16) if rounded else logits
        losses = loss_and_gradient(logits, ids[chunk], smoothing, gradient)
        chunk_sum = losses.sum(axis=1)
        totals = chunk_sum if totals is None else totals + chunk_sum
        if is_recording():
            if b is not None:
                g_bias += fused.column_sums(logits)
            gradient = as_operand(gradient)
            matmul(gradient, table, out=g_hidden[chunk])
            if g_weight is None:
                g_weight = matmul(gradient.T, chunk_hidden)  # (V, D)
            else:
                add_product(gradient.T, chunk_hidden, g_weight)
        del logits, gradient  # their memory is for those of the next chunk

    def backward(gy):
        scale = gy / n_tokens
        gx = xp.zeros(flat, dtype=dtype)
        gx[rows] = g_hidden * scale
        scaled = xp.multiply(g_weight, scale, out=gradient_out(weight, own=g_weight))
        return gx.reshape(shape), scaled, None if b is None else g_bias * scale

    means = totals / n_tokens
    smoothed = record(means[0], (x, weight, bias), backward)
    with no_grad():
        nll = record(means[1], (smoothed,), None)
    return smoothed, nll


def loss_and_gradient(logits, target, smoothing, gradient=None):
    """Return the smoothed and the plain losses of logits (N, V), and write their gradient, p - q.

    The losses are (2, N). The gradient is written to `gradient`, or else replaces the logits.
    """
    gradient = logits if gradient is None else gradient
    losses = xp.empty((2, len(logits)), dtype=logits.dtype)
    arguments = logits, target, gradient, *losses, smoothing
    launch(kernels.cross_entropy, (len(logits),), (ROW_THREADS,), *arguments)
    return losses
