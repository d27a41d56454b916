"""Decoding with NumPy: the routines of the fused decoder, and the next tokens of a beam.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, U d_v,
n tokens in the cache of a sentence.
"""

import functools
import math

import numpy as np

from minitf import decode
from minitf import functions as F
from minitf.common import beams
from minitf.common.decoder import Routines, fused_decoding
from minitf.cpu.packed import in_panels, product
from minitf.forms import form_of

_CACHED = 1 << 16  # logits whose exponentials fit the processor's cache
_HUGE = 60  # e^60 is a number of float32, and so is e^-60 over the size of a vocabulary

form_of(decode.continuations, "cpu")(beams.continuations)


@form_of(decode.fast_decoding)
def fast_decoding(model, shortlist=None):
    """Return the FusedDecoding of a model with this library's layers."""
    return fused_decoding(model, NUMPY, shortlist)


def _pack(affines, dtype):
    """Copy the biases, and the matrices in panels."""
    if any(weight.dtype != dtype for affine in affines for weight in affine.weights):
        raise TypeError("this decoder mixes float32 and float64: convert it to one with astype")
    matrices = (affine.take_matrix() for affine in affines)
    arrays = in_panels(matrices, [affine.shape for affine in affines], dtype)
    for affine, panels in zip(affines, arrays, strict=True):
        affine.multiply = functools.partial(product, panels=panels, f=affine.shape[1])
        affine.bias = None if affine.bias is None else affine.bias.copy()


def _norm(layer):
    """Return the layer norm of rows (R, D), or of a sum of two: see `_normalised`."""
    size, dtype = layer.gain.data.size, layer.gain.data.dtype
    averaging = np.full(size, 1 / size, dtype)  # mean(x) = x . averaging
    gain, bias = layer.gain.data * math.sqrt(size), layer.bias.data.copy()
    return functools.partial(_normalised, averaging, gain, bias, size * layer.eps)


def _normalised(averaging, gain, bias, eps, x, added=None):
    """Return the layer norm of x, or of x + added, in a new array.

        y = x - mean(x)
        y / sqrt(sum(y^2) / D + eps) = sqrt(D) y / sqrt(sum(y^2) + D eps)

    The gain is multiplied by sqrt(D) already, and eps by D.
    """
    if added is not None:
        added += x
        x = added
    if len(x) == 1:  # the same bits from a vector, by fewer and shorter calls of NumPy
        y = x[0] - x[0].dot(averaging)
        y /= np.sqrt(y.dot(y) + eps)
        y *= gain
        y += bias
        return y[None]
    y = x - np.vecdot(x, averaging)[:, None]
    sums = np.vecdot(y, y)
    sums += eps
    y /= np.sqrt(sums, out=sums)[:, None]
    y *= gain
    y += bias
    return y


def _hidden(inner, x, activation):
    y = inner(x)
    return np.maximum(y, 0, out=y) if activation == "relu" else getattr(F, activation)(y).data


def _in_heads(x, config):
    """Return the keys (B, H, n, K) and the values (B, H, n, U), contiguous."""
    batch, n, _ = x.shape
    arrays = []
    for columns in np.split(x, [config.n_heads * config.d_k], axis=2):
        heads = columns.reshape(batch, n, config.n_heads, columns.shape[2] // config.n_heads)
        arrays.append(np.ascontiguousarray(heads.swapaxes(1, 2)))
    return arrays


def _mask(allowed, dtype):
    """Return the terms to add to the scores: 0 for what may be seen, else -infinity."""
    return None if allowed.all() else np.where(allowed, dtype.type(0), dtype.type(-np.inf))


def _attend(x, cache, mask, write_at):
    """Attend with the newest token of each text, all heads side by side: see Routines.

    cache: the keys (B, H, capacity, K) and the values (B, H, capacity, U).
    """
    keys, values = cache
    batch, heads, _, size = keys.shape
    width, end = len(x) // batch, heads * size

    def split(columns):
        """Return the features as heads: (R, H*K) -> (B, H, W, K), a view."""
        return columns.reshape(batch, width, heads, columns.shape[1] // heads).swapaxes(1, 2)

    queries = x[:, :end]
    queries /= math.sqrt(size)  # the queries are fewer than the scores
    if write_at is not None:
        keys, values = keys[:, :, : write_at + width], values[:, :, : write_at + width]
        keys[:, :, write_at:] = split(x[:, end : 2 * end])
        values[:, :, write_at:] = split(x[:, 2 * end :])
    weights = split(queries) @ keys.swapaxes(-1, -2)  # (B, H, W, n)
    if mask is not None:
        weights += mask[:, None]
    weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    merged = np.empty((batch, width, heads, values.shape[-1]), values.dtype)
    np.matmul(weights, values, out=merged.swapaxes(1, 2))
    return merged.reshape(batch * width, -1)


NUMPY = Routines(
    pack=_pack,
    encodes=128,
    norm=_norm,
    hidden=_hidden,
    in_heads=_in_heads,
    mask=_mask,
    attend=_attend,
)


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed for as many rows at a time as fit the cache.

    If logits are not huge, no sum overflows or vanishes: so nothing is subtracted from them.
    The sum of a row is its dot product with ones. In one product of all rows with ones, its
    rounding would depend on the other rows.
    """
    sums, size = np.empty(len(logits)), logits.shape[-1]
    n_rows, ones = max(1, _CACHED // size), np.ones(size, dtype=logits.dtype)
    for start in range(0, len(logits), n_rows):
        rows = logits[start : start + n_rows]
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.log(np.vecdot(np.exp(rows), ones))
        if not (abs(logs) < _HUGE).all():
            shifts = np.where(abs(logs) < _HUGE, 0, rows.max(axis=-1))
            logs = np.log(np.vecdot(np.exp(rows - shifts[:, None]), ones)) + shifts
        sums[start : start + n_rows] = logs
    return sums
