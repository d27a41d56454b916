"""Checks that a reader can trust: is this gradient right, do these two programs agree?

How a gradient check can lie: if it looks at the sum of the outputs, it accepts every backward that
forgets what cancels in the sum. The outputs of a softmax always sum to 1, so there even a gradient
of zeros passes. `grad_check` therefore weighs the outputs at random, and computes in float64.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable

import numpy as np

from minitf.backend import to_device, to_numpy
from minitf.tensor import ArrayLike, Tensor

__all__ = ["claim", "grad_check", "proved", "same", "show"]

proved = []  # the names of the checks that have passed, in order: a lesson counts them

SMALL = 400  # elements; a larger input is not checked element by element
SAMPLED = 24  # elements of a large input that are checked one by one
GROUPS = 16  # groups that cover all elements of a large input

# Fractions of the input's size, tried together where a single step leaves a doubt.
_STEPS = 10.0 ** -np.arange(1, 8)
_FINER_STEPS = 10.0 ** -np.arange(1, 13)
_EPS = np.finfo(np.float64).eps


def grad_check(
    fn: Callable,
    *arrays: ArrayLike | None,
    name: str | None = None,
    rtol: float = 1e-6,
    atol: float = 0.0,
    step: float = 1e-5,
    seed: int = 0,
    verbose: bool = True,
) -> float:
    """Compare the gradients of fn with central differences, and print one line if they agree.

        L(x) = sum_i c_i fn(x)_i                        with random weights c
        (L(x + h v) - L(x - h v)) / 2h  =  dL/dx . v    for a random direction v,
                                                        and for every single element

    arrays: the arguments. Floating-point arrays are checked, in float64; integers, masks, numbers
    and None are passed on unchanged. fn takes Tensors and returns a Tensor, or a tuple whose first
    element is checked.
    rtol, atol: an element may be wrong by rtol times its own size, plus the rounding error of a
    central difference, plus atol. step: h as a fraction of the size of the input; where this h
    leaves a doubt, others are tried.
    If an input has more than 400 elements, 24 of those with a gradient are checked one by one, and
    all of them in 16 groups of about equal gradients, each along a random direction; the line says
    so. That calls fn about 80 times for each large input.
    Returns the largest error. Raises AssertionError that names the input, the element, both numbers
    and, where it can be recognised, the likely cause; ValueError if there is nothing to check:
    no argument is an array of floating-point numbers, or a gradient is too small beside the values
    of fn for any difference to show it.
    Source: the random weights and directions follow Chainer's check_backward and
    HIPS/autograd's check_vjp.
    """
    name = name or getattr(fn, "__name__", type(fn).__name__)
    rng = np.random.default_rng(seed)
    arrays = [_as_float64(array) for array in arrays]
    floats = [i for i, array in enumerate(arrays) if _is_float(array) and array.size]
    if not floats:
        raise ValueError(
            f"{name}: nothing to check, give it at least one array of floating-point numbers"
        )
    weights, gradients = _backward(fn, name, arrays, floats, rng)
    sizes = _sizes(arrays, floats)
    worst, notes = 0.0, []
    for i in floats:
        others = [arrays[j] for j in floats if j != i]
        checked = _Input(
            f"{name}: the gradient of {_label(fn, i)}", arrays[i], sizes[i], gradients[i],
            _outputs(fn, arrays, i), weights, others, rtol, atol, step, rng,
        )  # fmt: skip
        slopes = checked.check()
        worst = max(worst, *(slope.error for slope in slopes))
        if note := checked.note(slopes):
            notes.append(f"{_label(fn, i)}: {note}")
    if verbose:
        _report(f"{name} gradient", "; ".join([f"max error {worst:.1e}", *notes]))
    return worst


def same(
    name: str,
    a: ArrayLike,
    b: ArrayLike,
    rtol: float = 1e-7,
    atol: float = 1e-9,
    verbose: bool = True,
) -> float:
    """Assert that two results are equal up to rounding; print one line with the largest difference.

    a, b: Tensors, arrays or numbers of one shape; NaN equals NaN, and infinity equals itself only.
    float32 results need a larger rtol.
    Returns the largest difference. Raises AssertionError that says where they differ most.
    """
    a, b = (to_numpy(x.data if isinstance(x, Tensor) else x) for x in (a, b))
    if a.shape != b.shape:
        raise AssertionError(f"{name}: the shapes differ, {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, abs(a - b * 1.0))
    wrong = (error != 0) & ~(np.isfinite(error) & (error <= atol + rtol * abs(b)))
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        raise AssertionError(
            f"{name}: {a[at]:.9g} and {b[at]:.9g}{_index(at)} differ ({int(wrong.sum())} of "
            f"{a.size})"
        )
    worst = float(error.max(initial=0))
    if verbose:
        _report(name, f"max error {worst:.1e}")
    return worst


def claim(text: str, truth: bool | np.bool, measured: object) -> None:
    """Assert that a statement is true, and print one line with the measured value.

    >>> claim("a softmax over 3 equal scores gives thirds", abs(1 / 3 - 0.3333) < 1e-3, "0.3333")
    ok  a softmax over 3 equal scores gives thirds                   0.3333

    measured: the value that supports it, as text or as a number. For two arrays that should be
    equal, use `same`. Raises AssertionError if `truth` is false.
    """
    measured = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    if not truth:
        raise AssertionError(f"false claim: {text} (measured: {measured})")
    _report(text, measured)


def show(thing: Callable) -> None:
    """Print the source of a function or class of the library."""
    print(inspect.getsource(thing))


def _report(name, found):
    proved.append(name)
    print(f"ok  {name:60s} {found}")


# The gradients, as backward gives them ------------------------------------------------------------


def _backward(fn, name, arrays, floats, rng):
    """Return random weights for the outputs, and {number of the input: its gradient}.

    Raises AssertionError for a gradient that is not finite, and for a function that changes its
    arguments or the gradient that it receives, or returns another result when called again.
    """
    out, inputs = _call(fn, arrays)
    if not isinstance(out, Tensor):
        raise AssertionError(f"{name} returned {type(out).__name__}, not a Tensor")
    if not out.size:
        raise ValueError(f"{name}: nothing to check, the result of shape {out.shape} is empty")
    if not np.array_equal(out.numpy(), _call(fn, arrays)[0].numpy(), equal_nan=True):
        raise AssertionError(
            f"{name} gives another result when called again: fix its randomness with a seed"
        )
    weights = _away_from_zero(rng, out.shape)
    start = to_device(weights.copy())
    try:
        out.backward(start)
    except ValueError as error:
        raise AssertionError(
            f"{name}: {error} (is a sum over the broadcast axes missing?)"
        ) from error
    if not np.array_equal(to_numpy(start), weights):
        raise AssertionError(f"{name}: backward changed the gradient that it was given")
    gradients = {}
    for i in floats:
        if not np.array_equal(inputs[i].numpy(), arrays[i]):
            raise AssertionError(f"{name} changed its {_label(fn, i)}")
        found = inputs[i].grad
        gradients[i] = np.zeros_like(arrays[i]) if found is None else to_numpy(found)
    for i, gradient in gradients.items():
        if odd := int((~np.isfinite(gradient)).sum()):
            raise AssertionError(
                f"{name}: the gradient of {_label(fn, i)} is not finite ({odd} of {gradient.size})"
            )
    return weights, gradients


def _call(fn, values):
    """Call fn with new Tensors; return (its result, the Tensors)."""
    inputs = [Tensor(value.copy()) if _is_float(value) else value for value in values]
    out = fn(*inputs)
    return (out[0] if isinstance(out, tuple) else out), inputs


def _outputs(fn, arrays, i):
    """Return the outputs of fn as a function of its input i."""
    return lambda x: _call(fn, [*arrays[:i], x, *arrays[i + 1 :]])[0].numpy()


def _is_float(array):
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _as_float64(array):
    if isinstance(array, Tensor):
        array = array.numpy()
    array = to_numpy(array) if hasattr(array, "dtype") else array
    return array.astype(np.float64) if _is_float(array) else array


def _sizes(arrays, floats):
    """Return the mean size of each input's elements; for zeros, that of the smallest other input.

    Only finite elements count: a mask may contain -infinity.
    """
    sizes = {}
    for i in floats:
        finite = arrays[i][np.isfinite(arrays[i])]
        sizes[i] = float(abs(finite).mean()) if finite.size else 0.0
    smallest = min((size for size in sizes.values() if size), default=1.0)
    return {i: size or smallest for i, size in sizes.items()}


def _away_from_zero(rng, shape):
    """Draw numbers of either sign, none of them tiny, so that no element escapes the check."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


