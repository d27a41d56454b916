"""Faster decoding, on a GPU."""

import numpy as np

from minitf import decode
from minitf.backend import to_numpy
from minitf.cpu.decode import continuations
from minitf.forms import form_of
from minitf.gpu import fused
from minitf.gpu.launch import has_kernels

__all__ = ["continuations", "logsumexp"]

form_of(decode.continuations, "gpu")(continuations)  # only a few scores of a sentence leave the GPU


@form_of(decode.logsumexp)
def logsumexp(logits):
    """Return the logsumexp of each row, computed by one kernel."""
    if has_kernels(logits):
        return to_numpy(fused.logsumexp(logits)).astype(np.float64)
    return NotImplemented
