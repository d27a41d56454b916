"""Faster decoding, on a GPU."""

import numpy as np

from minitf import decode
from minitf.backend import to_numpy
from minitf.cpu.decode import continuations
from minitf.cpu.decoder import PackedDecoder, is_straight
from minitf.forms import form_of, is_left_out
from minitf.gpu import fused
from minitf.gpu.decoder import STEPS, StraightScorer
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import tolerance

__all__ = ["continuations", "logsumexp", "token_scorer"]


@form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a StraightScorer for a model in float32 with d_k = d_v, if it is decoded as one."""
    if not cached or is_left_out("decoder"):
        return NotImplemented
    is_used = (
        decode.has_own_layers(model)
        and _has_kernels_for(model)
        and is_straight(model, lambda source: _scorer(model, source, 1), max(1e-2, tolerance()))
    )
    return _scorer(model, source, width) if is_used else NotImplemented


def _scorer(model, source, width):
    """Return a StraightScorer with the weights as they are now: packing them takes little."""
    return StraightScorer(PackedDecoder(model, STEPS), model, source, width)


def _has_kernels_for(model):
    """Return whether the kernels take the model: float32, with keys and values of one size."""
    same_size = model.config.d_k == model.config.d_v
    return same_size and has_kernels(*(p.data for p in model.parameters()))


form_of(decode.continuations, "gpu")(continuations)  # only a few scores of a sentence leave the GPU


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed by one kernel."""
    if has_kernels(logits):
        return to_numpy(fused.logsumexp(logits)).astype(np.float64)
    return NotImplemented
