"""The seam between equations and speed.

An *op* is a function that computes an equation of the paper, by the plainest correct program. An
op that needs a faster program has a *form* as well, in `minitf/cpu/` for NumPy's arrays, in
`minitf/gpu/` for CuPy's, or in both. A form takes the arguments of its equation and returns the
same values and gradients.

    @accelerated                                            # in minitf/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

    @form_of(functions.layer_norm)                          # in minitf/cpu/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

What runs is what you read: forms compute only inside a block `with forms.on():`. The trainer and
the Translator open one after they have computed some numbers of their model both ways, once: see
`verified`. If a form computes other numbers, because you edited its equation or because a library
is at fault, its equation is used, and a line names the form. tests/engine/test_forms.py holds forms
to equations far harder.

MINITF_FORMS=off computes with equations only, whatever a program says.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import numpy as np

from minitf.backend import xp
from minitf.errors import UserError

__all__ = ["accelerated", "form_of", "in_threads", "off", "on", "verified"]

_forms = {"cpu": {}, "gpu": {}}  # by folder: {op: its form}
# By folder: how far the numbers of a model may be off with forms, relative to the largest. To sum
# float32 in another order changed the logits of 12 layers by 1e-6, their gradients by 1e-5, and by
# 7e-4 for one model in four; a factor of 1.001 in one function changed logits by 2e-3.
tolerances = {"cpu": 1e-3, "gpu": 1e-3, None: 1e-3}  # None: a library without forms

# {op: its form} in the innermost block of this thread: outside all blocks no form is in use.
_in_use = contextvars.ContextVar("_in_use", default=types.MappingProxyType({}))

Op = TypeVar("Op", bound=Callable)  # for type hints: an op has the signature of its equation


def accelerated(equation: Op) -> Op:
    """Let a form compute this op where one is in use and takes the arguments."""

    @functools.wraps(equation)
    def op(*arguments, **options):
        form = _in_use.get().get(op)
        if form is not None:
            result = form(*arguments, **options)
            if result is not NotImplemented:
                return result
        return equation(*arguments, **options)

    return op


def form_of(op: Callable, folder: str | None = None) -> Callable[[Callable], Callable]:
    """Register the decorated function as the form of `op`.

    folder: "cpu" or "gpu"; by default the one that contains the form.
    For arguments that it does not take, the form returns NotImplemented without side effects.
    """

    def register(form):
        _forms[folder or form.__module__.split(".")[1]][op] = form
        return form

    return register


def all_forms() -> dict[Callable, Callable]:
    """Return the forms for the library in use, {op: its form}: none if MINITF_FORMS=off.

    Raises UserError if MINITF_FORMS has another value than on and off.
    """
    setting = os.environ.get("MINITF_FORMS") or "on"
    if setting not in ("on", "off"):
        raise UserError(f"MINITF_FORMS is {setting!r}: choose on or off")
    if setting == "off" or xp._folder is None:
        return {}
    importlib.import_module(f"minitf.{xp._folder}")
    return _forms[xp._folder]


@contextlib.contextmanager
def on(ops: Collection[Callable] | None = None) -> Iterator[None]:
    """Compute with forms in a `with` block: with those of some ops, or with all.

    They are those of the library that is in use when the block opens, so choose it first. A block
    is one thread's alone: see `in_threads`.
    """
    available = all_forms()
    token = _in_use.set({op: form for op, form in available.items() if ops is None or op in ops})
    try:
        yield
    finally:
        _in_use.reset(token)


def is_on(op: Callable) -> bool:
    """Return whether the form of an op is in use here, for arguments that it takes."""
    return op in _in_use.get()


def off() -> contextlib.AbstractContextManager[None]:
    """Compute with equations only in a `with` block."""
    return on(())


def in_threads(function: Op) -> Op:
    """Return the function for other threads to call, with the forms that are in use here."""
    context = contextvars.copy_context()
    return lambda *arguments: context.copy().run(function, *arguments)


def verified(
    compute: Callable[[], list[np.ndarray]], expected: list[np.ndarray] | None = None
) -> list[Callable]:
    """Return the ops whose forms compute what their equations compute, in a model that uses them.

    compute: returns some numbers of the model, such as its logits, or its loss and gradients.
    expected: those of the equations, if they were computed before.
    If they differ with all forms, these are tried one by one, and a line names those at fault.
    """
    ops = list(all_forms())
    if not ops:
        return ops
    if expected is None:
        with off():
            expected = compute()
    if any(np.isnan(array).any() for array in expected):  # of a broken model, which raises an error
        return ops

    def is_right_with(chosen):
        with on(chosen):
            return agree(compute, expected)

    if is_right_with(ops):
        return ops
    good = []
    for op in ops:
        if is_right_with([*good, op]):
            good.append(op)
        else:
            say_once(
                f"{op.__name__} is computed by its equation: its faster form in "
                f"minitf/{xp._folder} computes other numbers, or none"
            )
    return good


def agree(compute: Callable[[], list[np.ndarray]], expected: list[np.ndarray]) -> bool:
    """Return whether compute() returns these arrays, up to rounding relative to the largest."""
    try:
        pairs = list(zip(compute(), expected, strict=True))
    except MemoryError:  # which says nothing about a program
        raise
    except Exception:  # of the program: the equations raised none
        return False
    tolerance = tolerances[xp._folder]
    return all(
        x.shape == y.shape
        and np.allclose(x, y, tolerance, tolerance * np.abs(y[np.isfinite(y)]).max(initial=0))
        for x, y in pairs
    )


@functools.cache
def say_once(text: str) -> None:
    """Say on stderr what is computed without its faster form: once in a process."""
    print(f"minitf: {text}", file=sys.stderr)
