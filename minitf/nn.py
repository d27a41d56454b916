"""Parameters, modules, and the layers that hold parameters of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np

from minitf import functions as F
from minitf.backend import DType, to_device, to_numpy, xp
from minitf.errors import UserError
from minitf.tensor import ArrayLike, Ids, Tensor

__all__ = ["Dropout", "Embedding", "LayerNorm", "Linear", "Module", "Parameter", "flatten"]


class Parameter(Tensor):
    """A Tensor that training changes. After `flatten`, its gradient has a fixed place in memory."""

    def __init__(self, data: ArrayLike):
        super().__init__(data)
        self._gradient_view = None  # where the gradient goes

    def _receive(self, gradient):
        if self.grad is None and self._gradient_view is not None:
            xp.copyto(self._gradient_view, gradient)
            self.grad = self._gradient_view
        else:
            super()._receive(gradient)

    def __getstate__(self):
        """Leave the place out of copies: what is copied together with an optimizer gets a new
        one from that.
        """
        return {**vars(self), "_gradient_view": None}


def flatten(parameters: Iterable[Parameter]) -> tuple[np.ndarray, np.ndarray]:
    """Move parameters into one flat array and their gradients into another: (data, gradients).

    Each parameter becomes a named view of its stretch, so one operation on the flat array
    updates them all.
    Raises ValueError if there are none, if one is there twice, or if their types differ.
    """
    parameters = list(parameters)
    if not parameters:
        raise ValueError("nothing to train: there are no parameters")
    if len(set(map(id, parameters))) < len(parameters):
        raise ValueError(
            "the same parameter is there twice: Module.named_parameters() lists each once"
        )
    for p in parameters:
        if p.dtype != parameters[0].dtype:
            raise ValueError(
                f"the parameter of shape {p.shape} is {p.dtype}, the first one "
                f"{parameters[0].dtype}: convert the model to one type with astype"
            )
    size = sum(p.size for p in parameters)
    data = xp.empty(size, dtype=parameters[0].dtype)
    gradients = xp.zeros(size, dtype=parameters[0].dtype)
    for p, stretch in flat_slices(parameters):
        data[stretch] = p.data.ravel()
        p.data, p._gradient_view, p.grad = (
            data[stretch].reshape(p.shape),
            gradients[stretch].reshape(p.shape),
            None,
        )
    return data, gradients


def flat_slices(parameters):
    """Yield each parameter and its stretch of a flat array that holds them all."""
    start = 0
    for parameter in parameters:
        yield parameter, slice(start, start + parameter.size)
        start += parameter.size


class Module:
    """Something with parameters: its own, and those of the modules it holds in attributes, lists,
    tuples and dicts.

    In a list or tuple a name is the position, in a dict str(key): `layers.0.weight`,
    `heads.de.weight`.
    """

    training = True

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """List (name, parameter) in the order of definition, each parameter once, under
        its first name.

        Raises ValueError where two parameters would have the same name, as under the keys 1 and
        "1" of a dict.
        """
        seen, found = set(), []

        def walk(value, name):
            if isinstance(value, Parameter):
                if id(value) not in seen:
                    seen.add(id(value))
                    found.append((name, value))
            elif isinstance(value, Module):
                if id(value) not in seen:
                    seen.add(id(value))
                    for key, child in vars(value).items():
                        walk(child, f"{name}.{key}" if name else key)
            elif isinstance(value, (list, tuple, dict)):
                for key, child in _items(value):
                    walk(child, f"{name}.{key}")

        walk(self, "")
        if len(names := dict(found)) < len(found):
            odd = next(name for name, value in found if names[name] is not value)
            raise ValueError(
                f"two parameters have the name {odd}: give the dict that holds them other keys"
            )
        return found

    def parameters(self) -> list[Parameter]:
        """List the parameters, each once."""
        return [parameter for _, parameter in self.named_parameters()]

    def modules(self) -> list[Module]:
        """List this module and all modules inside it, each once."""
        found, waiting = {}, [self]
        while waiting:
            value = waiting.pop()
            if isinstance(value, Module):
                if id(value) not in found:
                    found[id(value)] = value
                    waiting.extend(vars(value).values())
            elif isinstance(value, (list, tuple, dict)):
                waiting.extend(child for _, child in _items(value))
        return list(found.values())

    def train(self, training: bool = True) -> Self:
        """Switch dropout on, here and in every module inside; returns the module."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> Self:
        """Switch dropout off."""
        return self.train(False)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[Self]:
        """Switch dropout off inside a `with` block; after it everything is as it was before."""
        before = [(module, module.training) for module in self.modules()]
        try:
            for module, _ in before:  # as eval() does, without looking for the modules once more
                module.training = False
            yield self
        finally:
            for module, training in before:
                module.training = training

    def astype(self, dtype: DType) -> Self:
        """Convert every parameter, for gradient checks in float64; returns the module.

        Make the optimizer afterwards: one that was there before holds the old parameters.
        """
        for parameter in self.parameters():
            parameter.data, parameter.grad, parameter._gradient_view = (
                parameter.data.astype(dtype),
                None,
                None,
            )
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for parameter in self.parameters():
            parameter.grad = None

    def state(self) -> dict[str, np.ndarray]:
        """Give a copy of every parameter as a NumPy array, by name."""
        return {
            name: to_numpy(parameter.data).copy() for name, parameter in self.named_parameters()
        }

    def load_state(self, arrays: dict[str, np.ndarray]) -> Self:
        """Take over the values of `arrays`, by name.

        Raises UserError where names or shapes do not fit.
        """
        parameters = dict(self.named_parameters())
        unknown, missing = (
            sorted(arrays.keys() - parameters.keys()),
            sorted(parameters.keys() - arrays.keys()),
        )
        if odd := unknown or missing:
            what = (
                f"contains {odd[0]}, which the model does not have"
                if unknown
                else f"lacks {odd[0]}"
            )
            count = f"{len(odd)} such array{'s' if len(odd) > 1 else ''}"
            raise UserError(
                f"the file {what} ({count}): it was saved with other settings, or with other code"
            )
        for name, parameter in parameters.items():
            if parameter.shape != arrays[name].shape:
                raise UserError(
                    f"{name} has shape {arrays[name].shape} in the file and "
                    f"{parameter.shape} in the model"
                )
        for name, parameter in parameters.items():  # only now: an error leaves the model as it was
            parameter.data[...] = to_device(arrays[name], parameter.dtype)
        return self

    def __repr__(self):
        return "\n".join(_tree(self, type(self).__name__, {}))


