"""Checks that a reader can trust: is this gradient right, do these two programs agree?

A gradient is checked by its definition: move one element of the input a little, and see how much
the result changes (`_comparison`).

The result must be one number. The sum of the outputs would not do: the outputs of a softmax always
sum to 1, so even a gradient of zeros would pass. `grad_check` gives each output a random weight.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minitf.backend import to_device, to_numpy
from minitf.tensor import ArrayLike, Tensor, record

__all__ = ["claim", "grad_check", "proved", "same"]

proved = []  # the names of the checks that passed and said so, in order: a lesson counts them

COLUMNS = 80  # characters of a line; 22 of them are for "ok" and "max error 1.2e-16"
SMALL = 400  # elements; each costs two calls of the function, so larger inputs are sampled
SAMPLED = 24  # elements of a large input that are checked one by one
SMALLEST = 4  # of these have the smallest gradients: a few may be lost in rounding
FACTOR = 100  # between h and two others, a smaller and a larger one
# Mistakes in a formula (a factor, a sign, a missing term) change a gradient by far more than 1%.
# A difference whose own error may be larger than that might not notice them: it proves nothing.
NOTICEABLE = 0.01


def grad_check(
    fn: Callable,
    *arrays: ArrayLike | None,
    name: str | None = None,
    rtol: float = 1e-6,
    atol: float = 0.0,
    eps: float = 1e-5,
    seed: int = 0,
    verbose: bool = True,
) -> float:
    """Compare the gradients of fn with central differences, and print one line if they agree.

        L(x) = sum_i c_i fn(x)_i                      with random weights c
        dL/dx_k = (L(x + h e_k) - L(x - h e_k)) / 2h  for every element k

    arrays: the arguments. Floating-point arrays are checked, in float64; integers, masks, lists,
    Python numbers and None are passed on unchanged. fn takes Tensors and returns a Tensor, or a
    tuple whose first element is checked. At a kink, such as relu has at 0, there is no slope, and
    the check fails: move the element away from it.
    eps: h as a fraction of the mean size of the input's elements. rtol, atol: an element may be
    wrong by rtol times its own size, plus the rounding error of the difference, plus atol. If an
    element seems wrong, or too small to tell, two more differences are taken, with 100 h and
    h / 100: rounding may hide its slope, or the function bend within h.
    If an input has more than 400 elements, it checks 24 with a nonzero gradient one by one, and all
    of them together along a random direction; the line says so.
    Returns the largest error. Raises AssertionError that names the input, the element, both numbers
    and, where it can be recognised, the likely cause; ValueError if there is nothing to check:
    no argument is an array of floating-point numbers, or a gradient is too small beside the values
    of fn for any difference to show it.
    Source: the random weights and directions follow Chainer's check_backward and
    HIPS/autograd's check_vjp.
    """
    name = name or getattr(fn, "__name__", type(fn).__name__)
    rng = np.random.default_rng(seed)
    arrays = list(map(_as_float64, arrays))
    floats = [i for i, array in enumerate(arrays) if _is_float(array) and array.size]
    if not floats:
        raise ValueError(
            f"{name}: nothing to check: give at least one array of floating-point numbers"
        )
    weights, gradients = _backward(fn, name, arrays, floats, rng)
    units = _units([arrays[i] for i in floats])
    worst, notes = 0.0, []
    for i, unit in zip(floats, units, strict=True):
        x, gradient, label = arrays[i], gradients[i], _input_name(fn, i)
        subject = f"{name}: the gradient of {label}"

        def weighted(x, i=i):  # the sum of these outputs is L
            return weights * _call(fn, [*arrays[:i], x, *arrays[i + 1 :]])[0].numpy()

        compare = _comparison(weighted, x, gradient, unit, eps, rtol, atol, rng)
        directions = _directions(gradient, unit, rng)
        slopes = [compare(direction) for direction in directions]
        if not all(slope.right for slope in slopes):
            others = [arrays[j] for j in floats if j != i]
            raise AssertionError(
                subject + _mistake(compare, directions, slopes, gradient, weights, others)
            )
        worst = max(worst, *(slope.error for slope in slopes))
        if note := _limits(subject, slopes, gradient, eps):
            notes.append(f"{label}: {note}")
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

        |a - b| <= atol + rtol |b|

    a: what was found, b: what was expected; Tensors, arrays or numbers of one shape. NaN equals
    NaN, and infinity equals itself only. float32 results need a larger rtol.
    Returns the largest difference. Raises AssertionError that says where they differ most.
    """
    a, b = (to_numpy(x.data if isinstance(x, Tensor) else x) for x in (a, b))
    if a.shape != b.shape:
        raise AssertionError(f"{name}: found the shape {a.shape}, expected {b.shape}")
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinity - infinity
        # * 1.0 turns integers into floats, because 3 - 5 is 254 in uint8.
        error = np.where(equal, 0, abs(a - b * 1.0))
    close = np.isfinite(error) & (error <= atol + rtol * abs(b))
    wrong = ~(equal | close)
    if wrong.any():
        index = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        raise AssertionError(
            f"{name}: found {a[index]:.9g}, expected {b[index]:.9g}{index_text(index)} "
            f"({int(wrong.sum())} of {a.size} differ)"
        )
    worst = float(error.max(initial=0))
    if verbose:
        _report(name, f"max error {worst:.1e}")
    return worst


