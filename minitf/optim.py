"""Adam, the paper's learning-rate schedule, and gradient clipping."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minitf.backend import to_device, to_numpy, xp
from minitf.errors import UserError
from minitf.forms import accelerated
from minitf.nn import Parameter

__all__ = ["Adam", "Flat", "adam_update", "clip_gradient", "gradient_norm", "warmup_rate"]


def warmup_rate(step: int, d_model: int, warmup_steps: int = 4000, factor: float = 1.0) -> float:
    """Return the learning rate at a step: it rises linearly, then falls as 1 / sqrt(step).

        rate = factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    step: 1 for the first update. warmup_steps: at least 1.
    >>> f"{warmup_rate(4000, 512):.3e}"
    '6.988e-04'

    Source: section 5.3, eq. 3.
    """
    if step < 1:
        raise ValueError(f"step must be at least 1, not {step}")
    if warmup_steps < 1:
        raise ValueError(f"warmup_steps must be at least 1, not {warmup_steps}")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@accelerated
def adam_update(
    x: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    t: int,
    rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.98,
    eps: float = 1e-9,
) -> None:
    """Update x, m and v in place by step t of Adam with the gradient g.

        m = beta_1 m + (1 - beta_1) g                v = beta_2 v + (1 - beta_2) g^2
        x = x - rate * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps)

    x, g, m, v: (...)
    t: 1 for the first step, which starts from m = v = 0. So after t steps the weights of the
    gradients in m sum to 1 - beta_1^t instead of 1; dividing by that makes m their mean, and v
    likewise. eps keeps the quotient finite where all gradients so far were zero.
    Source: section 5.3; Kingma and Ba 2015, algorithm 1.
    """
    m[...] = beta_1 * m + (1 - beta_1) * g
    v[...] = beta_2 * v + (1 - beta_2) * g**2
    x -= rate * (m / (1 - beta_1**t)) / (xp.sqrt(v / (1 - beta_2**t)) + eps)


class Flat:
    """Parameters as views of one flat array, and their gradients as views of a second one.

    named_parameters: pairs (name, parameter).
    So one operation on `data` changes all parameters, and their gradients arrive in `gradients`;
    present ones are dropped. This lasts until a parameter gets another array, as in a copy of the
    model: write into the array that it has, or make a new Flat.
    Raises TypeError for parameters without names, ValueError for no parameters, for a repeated
    one or a repeated name, and for different dtypes.
    """

    def __init__(self, named_parameters: Iterable[tuple[str, Parameter]]):
        self.named_parameters = _as_pairs(named_parameters)
        parameters = [p for _, p in self.named_parameters]
        size, dtype = sum(p.size for p in parameters), parameters[0].dtype
        self.data, self.gradients = xp.empty(size, dtype), xp.zeros(size, dtype)
        self._views = list(zip(self.views(self.data), self.views(self.gradients), strict=True))
        for p, (view, gradient_view) in zip(parameters, self._views, strict=True):
            view[...] = p.data
            p.data, p.grad, p._gradient_slice = view, None, gradient_view

    def views(self, array: np.ndarray) -> list[np.ndarray]:
        """Return each parameter's view of an array like `data`."""
        views, start = [], 0
        for _, p in self.named_parameters:
            views.append(array[start : start + p.size].reshape(p.shape))
            start += p.size
        return views

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for _, parameter in self.named_parameters:
            parameter.grad = None

    def gather_gradients(self) -> np.ndarray:
        """Return the flat gradient of this update, with zeros for a parameter without one.

        Raises RuntimeError if a parameter or its gradient has another array than this Flat's.
        """
        for (name, p), (view, gradient_view) in zip(
            self.named_parameters, self._views, strict=True
        ):
            if p.grad is None:
                gradient_view[...] = 0
                p.grad = gradient_view
            if not (p.data is view and p._gradient_slice is p.grad is gradient_view):
                raise RuntimeError(
                    f"{name} or its gradient was replaced, converted or copied: make a new Adam, "
                    "or write into the array, as in p.data[...] = values"
                )
        return self.gradients


def _as_pairs(named_parameters):
    """Return the pairs (name, parameter) as a list. Raises the errors of Flat."""
    pairs = list(named_parameters) if isinstance(named_parameters, Iterable) else [None]
    if not all(isinstance(p, tuple) and isinstance(p[-1], Parameter) for p in pairs):
        raise TypeError(
            "Adam takes names with their parameters: write Adam(model.named_parameters())"
        )
    if not pairs:
        raise ValueError("nothing to train: there are no parameters")
    if min(len(dict(pairs)), len({id(p) for _, p in pairs})) < len(pairs):
        raise ValueError(
            "a parameter or a name is listed twice: Module.named_parameters() lists each once"
        )
    if len({p.dtype for _, p in pairs}) > 1:
        raise ValueError("some parameters are float32 and some float64: use model.astype")
    return pairs