def _items(container):
    """Give the (key, value) pairs of a list, tuple or dict."""
    return container.items() if isinstance(container, dict) else enumerate(container)


def _tree(module, title, seen):
    """Draw a module as lines: parameters with shapes and counts, modules inside indented.

    seen: by which name a module stands there already; one that is used twice is drawn once.
    """
    if id(module) in seen:
        return [f"{title}  (the same as {seen[id(module)]})"]
    seen[id(module)] = title.partition(":")[0]
    count = sum(p.size for p in module.parameters())
    lines = [f"{title}  {count:,} parameters"]
    waiting = list(vars(module).items())
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, Parameter):
            lines.append(f"  {name} {tuple(value.shape)}")
        elif isinstance(value, Module):
            lines += ["  " + line for line in _tree(value, f"{name}: {type(value).__name__}", seen)]
        elif isinstance(value, (list, tuple, dict)):
            waiting[:0] = [(f"{name}.{key}", child) for key, child in _items(value)]
    return lines


def _xavier(rng, n_in, n_out):
    """Draw a matrix that keeps the variance of what passes through it, forward and
    backward on average.

    Uniform within +- sqrt(6 / (n_in + n_out)); Glorot and Bengio 2010, eq. 16. Without
    rng: not drawn.
    """
    if rng is None:
        return np.empty((n_in, n_out), dtype=np.float32)
    limit = (6 / (n_in + n_out)) ** 0.5
    return rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32)


class Linear(Module):
    """y = x W + b, with W drawn by Glorot and Bengio's rule and b = 0;
    without b if bias is False.
    """

    def __init__(self, n_in: int, n_out: int, rng: np.random.Generator | None, bias: bool = True):
        self.weight = Parameter(_xavier(rng, n_in, n_out))
        self.bias = Parameter(np.zeros(n_out, dtype=np.float32)) if bias else None

    def __call__(self, x: ArrayLike) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table with one row per id, drawn from N(0, 1/D):
    times sqrt(D) its entries have variance 1.
    """

    def __init__(self, n: int, d_model: int, rng: np.random.Generator | None):
        if rng is None:
            table = np.empty((n, d_model), dtype=np.float32)
        else:
            table = rng.normal(0, d_model**-0.5, (n, d_model)).astype(np.float32)
        self.weight = Parameter(table)

    def __call__(self, ids: Ids) -> Tensor:
        return F.embedding(self.weight, ids)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the features of each position, then a learned gain
    (1) and bias (0).
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        self.gain = Parameter(np.ones(d_model, dtype=np.float32))
        self.bias = Parameter(np.zeros(d_model, dtype=np.float32))
        self.eps = eps

    def __call__(self, x: ArrayLike) -> Tensor:
        return F.layer_norm(x, self.gain, self.bias, self.eps)


class Dropout(Module):
    """Dropout while training, nothing otherwise."""

    def __init__(self, rate: float):
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate) if self.training else x


# The methods as they are here, to notice a replaced one.
_CALLS = {kind: kind.__call__ for kind in (Linear, LayerNorm, Dropout)}


def are_own(*modules):
    """Tell whether the modules compute as the classes of this file do: only then may one op
    stand for several.
    """
    replaced = [m for m in modules if _CALLS.get(type(m)) is not type(m).__call__]
    return not replaced
