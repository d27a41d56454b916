"""Functions of Transformer variants, not used in the paper, each followed by its gradient.

They follow the conventions of minitf/functions.py. Other functions are compositions of these and of
operators: SwiGLU's gate is `g * sigmoid(g)`, and RMSNorm is
`x / sqrt((x * x).mean(-1, keepdims=True) + eps)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minitf.backend import xp
from minitf.functions import sigmoid_of
from minitf.tensor import ArrayLike, Tensor, arrays_of, as_array, record

__all__ = ["gated_recurrence", "gelu_tanh", "sigmoid", "sqrt", "stack", "tanh"]


def tanh(x: ArrayLike) -> Tensor:
    """Return each number squeezed into the interval from -1 to 1.

        y = (e^x - e^-x) / (e^x + e^-x)

    x: (...)   ->   (...)
    """
    y = xp.tanh(as_array(x))
    return record(y, (x,), lambda gy: gy * (1 - y * y))


def sigmoid(x: ArrayLike) -> Tensor:
    """Return each number squeezed into the interval from 0 to 1.

        y = 1 / (1 + e^-x)
        dy/dx = y (1 - y) = sigmoid(x) sigmoid(-x)

    x: (...)   ->   (...)
    """
    x_data = as_array(x)
    y = sigmoid_of(x_data)
    return record(y, (x,), lambda gy: gy * y * sigmoid_of(-x_data))


def gelu_tanh(x: ArrayLike) -> Tensor:
    """Return x times about the probability that a normal variable is less than x: GELU with tanh.

        y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))

    x: (...)   ->   (...)
    The exact form has the error function instead of tanh; they differ by less than 0.0005.
    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.
    """
    x_data, factor = as_array(x), math.sqrt(2 / math.pi)
    near = xp.clip(x_data, -30, 30)  # beyond, tanh is -1 or 1 exactly; a cube could overflow
    t = xp.tanh(factor * (near + 0.044715 * near**3))
    y = 0.5 * x_data * (1 + t)

    def backward(gy):
        slope = factor * (1 + 3 * 0.044715 * near * near)  # of the argument of tanh
        return gy * (0.5 * (1 + t) + 0.5 * x_data * (1 - t * t) * slope)

    return record(y, (x,), backward)


def sqrt(x: ArrayLike) -> Tensor:
    """Return the square root of each number; its gradient at 0 is infinite.

        y = x^(1/2)

    x: (...)   ->   (...)
    """
    y = xp.sqrt(as_array(x))
    return record(y, (x,), lambda gy: gy / (2 * y))


def stack(tensors: Sequence[ArrayLike], axis: int = 0) -> Tensor:
    """Return tensors of one shape joined along a new axis.

        y_i = x_i

    tensors: a sequence of N of shape (..., D)   ->   (N, ..., D)
    axis: the position of the new axis in the result.
    """
    tensors = tuple(tensors)  # a generator could be read only once
    y = xp.stack(arrays_of(*tensors), axis=axis)
    return record(y, tensors, lambda gy: tuple(xp.moveaxis(gy, axis, 0)))


def gated_recurrence(x: ArrayLike, gate: ArrayLike, start: ArrayLike | None = None) -> Tensor:
    """Return a state for each position: as much of the one before as the gate says, the rest of x.

        c_t = f_t c_(t-1) + (1 - f_t) x_t    with f the gate, and c_0 = start
        u_t = dL/dc_t = gc_t + f_(t+1) u_(t+1)    from the last position to the first
        gx_t = (1 - f_t) u_t,  gf_t = (c_(t-1) - x_t) u_t,  gstart = f_1 u_1

    x: (B, T, D)   gate: (B, T, D)   start: (B, D)   ->   (B, T, D)
    The gate is from 0 to 1; without a start, the states begin at 0.
    Source: Lei et al. 2018, "Simple Recurrent Units for Highly Parallelizable Recurrence", eq. 2.
    """
    if start is None:
        (x_data, f), first = arrays_of(x, gate), 0.0
    else:
        x_data, f, first = arrays_of(x, gate, start)
    states, state = xp.empty_like(x_data), first
    for t in range(x_data.shape[1]):
        state = states[:, t] = f[:, t] * state + (1 - f[:, t]) * x_data[:, t]

    def backward(gy):
        gx, g_gate, u = xp.empty_like(gy), xp.empty_like(gy), xp.zeros(gy.shape[::2], gy.dtype)
        for t in reversed(range(gy.shape[1])):
            u = gy[:, t] + u  # of c_t: what the result gets, and the next state
            before = states[:, t - 1] if t else first
            gx[:, t] = (1 - f[:, t]) * u
            g_gate[:, t] = (before - x_data[:, t]) * u
            u = f[:, t] * u
        return gx, g_gate, u  # without a start, the last is ignored

    return record(states, (x, gate, start), backward)
