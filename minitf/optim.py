"""Adam, the paper's learning-rate schedule, and gradient clipping."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minitf.backend import to_device, to_numpy, xp
from minitf.errors import UserError
from minitf.forms import accelerated
from minitf.nn import Parameter, flat_slices, flatten

__all__ = ["Adam", "adam_update", "clip_gradient", "gradient_norm", "warmup_rate"]


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
    finite: bool | np.ndarray = True,
) -> None:
    """Update x, m and v in place by step t of Adam with the gradient g.

        m = beta_1 m + (1 - beta_1) g                v = beta_2 v + (1 - beta_2) g^2
        x = x - rate * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps)

    x, g, m, v: (...)
    t: 1 for the first step, which starts from m = v = 0. So after t steps, none of them skipped,
    the weights of the gradients in m sum to 1 - beta_1^t instead of 1; dividing by that makes m
    their mean, and v likewise. eps keeps the quotient finite where all gradients so far were zero.
    finite: a bool, or an array with one element; if False, nothing changes. A GPU reads the array
    itself and skips the update, so that Python need not wait to learn whether to call this.
    Source: section 5.3; Kingma and Ba 2015, algorithm 1.
    """
    if not finite:
        return
    m[...] = beta_1 * m + (1 - beta_1) * g
    v[...] = beta_2 * v + (1 - beta_2) * g**2
    x -= rate * (m / (1 - beta_1**t)) / (xp.sqrt(v / (1 - beta_2**t)) + eps)


class Adam:
    """Adam: each number moves by its mean gradient over the root of its mean squared gradient.

    named_parameters: as `model.named_parameters()` returns them. The learning rate is given to each
    step.
    Why flat arrays: Adam treats every number alike, whichever matrix it belongs to. The values of
    all parameters are moved into one flat array; there are three more for their next gradients, m
    and v. So a step is one `adam_update` instead of hundreds. The `data` and `grad` of a parameter
    become views of its slices; an array that is assigned to them later is copied into the slice by
    the next step.
    Copy or pickle a model and its Adam together: copy.deepcopy((model, adam)).
    Raises TypeError for parameters without names, ValueError for repeated names, mixed types or no
    parameters at all; RuntimeError in a step if no parameter has a gradient, and if the parameters
    were converted or given to another optimizer.
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
        self.named_parameters = _checked(named_parameters)
        self.beta_1, self.beta_2, self.eps = beta_1, beta_2, eps
        self.step_count = 0
        self._flatten()
        self.m, self.v = xp.zeros_like(self.data), xp.zeros_like(self.data)

    def _flatten(self):
        """Move the parameters into flat arrays; remember their views, to notice other arrays."""
        self.data, self.gradients = flatten(p for _, p in self.named_parameters)
        self._views = [(name, p, p.data, p._gradient_view) for name, p in self.named_parameters]

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for _, parameter in self.named_parameters:
            parameter.grad = None

    def collect(self) -> np.ndarray:
        """Return the flat gradient of this update, with zeros for a parameter without one.

        Arrays that were assigned to a parameter's `data` or `grad` are copied into their slices.
        """
        for name, parameter, data, gradient in self._views:
            if parameter._gradient_view is not gradient:
                raise RuntimeError(
                    f"{name} was converted or given to another optimizer: make a new Adam"
                )
            if parameter.data is not data:  # an array was assigned to parameter.data
                advice = "make a new Adam if the model was changed"
                parameter.data = _copied(f"{name}.data", parameter.data, data, advice)
            if parameter.grad is None:
                gradient[...] = 0
                parameter.grad = gradient
            elif parameter.grad is not gradient:
                advice = "a NumPy scalar in a product makes float32 to float64, a float does not"
                parameter.grad = _copied(f"{name}.grad", parameter.grad, gradient, advice)
        return self.gradients

    def step(
        self,
        rate: float,
        gradients: np.ndarray | None = None,
        finite: bool | np.ndarray = True,
    ) -> None:
        """Update every parameter by its gradient.

        gradients: what `collect` returned, if it was called for this update. finite: as in
        `adam_update`. The step is counted even if `finite` is False.
        """
        if gradients is None:
            if all(parameter.grad is None for _, parameter in self.named_parameters):
                raise RuntimeError(
                    "no parameter has a gradient: call backward() of a loss that was computed from "
                    "them"
                )
            gradients = self.collect()
        self.step_count += 1
        constants = self.beta_1, self.beta_2, self.eps
        adam_update(self.data, gradients, self.m, self.v, self.step_count, rate, *constants, finite)

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
        slices = flat_slices(p for _, p in self.named_parameters)
        moments = {}
        for (name, _), (p, where) in zip(self.named_parameters, slices, strict=True):
            moments[f"m.{name}"] = self.m[where].reshape(p.shape)
            moments[f"v.{name}"] = self.v[where].reshape(p.shape)
        return moments

    def __copy__(self):
        """Refuse copy.copy: the copy would flatten the parameters again, away from this Adam."""
        raise TypeError("copy a model and its Adam together: copy.deepcopy((model, adam))")

    def __getstate__(self):
        """Return the attributes to copy or pickle, without the flat arrays and their views.

        Copies of views would not be views of the copied arrays, so a copy makes new ones.
        """
        left_out = ("data", "gradients", "_views")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state):
        """Restore the attributes, and flatten the parameters that were copied with this Adam."""
        vars(self).update(state)
        gradients = [p.grad for _, p in self.named_parameters]
        self._flatten()  # which forgets the gradients
        for (_, parameter), gradient in zip(self.named_parameters, gradients, strict=True):
            parameter.grad = gradient


