"""How far a central difference can be trusted, and what went wrong; for a second reading.

`grad_check` compares a small input element by element, with one step h. This file decides where
that is not enough:

- An element seems wrong, or is too small to tell. The error of a central difference has two causes:
  the curve bends within the step (order h^2), and outputs are rounded (order 1 / h). A ladder of
  steps shows which step is between the two.
- The input is large. Single elements are sampled, and all are compared along random directions.
- The gradient is wrong. The element and the likely cause are found for the message.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable

import numpy as np

__all__ = []

SAMPLED = 24  # elements of a large input that are checked one by one
EXTREMES = 4  # of these: so many have the smallest gradients, so many the largest
# Groups that cover all elements of a large input. A mistake in one element is noticed if it is
# larger than rtol times the length of the group's gradient, so a group's gradients should be alike:
# 16 groups by size, of which each contains a sixteenth of the elements.
GROUPS = 16

# The ladder of steps, as fractions of the input's size, each a tenth of the one before. A number
# has 16 digits; at a step of 1e-7, rounding leaves 9 digits of the slope.
STEPS = 10.0 ** -np.arange(1, 8)
# Down to 4 digits of the slope, for functions that need a short step: those of elements much
# smaller than the others, or close to the end of their domain.
FINER_STEPS = 10.0 ** -np.arange(1, 13)

# Mistakes in a formula (a factor, a sign, a missing term) change a gradient by far more than 1%.
# A comparison whose own error may be larger than that might not notice them: it proves nothing.
NOTICEABLE = 0.01


def rounding_error(values):
    """Return the possible rounding error of a central difference, times its step h.

    values: the outputs times their weights.
    An output is the result of several operations, each of which is rounded by eps / 2 of its size.
    For all of them 4 eps are assumed, which is enough for every op of this library. The difference
    of two outputs is off by 8 eps, and divided by 2h. The errors of different outputs are
    independent, so their sum is about the root of the sum of their squares.
    """
    return 4 * np.finfo(np.float64).eps * np.linalg.norm(values)


def units_of(inputs):
    """Return for each input the unit of its step h: the mean size of its finite elements.

    Only finite elements count, because a mask may contain -infinity. An input of zeros, such as a
    new bias, has the smallest unit of the others: beside inputs of 1e-12, a step of 1e-5 would be
    far too long.
    """
    finite = [abs(x[np.isfinite(x)]) for x in inputs]
    means = [float(sizes.mean()) if sizes.size else 0.0 for sizes in finite]
    smallest = min((mean for mean in means if mean), default=1.0)
    return [mean or smallest for mean in means]


def random_signs(rng, shape):
    """Draw numbers of either sign, none of them tiny, so that no element escapes the check."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


@dataclasses.dataclass
class Slope:
    """The slope along one direction: from backward, and from central differences."""

    got: float
    numeric: float
    size: float  # the Euclidean norm of the summands of `got`, of which some may cancel
    doubt: float  # the possible error of `numeric`
    allowed: float

    def __post_init__(self):
        self.error = abs(self.got - self.numeric)
        self.right = self.error <= self.allowed  # False for NaN
        self.certain = self.doubt <= NOTICEABLE * max(self.size, abs(self.numeric))