def claim(text: str, truth: bool | np.bool, measured: object) -> None:
    """Assert that a statement is true, and print one line with the measured value.

    >>> claim("a softmax over 3 equal scores gives thirds", abs(1 / 3 - 0.3333) < 1e-3, "0.3333")
    ok  a softmax over 3 equal scores gives thirds                 0.3333

    measured: the value that supports it, as text or as a number. For two arrays that should be
    equal, use `same`. Raises AssertionError if `truth` is false.
    """
    measured = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    if not truth:
        raise AssertionError(f"false claim: {text} (measured: {measured})")
    _report(text, measured)


def _report(name, evidence):
    """Record and print what was proved; evidence that does not fit into 80 columns goes below."""
    proved.append(name)
    line = f"ok  {name:{COLUMNS - 22}s} {evidence}"
    if len(line) > COLUMNS or "\n" in line:
        evidence = " ".join(evidence.split())
        line = f"ok  {name}\n" + textwrap.indent(textwrap.fill(evidence, COLUMNS - 8), " " * 8)
    print(line)


# The gradients that backward returns, and the arguments of a check --------------------------------


def _backward(fn, name, arrays, floats, rng):
    """Return random weights for the outputs, and {number of the input: its gradient}.

    Raises AssertionError for a gradient that is not finite, and for a function that changes its
    arguments or the gradient that it receives, or returns a different result when called again.
    """
    out, inputs = _call(fn, arrays)
    if not isinstance(out, Tensor):
        raise AssertionError(f"{name} returned {type(out).__name__}, not a Tensor")
    if not out.size:
        raise ValueError(
            f"{name}: the result of shape {out.shape} is empty: there is nothing to check"
        )
    if not np.array_equal(out.numpy(), _call(fn, arrays)[0].numpy(), equal_nan=True):
        raise AssertionError(
            f"{name} gives a different result when called again: fix its randomness with a seed"
        )
    weights = _random_signs(rng, out.shape)
    given = []  # the gradient that the function's own backward is given
    watched = record(out.data, (out,), lambda gy: given.append(gy) or gy)
    try:
        watched.backward(to_device(weights))
    except ValueError as error:
        raise AssertionError(f"{name}: {error}") from error
    if not np.array_equal(to_numpy(given[0]), weights):
        raise AssertionError(f"{name}: backward changed the gradient that it was given")
    gradients = {}
    for i in floats:
        label, gradient = _input_name(fn, i), inputs[i].grad
        if not np.array_equal(inputs[i].numpy(), arrays[i]):
            raise AssertionError(f"{name} changed its {label}")
        gradients[i] = np.zeros_like(arrays[i]) if gradient is None else to_numpy(gradient)
        if odd := int((~np.isfinite(gradients[i])).sum()):
            raise AssertionError(
                f"{name}: the gradient of {label} is not finite ({odd} of {gradients[i].size})"
            )
    return weights, gradients


def _call(fn, values):
    """Call fn with new Tensors; return (its result, the Tensors)."""
    inputs = [Tensor(value.copy()) if _is_float(value) else value for value in values]
    out = fn(*inputs)
    return (out[0] if isinstance(out, tuple) else out), inputs


def _is_float(array):
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _as_float64(array):
    array = to_numpy(array.data) if isinstance(array, Tensor) else array
    array = to_numpy(array) if hasattr(array, "dtype") else array
    return array.astype(np.float64) if _is_float(array) else array


# A gradient beside differences --------------------------------------------------------------------


class _Slope(NamedTuple):
    """The slope along one direction: from backward, and from a central difference."""

    got: float
    numeric: float
    rounding: float  # by how much rounding may put `numeric` off
    right: bool  # False for NaN
    certain: bool  # whether a mistake would show
    kink: bool

    @property
    def error(self):
        """The difference of the two; infinite for NaN."""
        return float(np.nan_to_num(abs(self.got - self.numeric), nan=np.inf))


def _units(inputs):
    """Return for each input the unit of h: the geometric mean of its elements' sizes.

    Only finite elements count, because a mask may contain -infinity. An input of zeros, such as a
    new bias, has the smallest unit of the others: beside inputs of 1e-12, an h of 1e-5 would be
    far too large.
    """
    sizes = [abs(x[np.isfinite(x) & (x != 0)]) for x in inputs]
    units = [float(np.exp(np.log(some).mean())) if some.size else 0.0 for some in sizes]
    smallest = min((unit for unit in units if unit), default=1.0)
    return [unit or smallest for unit in units]


