"""Decoding with CuPy: the routines of the fused decoder, and few next tokens to compare.

For the few rows of a decoding step, the host takes longer to start an operation than the GPU to
compute it. So one kernel computes all that is between the projections of an attention: the write to
the cache, the scores, their softmax, and the average of the values.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k.
"""

import functools

import numpy as np

from minitf import decode
from minitf import functions as F
from minitf.backend import to_device
from minitf.common import beams
from minitf.common.decoder import Routines, fused_decoding
from minitf.forms import form_of
from minitf.gpu import fused
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import as_operand, product_with

NONE = (-1, -1)  # no token is ruled out


@form_of(decode.fast_decoding)
def fast_decoding(model, shortlist=None):
    """Return the FusedDecoding of a model in float32, with keys and values of one size."""
    c, arrays = model.config, [parameter.data for parameter in model.parameters()]
    if c.d_k != c.d_v or not has_kernels(*arrays):
        return NotImplemented
    return fused_decoding(model, CUPY, shortlist)


def _pack(affines, _):
    """Choose the program that multiplies by each matrix."""
    for affine in affines:
        affine.multiply = product_with(as_operand(affine.take_matrix()))


def _norm(layer):
    """Return the layer norm of rows (R, D), or of a sum of two, by one kernel."""
    return functools.partial(_normalised, (layer.gain.data, layer.bias.data, layer.eps))


def _normalised(settings, x, added=None):
    if added is None:
        return fused.layer_norm(x, *settings)[0]
    return fused.add_norm(x, added, *settings)[0]


def _hidden(inner, x, activation):
    if activation == "relu" and inner.bias is not None:
        return fused.bias_relu_dropout(inner.multiply(x), inner.bias)[0]
    return getattr(F, activation)(inner(x)).data


def _in_heads(x, config):
    """Return one array, (B, 2*H, n, K), the keys of all heads, then the values.

    The kernel of attention needs keys and values of one size.
    """
    batch, n, _ = x.shape
    return [x.reshape(batch, n, 2 * config.n_heads, config.d_k).swapaxes(1, 2)]


def _mask(allowed, _):
    return to_device(allowed)


def _attend(x, cache, mask, write_at):
    return fused.attend_newest(x, *cache, mask, write_at)


CUPY = Routines(
    pack=_pack,
    encodes=0,
    norm=_norm,
    hidden=_hidden,
    in_heads=_in_heads,
    mask=_mask,
    attend=_attend,
)


# Only a few logits leave the GPU ------------------------------------------------------------------


@form_of(decode.continuations)
def continuations(logits, totals, count, never=(), allowed=None):
    """Return the best continuations, found by one kernel, which also sums the exponentials.

    The best of a sentence are among the best `count` of each of its texts. One more of each tells
    whether another token may be equal to the last one; then the form for NumPy decides.
    """
    if allowed is not None or len(never) != 2 or not has_kernels(logits):
        return beams.continuations(logits, totals, count, never, allowed)
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
        return beams.ranked(logits, rest, count)
    return best % size, best // size, found


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed by the kernel that also finds the best tokens."""
    return fused.best_of_rows(logits, NONE, 0)[0] if has_kernels(logits) else NotImplemented
