"""Faster decoding, on a GPU."""

import numpy as np

from minitf import decode
from minitf.backend import to_numpy, xp
from minitf.cpu import decode as cpu_decode
from minitf.cpu.decoder import is_plain
from minitf.forms import form_of
from minitf.gpu import fused
from minitf.gpu.decoder import StraightScorer
from minitf.gpu.launch import has_kernels

__all__ = ["continuations", "normalisers_of", "token_scorer"]


@form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a Scorer whose caches are shared by the texts of a sentence.

    A plain model (see is_plain) in float32 with d_k = d_v gets a StraightScorer; any other is
    decoded by its modules, also on the GPU. For those, the keys and values of the source are made
    contiguous, or each product would copy them.
    """
    if not cached or not decode.can_cache(model):
        return NotImplemented
    if is_plain(model) and _has_kernels_for(model):
        return StraightScorer(model, source, width)
    return cpu_decode.SharedTokenScorer(model, source, width, arranged=xp.ascontiguousarray)


def _has_kernels_for(model):
    """Return whether the kernels take the model: float32, with keys and values of one size."""
    same_size = model.config.d_k == model.config.d_v
    return same_size and has_kernels(*(p.data for p in model.parameters()))


@form_of(decode.continuations)
def continuations(scores, totals, count):
    """Return the best continuations; only a few scores of each sentence leave the GPU."""
    return cpu_decode.continuations(scores, totals, count)


@form_of(decode.normalisers_of)
def normalisers_of(logits):
    """Return the normalisers, computed by one kernel."""
    if has_kernels(logits):
        return to_numpy(fused.log_sum_exp(logits)).astype(np.float64)
    return NotImplemented
