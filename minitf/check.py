"""Checks that a reader can trust: is this gradient right, are these two programs the same?

How a gradient check can lie: if it looks at the sum of the outputs, then every backward that forgets what
cancels in the sum passes. The outputs of a softmax always sum to 1, so there even a gradient of zeros passes.
`grad_check` therefore weighs the outputs at random, moves the inputs in a random direction, and works in float64.
"""

import inspect

import numpy as np

from minitf.backend import to_device, to_numpy
from minitf.tensor import Tensor

__all__ = ["claim", "grad_check", "proved", "same", "show"]

proved = []  # what the checks below have found true, in order: a lesson counts them

SMALL = 400  # inputs of up to so many elements are checked element by element


def grad_check(fn, *arrays, name=None, rtol=1e-6, atol=1e-8, step=1e-5, seed=0, verbose=True):
    """Compare the gradients of fn with central differences, and print one line if they agree.

        L(x) = sum_i c_i fn(x)_i                          with random weights c
        (L(x + h v) - L(x - h v)) / 2h  =  dL/dx . v      for a random direction v, and for every single element

    arrays: the arguments. Floating-point arrays are checked, in float64; integers, masks, numbers and None are
    passed on as they are. fn takes Tensors and returns a Tensor, or a tuple whose first element counts.
    Returns the largest error. Raises AssertionError that names the input, the element, both numbers and, where it
    can be recognised, the likely cause; ValueError if none of the arguments is an array of floating-point numbers.
    Source: the random weights and directions follow Chainer's check_backward and HIPS/autograd's check_vjp.
    """
    name = name or getattr(fn, "__name__", type(fn).__name__)
    rng = np.random.default_rng(seed)
    arrays = [_as_float64(array) for array in arrays]
    floats = [i for i, array in enumerate(arrays) if _is_float(array)]
    if not floats:
        raise ValueError(f"{name}: nothing to check, give it at least one array of floating-point numbers")
    weights, gradients = _analytic(fn, name, arrays, floats, rng)

    def loss(i, moved):
        values = [moved if j == i else array for j, array in enumerate(arrays)]
        return float((_call(fn, values)[0].numpy() * weights).sum())

    worst = 0.0
    for i in floats:
        label = _label(fn, i)
        x, gradient = arrays[i], gradients[i]
        direction = _away_from_zero(rng, x.shape)
        direction /= max(np.sqrt((direction**2).sum()), 1e-300)
        along = (loss(i, x + step * direction) - loss(i, x - step * direction)) / (2 * step)
        numeric = _every_element(lambda moved, i=i: loss(i, moved), x, step) if x.size <= SMALL else None
        if numeric is not None:
            error = abs(gradient - numeric)
            wrong = ~(error <= atol + rtol * np.maximum(abs(numeric), abs(gradient)))  # so that NaN is wrong
            if wrong.any():
                at = np.unravel_index(np.argmax(np.where(wrong, error, -1)), x.shape)  # NaN first
                where = f" at {tuple(int(k) for k in at)}" if x.ndim else ""
                raise AssertionError(
                    f"{name}: the gradient of {label}{where} is {gradient[at]:.9g}, but should be {numeric[at]:.9g}"
                    f"{_likely_cause(gradient, numeric, weights, [arrays[j] for j in floats if j != i])}"
                )
            worst = max(worst, float(error.max(initial=0)))
        got = float((gradient * direction).sum())
        if not abs(got - along) <= atol + rtol * max(abs(along), abs(got), 1.0):
            raise AssertionError(
                f"{name}: along a random direction the gradient of {label} gives {got:.9g}, but the function "
                f"changes by {along:.9g}"
            )
        worst = max(worst, abs(got - along))
    if verbose:
        _report(f"{name} gradient", f"max error {worst:.1e}")
    return worst


