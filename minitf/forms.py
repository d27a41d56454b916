"""The seam between equations and speed.

An *op* is a function that computes an equation of the paper, by the plainest correct program. An
op that needs a faster program has *forms* as well, in one or both of two rooms (folders):
`minitf/cpu/` for NumPy's arrays and `minitf/gpu/` for CuPy's. A form takes the arguments of its
equation and returns the same values and gradients, which tests/engine/test_forms.py checks.

    @accelerated                                            # in minitf/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

    @form_of(functions.layer_norm)                          # in minitf/cpu/functions.py
    def layer_norm(x, gain, bias, eps=1e-6): ...

The forms of the library in use are loaded at the first call of an accelerated op. To compute with
equations only, write `with forms.off():`, or set the environment variable MINITF_FORMS=off. That
also happens, with a notice, when the file of an equation has been edited: its form would still
compute what it said before. MINITF_FORMS=on uses the forms all the same.

To find the form that is at fault, leave out some by name: `with forms.without("layer_norm"):`, or
MINITF_FORMS_WITHOUT=layer_norm,MultiHeadAttention for a process. `decoder` is the program that
decodes a plain model without calling its modules.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from minitf.backend import xp
from minitf.edited import edited

__all__ = ["accelerated", "form_of", "off", "on", "without"]

_forms = {"cpu": {}, "gpu": {}, None: {}}  # by room: {op: its form}
_loaded = {None}  # rooms that have been imported; a library without a room has no forms

if (_setting := os.environ.get("MINITF_FORMS", "")) not in ("", "on", "off"):
    print(f"MINITF_FORMS is {_setting!r}: choose on or off", file=sys.stderr)
    raise SystemExit(2)
if not _setting and edited:
    _setting = "off"
    print(
        f"minitf: edited ({', '.join(edited)}): computing with the equations, without their "
        "faster forms (MINITF_FORMS=on: with forms, which do not know of the edit)",
        file=sys.stderr,
    )

# The requests to turn forms on (True) or off (False), oldest first: one of the environment, one of
# each open `with` block. Threads share them, because replicas compute a batch in several threads.
_requests = {"MINITF_FORMS": _setting != "off"}
_switch = {"on": _requests["MINITF_FORMS"]}  # the newest request decides
_left_out = set(filter(None, os.environ.get("MINITF_FORMS_WITHOUT", "").split(",")))  # names
_lock = threading.Lock()

Op = TypeVar("Op", bound=Callable)  # for type hints: an op has the signature of its equation


def accelerated(equation: Op) -> Op:
    """Let a form compute this op where the library in use has one that takes the arguments."""

    name = name_of(equation)

    @functools.wraps(equation)
    def op(*arguments, **options):
        if _switch["on"]:
            room = xp.__dict__["_room"]
            form = (_forms[room] if room in _loaded else _load(room)).get(op)
            if form is not None and name not in _left_out:
                result = form(*arguments, **options)
                if result is not NotImplemented:
                    return result
        return equation(*arguments, **options)

    return op


def form_of(op: Callable) -> Callable[[Callable], Callable]:
    """Register the decorated function as the form of `op`, for the room that contains it.

    For arguments that it does not take, the form returns NotImplemented before it changes anything.
    Raises ValueError for a function outside minitf/cpu and minitf/gpu.
    """

    def register(form):
        room = form.__module__.removeprefix("minitf.").split(".")[0]
        if room not in _forms:
            raise ValueError(
                f"the form {form.__name__} belongs in a file of minitf/cpu or minitf/gpu"
            )
        _forms[room][op] = form
        return form

    return register


def _load(room):
    """Import the forms of a room, and return them."""
    importlib.import_module(f"minitf.{room}")
    if unknown := _left_out.difference(names(room)):
        print(
            f"MINITF_FORMS_WITHOUT names no form of minitf.{room}: {', '.join(sorted(unknown))}: "
            f"choose {', '.join(names(room))}",
            file=sys.stderr,
        )
        raise SystemExit(2)
    _loaded.add(room)
    return _forms[room]


def name_of(op: Callable) -> str:
    """Return the name by which the form of an op is left out: of a module's call, its class."""
    return op.__qualname__.removesuffix(".__call__")


def names(room: str) -> list[str]:
    """Return the names of the forms of a room (imported before), and of its decoder."""
    return [*map(name_of, _forms[room]), "decoder"]


def is_left_out(name: str) -> bool:
    """Return whether a form is left out."""
    return name in _left_out


@contextlib.contextmanager
def without(*chosen: str) -> Iterator[None]:
    """Leave out the forms with these names in a `with` block, in all threads."""
    added = set(chosen) - _left_out
    _left_out.update(added)
    try:
        yield
    finally:
        _left_out.difference_update(added)


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
