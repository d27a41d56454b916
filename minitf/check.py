"""Checks that a reader can trust: is this gradient right, do these two programs agree?

A gradient is checked by its definition: move one element of the input a little, and see how much
the result changes (`_central_differences`).

The result must be one number. The sum of the outputs would not do: the outputs of a softmax always
sum to 1, so even a gradient of zeros would pass. `grad_check` gives each output a random weight.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable

import numpy as np

from minitf.backend import to_device, to_numpy
from minitf.differences import (
    NOTICEABLE,
    Examination,
    index_text,
    label_of,
    random_signs,
    rounding_error,
    units_of,
)
from minitf.tensor import ArrayLike, Tensor

__all__ = ["claim", "grad_check", "proved", "same", "show", "source_of"]

proved = []  # the names of the checks that passed and said so, in order: a lesson counts them

COLUMNS = 80  # of a line; 22 of them are for "ok" and "max error 1.2e-16"
SMALL = 400  # elements; each costs two calls of the function, so larger inputs are sampled


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

        L(x) = sum_i c_i fn(x)_i                      with random weights c
        dL/dx_k = (L(x + h e_k) - L(x - h e_k)) / 2h  for every element k

    arrays: the arguments. Floating-point arrays are checked, in float64; integers, masks, lists,
    Python numbers and None are passed on unchanged. fn takes Tensors and returns a Tensor, or a
    tuple whose first element is checked. At a kink, as that of relu at 0, there is no slope, and
    the check fails: move the element away from it.
    step: h as a fraction of the mean size of the input's elements. rtol, atol: an element may be
    wrong by rtol times its own size, plus the rounding error of the difference, plus atol.
    If some elements seem wrong, or too small to tell, `minitf.differences` tries other steps before
    it decides. If an input has more than 400 elements, it checks 24 with a nonzero gradient one by
    one, and all of them in 16 groups of about equal gradients, each along a random direction; the
    line says so. That calls fn about 80 times for each large input.
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
            f"{name}: nothing to check: give at least one array of floating-point numbers"
        )
    weights, gradients = _backward(fn, name, arrays, floats, rng)
    units = units_of([arrays[i] for i in floats])
    worst, notes = 0.0, []
    for i, unit in zip(floats, units, strict=True):
        f, x, gradient = _with_input(fn, arrays, i), arrays[i], gradients[i]
        small, note = x.size <= SMALL, ""
        error = _largest_error(f, x, weights, gradient, step * unit, rtol, atol) if small else None
        if error is None:
            label, others = label_of(fn, i), [arrays[j] for j in floats if j != i]
            examination = Examination(
                name, label, f, x, weights, gradient, unit, others, small, rtol, atol, step, rng
            )
            error, note = examination.run()
        worst = max(worst, error)
        notes += [note] if note else []
    if verbose:
        _report(f"{name} gradient", "; ".join([f"max error {worst:.1e}", *notes]), worst)
    return worst


def _largest_error(f, x, weights, gradient, h, rtol, atol):
    """Return the largest error of a gradient; None if an element seems wrong or too small to tell.

    f: returns the outputs for x, as an array. weights: of the outputs.
    """
    error = abs(gradient - _central_differences(f, x, weights, h))
    # How far a difference may be off because f rounds its outputs.
    rounding = rounding_error(weights * f(x)) / h
    right = error <= rtol * abs(gradient) + rounding + atol
    # Where rounding may be as large as a mistake, agreement proves nothing.
    certain = rounding <= NOTICEABLE * abs(gradient)
    return float(error.max()) if (right & certain).all() else None


def _central_differences(f, x, weights, h):
    """Return the gradient of L = sum(weights * f(x)), computed from values of f alone.

        dL/dx_k = (L(x + h e_k) - L(x - h e_k)) / 2h        e_k: 1 at element k, else 0

    The error is of order h^2, while that of the simpler (L(x + h e_k) - L(x)) / h is of order h.
    """
    gradient = np.empty_like(x)
    for k in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[k] += h
        below[k] -= h
        # Subtract first, then sum: outputs that do not change add no rounding error.
        gradient[k] = (weights * (f(above) - f(below))).sum() / (2 * h)
    return gradient


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
        at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        raise AssertionError(
            f"{name}: found {a[at]:.9g}, expected {b[at]:.9g}{index_text(at)} "
            f"({int(wrong.sum())} of {a.size} differ)"
        )
    worst = float(error.max(initial=0))
    if verbose:
        _report(name, f"max error {worst:.1e}", worst)
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


def show(thing: Callable) -> None:
    """Print the source of a function or class of the library, as `source_of` returns it."""
    print(source_of(thing))


def source_of(thing: Callable) -> str:
    """Return the source of a function or class in lines of 80 columns; a message may be longer.

    Of each docstring only the first sentence is there: what follows it, a lesson has derived. The
    comment beside a long line stands above it.
    """
    source = textwrap.dedent(inspect.getsource(thing))
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            text = node.body[0]
            sentence = ast.get_docstring(node).partition("\n")[0]
            lines[text.lineno - 1] = " " * text.col_offset + f'"""{sentence}"""'
            lines[text.lineno : text.end_lineno] = [None] * (text.end_lineno - text.lineno)
    return "\n".join(each for line in lines if line is not None for each in _in_columns(line))


def _in_columns(line):
    """Return a line of Python as lines of at most 80 columns, where that can be done."""
    if len(line) <= COLUMNS:
        return [line]
    code, mark, comment = line.partition("  # ")
    indent = " " * (len(line) - len(line.lstrip()))
    if mark:
        above = textwrap.wrap(
            comment, COLUMNS, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
        return [*above, *_in_columns(code)]
    if code.strip().startswith('"""'):
        return textwrap.wrap(
            code.strip(),
            COLUMNS,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
    # Break in the outermost brackets, after a comma if there is one, as far right as it fits.
    without_strings = re.sub('"[^"]*"', lambda text: "_" * len(text[0]), code)
    depth, places = 0, []
    for at, sign in enumerate(without_strings[:COLUMNS], 1):
        depth += (sign in "([{") - (sign in ")]}")
        if depth and sign in ",([{":
            places.append((-depth, sign == ",", at))
    if not places:
        return [line]
    _, comma, at = max(places)
    deeper = indent + " " * (8 if comma else 4)
    return [code[:at], *_in_columns(deeper + code[at:].lstrip())]


def _report(name, found, error=0.0):
    """Note and print what was proved. error: the largest one that was measured, if any was."""
    proved.append(name)
    print(ok_line(name, found))


def ok_line(name, found):
    """Return the line of a check that passed; what does not fit into 80 columns stands below it."""
    line = f"ok  {name:{COLUMNS - 22}s} {found}"
    if len(line) <= COLUMNS and "\n" not in line:
        return line
    indent = " " * 8
    below = textwrap.fill(
        " ".join(found.split()), COLUMNS, initial_indent=indent, subsequent_indent=indent
    )
    return f"ok  {name}\n{below}"


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
    weights = random_signs(rng, out.shape)
    start = to_device(weights.copy())
    try:
        out.backward(start)
    except ValueError as error:
        raise AssertionError(f"{name}: {error}") from error
    if not np.array_equal(to_numpy(start), weights):
        raise AssertionError(f"{name}: backward changed the gradient that it was given")
    gradients = {}
    for i in floats:
        label, found = label_of(fn, i), inputs[i].grad
        if not np.array_equal(inputs[i].numpy(), arrays[i]):
            raise AssertionError(f"{name} changed its {label}")
        gradients[i] = np.zeros_like(arrays[i]) if found is None else to_numpy(found)
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


def _with_input(fn, arrays, i):
    """Return fn as a function of its input i alone, from array to array."""
    return lambda x: _call(fn, [*arrays[:i], x, *arrays[i + 1 :]])[0].numpy()


def _is_float(array):
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _as_float64(array):
    if isinstance(array, Tensor):
        array = array.numpy()
    array = to_numpy(array) if hasattr(array, "dtype") else array
    return array.astype(np.float64) if _is_float(array) else array