def same(name, a, b, rtol=1e-7, atol=1e-9, verbose=True):
    """Assert that two results are equal up to rounding, and print one line with the largest difference.

    a, b: Tensors, arrays or numbers of one shape; NaN equals NaN, and infinity only itself. Returns the largest
    difference. Raises AssertionError that says where they differ most. float32 results need a larger rtol.
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
        raise AssertionError(f"{name}: {a[at]:.9g} and {b[at]:.9g}{where} differ ({int(wrong.sum())} of {a.size})")
    worst = float(error.max(initial=0))
    if verbose:
        _report(name, f"max error {worst:.1e}")
    return worst


def claim(text, truth, measured):
    """Assert what is no equality of arrays, and print one line with what was measured.

    >>> claim("a softmax over 3 equal scores gives thirds", abs(1 / 3 - 0.3333) < 1e-3, "0.3333")
    ok  a softmax over 3 equal scores gives thirds                   0.3333

    measured: the number that speaks for it, as text or as a number. Raises AssertionError if `truth` is false.
    """
    measured = f"{measured:.4g}" if isinstance(measured, float) else str(measured)
    if not truth:
        raise AssertionError(f"{text}: this is not so, measured {measured}")
    _report(text, measured)


def show(thing):
    """Print the source of a function or class of the library, as it stands."""
    print(inspect.getsource(thing))


def _report(name, found):
    proved.append(name)
    print(f"ok  {name:60s} {found}")


# Parts of grad_check ---------------------------------------------------------------------------------------


def _is_float(array):
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


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
    """Draw the weights of the outputs, and let fn's own backward give the gradients; look for side effects."""
    out, inputs = _call(fn, arrays)
    if not isinstance(out, Tensor):
        raise AssertionError(f"{name} returned {type(out).__name__}, not a Tensor")
    if not np.array_equal(out.numpy(), _call(fn, arrays)[0].numpy(), equal_nan=True):
        raise AssertionError(f"{name} gives another result when called again: fix its randomness with a seed")
    weights = _away_from_zero(rng, out.shape)
    start = to_device(weights.copy())
    try:
        out.backward(start)
    except ValueError as error:
        raise AssertionError(f"{name}: {error} (is a sum over the broadcast axes missing?)") from error
    if not np.array_equal(to_numpy(start), weights):
        raise AssertionError(f"{name}: backward changed the gradient that it was given")
    for i in floats:
        if not np.array_equal(inputs[i].numpy(), arrays[i]):
            raise AssertionError(f"{name} changed its {_label(fn, i)}")
    gradients = {i: np.zeros_like(arrays[i]) if inputs[i].grad is None else to_numpy(inputs[i].grad) for i in floats}
    for i, gradient in gradients.items():
        if odd := gradient.size - int(np.isfinite(gradient).sum()):
            raise AssertionError(f"{name}: the gradient of {_label(fn, i)} is not finite ({odd} of {gradient.size})")
    return weights, gradients


def _every_element(loss, x, step):
    """Central differences for each element of x."""
    numeric = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += step
        down[at] -= step
        numeric[at] = (loss(up) - loss(down)) / (2 * step)
    return numeric


def _label(fn, i):
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL
    return f"input {i} ({parameters[i].name})" if named else f"input {i}"


def _likely_cause(got, wanted, gy, others):
    """Recognise the mistakes that are made most often; an empty string where none fits."""

    def close(a, b):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-7 + 1e-4 * abs(b).max())

    if not got.any():
        return ": it is zero everywhere, as if the gradient did not arrive (the result of .data, or an empty backward?)"
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and close(got.swapaxes(-1, -2), wanted):
        return ": it is the transpose of the right one (a product with its factors exchanged?)"
    products = {text: value for other in others for text, value in _products(gy, other)}
    right = [text for text, value in products.items() if close(value, wanted)]
    made = [text for text, value in products.items() if close(value, got)]
    if right and made:
        return f": it is {made[0]}, where {right[0]} is needed (a transposed product)"
    factor = float((got * wanted).sum() / max((got * got).sum(), 1e-300))
    if close(got * factor, wanted):
        return f": all of it is off by the factor {factor:.6g} (a factor, a sign, or a mean in place of a sum?)"
    for axis in range(got.ndim):
        difference = wanted - got
        if got.shape[axis] > 1 and close(difference, np.broadcast_to(difference.mean(axis, keepdims=True), got.shape)):
            return f": it is off by the same amount all along axis {axis} (a missing mean or sum over that axis?)"
    return ""


def _products(gy, other):
    """All products of the output's gradient with the other factor, each as it is or transposed."""
    if gy.ndim != 2 or other.ndim != 2:
        return
    for a, name_a in ((gy, "gy"), (gy.T, "gy.T")):
        for b, name_b in ((other, "other"), (other.T, "other.T")):
            for x, y, text in ((a, b, f"{name_a} @ {name_b}"), (b, a, f"{name_b} @ {name_a}")):
                if x.shape[1] == y.shape[0]:
                    yield text, x @ y
