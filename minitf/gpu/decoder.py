"""The steps of decoding on a GPU; minitf/cpu/decoder.py is the program that takes them.

For the few rows of a step, the host takes longer to start an operation than the GPU to compute it.
So one kernel computes all that is between the projections of an attention: the write to the cache,
the scores, their softmax, and the average of the values. Another finds the best next tokens while
it normalises.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, L layers.
"""

from typing import NamedTuple

import numpy as np

from minitf import decode
from minitf import functions as F
from minitf.backend import to_device
from minitf.cpu import decoder
from minitf.gpu import fused
from minitf.gpu.matmul import as_operand, product_with

__all__ = ["STEPS", "StraightScorer"]


class StraightScorer(decoder.StraightScorer):
    """The straight line, with the best tokens found on the GPU."""

    def __call__(self, texts):
        """Return logits and normalisers, as Scorer says."""
        logits = self._logits(texts)
        normalisers, _, _ = self._best_of(logits, 0)
        return logits, normalisers

    def best(self, texts, totals, count):
        """Return the best continuations, as Scorer says: of each row a few numbers leave the GPU.

        The best of a sentence are among the best `count` of its texts. One more of each text tells
        whether another token may be equal to the last of them; then `continuations` decides.
        """
        logits = self._logits(texts)
        normalisers, values, tokens = self._best_of(logits, count + 1)
        totals = totals - normalisers.reshape(totals.shape)
        n, width = totals.shape
        size = logits.shape[1]
        sums = totals[:, :, None] + values.reshape(n, width, -1)  # (B, W, count + 1), float64
        index = tokens.reshape(sums.shape) + np.arange(width)[:, None] * size
        flat, index = sums.reshape(n, -1), index.reshape(n, -1)
        order = np.lexsort((index, -flat))[:, :count]
        best, found = np.take_along_axis(index, order, 1), np.take_along_axis(flat, order, 1)
        is_tied = (sums[:, :, -1].max(axis=1) >= found[:, -1]).any()
        ranked = best % size, best // size, found
        return decode.continuations(logits, totals, count) if is_tied else ranked

    def _best_of(self, logits, count):
        """Return normalisers, and the best `count` of each row: see fused.best_of_rows."""
        c = self.model.config
        normalisers, values, tokens = fused.best_of_rows(logits, (c.pad_id, c.bos_id), count)
        decode.refuse_infinite(normalisers)
        return normalisers, values, tokens


def _pack(maps, _):
    """Choose the program that multiplies by each matrix."""
    for each in maps:
        each.multiply = product_with(as_operand(each.take_matrix()))


class _Norm(NamedTuple):
    """Layer norm of rows (R, D), or of a sum of them, by one kernel."""

    gain: object
    bias: object
    eps: float

    def __call__(self, x):
        return fused.layer_norm(x, *self)[0]

    def of_sum(self, x, y):
        return fused.add_norm(x, y, *self)[0]


def _norm(norm):
    return _Norm(norm.gain.data, norm.bias.data, norm.eps)


def _hidden(inner, x, activation):
    if activation == "relu" and inner.bias is not None:
        return fused.bias_relu_dropout(inner.multiply(x), inner.bias)[0]
    return getattr(F, activation)(inner(x)).data


def _projections(attentions):
    """Return the keys and the values of each attention in turn."""
    return [linear for each in attentions for linear in (each.key, each.value)]


def _in_heads(projected, config):
    """Return one array, (B, L * 2*H, n, K): for each layer the keys of all heads, then the values.

    The kernel of attention needs keys and values of one size.
    """
    batch, n, size = projected.shape
    heads = projected.reshape(batch, n, size // config.d_k, config.d_k)
    return [heads.swapaxes(1, 2)]


def _mask(mask, _):
    return to_device(mask)


def _attend(projected, cache, mask, first=None):
    return fused.attention_step(projected, *cache, mask, first)


STEPS = decoder.Steps(_pack, _norm, _hidden, _projections, _in_heads, _mask, _attend, divides=False)
