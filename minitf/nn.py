"""Parameters, modules, and the layers that have parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Self

import numpy as np

from minitf import functions as F
from minitf.backend import DType, copy_into, to_numpy
from minitf.errors import UserError
from minitf.tensor import ArrayLike, Ids, Tensor, float_type

__all__ = ["Dropout", "Embedding", "LayerNorm", "Linear", "Module", "Parameter"]


class Parameter(Tensor):
    """A Tensor that training changes, so it copies the data unless `copy` is False.

    With an Adam, its gradient is a slice of the flat array of all gradients (optim.Flat), which the
    next update overwrites: copy a gradient that you want to keep.
    """

    def __init__(self, data: ArrayLike, copy: bool = True):
        super().__init__(data)
        if copy:
            self.data = self.data.copy()

    def __getstate__(self):
        """Leave out the slice: the copy of a slice is no part of the copied flat array."""
        return {**vars(self), "_gradient_slice": None}


class Module:
    """A layer or a model: parameters and other modules, held in attributes.

    They may also be in lists, tuples and dicts. A parameter's name is the path to it, with indices
    and keys: `layers.0.weight`, `heads.de.weight`.
    """

    training = True
    can_cache = True  # False: not to be decoded with a cache of keys and values, see minitf.decode

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """List (name, parameter) in the order of definition.

        A parameter with several names, such as the matrix of tied embeddings, is listed under its
        first one only, so that the optimizer updates it once.
        """
        return [
            (name, value)
            for name, value in _contents(self).values()
            if isinstance(value, Parameter)
        ]

    def parameters(self) -> list[Parameter]:
        """List the parameters, each once."""
        return [parameter for _, parameter in self.named_parameters()]

    def modules(self) -> list[Module]:
        """List this module and all modules inside it, each once."""
        return [value for _, value in _contents(self, kinds=_HOLDERS[1:]).values()]

    def train(self, training: bool = True) -> Self:
        """Switch dropout on (off with False) here and in all modules inside; return the module."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> Self:
        """Switch dropout off; return the module."""
        return self.train(False)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[Self]:
        """Switch dropout off inside a `with` block, and restore every module's setting after it.

        Not for one model in several threads at once: there, give each thread a copy.
        """
        before = [(module, module.training) for module in self.modules()]
        try:
            for module, _ in before:
                module.training = False
            yield self
        finally:
            for module, training in before:
                module.training = training

    def astype(self, dtype: DType) -> Self:
        """Convert every parameter to float32 or float64, as for gradient checks; return the module.

        Make the optimizer afterwards: an older one still holds the unconverted arrays.
        """
        dtype = float_type(dtype)
        for parameter in self.parameters():
            parameter.data = parameter.data.astype(dtype)
            parameter.grad = parameter._gradient_slice = None
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of the last update."""
        for parameter in self.parameters():
            parameter.grad = None

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of every parameter as a NumPy array, by name."""
        return {
            name: to_numpy(parameter.data).copy() for name, parameter in self.named_parameters()
        }

    def load_state(self, arrays: dict[str, np.ndarray]) -> Self:
        """Set every parameter to the array of its name; return the module.

        Raises UserError, and changes nothing, unless names and shapes are the model's and all
        arrays have floating-point numbers.
        """
        parameters = dict(self.named_parameters())
        unknown = sorted(arrays.keys() - parameters.keys())
        missing = sorted(parameters.keys() - arrays.keys())
        advice = "use the settings and the code that it was saved with"
        if unknown:
            raise UserError(
                f"the model has no {_and_more(unknown)}, which the weights have: {advice}"
            )
        if missing:
            raise UserError(f"the weights lack {_and_more(missing)}: {advice}")
        for name, parameter in parameters.items():
            if parameter.shape != arrays[name].shape:
                raise UserError(
                    f"{name} has shape {arrays[name].shape} in the weights and "
                    f"{parameter.shape} in the model: {advice}"
                )
            if arrays[name].dtype.kind != "f":
                raise UserError(
                    f"{name} is {arrays[name].dtype} in the weights, not float: {advice}"
                )
        # `_zeros` get memory in one array: NumPy asks for large pages for it, which come sooner.
        new = [p for p in parameters.values() if not getattr(p.data.flags, "writeable", True)]
        memory, start = np.empty(sum(p.size for p in new), np.float32), 0
        for p in new:
            p.data, start = memory[start : start + p.size].reshape(p.shape), start + p.size
        for name, parameter in parameters.items():
            copy_into(parameter.data, arrays[name])
        return self

    def __repr__(self):
        return "\n".join(_tree("", self, {}))