# The gradients beside central differences ---------------------------------------------------------


@dataclasses.dataclass
class _Slope:
    """The slope along one direction: from backward, and from central differences."""

    got: float
    numeric: float
    size: float  # of the numbers whose sum is `got`
    doubt: float  # the possible error of `numeric`
    allowed: float

    def __post_init__(self):
        self.error = abs(self.got - self.numeric)
        self.right = self.error <= self.allowed  # False for NaN
        # An error of a hundredth would have been noticed.
        self.seen = self.doubt <= 0.01 * max(self.size, abs(self.numeric))


@dataclasses.dataclass
class _Input:
    """One input of the function, with the gradient from backward and the means to check it."""

    subject: str  # of messages
    x: np.ndarray
    size: float  # of its numbers: the unit of steps
    gradient: np.ndarray  # from backward
    outputs: Callable  # of an array in place of x
    weights: np.ndarray  # of the outputs
    others: list  # the other inputs
    rtol: float
    atol: float
    step: float
    rng: np.random.Generator

    def __post_init__(self):
        # Rounding alone gives slopes of this size: a tiny fraction of the slope of a function that
        # changes as fast as its input.
        self.rounding = 16 * _EPS * np.linalg.norm(self.weights * self.outputs(self.x)) / self.size

    def check(self):
        """Compare single elements, then groups that cover all of them; return the slopes.

        Zeros are one group. The other elements are grouped by the size of their gradients, so that
        large ones do not hide small ones.
        """
        gradient = abs(self.gradient.ravel())
        by_size = np.argsort(gradient, kind="stable")
        zeros, others = np.split(by_size, [int((gradient == 0).sum())])
        large = gradient.size > SMALL
        singles = _sample(others, self.rng) if large else others
        groups = [zeros, *np.array_split(others, GROUPS if large else 1)]
        slopes = []
        for elements in [*singles[:, None], *groups]:
            if elements.size:
                slopes.append(self.compare(elements))
                if not slopes[-1].right:
                    self.reject(elements, slopes[-1], singles)
        return slopes

    def compare(self, elements):
        """Compare the slopes along a random direction that moves these elements only."""
        v = np.zeros(self.x.size)
        v[elements] = _away_from_zero(self.rng, elements.size) if elements.size > 1 else 1.0
        v = (v / np.linalg.norm(v)).reshape(self.x.shape)
        parts = self.gradient * v
        got, size = float(parts.sum()), float(np.linalg.norm(parts))

        def slope(steps):
            # So that each element moves by about this fraction of its size.
            lengths = steps * self.size * elements.size**0.5
            numeric, doubt = self.central_difference(v, lengths)
            doubt += self.rounding
            return _Slope(got, numeric, size, doubt, self.rtol * size + doubt + self.atol)

        if size and (found := slope(np.array([self.step]))).right and found.seen:
            return found
        found = slope(_STEPS)
        # Numbers of very different sizes, or a function whose domain ends nearby.
        return found if found.right else slope(_FINER_STEPS)

    def central_difference(self, v, steps):
        """Return the slope of sum(weights * outputs) along v, and its possible error.

        Outputs are subtracted before they are summed, so that those that do not move add no
        rounding error. Each step is a tenth of the one before. Of several, the one whose slope
        differs least from its neighbours' counts: at longer steps the curve bends away, at shorter
        ones rounding errors grow.
        """
        slopes, moved = [], False
        for t in steps:
            # asarray, because NumPy's sum of arrays without axes is a scalar
            up = self.outputs(np.asarray(self.x + t * v))
            down = self.outputs(np.asarray(self.x - t * v))
            slopes.append(float((self.weights * (up - down)).sum() / (2 * t)))
            moved = moved | (up != down)
        rounding = 4 * _EPS * np.linalg.norm((self.weights * up)[moved]) / steps
        if len(steps) == 1:
            return slopes[0], float(rounding[0])
        apart = abs(np.diff(slopes))
        # The finest steps show best how large rounding errors are; they fall as steps grow. A slope
        # that agrees by chance is not trusted.
        noise = np.maximum.accumulate((apart * steps[1:])[::-1])[::-1] / steps[1:]
        doubts = 4 * np.maximum(apart[:-1], noise[1:]) + rounding[1:-1]
        best = int(np.argmin(np.where(np.isnan(doubts), np.inf, doubts)))
        return slopes[1 + best], float(doubts[best])

    def note(self, slopes):
        """Say what the line "ok" does not cover; return "" if every element was checked.

        Raises ValueError if the gradient is too small to be checked at all.
        """
        largest = float(abs(self.gradient).max())
        if largest <= self.rounding:
            return f"zero to within {max(slope.doubt for slope in slopes):.0e}"
        if not any(slope.seen and slope.got for slope in slopes):
            raise ValueError(
                f"{self.subject} is at most {largest:.1e}, too small beside the values of the "
                "function for a difference to show it, so nothing was checked: leave out what is "
                "added to it, or make it larger"
            )
        hidden = sum(slope.got != 0 and not slope.seen for slope in slopes)
        notes = [f"{hidden} of {len(slopes)} slopes too small to be checked"] if hidden else []
        if self.x.size > SMALL:
            singles = min(SAMPLED, np.count_nonzero(self.gradient))
            notes.append(
                f"checked {singles} of {self.x.size:,} elements, and all of them in {GROUPS} groups"
            )
        return ", ".join(notes)

    def reject(self, group, slope, singles):
        """Raise AssertionError for the element with the largest error, with the likely cause."""
        small = self.x.size <= SMALL
        suspects = range(self.x.size) if small else {*singles, self.suspect(group)}
        slopes = {at: self.compare(np.array([at])) for at in suspects}
        wrong = [at for at in slopes if not slopes[at].right]
        if not wrong:  # only the sum of their errors is noticed
            raise AssertionError(
                f"{self.subject}, along a random direction through {group.size:,} elements, "
                f"is {slope.got:.9g}, but the function changes by {slope.numeric:.9g}"
            )
        worst = max(wrong, key=lambda at: np.nan_to_num(slopes[at].error, nan=np.inf))
        got = np.array([slope.got for slope in slopes.values()])
        numeric = np.array([slope.numeric for slope in slopes.values()])
        if not np.isfinite(numeric).all():
            cause = ""
        elif small:
            numeric = numeric.reshape(self.x.shape)
            cause = _likely_cause(self.gradient, numeric, self.weights, self.others)
        else:
            cause = _common_cause(got, numeric)
        where = _index(np.unravel_index(worst, self.x.shape))
        raise AssertionError(
            f"{self.subject}{where} is {slopes[worst].got:.9g}, but should be "
            f"{slopes[worst].numeric:.9g}{cause}"
        )

    def suspect(self, group):
        """Halve a wrong group, always taking the half with the larger error; return the element."""
        while group.size > 1:
            halves = np.array_split(group, 2)
            errors = [self.compare(half).error * half.size**0.5 for half in halves]
            group = halves[int(errors[1] > errors[0])]
        return int(group[0])


