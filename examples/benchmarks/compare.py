"""Compare the results of two contenders before they are timed.

Gradients are compared in float64. In float32, two correct implementations differ by more than
rounding, because a number that is 0 except for rounding passes the ReLU of one and not of the
other. Losses are compared in float32 too.
"""

import contextlib
from pathlib import Path

import numpy as np

LOSS, GRADIENT, PROBABILITY = 1e-5, 1e-8, 1e-4
# On a GPU, the largest relative difference between the losses, and between the lengths of the
# gradients. Both programs round the operands of products, to 10 bits of fraction (tf32) or 7
# (bfloat16), but not in the same places. The loss of a new model hardly shows that, as it is close
# to that of equal logits; the gradient does, as a product of many rounded factors. With base on an
# H200, the losses were 2.6e-7 and 1.9e-5 apart, and the gradients 2.8e-4 and 4.0e-3, about as much
# as rounding can change one operand (4.9e-4 and 3.9e-3). A wrong backward would be off by far more.
APART = {"float32": (1e-5, 1e-5), "tf32": (1e-5, 1e-3), "bfloat16": (2e-4, 1e-2)}
# The fraction of translations that must be equal: two may differ in probability by rounding only.
SENTENCES = 0.9


class Differs(Exception):
    """Two contenders compute different things; the text names the difference."""


def tasks(kind, task):
    """Return the tasks that compare a row: the same work, smaller, and without dropout."""
    if kind != "train":
        return [task]
    exact = task["model"] | {"dropout": 0.0}
    if "precision" in task:
        return [task | {"model": exact}]
    small = task | {"model": exact, "pairs": min(task["pairs"], 8)}
    return [small | {"dtype": "float64", "padded": True}, small]


def compare(kind, task, ours, theirs):
    """Let both workers do the tasks; returns the differences. Raises Differs."""
    found = {}
    for small in tasks(kind, task):
        paths = [Path(task["folder"], f"{name}.npz") for name in ("ours", "theirs")]
        answers = [
            worker.call(**{**small, "job": f"check {kind}", "out": str(path)})
            for worker, path in zip((ours, theirs), paths, strict=True)
        ]
        if kind == "decode":
            found |= _sentences(*answers)
            continue
        if "precision" in small:
            loss, gradient = APART[small["precision"]]
            found["loss"] = _losses(*(losses[:1] for losses in answers), loss)
            found["gradient"] = _lengths(*paths, gradient)
            continue
        dtype = small.get("dtype", "float32")
        found[f"loss, {dtype}"] = _losses(*answers)
        if dtype == "float64":
            found["gradients, float64"] = _arrays(*paths)
    return found


def texts(ours, theirs):
    """Return the fraction of equal lines of two files. Raises Differs."""
    left, right = (path.read_text(encoding="utf-8").splitlines() for path in (ours, theirs))
    if len(left) != len(right):
        raise Differs(f"one file has {len(left)} lines, the other {len(right)}")
    return {"same translations": _enough(sum(map(str.__eq__, left, right)) / len(left))}


def _enough(fraction):
    """Return the fraction of equal translations, if it is high enough."""
    if not fraction >= SENTENCES:
        raise Differs(f"only {fraction:.0%} of the translations are the same")
    return fraction


def _losses(ours, theirs, tolerance=LOSS):
    """Return the largest relative difference of the losses of some steps."""
    error = _largest(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    if not error <= tolerance:
        raise Differs(f"the losses are {ours} and {theirs}")
    return error


def _arrays(ours, theirs):
    """Return the largest difference of any array, relative to its largest element."""
    errors = {}
    with contextlib.closing(np.load(ours)) as left, contextlib.closing(np.load(theirs)) as right:
        if odd := sorted(set(left.files) ^ set(right.files)):
            raise Differs(f"only one of them has {odd[0]}")
        for name in left.files:
            a, b = left[name], right[name]
            errors[name] = float(abs(a - b).max() / abs(b).max())
    worst = list(errors)[int(np.argmax(list(errors.values())))]  # NaN counts as the largest
    if not errors[worst] <= GRADIENT:
        raise Differs(f"{worst} differs by {errors[worst]:.1e} of its largest element")
    return errors[worst]


def _lengths(ours, theirs, tolerance):
    """Return the relative difference of the lengths of the two gradients."""
    lengths = []
    for path in (ours, theirs):
        with np.load(path) as arrays:
            squares = [np.sum(arrays[name].astype("float64") ** 2) for name in arrays]
        lengths.append(float(np.sum(squares)) ** 0.5)
    error = abs(lengths[0] / lengths[1] - 1)
    if not error <= tolerance:
        raise Differs(f"the lengths of the gradients are {lengths}")
    return error


def _sentences(ours, theirs):
    """Return the fraction of equal translations, and the largest difference of their ln P."""
    equal = [
        abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(ours, theirs, strict=True) if a[0] == b[0]
    ]
    fraction = _enough(len(equal) / len(ours))
    if not _largest(equal) <= PROBABILITY:
        raise Differs(f"ln P of a translation differs by {_largest(equal):.1e}")
    return {"same translations": fraction, "ln P": _largest(equal)}


def _largest(errors):
    """Return the largest number, or NaN if one is NaN, which max() would ignore."""
    return float(np.max(list(errors)))