def _checked(named_parameters):
    """Return the pairs (name, parameter) as a list.

    Raises TypeError for anything else, ValueError if two parameters have the same name.
    """
    pairs = list(named_parameters) if isinstance(named_parameters, Iterable) else [None]
    if not all(map(_is_named_parameter, pairs)):
        raise TypeError(
            "Adam takes names with their parameters: write Adam(model.named_parameters())"
        )
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two parameters have the name {name}: Adam saves its state by name, so rename one"
            )
    return pairs


def _is_named_parameter(pair):
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Parameter)


def _copied(name, array, view, advice):
    """Copy an array assigned to a parameter into its view of a flat array; return the view."""
    if array.shape != view.shape or array.dtype != view.dtype:
        raise RuntimeError(
            f"{name} is {array.dtype} of shape {array.shape}, but Adam needs {view.dtype} of "
            f"{view.shape}: {advice}"
        )
    view[...] = to_device(array)
    return view


def gradient_norm(gradients: np.ndarray) -> np.ndarray | np.floating:
    """Return the Euclidean length of a flat gradient, as an array of one number."""
    return xp.sqrt(xp.dot(gradients, gradients))


def clip_gradient(
    gradients: np.ndarray, largest: float, norm: np.ndarray | np.floating | float | None = None
) -> np.ndarray | np.floating | float:
    """Shorten a flat gradient in place to the length `largest` if it is longer.

        g = g * min(1, largest / (|g| + 1e-12))

    1e-12 only prevents a division by zero. norm: the length |g|, if it is known and finite.
    If an element is NaN or infinite, the length is NaN, and so is every element afterwards: test
    the length before an update.
    The paper does not clip.
    Raises ValueError if `largest` is negative.
    """
    if largest < 0:
        raise ValueError(f"the largest length of a gradient must be at least 0, not {largest}")
    if norm is None:
        norm = _norm_without_overflow(gradients)
    gradients *= xp.minimum(largest / (norm + 1e-12), 1)
    return norm


def _norm_without_overflow(gradients):
    """Return the length of a flat gradient, even if the squares of its elements are infinite."""
    norm = gradient_norm(gradients)
    if xp.isinf(norm):
        scale = xp.abs(gradients).max()
        norm = float(scale) * float(gradient_norm(gradients / scale))
    return norm
