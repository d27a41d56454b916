"""Checks that a reader can trust: is this gradient right, are these two programs the same?

How a gradient check can lie: if it looks at the sum of the outputs, then every backward that
forgets what cancels in the sum passes. The outputs of a softmax always sum to 1, so there even
a gradient of zeros passes. `grad_check` therefore weighs the outputs at random, moves the inputs in
a random direction, and works in float64.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from minitf.backend import to_device, to_numpy
from minitf.tensor import ArrayLike, Tensor

__all__ = ["claim", "grad_check", "proved", "same", "show"]

proved = []  # what the checks below have found true, in order: a lesson counts them

SMALL = 400  # inputs of up to so many elements are checked element by element
SAMPLED = 24  # elements of a larger input that are checked one by one
GROUPS = 16  # and the groups that all of its elements are checked in

_EPS = np.finfo(np.float64).eps
# As fractions of the input's size: tried in turn where one step is not conclusive.
_STEPS = 10.0 ** -np.arange(1, 13)


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
    and None are passed on as they are. fn takes Tensors and returns a Tensor, or a tuple whose
    first element counts.
    An element may be wrong by rtol times its own size, plus what rounding hides from a central
    difference, plus atol. step: h as a fraction of the size of the input; where one step leaves a
    doubt, others are tried. Of an input of more than 400 elements some are checked one by one, and
    all of them in groups of about equal gradients, each along a random direction; the line says so.
    That calls fn about 80 times for each large input.
    Returns the largest error. Raises AssertionError that names the input, the element, both numbers
    and, where it can be recognised, the likely cause; ValueError if there is nothing to check:
    none of the arguments is an array of floating-point numbers, or a gradient is too small beside
    the values of fn for any difference to show it.
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
    weights, gradients = _analytic(fn, name, arrays, floats, rng)
    sizes = {i: _size(arrays[i]) for i in floats}
    smallest = min((size for size in sizes.values() if size), default=1.0)  # for an input of zeros
    worst, notes = 0.0, []
    for i in floats:

        def outputs(moved, i=i):
            found = _call(fn, [moved if j == i else array for j, array in enumerate(arrays)])
            return found[0].numpy()

        probe = _Probe(
            outputs, weights, arrays[i], gradients[i], sizes[i] or smallest, (rtol, atol, step)
        )
        others = [arrays[j] for j in floats if j != i]
        error, note = _check_input(probe, f"{name}: the gradient of {_label(fn, i)}", rng, others)
        worst = max(worst, error)
        notes += [f"{_label(fn, i)}: {note}"] if note else []
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
    """Assert that two results are equal up to rounding, and print one line with the
    largest difference.

    a, b: Tensors, arrays or numbers of one shape; NaN equals NaN, and infinity only itself. Returns
    the largest difference. Raises AssertionError that says where they differ most. float32 results
    need a larger rtol.
    """
    a, b = (to_numpy(x.data if isinstance(x, Tensor) else x) for x in (a, b))
    if a.shape != b.shape:
        raise AssertionError(f"{name}: the shapes differ, {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, abs(a - b * 1.0))
    wrong = (error != 0) & ~(np.isfinite(error) & (error <= atol + rtol * abs(b)))
    if wrong.any():
        at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        where = f" at {tuple(int(k) for k in at)}" if a.ndim else ""
        raise AssertionError(
            f"{name}: {a[at]:.9g} and {b[at]:.9g}{where} differ ({int(wrong.sum())} of {a.size})"
        )
    worst = float(error.max(initial=0))
    if verbose:
        _report(name, f"max error {worst:.1e}")
    return worst


def claim(text: str, truth: bool | np.bool, measured: object) -> None:
    """Assert what is no equality of arrays, and print one line with what was measured.

    >>> claim("a softmax over 3 equal scores gives thirds", abs(1 / 3 - 0.3333) < 1e-3, "0.3333")
    ok  a softmax over 3 equal scores gives thirds                   0.3333

    measured: the number that speaks for it, as text or as a number. Raises AssertionError if
    `truth` is false.
    """
    measured = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    if not truth:
        raise AssertionError(f"{text}: this is not so, measured {measured}")
    _report(text, measured)


def show(thing: Callable) -> None:
    """Print the source of a function or class of the library, as it stands."""
    print(inspect.getsource(thing))


def _report(name, found):
    proved.append(name)
    print(f"ok  {name:60s} {found}")


# Parts of grad_check ------------------------------------------------------------------------------


def _is_float(array):
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _size(array):
    """The mean size of the finite elements: a mask may hold -infinity."""
    finite = array[np.isfinite(array)]
    return float(abs(finite).mean()) if finite.size else 0.0


def _as_float64(array):
    if isinstance(array, Tensor):
        array = array.numpy()
    array = to_numpy(array) if hasattr(array, "dtype") else array
    return array.astype(np.float64) if _is_float(array) else array


def _away_from_zero(rng, shape):
    """Random numbers of either sign, none of them tiny, so that no element escapes the check."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