def _sample(by_size, rng):
    """Choose the elements with the smallest and the largest gradients, and others at random."""
    if by_size.size <= SAMPLED:
        return by_size
    others = rng.choice(by_size[4:-4], SAMPLED - 8, replace=False)
    return np.sort([*by_size[:4], *others, *by_size[-4:]])


# Messages -----------------------------------------------------------------------------------------


def _label(fn, i):
    """Name an input by its number and, if it can be found, its parameter."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL
    return f"input {i} ({parameters[i].name})" if named else f"input {i}"


def _index(at):
    return f" at {tuple(int(k) for k in at)}" if at else ""


def _likely_cause(got, wanted, gy, others):
    """Recognise frequent mistakes in a gradient; return "" where none fits."""
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and _close(got.swapaxes(-1, -2), wanted):
        return ": it is the transpose of the right one (a product with its factors exchanged?)"
    for other in others:
        made = [text for text, product in _products(gy, other) if _close(product, got)]
        needed = [text for text, product in _products(gy, other) if _close(product, wanted)]
        if made and needed:
            return f": it is {made[0]}, where {needed[0]} is needed (a transposed product)"
    if cause := _common_cause(got, wanted):
        return cause
    for axis in range(got.ndim):
        off = wanted - got
        along = np.broadcast_to(off.mean(axis, keepdims=True), off.shape)
        if got.shape[axis] > 1 and _close(off, along):
            return (
                f": it is off by the same amount all along axis {axis} (a missing mean or sum "
                "over that axis?)"
            )
    return ""


def _common_cause(got, wanted):
    """Recognise a mistake that any sample of the elements shows; return "" if there is none."""
    if not got.any():
        return (
            ": it is zero everywhere, as if the gradient did not arrive (the result of .data, "
            "or an empty backward?)"
        )
    if _close(got, wanted):  # only some small elements are wrong
        return ""
    unit = got / abs(got).max()
    factor = float((unit * wanted).sum() / (unit * got).sum())
    if _close(got * factor, wanted):
        return (
            f": all of it is off by the factor {factor:.6g} (a factor, a sign, or a mean instead "
            "of a sum?)"
        )
    return ""


def _close(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max())


def _products(gy, other):
    """Yield the products of the output's gradient and the other factor, each also transposed."""
    factors = {"gy": gy, "gy.T": gy.T, "other": other, "other.T": other.T}
    for left, right in itertools.permutations(factors, 2):
        a, b = factors[left], factors[right]
        if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]:
            yield f"{left} @ {right}", a @ b
