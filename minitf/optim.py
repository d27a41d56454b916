"""Adam, the warm-up schedule of the paper, and the size of a gradient."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minitf.backend import to_device, to_numpy, xp
from minitf.errors import UserError
from minitf.forms import accelerated
from minitf.nn import Module, Parameter, flatten, side_by_side

__all__ = ["Adam", "adam_update", "clip_gradient", "gradient_norm", "warmup_rate"]


def warmup_rate(step: int, d_model: int, warmup_steps: int = 4000, factor: float = 1.0) -> float:
    """Return the learning rate of a step: it rises linearly, then falls as 1 / sqrt(step).

        rate = factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    The first step is 1.
    >>> f"{warmup_rate(4000, 512):.3e}"
    '6.988e-04'

    Source: section 5.3, eq. 3.
    """
    if step < 1:
        raise ValueError(f"the first step is 1, not {step}")
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
    """Take step t of Adam with the gradient g: change x, m and v in place.

        m = beta_1 m + (1 - beta_1) g                v = beta_2 v + (1 - beta_2) g^2
        x = x - rate * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps)

    x, g, m, v: (...)
    The first step is 1, from m = v = 0. Where `finite`, a bool or an array of one, is False,
    nothing changes.
    Source: section 5.3; Kingma and Ba 2015, algorithm 1.
    """
    if not finite:
        return
    m[...] = beta_1 * m + (1 - beta_1) * g
    v[...] = beta_2 * v + (1 - beta_2) * g**2
    x -= rate * (m / (1 - beta_1**t)) / (xp.sqrt(v / (1 - beta_2**t)) + eps)


class Adam:
    """Adam: each number moves by its mean gradient over the root of its mean squared gradient.

    named_parameters: of `model.named_parameters()`. They move into one flat array, and the
    gradients, m and v are flat arrays beside it: a step is one `adam_update`, however many
    parameters there are. An array assigned to a parameter's `data` or `grad` later is copied into
    the flat arrays by the next step. A model and its Adam can be copied and pickled together:
    copy.deepcopy((model, adam)).
    Raises TypeError for parameters without names, ValueError for names that are not unique, for no
    parameters and for mixed types; RuntimeError in a step if the parameters were converted or given
    to another optimizer.
    Source: section 5.3; Kingma and Ba 2015, algorithm 1.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Parameter]],
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        eps: float = 1e-9,
    ):
        self.named_parameters = _checked(named_parameters)
        self.beta_1, self.beta_2, self.eps, self.step_count = beta_1, beta_2, eps, 0
        self._take_over()
        self.m, self.v = xp.zeros_like(self.data), xp.zeros_like(self.data)

    def _take_over(self):
        """Move the parameters into the flat arrays, and remember where each is."""
        self.data, self.gradients = flatten(p for _, p in self.named_parameters)
        self._places = [(p.data, p._place) for _, p in self.named_parameters]

    def __getstate__(self):
        """Leave out the flat arrays, whose views the parameters are: a copy makes its own."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("data", "gradients", "_places")
        }

    def __setstate__(self, state):
        """Move the parameters copied with this Adam into flat arrays, and keep their gradients."""
        vars(self).update(state)
        gradients = [p.grad for _, p in self.named_parameters]
        self._take_over()
        for (_, parameter), gradient in zip(self.named_parameters, gradients, strict=True):
            parameter.grad = gradient

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for _, parameter in self.named_parameters:
            parameter.grad = None

    def collect(self) -> np.ndarray:
        """Return the flat gradient of this update, with zeros for a parameter that got none."""
        for (name, parameter), (data, place) in zip(
            self.named_parameters, self._places, strict=True
        ):
            if parameter._place is not place:
                raise RuntimeError(
                    f"{name} was converted or given to another optimizer: make a new Adam"
                )
            if parameter.data is not data:  # parameter.data was reassigned
                parameter.data = _copied(f"{name}.data", parameter.data, data)
            if parameter.grad is None:
                place[...] = 0
                parameter.grad = place
            elif parameter.grad is not place:
                parameter.grad = _copied(f"{name}.grad", parameter.grad, place)
        return self.gradients

    def step(self, rate: float, finite: bool | np.ndarray = True) -> None:
        """Change every parameter once by the flat gradient, or none where `finite` is False.

        finite: a bool, or an array of one element where the parameters are: a form need not wait to
        read it. The step counts in either case.
        """
        gradients = self.collect()
        self.step_count += 1
        constants = self.beta_1, self.beta_2, self.eps
        adam_update(self.data, gradients, self.m, self.v, self.step_count, rate, *constants, finite)

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of m and v by parameter name, and the step, for a checkpoint."""
        arrays = {"step": np.array(self.step_count)}
        for name, m, v in self._moments():
            arrays[f"m.{name}"], arrays[f"v.{name}"] = to_numpy(m).copy(), to_numpy(v).copy()
        return arrays

    def load_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Set m, v and the step to those of `state`.

        Raises UserError for an array that is missing or has another shape.
        """
        if "step" not in arrays or arrays["step"].shape != () or not 0 <= arrays["step"] < 2**53:
            raise UserError(
                "the checkpoint does not say at which step of the optimizer it was made"
            )
        for name, m, v in self._moments():
            for key, place in ((f"m.{name}", m), (f"v.{name}", v)):
                if key not in arrays or arrays[key].shape != place.shape:
                    raise UserError(f"the checkpoint has no moment {key} of shape {place.shape}")
                place[...] = to_device(arrays[key], place.dtype)
        self.step_count = int(arrays["step"])

    def _moments(self):
        """Yield the name of each parameter with its views of m and v."""
        names = [name for name, _ in self.named_parameters]
        for name, (p, stretch) in zip(
            names, side_by_side(p for _, p in self.named_parameters), strict=True
        ):
            yield name, self.m[stretch].reshape(p.shape), self.v[stretch].reshape(p.shape)


def _checked(named_parameters):
    """Return the pairs (name, parameter) as a list.

    Raises TypeError for anything else, ValueError if two have the same name.
    """
    pairs = [] if isinstance(named_parameters, Module) else list(named_parameters)
    named = [
        pair
        for pair in pairs
        if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Parameter)
    ]
    if len(named) < len(pairs) or isinstance(named_parameters, Module):
        raise TypeError(
            "Adam takes names with their parameters: write Adam(model.named_parameters())"
        )
    seen = set()
    for name, _ in named:
        if name in seen:
            raise ValueError(
                f"two parameters have the name {name}: Adam saves its state by name, so rename one"
            )
        seen.add(name)
    return named


def _copied(name, array, place):
    """Copy an array assigned to a parameter into its view of a flat array; return the view."""
    if array.shape != place.shape or array.dtype != place.dtype:
        raise RuntimeError(
            f"{name} is now {array.dtype} of shape {array.shape}, but was {place.dtype} of "
            f"{place.shape} when Adam was made: make a new Adam"
        )
    place[...] = to_device(array)
    return place


def gradient_norm(gradients: np.ndarray) -> np.ndarray | np.floating:
    """Return the Euclidean length of a flat gradient, as an array of one number."""
    return xp.sqrt(xp.dot(gradients, gradients))


def clip_gradient(
    gradients: np.ndarray, largest: float, norm: np.ndarray | np.floating | None = None
) -> np.ndarray | np.floating:
    """Shorten a flat gradient in place to the length `largest` if it is longer.

        g = g * min(1, largest / (|g| + 1e-12))

    norm: the length |g|, where it is known. Returns |g|. The paper does not clip.
    """
    norm = gradient_norm(gradients) if norm is None else norm
    gradients *= xp.minimum(largest / (norm + 1e-12), 1)
    return norm