def _call(fn, values):
    """Run fn on fresh Tensors; returns (result, the Tensors)."""
    inputs = [Tensor(value.copy()) if _is_float(value) else value for value in values]
    out = fn(*inputs)
    return (out[0] if isinstance(out, tuple) else out), inputs


def _analytic(fn, name, arrays, floats, rng):
    """Draw the weights of the outputs, and let fn's own backward give the gradients; look
    for side effects.
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
    for i in floats:
        if not np.array_equal(inputs[i].numpy(), arrays[i]):
            raise AssertionError(f"{name} changed its {_label(fn, i)}")
    gradients = {
        i: np.zeros_like(arrays[i]) if inputs[i].grad is None else to_numpy(inputs[i].grad)
        for i in floats
    }
    for i, gradient in gradients.items():
        if odd := gradient.size - int(np.isfinite(gradient).sum()):
            raise AssertionError(
                f"{name}: the gradient of {_label(fn, i)} is not finite ({odd} of {gradient.size})"
            )
    return weights, gradients


class _Slope:
    """What the gradient says about one direction, what central differences say, and how far
    these may be off.
    """

    def __init__(self, parts, numeric, doubt, rtol, atol):
        size = _norm(parts)
        self.got, self.numeric, self.doubt = float(parts.sum()), numeric, doubt
        self.error = abs(self.got - numeric)
        self.right = self.error <= rtol * size + doubt + atol  # so that NaN is wrong
        # An error of a hundredth would have been noticed.
        self.seen = doubt <= 0.01 * max(size, abs(numeric))
        self.settled = self.right and (self.seen or size == 0)


class _Probe:
    """The function of one input, to be moved along any direction: its gradient against
    central differences.
    """

    def __init__(self, outputs, weights, x, gradient, size, tolerance):
        self.outputs, self.weights, self.x, self.gradient, self.size = (
            outputs,
            weights,
            x,
            gradient,
            size,
        )
        self.rtol, self.atol, self.step = tolerance
        # The size of a slope where the function changes as fast as its input.
        natural = _norm(weights * outputs(x)) / size
        self.zero = 16 * _EPS * natural  # rounding alone gives a gradient of up to this

    def element(self, at):
        """Compare one element, by its number."""
        return self.along(np.array([at]), np.ones(1))

    def along(self, chosen, direction, careful=False):
        """Compare along a direction that moves only the chosen elements, which are given by
        their numbers.
        """
        v = np.zeros(self.x.size)
        v[chosen] = direction / max(_norm(direction), 1e-300)
        v = v.reshape(self.x.shape)
        parts = self.gradient * v

        def slope(steps):
            lengths = steps * self.size * len(chosen) ** 0.5
            # asarray: NumPy's sum of arrays without axes is a scalar
            numeric, doubt = _differentiate(
                lambda t: self.outputs(np.asarray(self.x + t * v)), self.weights, lengths
            )
            return _Slope(parts, numeric, doubt + self.zero, self.rtol, self.atol)

        if not careful and (found := slope(np.array([self.step]))).settled:
            return found
        found = slope(_STEPS[:7])
        # Numbers of very different sizes, or a function whose domain ends nearby.
        return found if found.right else slope(_STEPS)


def _differentiate(outputs, weights, steps):
    """Return the slope of sum(weights * outputs(t)) at t = 0, and how far it may be off.

    Outputs are subtracted before they are added up, so that those that do not move bring no
    rounding errors. Each step is a tenth of the one before. Of several, the one whose slope
    differs least from its neighbours' counts: at longer steps the curve bends away, at shorter ones
    rounding errors grow.
    """
    slopes, moved = [], False
    for t in steps:
        up, down = outputs(t), outputs(-t)
        slopes.append(float((weights * (up - down)).sum() / (2 * t)))
        moved = moved | (up != down)
    rounding = 4 * _EPS * _norm((weights * up)[moved]) / steps
    if len(steps) == 1:
        return slopes[0], float(rounding[0])
    apart = abs(np.diff(slopes))
    # The finest steps show best how large rounding errors are; they fall as steps grow. A slope
    # that agrees by chance is not trusted.
    noise = np.maximum.accumulate((apart * steps[1:])[::-1])[::-1] / steps[1:]
    doubts = 4 * np.maximum(apart[:-1], noise[1:]) + rounding[1:-1]
    best = int(np.argmin(np.where(np.isnan(doubts), np.inf, doubts)))
    return slopes[1 + best], float(doubts[best])


def _norm(array):
    """The Euclidean length, also of numbers whose squares are too large or too
    small for float64.
    """
    largest = float(abs(array).max(initial=0))
    return largest * float(np.sqrt(((array / largest) ** 2).sum())) if largest > 0 else largest


def _check_input(probe, subject, rng, others):
    """Check the gradient of one input; returns (largest error, a note on what was not checked
    element by element).
    """
    gradient, n = probe.gradient.ravel(), probe.x.size
    by_size = np.argsort(abs(gradient), kind="stable")
    small = n <= SMALL
    elements = np.arange(n) if small else _sample(by_size, rng)
    slopes = [probe.element(at) for at in elements]
    if not all(slope.right for slope in slopes):
        _report_element(probe, subject, elements, slopes, others)
    zeros = int((gradient == 0).sum())
    # Each is seen as well as its own size allows.
    groups = np.array_split(by_size[zeros:], 1 if small else GROUPS)
    for chosen in [group for group in (by_size[:zeros], *groups) if group.size]:
        direction = _away_from_zero(rng, chosen.size)
        slope = probe.along(chosen, direction, careful=not gradient[chosen].any())
        if not slope.right:
            _report_group(probe, subject, chosen, direction, slope)
        slopes.append(slope)
    largest = float(abs(gradient).max())
    if largest > probe.zero and not any(slope.seen and slope.got for slope in slopes):
        raise ValueError(
            f"{subject} is at most {largest:.1e}, too small beside the values of the function "
            "for a difference to show it, so nothing was checked: leave out what is added to it, "
            "or make it larger"
        )
    return max(slope.error for slope in slopes), _note(probe, elements, slopes, largest)


def _sample(by_size, rng):
    """Choose elements of a large input: both ends, the smallest and the largest gradients, and
    others at random.
    """
    n = by_size.size
    chosen = {0, n - 1, *by_size[:4].tolist(), *by_size[-4:].tolist()}
    while len(chosen) < SAMPLED:
        chosen.add(int(rng.integers(n)))
    return np.array(sorted(chosen))


def _note(probe, elements, slopes, largest):
    """Say what the line "ok" does not cover; nothing where every element was checked."""
    hidden = sum(slope.got != 0 and not slope.seen for slope in slopes)
    if largest <= probe.zero:
        return f"zero to within {max(slope.doubt for slope in slopes):.0e}"
    notes = [f"{hidden} of {len(slopes)} slopes too small to be checked"] if hidden else []
    if probe.x.size > elements.size:
        notes.append(
            f"checked {elements.size} of {probe.x.size:,} elements, and all of them in "
            f"{GROUPS} groups"
        )
    return ", ".join(notes)


def _report_element(probe, subject, elements, slopes, others):
    """Raise AssertionError for the element with the largest error, with the likely cause."""
    errors = np.array(
        [np.nan_to_num(slope.error, nan=np.inf) if not slope.right else -1 for slope in slopes]
    )
    worst = int(np.argmax(errors))
    numeric = np.array([slope.numeric for slope in slopes])
    if not np.isfinite(numeric).all():
        cause = ""
    elif elements.size == probe.x.size:
        cause = _likely_cause(probe.gradient, numeric.reshape(probe.x.shape), probe.weights, others)
    else:
        cause = _cause_alike(probe.gradient.ravel()[elements], numeric)
    raise AssertionError(_difference(probe, subject, elements[worst], slopes[worst]) + cause)


def _difference(probe, subject, at, slope):
    where = (
        f" at {tuple(int(k) for k in np.unravel_index(at, probe.x.shape))}" if probe.x.ndim else ""
    )
    return f"{subject}{where} is {slope.got:.9g}, but should be {slope.numeric:.9g}"


def _report_group(probe, subject, chosen, direction, slope):
    """Raise AssertionError for a group of elements; where one of them is to blame, halving the
    group finds it.
    """
    text = (
        f"{subject}, along a random direction through {chosen.size:,} elements, "
        f"is {slope.got:.9g}, but the function changes by {slope.numeric:.9g}"
    )
    while chosen.size > 1:
        half = chosen.size // 2
        halves = [(chosen[:half], direction[:half]), (chosen[half:], direction[half:])]
        errors = [probe.along(*side).error * _norm(side[1]) for side in halves]
        chosen, direction = halves[int(errors[1] > errors[0])]
    slope = probe.element(chosen[0])
    raise AssertionError(text if slope.right else _difference(probe, subject, chosen[0], slope))


def _label(fn, i):
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL
    return f"input {i} ({parameters[i].name})" if named else f"input {i}"


def _likely_cause(got, wanted, gy, others):
    """Recognise the mistakes that are made most often; an empty string where none fits."""
    if not got.any():
        return _cause_alike(got, wanted)
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and _close(got.swapaxes(-1, -2), wanted):
        return ": it is the transpose of the right one (a product with its factors exchanged?)"
    products = {text: value for other in others for text, value in _products(gy, other)}
    right = [text for text, value in products.items() if _close(value, wanted)]
    made = [text for text, value in products.items() if _close(value, got)]
    if right and made:
        return f": it is {made[0]}, where {right[0]} is needed (a transposed product)"
    if cause := _cause_alike(got, wanted):
        return cause
    for axis in range(got.ndim):
        difference = wanted - got
        if got.shape[axis] > 1 and _close(
            difference, np.broadcast_to(difference.mean(axis, keepdims=True), got.shape)
        ):
            return (
                f": it is off by the same amount all along axis {axis} (a missing mean or sum "
                "over that axis?)"
            )
    return ""


def _cause_alike(got, wanted):
    """Recognise a mistake that every element shares; an empty string where there is none."""
    if not got.any():
        return (
            ": it is zero everywhere, as if the gradient did not arrive (the result of .data, "
            "or an empty backward?)"
        )
    if _close(got, wanted):  # all of it but some small elements
        return ""
    scale = abs(got).max()
    factor = float((got / scale * wanted).sum() / scale / ((got / scale) ** 2).sum())
    if _close(got * factor, wanted):
        return (
            f": all of it is off by the factor {factor:.6g} (a factor, a sign, or a mean in "
            "place of a sum?)"
        )
    return ""


def _close(a, b):
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max())


def _products(gy, other):
    """All products of the output's gradient with the other factor, each as it is or transposed."""
    if gy.ndim != 2 or other.ndim != 2:
        return
    for a, name_a in ((gy, "gy"), (gy.T, "gy.T")):
        for b, name_b in ((other, "other"), (other.T, "other.T")):
            for x, y, text in ((a, b, f"{name_a} @ {name_b}"), (b, a, f"{name_b} @ {name_a}")):
                if x.shape[1] == y.shape[0]:
                    yield text, x @ y
