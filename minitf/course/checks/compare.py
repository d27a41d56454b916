"""How an answer is compared: what was found, what was expected, and which mistake that looks like.

A check gives each answer new copies of its arguments, so an answer may compute in place. An answer
may be a Tensor, an array, a list or a tuple, of float32 or float64, of integers or of floats. The
cases of a check are chosen so that every known mistake changes a result by far more than rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from minitf.backend import to_numpy
from minitf.check import index_text
from minitf.course.calls import AnswerError
from minitf.tensor import ArrayLike, Tensor

__all__ = ["advice", "equal", "equal_on_paper", "gradient", "parts_of", "short"]

Mistakes = Mapping[str, ArrayLike]  # {what an answer did: the result that this gives}


def equal(
    name: str,
    found: object,
    expected: ArrayLike,
    mistakes: Mistakes | Callable[[], Mistakes] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-6,
) -> None:
    """Assert that an answer has the expected numbers, up to the rounding of float32.

    mistakes: a dictionary, or a function that makes it, if that takes long.
    Raises AssertionError that says where the two differ most and which known mistake gives all
    these numbers; if none does, what they have to do with the right ones, such as another order.
    """
    found, expected = _array(name, found), _array(name, expected)
    if _close(found, expected, rtol, atol):
        return
    looks_like = ""
    with np.errstate(all="ignore"):
        mistakes = mistakes() if callable(mistakes) else mistakes or {}
    for mistake, value in mistakes.items():
        if _close(found, _array(name, value), rtol, atol):
            looks_like = f": that looks like {mistake}"
            break
    else:
        looks_like = _looks_like(found, expected, rtol, atol)
    if found.shape != expected.shape:
        raise AssertionError(
            f"{name}: found the shape {found.shape}, expected {expected.shape}{looks_like}"
        )
    with np.errstate(invalid="ignore"):
        error = np.where(_same(found, expected), 0, abs(found * 1.0 - expected * 1.0))
    index = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), found.shape)
    wanted = f"found {_number(found[index])}, expected {_number(expected[index])}"
    raise AssertionError(f"{name}: {wanted}{index_text(index)}{looks_like}")


def equal_on_paper(
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
    mistakes = dict(mistakes or {})
    for i in range(len(right)):
        opposite = np.array(right)
        opposite[i] = -opposite[i]
        mistakes[f"the wrong sign of {names[i]}"] = opposite
    mistakes["the opposite signs"] = -np.asarray(right)
    for mistake, value in mistakes.items():
        if (abs(found - np.asarray(value)) <= within).all():
            raise AssertionError(f"found {short(answer)}: that looks like {mistake}")
    if (abs(np.sort(found) - np.sort(right)) <= within).all():
        raise AssertionError(
            f"found {short(answer)}: that looks like the right numbers in another order; it is "
            + ", ".join(names)
        )
    worst = int(np.argmax(wrong))
    text = f"{names[worst]}, at {worst}, is not {_number(found[worst])}"
    for mistake, value in (single[worst] if single else {}).items():
        if abs(found[worst] - value) <= within:
            raise AssertionError(f"{text}: that looks like {mistake}")
    if (abs(found - right) <= 10 * within).all():
        text += ", but all are near: round to two digits"
    raise AssertionError(text)


def parts_of(name: str, found: object, names: Sequence[str]) -> list:
    """Return the parts of an answer that is a tuple or list; assert that there are so many."""
    if isinstance(found, str | dict | set) or not hasattr(found, "__len__"):
        raise AssertionError(f"{name}: found {short(found)}, expected ({', '.join(names)})")
    if len(found) != len(names):
        raise AssertionError(
            f"{name}: found {len(found)} parts, expected {len(names)}: ({', '.join(names)})"
        )
    return list(found)


def gradient(name: str, out: object, x: Tensor, gy: np.ndarray) -> np.ndarray:
    """Send gy back from a Tensor; return the gradient that arrives at x."""
    if not isinstance(out, Tensor):
        raise AssertionError(f"{name}: found {type(out).__name__}, expected a Tensor: use record")
    x.grad = None
    try:
        out.backward(gy.astype(out.dtype))
    except (AnswerError, ValueError, TypeError, IndexError) as error:
        raise AssertionError(f"{name}: {error}") from error
    except AttributeError as error:
        text = "backward is to return an array, or a tuple of one for each input"
        raise AssertionError(f"{name}: {text}: {error}") from error
    if x.grad is None:
        raise AssertionError(
            f"{name}: no gradient arrives: is the Tensor among the inputs of record, and does "
            "backward return something?"
        )
    return to_numpy(x.grad)


def advice(message: str) -> str:
    """Return what to do about an error on shapes or a tuple, ": ..."; "" for another error."""
    if "'tuple' object has no attribute" in message:
        return ": take a tuple apart, as in  loss, count = ..."
    if "too many indices for array" in message:
        return ": [..., None] and [..., 0] work for any number of axes, [:, None] does not"
    shapes = re.search(r"broadcast together with shapes \(([\d, ]*)\) \(([\d, ]*)\)", message)
    if not shapes:
        return ""
    a, b = ([int(n) for n in shape.split(",") if n.strip()] for shape in shapes.groups())
    if len(a) > len(b):
        a, b = b, a
    if len(a) == len(b):
        if a == b[::-1]:
            return ": one is the transpose of the other"
        axis = next((k for k, (n, m) in enumerate(zip(a, b, strict=True)) if n != m), 0)
        return f": axis {axis} has {a[axis]} numbers here, {b[axis]} there"
    for axis in range(len(b) - 1, 0, -1):
        longer = [*a[:axis], 1, *a[axis:]]
        if len(longer) == len(b) and all(n in (1, m) for n, m in zip(longer, b, strict=True)):
            how = "[..., None] or keepdims=True" if axis == len(a) else "keepdims=True"
            return f": {_shape(a)} lacks an axis, {how} makes it {_shape(longer)}"
    return ""


def _shape(numbers):
    return str(tuple(numbers))


def short(answer: object) -> str:
    """Return an answer as text of at most 60 characters."""
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _array(name, found):
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
        raise AssertionError(f"{name}: found {short(found)}, expected numbers of one shape")
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


def _looks_like(found, expected, rtol, atol):
    """Return what wrong numbers have to do with the right ones, ": that looks like ..."."""
    for text, value in _relations(found, expected):
        if _close(np.asarray(value), expected, rtol, atol):
            return f": that looks like {text}"
    if found.shape == expected.shape and expected.dtype.kind == "f" and np.isfinite(expected).all():
        if np.isnan(found).any():
            return ": 0 / 0, 0 times infinity, or infinity less infinity gives nan"
        if np.isinf(found).any():
            return ": an overflow, or a division by 0, gives inf"
    return ""


def _relations(found, expected) -> Iterator:
    """Yield (mistake, what the right numbers would be if this was the only one)."""
    found, same = found * 1.0, found.shape == expected.shape
    if not same and found.size == expected.size:
        yield "the transpose of what is right", found.T
        yield "the right numbers in another shape", found.reshape(expected.shape)
    if found.ndim > expected.ndim:
        for axis in range(found.ndim):
            yield f"numbers that are not summed over axis {axis}", found.sum(axis)
            yield f"numbers whose mean over axis {axis} is missing", found.mean(axis)
    if expected.size < 2 or expected.dtype.kind == "b":
        return
    for axis in range(expected.ndim):  # it has one axis less, and so has what it is compared with
        for text, value in (("sum", expected.sum(axis)), ("mean", expected.mean(axis))):
            if not same and _close(found, value, 1e-4, 1e-6):
                yield f"a {text} over axis {axis}, which is to stay", expected
    if not same or not np.isfinite(found).all():
        return
    if expected.dtype.kind == "f" and found.any() and expected.any():
        scale = abs(found).max()
        factor = (found / scale * expected).sum() / (found / scale * found).sum()
        yield "the opposite sign", -found
        yield f"{1 / factor if factor else 0:.4g} times what is right", factor * found
    difference = np.median(found - expected)
    more = "large" if difference > 0 else "small"
    yield f"numbers that are all too {more}, by {abs(difference):.4g}", found - difference
    if found.ndim > 1 and found.shape[-1] == found.shape[-2]:
        yield "the transpose of what is right", found.swapaxes(-1, -2)
    if expected.dtype.kind == "f":
        for axis in range(found.ndim):
            yield f"the right numbers in the opposite order of axis {axis}", np.flip(found, axis)
        order = np.argsort(np.argsort(expected, axis=None))
        in_order = np.sort(found, axis=None)[order].reshape(found.shape)
        yield "the right numbers in another order", in_order
        for axis in range(found.ndim):
            wrong = ~np.isclose(found, expected, 1e-4, 1e-6)
            others = tuple(i for i in range(found.ndim) if i != axis)
            places = np.flatnonzero(wrong.any(axis=others))
            if len(places) == 1 and found.shape[axis] > 2:
                name = "a mistake" if found.ndim == 1 else f"a mistake where axis {axis} is"
                yield f"{name} {'at ' if found.ndim == 1 else ''}{places[0]} alone", expected


def _number(value):
    return str(bool(value)) if value.dtype == bool else f"{value:.6g}"