def _directions(gradient, unit, rng):
    """Return the directions to compare along, as arrays like the input.

    Each element of a small input; of a large one a sample, evenly from the smallest nonzero
    gradients to the largest, and all of its elements together.
    """
    sizes, small = abs(gradient), gradient.size <= SMALL
    elements = np.arange(gradient.size)
    if not small:
        by_size = np.argsort(sizes, axis=None, kind="stable")[(sizes == 0).sum() :]
        if by_size.size > SAMPLED:
            between = np.linspace(SMALLEST, by_size.size - 1, SAMPLED - SMALLEST).astype(int)
            by_size = by_size[[*range(SMALLEST), *between]]
        elements = np.sort(by_size)
    directions = [np.zeros(gradient.shape) for _ in elements]
    for direction, k in zip(directions, elements, strict=True):
        direction.flat[k] = unit
    if small:
        return directions
    # Elements with a small gradient move further, or those with a large one would hide them.
    usual = np.median(sizes[sizes > 0]) if sizes.any() else 1.0
    further = np.clip(usual / np.maximum(sizes, usual / 30), 1 / 30, 30)
    return [*directions, unit * further * _random_signs(rng, gradient.shape)]


def _random_signs(rng, shape):
    """Draw numbers of either sign, none of them tiny, so that no element escapes the check."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


def _comparison(f, x, gradient, unit, eps, rtol, atol, rng):
    """Return a function that compares a gradient with central differences along a direction v.

        dL/dv = (L(x + h v) - L(x - h v)) / 2h

    The error of order h^2 is that of a function that bends; the error of the simpler
    (L(x + h v) - L(x)) / h is of order h. Rounding adds an error of order 1 / h.
    """
    middle = f(x)
    # How far outputs are off by rounding. Each is the result of several operations, and each of
    # these rounds by half of float64's eps: 4 eps, or more if that shows over a tiny distance,
    # where every function is straight. The errors of different outputs are independent, so their
    # sum is about the root of the sum of their squares.
    tiny = 1e-10 * unit * _random_signs(rng, x.shape)
    bend = f(np.asarray(x + tiny)) - 2 * middle + f(np.asarray(x - tiny))
    noise = max(4 * np.finfo(np.float64).eps * np.linalg.norm(middle), np.linalg.norm(bend))

    def compare(v):
        """Return the _Slope along v, from one difference where that settles it.

        Else rounding may hide the slope, or the function bend within h: a larger and a
        smaller h follow, and the slope is right if it agrees with one of the three.
        """
        length, summands = np.linalg.norm(v), gradient * v
        got, scale = summands.sum() / length, np.linalg.norm(summands) / length
        slopes, bends = [], []
        for h in (eps, eps * FACTOR, eps / FACTOR):
            # asarray, because NumPy's sum of arrays without axes is a scalar.
            above, below = f(np.asarray(x + h * v)), f(np.asarray(x - h * v))
            # Subtract first, then sum: outputs that do not change add no rounding error.
            numeric = (above - below).sum() / (2 * h * length)
            rounding = noise / (h * length)
            scale = np.fmax(scale, abs(numeric) - rounding)  # fmax ignores NaN
            right = abs(got - numeric) <= rtol * scale + rounding + atol
            # Where rounding may be as large as a mistake, agreement proves nothing.
            certain = rounding <= NOTICEABLE * scale
            slopes.append(_Slope(got, numeric, rounding, bool(right), bool(certain), False))
            if right and certain:
                return slopes[-1]
            # By how much the slopes on both sides of x differ: less for a smaller h.
            bends.append(abs(((above - middle) - (middle - below)).sum()) / (h * length))
        kink = bends[0] > max(0.5 * bends[1], 10 * slopes[0].rounding)
        # Without a certain one, the largest h suffers least from rounding.
        certain = [slope for slope in slopes if slope.certain] or slopes[1:2]
        return min(certain, key=lambda slope: slope.error)._replace(kink=bool(kink))

    return compare


def _limits(subject, slopes, gradient, eps):
    """Return the limits of a check, for the line "ok"; "" if every element was checked.

    Raises ValueError if the gradient is too small to be checked at all.
    """
    # Rounding hides a slope below its own error at h = 1, however large h is.
    if all(abs(slope.got) <= slope.rounding * eps * FACTOR for slope in slopes):
        return f"zero to within {max(slope.rounding for slope in slopes):.0e}"
    if not any(slope.certain and slope.got for slope in slopes):
        raise ValueError(
            f"{subject} is at most {abs(gradient).max():.1e}, too small compared with the values "
            "of the function for a finite difference to measure, so nothing was checked: remove "
            "the large terms that are added to it, or scale the input up"
        )
    hidden = sum(slope.got != 0 and not slope.certain for slope in slopes)
    notes = [f"{hidden} of {len(slopes)} slopes too small to be checked"] if hidden else []
    if gradient.size > SMALL:
        singles = len(slopes) - 1
        notes.append(f"checked {singles} of {gradient.size:,} elements, and all of them together")
    return ", ".join(notes)


# What is wrong with a gradient --------------------------------------------------------------------


def _mistake(compare, directions, slopes, gradient, weights, others):
    """Return the end of a message: the element with the largest error, and the likely cause.

    weights: those of the outputs. others: the other inputs.
    """
    checked = list(zip(directions, slopes, strict=True))
    if gradient.size > SMALL:
        v = _suspect(compare, checked.pop()[0])
        checked.append((v, compare(v)))
    v, slope = max(checked, key=lambda pair: (not pair[1].right, pair[1].error))
    got, numeric = (np.array([getattr(s, name) for _, s in checked]) for name in ("got", "numeric"))
    if slope.kink:
        cause = ": the function has a kink there, and so no slope; move the input away from it"
    elif not np.isfinite(numeric).all():
        cause = ""
    else:
        cause = _likely_cause(got, numeric, gradient, weights, others)
    where = index_text(np.unravel_index(np.flatnonzero(v)[0], gradient.shape))
    return f"{where} is {slope.got:.9g}, but should be {slope.numeric:.9g}{cause}"


def _suspect(compare, v):
    """Halve a direction, always keeping the half with the larger error; return one element."""
    while (elements := np.flatnonzero(v)).size > 1:
        halves = [np.zeros(v.shape), np.zeros(v.shape)]
        for half, kept in zip(halves, np.array_split(elements, 2), strict=True):
            half.flat[kept] = v.flat[kept]
        v = max(halves, key=lambda half: compare(half).error * np.linalg.norm(half))
    return abs(v)


def _input_name(fn, i):
    """Name an input by its number and, if it can be found, its parameter."""
    with contextlib.suppress(TypeError, ValueError, IndexError):
        parameter = list(inspect.signature(fn).parameters.values())[i]
        if parameter.kind is not parameter.VAR_POSITIONAL:
            return f"input {i} ({parameter.name})"
    return f"input {i}"


def index_text(index):
    """Return " at (1, 2)" for an index; "" for the index of an array without axes."""
    return f" at {tuple(int(k) for k in index)}" if index else ""


def _likely_cause(got, wanted, gradient, gy, others):
    """Recognise frequent mistakes in a gradient; return "" for any other.

    got, wanted: elements of the gradient from backward, and the right ones. gradient: all that came
    from backward. gy: the gradient of the output. others: the other inputs.
    """
    if not got.any():
        return (
            ": it is zero everywhere, as if the gradient did not arrive (was .data used, "
            "or does backward return zeros or nothing?)"
        )
    if _close(got, wanted):  # only some small elements are wrong
        return ""
    # The factor with the smallest squared error; scaled, because squares of tiny numbers are 0.
    scaled = got / abs(got).max()
    factor = float((scaled * wanted).sum() / (scaled * got).sum())
    if _close(got * factor, wanted):
        return (
            f": every element is off by a factor of {factor:.6g} (a factor, a sign, or a mean "
            "instead of a sum?)"
        )
    if got.size < gradient.size:  # the other mistakes show in a whole gradient
        return ""
    got, wanted = gradient, wanted.reshape(gradient.shape)
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and _close(got.swapaxes(-1, -2), wanted):
        return ": it is the transpose of the right one (a product with its factors exchanged?)"
    for other in others:
        made = [text for text, product in _products(gy, other) if _close(product, got)]
        needed = [text for text, product in _products(gy, other) if _close(product, wanted)]
        if made and needed:
            return f": it is {made[0]}, where {needed[0]} is needed (a transposed product)"
    for axis in range(got.ndim):
        off = wanted - got
        along = np.broadcast_to(off.mean(axis, keepdims=True), off.shape)
        if got.shape[axis] > 1 and _close(off, along):
            return (
                f": it is off by the same amount all along axis {axis} (a missing mean or sum "
                "over that axis?)"
            )
    return ""


def _close(a, b):
    """Return whether arrays agree to four digits."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max())


def _products(gy, other):
    """Yield products of the output's gradient, another input, and their transposes, two at a time.

    For y = x w the gradients are gy w^T and x^T gy. A mistake in one of them usually is another of
    these products.
    """
    factors = {"gy": gy, "gy.T": gy.T, "other": other, "other.T": other.T}
    for left, right in itertools.permutations(factors, 2):
        a, b = factors[left], factors[right]
        if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]:
            yield f"{left} @ {right}", a @ b