@dataclasses.dataclass
class Examination:
    """The closer comparison of one input's gradient with central differences: see `run`."""

    name: str  # of the function
    label: str  # of the input
    f: Callable  # returns the outputs for this input
    x: np.ndarray  # the input
    weights: np.ndarray  # of the outputs
    gradient: np.ndarray  # from backward
    unit: float  # of steps: the mean size of x
    others: list  # the other inputs
    small: bool  # whether every element is checked by itself
    rtol: float  # as in grad_check, like atol and step
    atol: float
    step: float
    rng: np.random.Generator

    def __post_init__(self):
        self.subject = f"{self.name}: the gradient of {self.label}"  # of messages
        # Rounding alone gives such slopes: over a step as long as the input itself, a smaller slope
        # changes the outputs by less than their rounding errors.
        self.floor = rounding_error(self.weights * self.f(self.x)) / self.unit

    def run(self):
        """Return (the largest error, a note for the line "ok").

        Single elements come first, then groups that cover all elements. Elements whose gradient is
        zero are one group; the others are grouped by the size of their gradients, so that large
        ones do not hide small ones.
        Raises AssertionError if the gradient is wrong, ValueError if it is too small to tell.
        """
        gradient = abs(self.gradient.ravel())
        by_size = np.argsort(gradient, kind="stable")
        zeros, others = np.split(by_size, [int((gradient == 0).sum())])
        singles = others if self.small else _sample(others, self.rng)
        groups = [zeros, *np.array_split(others, 1 if self.small else GROUPS)]
        slopes = []
        for elements in [*singles[:, None], *groups]:
            if elements.size:
                slopes.append(self.compare(elements))
                if not slopes[-1].right:
                    self.reject(elements, slopes[-1], singles)
        return max(slope.error for slope in slopes), self.note(slopes)

    def compare(self, elements):
        """Compare the slopes along a random direction that moves these elements only."""
        v = np.zeros(self.x.size)
        v[elements] = random_signs(self.rng, elements.size) if elements.size > 1 else 1.0
        v = (v / np.linalg.norm(v)).reshape(self.x.shape)
        summands = self.gradient * v
        got, size = float(summands.sum()), float(np.linalg.norm(summands))

        def slope(steps):
            # v has length 1, so each element moves by about 1 / sqrt(elements): undo that.
            lengths = steps * self.unit * elements.size**0.5
            numeric, doubt = self.central_difference(v, lengths)
            doubt += self.floor
            return Slope(got, numeric, size, doubt, self.rtol * size + doubt + self.atol)

        if size and (found := slope(np.array([self.step]))).right and found.certain:
            return found
        found = slope(STEPS)
        # Elements of very different sizes, or a function whose domain ends nearby.
        return found if found.right else slope(FINER_STEPS)

    def central_difference(self, v, steps):
        """Return the slope of sum(weights * outputs) along v, and its possible error.

        Outputs are subtracted before they are summed, so that those that do not change add no
        rounding error. Of several steps, the one with the smallest possible error counts.
        """
        slopes, changed = [], False
        for h in steps:
            # asarray, because NumPy's sum of arrays without axes is a scalar
            above = self.f(np.asarray(self.x + h * v))
            below = self.f(np.asarray(self.x - h * v))
            slopes.append(float((self.weights * (above - below)).sum() / (2 * h)))
            changed = changed | (above != below)
        rounding = rounding_error((self.weights * above)[changed]) / steps
        if len(steps) == 1:
            return slopes[0], float(rounding[0])
        doubts = rounding + _possible_errors(np.array(slopes), steps)
        best = int(np.argmin(np.where(np.isnan(doubts), np.inf, doubts)))
        return slopes[best], float(doubts[best])

    def note(self, slopes):
        """Return the limits of this check, for the line "ok"; "" if every element was checked.

        Raises ValueError if the gradient is too small to be checked at all.
        """
        largest = float(abs(self.gradient).max())
        if largest <= self.floor:
            return f"{self.label}: zero to within {max(slope.doubt for slope in slopes):.0e}"
        if not any(slope.certain and slope.got for slope in slopes):
            raise ValueError(
                f"{self.subject} is at most {largest:.1e}, too small compared with the values of "
                "the function for a finite difference to measure, so nothing was checked: remove "
                "the large terms that are added to it, or scale the input up"
            )
        hidden = sum(slope.got != 0 and not slope.certain for slope in slopes)
        notes = [f"{hidden} of {len(slopes)} slopes too small to be checked"] if hidden else []
        if not self.small:
            singles = min(SAMPLED, np.count_nonzero(self.gradient))
            notes.append(
                f"checked {singles} of {self.x.size:,} elements, and all of them in {GROUPS} groups"
            )
        return f"{self.label}: {', '.join(notes)}" if notes else ""

    def reject(self, group, slope, singles):
        """Raise AssertionError for the element with the largest error, with the likely cause."""
        suspects = range(self.x.size) if self.small else {*singles, self.suspect(group)}
        slopes = {at: self.compare(np.array([at])) for at in suspects}
        wrong = [at for at in slopes if not slopes[at].right]
        if not wrong:  # each error is within its tolerance, their sum is not
            raise AssertionError(
                f"{self.subject}, along a random direction through {group.size:,} elements, "
                f"is {slope.got:.9g}, but should be {slope.numeric:.9g}"
            )
        worst = max(wrong, key=lambda at: np.nan_to_num(slopes[at].error, nan=np.inf))
        got = np.array([slope.got for slope in slopes.values()])
        numeric = np.array([slope.numeric for slope in slopes.values()])
        if not np.isfinite(numeric).all():
            cause = ""
        elif self.small:
            numeric = numeric.reshape(self.x.shape)
            cause = _likely_cause(self.gradient, numeric, self.weights, self.others)
        else:
            cause = _common_cause(got, numeric)
        where = index_text(np.unravel_index(worst, self.x.shape))
        if self.is_kink(worst):
            cause = ": the function has a kink there, and so no slope; move the input away from it"
        raise AssertionError(
            f"{self.subject}{where} is {slopes[worst].got:.9g}, but should be "
            f"{slopes[worst].numeric:.9g}{cause}"
        )

    def is_kink(self, at):
        """Return whether the slopes on both sides of an element differ, as those of relu at 0.

        The difference of a smooth function shrinks with the step, that of a kink does not.
        """
        jumps, at = [], np.unravel_index(at, self.x.shape)
        for h in self.step * self.unit * np.array([1, 0.1]):
            above, below = self.x.copy(), self.x.copy()
            above[at] += h
            below[at] -= h
            left, right = self.f(self.x) - self.f(below), self.f(above) - self.f(self.x)
            jumps.append(float(abs((self.weights * (right - left)).sum()) / h))
        rounding = rounding_error(self.weights * self.f(self.x)) / h
        return jumps[1] > max(0.5 * jumps[0], 10 * rounding)

    def suspect(self, group):
        """Halve a wrong group, always taking the half with the larger error; return the element."""
        while group.size > 1:
            halves = np.array_split(group, 2)
            # v has length 1, so an element counts 1 / sqrt(elements): undo that.
            errors = [self.compare(half).error * half.size**0.5 for half in halves]
            group = halves[int(errors[1] > errors[0])]
        return int(group[0])


