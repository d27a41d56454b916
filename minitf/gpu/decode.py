"""Faster decoding, on a GPU: of the logits of a text, only a few leave it."""

import numpy as np

from minitf import decode
from minitf.backend import to_numpy
from minitf.cpu import decode as cpu_decode
from minitf.forms import form_of
from minitf.gpu import fused
from minitf.gpu.launch import has_kernels

__all__ = ["continuations", "logsumexp"]


@form_of(decode.continuations)
def continuations(logits, totals, count, never=(), allowed=None):
    """Return the best continuations, found by one kernel, which also sums the exponentials.

    The best of a sentence are among the best `count` of its texts. One more of each text tells
    whether another token may be equal to the last of them; then the form for NumPy decides.
    """
    if allowed is not None or len(never) != 2 or not has_kernels(logits):
        return cpu_decode.continuations(logits, totals, count, never, allowed)
    sums, values, tokens = fused.best_of_rows(logits, never, count + 1)
    decode.refuse_infinite(sums)
    n, width = totals.shape
    size = logits.shape[1]
    rest = totals - sums.reshape(n, width)
    new = rest[:, :, None] + values.reshape(n, width, -1)  # (B, W, count + 1), float64
    index = tokens.reshape(new.shape) + np.arange(width)[:, None] * size
    flat, index = new.reshape(n, -1), index.reshape(n, -1)
    order = np.lexsort((index, -flat))[:, :count]
    best, found = np.take_along_axis(index, order, 1), np.take_along_axis(flat, order, 1)
    if (new[:, :, -1].max(axis=1) >= found[:, -1]).any():
        return cpu_decode.ranked(logits, rest, count)
    return best % size, best // size, found


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed by one kernel."""
    if has_kernels(logits):
        return to_numpy(fused.logsumexp(logits)).astype(np.float64)
    return NotImplemented
