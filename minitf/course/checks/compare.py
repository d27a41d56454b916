"""How an answer is held to the right one: what was found and expected, and which mistake it shows.

The check of an exercise is a generator of (name, what came out): it calls an answer with arguments
of several sizes. The right answer and the wrong ones go through the same calls, so a mistake is
named by what it computes. Each answer gets its own copies of arrays and lists, and may compute in
place. What comes out may be a Tensor, an array, a list or a tuple, of integers or of floats.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from minitf.backend import to_numpy
from minitf.check import index_text
from minitf.course.calls import AnswerError, Ended
from minitf.tensor import Tensor

Answer = Callable[..., object]


def check(right: Answer, wrong: Mapping[str, Answer], *, shown: bool = True, **tolerance: float):
    """Return a decorator that makes the check of an exercise from a generator of its cases.

    right: a right answer. wrong: {a typical mistake: an answer that makes it}. shown: whether a
    message may have what is right. A check that finds mistakes by a rule raises AssertionError
    between its cases.
    """
    return lambda cases: _Check(cases, right, wrong, shown, tolerance)


class _Check:
    """The check of an exercise: called with an answer, it raises AssertionError if it is wrong."""

    def __init__(self, cases, right, wrong, shown, tolerance):
        functools.update_wrapper(self, cases)
        self.cases, self.right, self.wrong, self.shown = cases, right, wrong, shown
        self.tolerance = {"rtol": 1e-4, "atol": 1e-6} | tolerance

    def __call__(self, answer):
        before = {}  # the cases in which the answer is right
        pairs = zip(self._outcomes(answer), self._outcomes(self.right), strict=True)
        for (name, found), (_, expected) in pairs:
            if text := difference(found, expected, **self.tolerance):
                mistake = self._mistake(answer, before | {name: found})
                looks = f": that looks like {mistake}" if mistake else ""
                if not self.shown:
                    raise AssertionError(f"{name}: not {short(found.tolist())}{looks}")
                raise AssertionError(f"{name}: {text}{looks or looks_like(found, expected)}")
            before[name] = expected

    def _outcomes(self, answer):
        """Yield (name, array) of all cases."""

        def copied(*arguments):
            kinds = np.ndarray | list
            return answer(*(copy.deepcopy(x) if isinstance(x, kinds) else x for x in arguments))

        with np.errstate(all="ignore"):
            for name, value in self.cases(copied):
                yield name, as_array(name, value)

    def _all(self, answer):
        """Return {name: array} of the cases up to the one in which the answer fails."""
        outcomes = {}
        with contextlib.suppress(Exception):
            for name, array in self._outcomes(answer):
                outcomes[name] = array
        return outcomes

    def _mistake(self, answer, outcomes):
        """Return the mistake that gives these outcomes, of which the last is wrong; "" for none.

        A single number says little: there, all cases that are single numbers have to agree.
        """
        if next(reversed(outcomes.values())).size == 1:
            every = self._all(answer)
            outcomes = outcomes | {name: one for name, one in every.items() if one.size == 1}
        for mistake, wrong in self.wrong.items():
            found = self._all(wrong)
            if outcomes.keys() <= found.keys() and all(
                agree(found[name], one, **self.tolerance) for name, one in outcomes.items()
            ):
                return mistake
        return ""


def on_paper(
    names: Sequence[str], right: Answer, wrong: Mapping[str, list], within: float = 0.0051
):
    """Return the check of numbers found on paper; its message never has the right ones.

    names: of the numbers. right: a function of nothing that returns them. wrong: {a typical
    mistake: the numbers that it gives}. within: half of the last digit that is required; 0 for
    whole numbers.
    """

    def numbers(answer):
        given = answer()
        given = parts_of("the answer", given.tolist() if hasattr(given, "tolist") else given, names)
        for i, number in enumerate(given):
            yield f"{names[i]}, at {i}{', to two digits' if within else ''}", number

    mistakes = {text: lambda value=value: value for text, value in wrong.items()}
    return check(right, mistakes, shown=False, rtol=0, atol=within)(numbers)


# What an answer returns ---------------------------------------------------------------------------


def parts_of(name: str, found: object, names: Sequence[str]) -> list:
    """Return the parts of an answer that is a tuple or list; assert that there are so many."""
    listed = f"({', '.join(names)})"
    if isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        raise AssertionError(f"{name}: found one array, expected {listed}")
    if isinstance(found, str | dict | set) or not hasattr(found, "__len__"):
        raise AssertionError(f"{name}: found {short(found)}, expected {listed}")
    if len(found) != len(names):
        raise AssertionError(f"{name}: found {len(found)} parts, expected {len(names)}: {listed}")
    return list(found)


def texts_of(found: object, expected: str) -> list[str]:
    """Return an answer that is a list of texts; assert that it is one."""
    if isinstance(found, str | dict) or not hasattr(found, "__len__"):
        raise AssertionError(f"found {short(found)}, expected {expected}")
    for text in found:
        if not isinstance(text, str):
            raise AssertionError(f"found {short(text)} in a list, expected texts")
    return list(found)


def gradients(name: str, out: object, inputs: Sequence[Tensor], gy: np.ndarray) -> list[np.ndarray]:
    """Send gy back from a Tensor; return the gradients that arrive at the inputs."""
    if not isinstance(out, Tensor):
        raise AssertionError(f"{name}: found {type(out).__name__}, expected a Tensor: use record")
    for x in inputs:
        x.grad = None
    try:
        out.backward(gy.astype(out.dtype))
    except (AnswerError, ValueError, TypeError, IndexError) as error:
        raise AssertionError(f"{name}: {error}") from error
    except AttributeError as error:
        text = "backward is to return an array, or a tuple of one for each input"
        raise AssertionError(f"{name}: {text}: {error}") from error
    if any(x.grad is None for x in inputs):
        raise AssertionError(
            f"{name}: no gradient arrives: is the Tensor among the inputs of record, and does "
            "backward return something?"
        )
    return [to_numpy(x.grad) for x in inputs]


def as_array(name: str, found: object) -> np.ndarray:
    """Return what came out as an array of NumPy; raise AssertionError if it is not an array."""
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


def short(answer: object) -> str:
    """Return an answer as text of at most 60 characters."""
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


# What differs -------------------------------------------------------------------------------------


def agree(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> bool:
    """Return whether two arrays have one shape and the same numbers, up to rounding."""
    return found.shape == expected.shape and bool(_near(found, expected, rtol, atol).all())


def _near(found, expected, rtol, atol):
    found, expected = found * 1.0, expected * 1.0
    # What is left of a difference of large numbers has their rounding.
    largest = abs(expected[np.isfinite(expected)]).max(initial=1.0)
    return np.isclose(found, expected, rtol, atol * largest, equal_nan=True)


def difference(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """Return where two arrays differ most, "found 2, expected 3 at (4,)"; "" if they agree."""
    if agree(found, expected, rtol, atol):
        return ""
    if found.shape != expected.shape:
        return f"found the shape {found.shape}, expected {expected.shape}"
    near = _near(found, expected, rtol, atol)
    with np.errstate(invalid="ignore"):
        error = np.where(near, 0, abs(found * 1.0 - expected * 1.0))
    index = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), found.shape)
    for digits in 6, 9, 17:
        texts = [_number(array[index], digits) for array in (found, expected)]
        if texts[0] != texts[1]:
            break
    return f"found {texts[0]}, expected {texts[1]}{index_text(index)}"


def _number(value, digits=6):
    return str(bool(value)) if value.dtype == bool else f"{value:.{digits}g}"


def looks_like(found: np.ndarray, expected: np.ndarray) -> str:
    """Return what wrong numbers have to do with the right ones, ": that looks like ..."."""
    for text, value in _relations(found, expected):
        if agree(np.asarray(value), expected, 1e-4, 1e-6):
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
            if not same and agree(found, value, 1e-4, 1e-6):
                yield f"a {text} over axis {axis}, which is to stay", expected
    if not same or not np.isfinite(found).all():
        return
    if expected.dtype.kind == "f" and found.any() and expected.any():
        scale = abs(found).max()
        factor = (found / scale * expected).sum() / (found / scale * found).sum()
        yield "the opposite sign", -found
        yield f"{1 / factor if factor else 0:.4g} times what is right", factor * found
        if found.ndim > 1:
            factor = (found * expected).sum(-1) / (found * found).sum(-1)
            yield "the right rows, each times another number", factor[..., None] * found
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


# What Python says of a mistake --------------------------------------------------------------------

# What helps, by what Python, NumPy or the library says.
ADVICE = {
    r"'tuple' object has no attribute": "take a tuple apart, as in  loss, count = ...",
    r"too many indices for array": (
        "[..., None] and [..., 0] work for any number of axes, [:, None] does not"
    ),
    r"'Tensor' object (has no attribute|is not subscriptable)": "its array is x.data",
    r"of type Tensor|'Tensor' does not support ufuncs|(instances of|unsupported) .*'Tensor'": (
        "functions of NumPy and comparisons take arrays: x.data, not x"
    ),
    r"'memoryview'": "x.data of an array x is no array: .data is for Tensors",
    r"'\w+' and 'NoneType'": "something is None here: is a gradient missing, or a `return`?",
    r"zip\(\) argument 2 is": (
        "there are not as many gradients as inputs: return a tuple, one for each"
    ),
    r"mismatch in its core dimension .*size (\d+) is different from (\d+)": (
        r"matrices that do not fit: \2 columns times \1 rows"
    ),
    r"axes don't match array": "transpose needs one number for each axis",
    r"'(float|tuple)' object cannot be interpreted as an integer": (
        "integers are needed: 6 // 3, not 6 / 3; x.reshape(2, 3), not x.reshape((2, 3))"
    ),
    r"truth value of an array": "True or False is needed here, but this is an array of them",
}


def explained(error: Exception) -> str:
    """Return what went wrong in an answer, with what helps if the error is a common one."""
    is_plain = isinstance(error, AssertionError | TimeoutError | AnswerError | Ended)
    kind, text = "" if is_plain else f"{type(error).__name__}: ", " ".join(str(error).split())
    return f"{kind}{text}{advice(text)}"


def advice(message: str) -> str:
    """Return what to do about a common error, ": ..."; "" for another error."""
    shapes = re.search(r"broadcast together with shapes \(([\d, ]*)\) \(([\d, ]*)\)", message)
    if not shapes:
        found = ((re.search(said, message), text) for said, text in ADVICE.items())
        return next((f": {match.expand(text)}" for match, text in found if match), "")
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
