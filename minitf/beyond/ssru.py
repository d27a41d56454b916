"""The SSRU: a recurrent layer in the place of the decoder's masked self-attention."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from minitf import functions as F
from minitf.backend import xp
from minitf.beyond.functions import gated_recurrence, sigmoid
from minitf.config import Config
from minitf.nn import Linear, Module
from minitf.tensor import Tensor

__all__ = ["SSRU"]


class KeepsState(Protocol):
    """A cache with the state (B, D) of each text, which is None at its beginning."""

    state: Tensor | None


class SSRU(Module):
    """The Simpler Simple Recurrent Unit: what is written so far is one state, however long it is.

        y_t = max(0, c_t)    with c_t = f_t c_(t-1) + (1 - f_t) x_t W,  c_0 = 0
        f_t = sigmoid(x_t W_f + b_f)

    So a decoding step costs the same at each length. There are neither heads nor an output
    projection. With `keep_weights` set, the last weights (B, 1, T, T) are kept in `weights`, for
    pictures.
    Source: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine
    Translation".
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.value = Linear(config.d_model, config.d_model, rng, bias=False)
        self.forget = Linear(config.d_model, config.d_model, rng)
        self.keep_weights = False

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        mask: np.ndarray | None = None,
        cache: KeepsState | None = None,
    ) -> Tensor:
        """Return the outputs (B, T, D) for x (B, T, D); called as a MultiHeadAttention.

        memory, mask: not used, as a state has seen the text so far and nothing else.
        cache: its `state` (B, D) is kept from token to token (see Cache in minitf.decode).
        """
        gate = sigmoid(self.forget(x))
        start = None if cache is None else cache.state
        states = gated_recurrence(self.value(x), gate, start)  # (B, T, D)
        if cache is not None:
            cache.state = states[:, -1]
        if self.keep_weights:
            self.weights = _weights_of_positions(gate).numpy()
        return F.relu(states)


def _weights_of_positions(gate):
    """Return how much of each state is the value of each position: (B, T, D) -> (B, 1, T, T).

        c_t = sum_j w_tj x_j W    with w_tj = (1 - f_j) f_(j+1) ... f_t  for j <= t

    Each feature has weights of its own; the result is their mean. A row sums to less than 1: the
    rest is what is left of c_0. As w_tj is the state of a text with 1 at position j and 0
    elsewhere, one such text for each j computes them.
    """
    batch, length, d = gate.shape
    ones = xp.eye(length, dtype=gate.dtype)[None, :, :, None]  # (1, j, t, 1)
    ones = xp.broadcast_to(ones, (batch, length, length, d)).reshape(-1, length, d)
    states = gated_recurrence(ones, xp.repeat(gate.data, length, axis=0))
    weights = states.mean(axis=-1).reshape(batch, 1, length, length)  # (B, 1, j, t)
    return weights.swapaxes(2, 3)
