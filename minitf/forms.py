"""The seam between equations and speed.

An *op* is a function that computes an equation of the paper, by the plainest correct program. An
op that needs a faster program has *forms* as well, in one or both of two folders:
`minitf/cpu/` for NumPy's arrays and `minitf/gpu/` for CuPy's. A form takes the arguments of its
equation and returns the same values and gradients.

    @accelerated                                            # in minitf/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

    @form_of(functions.layer_norm)                          # in minitf/cpu/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

A form proves itself: before its first use it is compared with its equation, values and gradients,
on the op's example in proof.py. If the two disagree, the form is dropped, with a line that names
it, and the equation computes: an equation that somebody edited, a function or a method that was
replaced, a driver or a library that computes wrong. Whoever assigns a function to
`minitf.functions`, or a method to a class of modules, makes all forms prove themselves again; after
any other change, `forms.check()` does. tests/engine/test_forms.py holds forms to equations far
harder than that.

`with forms.off():` and MINITF_FORMS=off compute with equations only. To find the form that is at
fault, leave out some by name: `with forms.without("layer_norm"):`, or
MINITF_FORMS_WITHOUT=layer_norm,attention for a process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import TypeVar

from minitf.backend import xp

__all__ = ["accelerated", "check", "form_of", "off", "on", "without"]

_forms = {"cpu": {}, "gpu": {}, None: {}}  # by folder: {op: its form}
_proved = {"cpu": {}, "gpu": {}, None: {}}  # by folder: {op: its form, or None if it has none}
_dropped = {"cpu": {}, "gpu": {}, None: {}}  # by folder: {op: why its form is not used}
_changes = {"count": 0}  # how often `forget` was called

if (_setting := os.environ.get("MINITF_FORMS", "")) not in ("", "on", "off"):
    print(f"MINITF_FORMS is {_setting!r}: choose on or off", file=sys.stderr)
    raise SystemExit(2)

# The requests to turn forms on (True) or off (False), oldest first: one of the environment, one of
# each open `with` block. Threads share them, because replicas compute a batch in several threads.
_requests = {"MINITF_FORMS": _setting != "off"}
_switch = {"on": _requests["MINITF_FORMS"]}  # the newest request decides
_asked_for = frozenset(filter(None, os.environ.get("MINITF_FORMS_WITHOUT", "").split(",")))
_left_out = list(_asked_for)  # names of forms, once for each block that leaves them out
_lock = threading.RLock()  # a proof may need that of another form

Op = TypeVar("Op", bound=Callable)  # for type hints: an op has the signature of its equation


def accelerated(equation: Op) -> Op:
    """Let a form compute this op where the library in use has one that takes the arguments."""
    name = equation.__name__

    @functools.wraps(equation)
    def op(*arguments, **options):
        if _switch["on"]:
            folder = xp._folder
            try:
                form = _proved[folder][op]
            except KeyError:
                form = _prove(folder, op)
            if form is not None and name not in _left_out:
                result = form(*arguments, **options)
                if result is not NotImplemented:
                    return result
        return equation(*arguments, **options)

    return op


def form_of(op: Callable, folder: str | None = None) -> Callable[[Callable], Callable]:
    """Register the decorated function as the form of `op`.

    folder: "cpu" or "gpu"; by default the one that contains the form.
    For arguments that it does not take, the form returns NotImplemented without side effects.
    Raises ValueError for a function outside minitf/cpu and minitf/gpu.
    """

    def register(form):
        home = folder or form.__module__.removeprefix("minitf.").split(".")[0]
        if home not in _forms:
            raise ValueError(
                f"the form {form.__name__} belongs in a file of minitf/cpu or minitf/gpu"
            )
        _forms[home][op] = form
        return form

    return register


def _prove(folder, op):
    """Return the form of an op if it agrees with its equation, else None; remember which."""
    with _lock:
        if op not in _proved[folder]:  # another thread may have been faster
            module = _load(folder) if folder is not None else None
            form = _forms[folder].get(op)
            if form is not None:
                proof = importlib.import_module("minitf.proof")  # which imports the engine
                if why := proof.disagreement(op, form, module.tolerance()):
                    form = None
                    say_dropped(op, why)
                else:
                    _dropped[folder].pop(op, None)  # if it is dropped again, that is said again
            _proved[folder][op] = form
        return _proved[folder][op]


def say_dropped(op: Callable, why: str) -> None:
    """Say that the form of an op is not used, and why: once, until it is to prove itself again."""
    folder = xp._folder
    if _dropped[folder].get(op) != why:
        _dropped[folder][op] = why
        print(
            f"minitf: {op.__name__} is computed by its equation, not by its faster form in "
            f"minitf/{folder}: {why}",
            file=sys.stderr,
        )


def _load(folder):
    """Import the forms of a folder; return its module."""
    module = importlib.import_module(f"minitf.{folder}")
    if unknown := _asked_for.difference(names(folder)):
        print(
            f"MINITF_FORMS_WITHOUT names no form of minitf.{folder}: {', '.join(sorted(unknown))}: "
            f"choose {', '.join(names(folder))}",
            file=sys.stderr,
        )
        raise SystemExit(2)
    return module


def holds(op: Callable) -> bool:
    """Return whether a function is an op whose form, in the library in use, agrees with it."""
    folder = xp._folder
    return folder is not None and _prove(folder, op) is not None


def check() -> list[str]:
    """Compare all forms of the library in use with their equations; return the names of those that
    disagree and are dropped.
    """
    forget()
    folder = xp._folder
    if folder is not None:
        _load(folder)
    for op in list(_forms[folder]):
        _prove(folder, op)
    return [op.__name__ for op in _dropped[folder] if _proved[folder][op] is None]


def forget() -> None:
    """Let every form prove itself again before its next use, because something was changed."""
    with _lock:
        _changes["count"] += 1
        for proved in _proved.values():
            proved.clear()


def changes() -> int:
    """Return a number that differs after every change that forms are watching for: see `forget`."""
    return _changes["count"]


class WatchedModule(types.ModuleType):
    """A module with functions that forms rely on: if one is replaced or deleted, forms prove
    themselves again.
    """

    def __setattr__(self, name, value):
        if callable(value):
            # Before it is replaced: forms and examples are found by the function itself.
            importlib.import_module("minitf.proof")
            if folder := xp._folder:
                _load(folder)
        super().__setattr__(name, value)
        if callable(value):
            forget()

    def __delattr__(self, name):
        super().__delattr__(name)
        forget()


class WatchedClass(type):
    """The type of classes with methods and settings that forms rely on: the same for these."""

    def __setattr__(cls, name, value):
        super().__setattr__(name, value)
        if name != "__slotnames__":  # which copy.copy assigns
            forget()

    def __delattr__(cls, name):  # such as a method that hid an inherited one
        super().__delattr__(name)
        forget()


def names(folder: str) -> list[str]:
    """Return the names of the forms of a folder (imported before)."""
    return [op.__name__ for op in _forms[folder]]


@contextlib.contextmanager
def without(*chosen: str) -> Iterator[None]:
    """Leave out the forms with these names in a `with` block, in all threads.

    Raises ValueError for a name that no form of the library in use has.
    """
    if folder := xp._folder:
        _load(folder)
        if unknown := sorted(set(chosen) - set(names(folder))):
            raise ValueError(
                f"no form of minitf.{folder} is named {', '.join(unknown)}: choose "
                f"{', '.join(names(folder))}"
            )
    _left_out.extend(chosen)
    try:
        yield
    finally:
        for name in chosen:
            _left_out.remove(name)


def are_on() -> bool:
    """Return whether forms are computing now, instead of equations."""
    return _switch["on"]


def off() -> contextlib.AbstractContextManager[None]:
    """Compute with equations only in a `with` block, in all threads and in workers forked there."""
    return _switched(False)


def on() -> contextlib.AbstractContextManager[None]:
    """Use forms in a `with` block inside one of `off`, unless MINITF_FORMS=off forbids them."""
    return _switched(_requests["MINITF_FORMS"])


@contextlib.contextmanager
def _switched(to: bool) -> Iterator[None]:
    """Turn forms on or off in a `with` block; the newest block that is still open decides.

    Threads may leave their blocks in any order.
    """
    block = object()  # a key like no other
    with _lock:
        _requests[block] = to
        _switch["on"] = to
    try:
        yield
    finally:
        with _lock:
            del _requests[block]
            _switch["on"] = list(_requests.values())[-1]
