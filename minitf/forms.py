"""The seam between equations and speed.

An op of the engine is its equation: the plainest program that is right. Where a faster program
is worth its lines, that is a *form* of the op, in `minitf/cpu/` for the arrays of NumPy or in
`minitf/gpu/` for those of CuPy. A form takes the arguments of its equation and returns the same
values and gradients; tests/engine/test_forms.py holds it to them.

    @accelerated                                     # in the engine
    def relu(x): ...

    @form_of(functions.relu)                         # in minitf/cpu/functions.py
    def relu(x): ...

The forms of the library in use are loaded at the first call of an accelerated op. To compute with
equations only: `with forms.off():`, or the environment variable MINITF_FORMS=off.
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

__all__ = ["accelerated", "form_of", "off", "on"]

_forms = {"cpu": {}, "gpu": {}, None: {}}  # by room: the form of each op that has one
_loaded = {None}  # rooms that have been imported; a library without a room has no forms
# Whether forms are on now, and outside of all `with` blocks: in all threads and forked workers.
_switch = {"on": True, "chosen": True}
_blocks = []  # the open `with` blocks of all threads, in the order of their opening
_lock = threading.Lock()

Op = TypeVar("Op", bound=Callable)  # for type hints: an op takes and returns what its equation does


def accelerated(equation: Op) -> Op:
    """Let a form take the place of this equation, if the library in use has one that takes
    the arguments.
    """

    @functools.wraps(equation)
    def op(*arguments, **options):
        if _switch["on"]:
            room = xp.__dict__["_room"]
            form = (_forms[room] if room in _loaded else _load(room)).get(op)
            if form is not None:
                result = form(*arguments, **options)
                if result is not NotImplemented:
                    return result
        return equation(*arguments, **options)

    return op


def form_of(op: Callable) -> Callable[[Callable], Callable]:
    """Register the decorated function as the form of `op`, for the room that it is written in.

    For arguments that it does not take, the form returns NotImplemented before it has
    changed anything.
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
    _loaded.add(room)
    return _forms[room]


def are_on() -> bool:
    """Return whether forms take the place of equations now."""
    return _switch["on"]


def off() -> contextlib.AbstractContextManager[None]:
    """Compute with equations only inside a `with` block: in all threads, and in
    workers forked there.
    """
    return _switched(False)


def on() -> contextlib.AbstractContextManager[None]:
    """Use forms inside a `with` block, for a training or a timing where they are off; not
    with MINITF_FORMS=off.
    """
    return _switched(_switch["chosen"])


@contextlib.contextmanager
def _switched(to: bool) -> Iterator[None]:
    block = _Block(to)
    _change(lambda: _blocks.append(block))
    try:
        yield
    finally:
        _change(lambda: _blocks.remove(block))


class _Block:
    """A `with` block that is open."""

    def __init__(self, on):
        self.on = on


def _change(blocks):
    """Open or leave a block, and let the newest of the open ones decide: threads may leave
    theirs in any order.
    """
    with _lock:
        blocks()
        _switch["on"] = _blocks[-1].on if _blocks else _switch["chosen"]


if (chosen := os.environ.get("MINITF_FORMS") or "on") not in ("on", "off"):
    print(f"MINITF_FORMS is {chosen!r}: choose on or off", file=sys.stderr)
    raise SystemExit(2)
_switch["on"] = _switch["chosen"] = chosen == "on"