_HOLDERS = Parameter, Module, list, tuple, dict  # the types of attributes that are walked


def _contents(value, name="", seen=None, kinds=_HOLDERS):
    """Return {id: (name, object)} for a module and every module and parameter inside it.

    They come in the order of definition, a module before its contents. Each comes once: seen has
    those that were there before. kinds: of what is walked; without parameters, in half the time.
    """
    seen = {} if seen is None else seen
    if isinstance(value, (list, tuple, dict)):
        for key, child in _items(value):
            _contents(child, f"{name}.{key}", seen, kinds)
    elif isinstance(value, kinds) and id(value) not in seen:
        seen[id(value)] = name, value
        if isinstance(value, Module):
            for key, child in vars(value).items():
                if isinstance(child, kinds):  # most attributes are numbers
                    _contents(child, f"{name}.{key}" if name else key, seen, kinds)
    return seen


def _and_more(names):
    """Name the first of some arrays, and count the others."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _items(container):
    """Return the (key, value) pairs of a list, tuple or dict."""
    return container.items() if isinstance(container, dict) else enumerate(container)


def _tree(name, value, seen):
    """Return the lines that show an attribute: a parameter, or a module and its contents.

    seen: the names of the modules shown so far, by id; a shared module is shown once.
    """
    if isinstance(value, Parameter):
        return [f"{name} {tuple(value.shape)}"]
    if isinstance(value, (list, tuple, dict)):
        children = [(f"{name}.{key}", child) for key, child in _items(value)]
        return [line for child in children for line in _tree(*child, seen)]
    if not isinstance(value, Module):
        return []
    kind = type(value).__name__
    title = f"{name}: {kind}" if name else kind
    if id(value) in seen:
        return [f"{title}  (the same as {seen[id(value)]})"]
    seen[id(value)] = name or kind
    count = sum(p.size for p in value.parameters())
    lines = [f"{title}  {count:,} parameters"]
    for key, child in vars(value).items():
        lines += ["  " + line for line in _tree(key, child, seen)]
    return lines


def _zeros(*shape):
    """Return zeros that take no memory and cannot be changed; `load_state` replaces them."""
    return np.broadcast_to(np.float32(0), shape)


def _xavier(rng, n_in, n_out):
    """Draw a matrix that about keeps the variance of what passes through it, in both directions.

    Forward that takes a variance of 1 / n_in, backward 1 / n_out; the rule is a compromise: uniform
    within +- sqrt(6 / (n_in + n_out)). Without rng it is 0.
    Source: Glorot and Bengio 2010, eq. 16.
    """
    if rng is None:
        return _zeros(n_in, n_out)
    limit = (6 / (n_in + n_out)) ** 0.5
    return rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32)


class Linear(Module):
    """y = x W + b, with W drawn as by Glorot and Bengio, and b = 0 (no b if bias is False).

    rng: draws W; with None, W is 0.
    """

    def __init__(self, n_in: int, n_out: int, rng: np.random.Generator | None, bias: bool = True):
        self.weight = Parameter(_xavier(rng, n_in, n_out), copy=False)
        self.bias = Parameter(np.zeros(n_out, dtype=np.float32)) if bias else None

    def __call__(self, x: ArrayLike) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table with one row per id, drawn from N(0, 1/D): times sqrt(D) it has variance 1.

    rng: draws the table; with None, it is 0.
    """

    def __init__(self, n: int, d_model: int, rng: np.random.Generator | None):
        table = _zeros(n, d_model) if rng is None else rng.normal(0, d_model**-0.5, (n, d_model))
        self.weight = Parameter(table.astype(np.float32, copy=False), copy=False)

    def __call__(self, ids: Ids) -> Tensor:
        return F.embedding(self.weight, ids)


class LayerNorm(Module):
    """Normalise the features of each position, then apply a learned gain (1) and bias (0)."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        self.gain = Parameter(np.ones(d_model, dtype=np.float32))
        self.bias = Parameter(np.zeros(d_model, dtype=np.float32))
        self.eps = eps

    def __call__(self, x: ArrayLike) -> Tensor:
        return F.layer_norm(x, self.gain, self.bias, self.eps)


class Dropout(Module):
    """Set features to zero with probability `rate` while training; do nothing otherwise."""

    def __init__(self, rate: float):
        self.rate = rate

    def __call__(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate) if self.training else x
