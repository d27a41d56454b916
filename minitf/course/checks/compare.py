"""How an answer is compared: what was found, what was expected, and which mistake that looks like.

A check gives each answer new copies of its arguments, so an answer may compute in place. An answer
may be a Tensor, an array, a list or a tuple, of float32 or float64, of integers or of floats. The
cases of a check are chosen so that every known mistake changes a result by far more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from minitf.backend import to_numpy
from minitf.differences import index_text
from minitf.tensor import ArrayLike, Tensor

__all__ = ["equal", "gradient", "on_paper", "parts_of", "short"]

Mistakes = Mapping[str, ArrayLike]  # {what an answer did: the result that this gives}


def equal(
    what: str,
    found: object,
    expected: ArrayLike,
    mistakes: Mistakes | Callable[[], Mistakes] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-6,
) -> None:
    """Assert that an answer has the expected numbers, up to the rounding of float32.

    mistakes: a dictionary, or a function that makes it, if that takes long.
    Raises AssertionError that says where the two differ most and, if all numbers are those of a
    known mistake, which one.
    """
    found, expected = _array(what, found), _array(what, expected)
    if _close(found, expected, rtol, atol):
        return
    looks_like = ""
    mistakes = mistakes() if callable(mistakes) else mistakes or {}
    for mistake, value in mistakes.items():
        if _close(found, _array(what, value), rtol, atol):
            looks_like = f": that looks like {mistake}"
            break
    if found.shape != expected.shape:
        raise AssertionError(
            f"{what}: found the shape {found.shape}, expected {expected.shape}{looks_like}"
        )
    with np.errstate(invalid="ignore"):
        error = np.where(_same(found, expected), 0, abs(found * 1.0 - expected * 1.0))
    at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), found.shape)
    wanted = f"found {_number(found[at])}, expected {_number(expected[at])}"
    raise AssertionError(f"{what}: {wanted}{index_text(at)}{looks_like}")


def on_paper(
    answer: object,
    right: Sequence[float],
    names: Sequence[str],
    mistakes: Mistakes | None = None,
    single: Sequence[Mapping[str, float]] = (),
    within: float = 0.0051,
) -> None:
    """Assert that numbers found on paper are right; a message never has the right ones.

    names: of the numbers. mistakes: of all numbers together. single: for each number, those of it
    alone. within: half of the last digit that is asked for; 0 for whole numbers.
    """
    each = f"one for each of: {', '.join(names)}"
    if isinstance(answer, str | dict):
        raise AssertionError(f"found {short(answer)}, expected a list of {len(right)} numbers")
    found = _array("the answer", answer)
    if found.shape != (len(right),):
        numbers = f"{found.size} numbers" if found.ndim == 1 else f"the shape {found.shape}"
        raise AssertionError(f"found {numbers}, expected {len(right)}, {each}")
    wrong = ~(abs(found - right) <= within)
    if not wrong.any():
        return
    for mistake, value in (mistakes or {}).items():
        if (abs(found - np.asarray(value)) <= within).all():
            raise AssertionError(f"found {short(answer)}: that looks like {mistake}")
    at = int(np.argmax(wrong))
    text = f"{names[at]}, at {at}, is not {_number(found[at])}"
    for mistake, value in (single[at] if single else {}).items():
        if abs(found[at] - value) <= within:
            raise AssertionError(f"{text}: that looks like {mistake}")
    if (abs(found - right) <= 10 * within).all():
        text += ", but all are near: round to two digits"
    raise AssertionError(text)


def parts_of(what: str, found: object, names: Sequence[str]) -> list:
    """Return the parts of an answer that is a tuple or list; assert that there are so many."""
    if isinstance(found, str | dict | set) or not hasattr(found, "__len__"):
        raise AssertionError(f"{what}: found {short(found)}, expected ({', '.join(names)})")
    if len(found) != len(names):
        raise AssertionError(
            f"{what}: found {len(found)} parts, expected {len(names)}: ({', '.join(names)})"
        )
    return list(found)


def gradient(what: str, out: object, x: Tensor, gy: np.ndarray) -> np.ndarray:
    """Send gy back from a Tensor; return the gradient that arrives at x."""
    if not isinstance(out, Tensor):
        raise AssertionError(f"{what}: found {type(out).__name__}, expected a Tensor: use record")
    x.grad = None
    try:
        out.backward(gy.astype(out.dtype))
    except (ValueError, TypeError) as error:
        raise AssertionError(f"{what}: {error}") from error
    except AttributeError as error:
        text = "backward is to return an array, or a tuple of one for each input"
        raise AssertionError(f"{what}: {text}: {error}") from error
    if x.grad is None:
        raise AssertionError(f"{what}: no gradient arrives: is x among the inputs of record?")
    return to_numpy(x.grad)


def short(answer: object) -> str:
    """Return an answer as text of at most 60 characters."""
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _array(what, found):
    """Return numbers as an array of NumPy."""
    if isinstance(found, Tensor):
        return found.numpy()
    if isinstance(found, list | tuple):
        found = [each.numpy() if isinstance(each, Tensor) else each for each in found]
    try:
        array = np.asarray(to_numpy(found))
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise AssertionError(f"{what}: found {short(found)}, expected numbers of one shape")
    return array


def _same(a, b):
    return (a == b) | (np.isnan(a * 1.0) & np.isnan(b * 1.0))


def _close(found, expected, rtol, atol):
    if found.shape != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        near = abs(found * 1.0 - expected * 1.0) <= atol + rtol * abs(expected * 1.0)
        finite = np.isfinite(found * 1.0) & np.isfinite(expected * 1.0)
        return bool((_same(found, expected) | (near & finite)).all())


def _number(value):
    return str(bool(value)) if value.dtype == bool else f"{value:.6g}"
