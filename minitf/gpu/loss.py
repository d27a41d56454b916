"""The form of the loss on a GPU: chunk by chunk, a kernel turns logits into their gradient."""

import math

from minitf import loss
from minitf.backend import xp
from minitf.forms import form_of
from minitf.gpu import kernels
from minitf.gpu.launch import has_kernels, launch
from minitf.gpu.matmul import add_product, as_factor, matmul
from minitf.tensor import arrays_of, is_recording, record

CHUNK_ROWS = 4096  # rows of logits held in memory at once

_THREADS = 256  # threads of a block, which computes one row of logits


@form_of(loss.projected_cross_entropy)
def projected_cross_entropy(x, weight, target, smoothing=0.1, pad_id=None, n_tokens=None):
    """Return the loss and the plain likelihood, with products in the chosen precision."""
    x_data, w = arrays_of(x, weight)
    shape, dtype = x_data.shape, x_data.dtype
    if not has_kernels(x_data, w) or shape[-1] != w.shape[1]:
        return NotImplemented
    rows, ids, n_tokens = loss.real_rows(target, shape[:-1], len(w), smoothing, pad_id, n_tokens)
    if smoothing >= 0.5:
        return NotImplemented  # the kernel needs a q that is larger for the true id
    flat = math.prod(shape[:-1]), shape[-1]
    hidden = x_data.reshape(flat)[rows]  # (N, D)
    g_hidden, g_weight = xp.empty_like(hidden), None
    total = total_nll = xp.zeros((), dtype=dtype)
    table = as_factor(w)
    for start in range(0, max(1, len(hidden)), CHUNK_ROWS):  # once at least, for gradients of zero
        chunk = slice(start, start + CHUNK_ROWS)
        some = as_factor(hidden[chunk])
        logits = matmul(some, table.T)  # (n, V)
        losses, nlls = loss_and_gradient(logits, ids[chunk], smoothing)
        total, total_nll = total + losses.sum(), total_nll + nlls.sum()
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

    smoothed = record(total / n_tokens, (x, weight), backward)
    return smoothed, record(total_nll / n_tokens, (), None)


def loss_and_gradient(logits, target, smoothing):
    """Turn logits (N, V) into p - q in place; return the smoothed and the plain losses."""
    losses, nlls = (xp.empty(len(logits), dtype=logits.dtype) for _ in range(2))
    launch(
        kernels.cross_entropy,
        (len(logits),),
        (_THREADS,),
        *(logits, target, losses, nlls, smoothing),
    )
    return losses, nlls