def _sample(by_size, rng):
    """Choose the elements with the smallest and the largest gradients, and others at random."""
    if by_size.size <= SAMPLED:
        return by_size
    between = by_size[EXTREMES:-EXTREMES]
    others = rng.choice(between, SAMPLED - 2 * EXTREMES, replace=False)
    return np.sort([*by_size[:EXTREMES], *others, *by_size[-EXTREMES:]])


def _possible_errors(slopes, steps):
    """Return the possible error of each slope: its distance from its neighbours in the ladder.

    The error of order h^2 is 100 times as large at the next longer step, the error of order 1 / h
    ten times as large at the next finer step. So a slope is nearer to the truth than its worse
    neighbour, and the distance to that neighbour bounds its error, unless they agree by chance.
    Therefore all finer steps count: the rounding errors between them, scaled by 1 / h to the next
    finer step, where they are larger.
    The first and the last slope lack a neighbour.
    """
    apart = abs(np.diff(slopes))  # apart[k]: the distance between slopes k and k + 1
    doubts = np.full(len(steps), np.inf)
    for k in range(1, len(steps) - 1):
        bending = apart[k - 1]
        rounding = (apart[k:] * steps[k + 1 :]).max() / steps[k + 1]
        doubts[k] = np.maximum(bending, rounding)
    return doubts


# Messages -----------------------------------------------------------------------------------------


def label_of(fn, i):
    """Name an input by its number and, if it can be found, its parameter."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL
    return f"input {i} ({parameters[i].name})" if named else f"input {i}"


def index_text(at):
    """Return " at (1, 2)" for an index; "" for the index of an array without axes."""
    return f" at {tuple(int(k) for k in at)}" if at else ""


def _likely_cause(got, wanted, gy, others):
    """Recognise frequent mistakes in a gradient; return "" if it is none of them.

    got, wanted: the gradient from backward and the right one. gy: the gradient of the output.
    others: the other inputs.
    """
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
    """Recognise a mistake that any sample of the elements shows; return "" if it is another one."""
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