class Adam(Flat):
    """Adam: each number moves by its mean gradient over the root of its mean squared gradient.

    named_parameters: as `model.named_parameters()` returns them. The learning rate is given to each
    step.
    Adam treats all numbers alike, so all parameters are kept in one flat array, and there are three
    more for their next gradients, m and v: a step is one `adam_update` instead of hundreds. The
    `data` and `grad` of a parameter become views of its slices (see Flat). An Adam serves the
    parameters that it was made with: a copy of the model needs a new one, with the state of this.
    Raises TypeError for parameters without names, ValueError for repeated names, mixed types or no
    parameters at all; RuntimeError in a step if no parameter has a gradient, and if a parameter
    has another array by then, because it was converted, copied or given to another optimizer.
    Source: section 5.3; Kingma and Ba 2015, algorithm 1.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Parameter]],
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        eps: float = 1e-9,
    ):
        super().__init__(named_parameters)
        self.beta_1, self.beta_2, self.eps = beta_1, beta_2, eps
        self.step_count = 0
        self.m, self.v = xp.zeros_like(self.data), xp.zeros_like(self.data)

    def step(self, rate: float, gradients: np.ndarray | None = None) -> None:
        """Update every parameter by its gradient: one `adam_update` of all of them.

        gradients: what `gather_gradients` returned, if it was called for this update.
        """
        if gradients is None:
            if all(parameter.grad is None for _, parameter in self.named_parameters):
                raise RuntimeError(
                    "no parameter has a gradient: call backward() of a loss that was computed from "
                    "them"
                )
            gradients = self.gather_gradients()
        self.step_count += 1
        constants = self.beta_1, self.beta_2, self.eps
        # This changes the model's weights, because each parameter is a view of a slice of `data`.
        adam_update(self.data, gradients, self.m, self.v, self.step_count, rate, *constants)

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of m and v by parameter name, and the step, for a checkpoint."""
        moments = {key: to_numpy(moment).copy() for key, moment in self._moments().items()}
        return {"step": np.array(self.step_count), **moments}

    def load_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Set m, v and the step to those that `state` returned.

        Raises UserError, and changes nothing, if an array is missing or does not fit.
        """
        step, moments = arrays.get("step"), self._moments()
        # A damaged file may hold any number; beta^t and the learning rate use it as a float,
        # and above 2^53 floats do not count in ones.
        if step is None or step.shape != () or step.dtype.kind != "i" or not 0 <= step < 2**53:
            raise UserError("the checkpoint lacks the optimizer's step: use an older one")
        for key, moment in moments.items():
            if key not in arrays or arrays[key].shape != moment.shape:
                raise UserError(
                    f"the checkpoint lacks {key} of shape {moment.shape}: use an older one"
                )
            if arrays[key].dtype.kind != "f":
                raise UserError(f"{key} in the checkpoint is {arrays[key].dtype}, not float")
        for key, moment in moments.items():
            moment[...] = to_device(arrays[key], moment.dtype)
        self.step_count = int(step)

    def _moments(self):
        """Return each parameter's views of m and v, under the names that a checkpoint uses."""
        moments, views = {}, (self.views(self.m), self.views(self.v))
        for (name, _), m, v in zip(self.named_parameters, *views, strict=True):
            moments |= {f"m.{name}": m, f"v.{name}": v}
        return moments


def gradient_norm(gradients: np.ndarray) -> np.ndarray | np.floating:
    """Return the Euclidean length of a flat gradient, as an array of one number."""
    return xp.sqrt(xp.dot(gradients, gradients))


def clip_gradient(
    gradients: np.ndarray, largest: float, norm: np.ndarray | np.floating | float | None = None
) -> np.ndarray | np.floating | float:
    """Shorten a flat gradient in place to the length `largest` if it is longer.

        g = g * min(1, largest / (|g| + 1e-12))

    1e-12 only prevents a division by zero. norm: the length |g|, if it is known.
    If an element is NaN or infinite, or the squares overflow, the length is NaN or infinite, and
    the gradient is useless afterwards: test the length before an update.
    The paper does not clip.
    Raises ValueError if `largest` is negative.
    """
    if largest < 0:
        raise ValueError(f"the largest length of a gradient must be at least 0, not {largest}")
    if norm is None:
        norm = gradient_norm(gradients)
    gradients *= xp.minimum(largest / (norm + 1e-12), 1)
    return norm
