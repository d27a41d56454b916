"""Functions that variations of the Transformer use and the paper does not, each with its gradient
right under it.

They follow the rules of functions.py, and take and give the same. Larger pieces are
made of these and of operators: SwiGLU's gate is `g * sigmoid(g)`, and RMSNorm is
`x / sqrt((x * x).mean(-1, keepdims=True) + eps)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minitf.backend import xp
from minitf.tensor import ArrayLike, Tensor, as_array, record

__all__ = ["gelu_tanh", "sigmoid", "sqrt", "stack", "tanh"]


def tanh(x: ArrayLike) -> Tensor:
    """Squeeze each number between -1 and 1.

        y = (e^x - e^-x) / (e^x + e^-x)

    x: (...)   ->   (...)
    """
    y = xp.tanh(as_array(x))
    return record(y, (x,), lambda gy: gy * (1 - y * y))


def sigmoid(x: ArrayLike) -> Tensor:
    """Squeeze each number between 0 and 1.

        y = 1 / (1 + e^-x)

    x: (...)   ->   (...)
    The exponential is taken of -|x|, which cannot overflow.
    """
    x_data = as_array(x)
    e = xp.exp(-abs(x_data))
    y = xp.where(x_data < 0, e, 1) / (1 + e)
    return record(y, (x,), lambda gy: gy * (e / ((1 + e) * (1 + e))))


def gelu_tanh(x: ArrayLike) -> Tensor:
    """Weigh each number by about the probability that a normal variable is smaller: GELU, in the
    form with tanh.

        y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))

    x: (...)   ->   (...)
    The exact form has the error function in place of the tanh; they differ by less than 0.0005.
    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2.
    """
    x_data, factor = as_array(x), math.sqrt(2 / math.pi)
    t = xp.tanh(factor * (x_data + 0.044715 * x_data**3))
    y = 0.5 * x_data * (1 + t)

    def backward(gy):
        slope = factor * (1 + 3 * 0.044715 * x_data * x_data)  # of what the tanh is taken of
        return gy * (0.5 * (1 + t) + 0.5 * x_data * (1 - t * t) * slope)

    return record(y, (x,), backward)


def sqrt(x: ArrayLike) -> Tensor:
    """Take the square root of each number; its gradient at 0 is infinite.

        y = x^(1/2)

    x: (...)   ->   (...)
    """
    y = xp.sqrt(as_array(x))
    return record(y, (x,), lambda gy: gy / (2 * y))


def stack(tensors: Sequence[ArrayLike], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

        y_i = x_i

    tensors: a sequence of N of shape (..., D)   ->   (N, ..., D)
    The new axis is the one that `axis` names.
    """
    y = xp.stack([as_array(x) for x in tensors], axis=axis)
    return record(y, tuple(tensors), lambda gy: tuple(xp.moveaxis(gy, axis, 0)))
