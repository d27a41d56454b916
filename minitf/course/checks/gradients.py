"""The checks of lesson 02, gradients."""

import numpy as np

from minitf import functions as F
from minitf.check import grad_check
from minitf.course.checks.compare import equal, equal_on_paper, gradient
from minitf.tensor import Tensor

__all__ = ["check_centred", "check_fools_the_sum", "check_logsumexp", "check_predicted"]


def check_predicted(predicted):
    """Check two slopes found on paper."""
    a, b = Tensor(2.0), Tensor(3.0)
    u = a * b
    (u * (u + a)).backward()
    right = [float(a.grad), float(b.grad)]
    equal_on_paper(
        predicted(),
        right,
        ["dL/da", "dL/db"],
        {
            "the two the wrong way round": right[::-1],
            "the slopes of u alone": [3, 2],
            "the slopes of L with respect to u and v": [14, 6],
            "v and u, the slopes of the product u v": [8, 6],
            "L, and not its slopes": [48, 48],
            "the slopes of v alone": [4, 2],
            "a and b exchanged: a is 2, b is 3": [36, 45],
            "v = u + b: it is u + a": [45, 36],
            "L = u + v: it is the product": [7, 4],
            "dL/du = u and dL/dv = v: the slope of a product is the other factor": [50, 28],
        },
        [
            {
                "two paths of three: v is made from a, too": 42,
                "two paths of three: L is made from u, too": 24,
                "two paths of three: v is made from u, too": 30,
                "one path of three, from a through u straight to L": 24,
                "one path of three, from a through u and v": 18,
                "one path of three, from a through v": 6,
                "the values multiplied in place of the slopes": 96,
                "dL/du = u and dL/dv = v: the slope of a product is the other factor": 50,
                "the path through v alone counted twice": 54,
                "the path through u and v counted twice": 66,
                "the path through u counted twice": 72,
                "a slope times its value: a slope says how much per step": 2 * 48,
            },
            {
                "one path of two: L is made from u, too": 12,
                "one path of two: v is made from u, too": 16,
                "a path from b straight to v, which is not there": 34,
                "the path through u counted twice": 44,
                "the path through u and v counted twice": 40,
                "both paths counted twice": 56,
            },
        ],
        within=0,
    )


def check_logsumexp(logsumexp):
    """Check ln sum exp and its gradient, near overflow as well."""
    rng = np.random.default_rng(0)
    cases = {
        "x (2, 3) near 1000": rng.standard_normal((2, 3)) + 1000,
        "x (3, 1, 5), rows 2000 apart": rng.standard_normal((3, 1, 5))
        + np.array([-2000.0, 0.0, 2000.0])[:, None, None],
        "x (5,), 2000 apart in a row": np.array([-1000.0, 1000.0, -900.0, 999.0, -950.0]),
    }
    for name, values in cases.items():
        x = Tensor(values.copy())
        largest = values.max(axis=-1)
        y = np.log(np.exp(values - largest[..., None]).sum(axis=-1)) + largest
        with np.errstate(all="ignore"):
            out = logsumexp(x)
        equal(f"{name}, ln sum exp", out, y, lambda values=values, y=y: _logs(values, y))
        gy = rng.standard_normal(y.shape)
        equal(
            f"{name}, the gradient",
            gradient(f"{name}, the gradient", out, x, gy),
            gy[..., None] * F.softmax(values).numpy(),
            lambda values=values, gy=gy: _gradients_of_logs(values, gy[..., None]),
        )


def _logs(values, y):
    """Return {mistake: what it gives} of ln sum exp."""
    largest, maximum = values.max(axis=-1, keepdims=True), values.max()
    powers = np.exp(values - largest)
    sums = powers.sum(axis=-1)
    mistakes = {
        "an overflow: the largest number of each row is to be subtracted first": np.log(
            np.exp(values).sum(axis=-1)
        ),
        "one maximum for all rows: a row far below it sums to 0": np.log(
            np.exp(values - maximum).sum(axis=-1)
        )
        + maximum,
        "an overflow: the mean of a row is not its largest number": np.log(
            np.exp(values - values.mean(axis=-1, keepdims=True)).sum(axis=-1)
        )
        + values.mean(axis=-1),
        "the largest number subtracted, and not added again": np.log(sums),
        "the mean of the powers in place of their sum": y - np.log(values.shape[-1]),
        "the sum over all rows": np.log(powers.sum()) + maximum,
        "the sum without its logarithm": sums,
        "an axis more than x has without its last (keepdims)": y[..., None],
        "sums over the first axis": np.log(np.exp(values - maximum).sum(axis=0)) + maximum,
        "the largest number alone": largest[..., 0],
        "the largest number subtracted a second time: it is to be added": np.log(sums)
        - largest[..., 0],
        "the logarithm to the base 2": np.log2(sums) + largest[..., 0],
        "the logarithm to the base 10": np.log10(sums) + largest[..., 0],
        "the mean of a row in place of ln sum exp": values.mean(axis=-1),
        "a limit of 700: what is above it is lost": np.log(
            np.exp(np.minimum(values, 700)).sum(axis=-1)
        ),
    }
    if values.ndim == 2:
        mistakes["the largest numbers with their axis (keepdims): [..., 0] drops it"] = (
            np.log(sums) + largest
        )
    return mistakes


def _gradients_of_logs(values, gy):
    """Return {mistake: the gradient that it gives} of ln sum exp. gy: with a last axis of 1."""
    largest = values.max(axis=-1, keepdims=True)
    powers, in_one = np.exp(values - largest), np.exp(values - values.max())
    sums, weights = powers.sum(axis=-1, keepdims=True), F.softmax(values).numpy()
    overflow = np.exp(values) / np.exp(values).sum(axis=-1, keepdims=True)
    return {
        "a backward without gy: the result need not be the loss": weights,
        "gy times the powers, not divided by their sum": gy * powers,
        "gy divided by the sum: the slope of the powers is missing": gy / sums + 0 * values,
        "gy handed on unchanged to each x_j": gy + 0 * values,
        "the slopes of the softmax in place of those of ln s": weights * (gy - gy * weights),
        "zeros": 0 * values,
        "the wrong sign": -gy * weights,
        "an overflow: backward needs the largest number subtracted, too": gy * overflow,
        "the sum of gy for every row: each row has its own": gy.sum() * weights,
        "one softmax over all rows": gy * in_one / in_one.sum(),
        "all of gy handed to the largest number: each x_j has a share": gy * (values == largest),
        "a division by the softmax": gy / weights,
        "the slopes of the sum s: ln s has 1 / s times that": gy * np.exp(values),
    }


def check_centred(centred):
    """Check rows less their means, and the gradient."""
    rng = np.random.default_rng(0)
    for shape in ((2, 4), (4, 4), (3, 2, 5)):
        values = rng.standard_normal(shape)
        x, n = Tensor(values.copy()), shape[-1]
        out = centred(x)
        case = f"x {shape}"
        y = values - values.mean(axis=-1, keepdims=True)
        equal(
            f"{case}, each row less its mean",
            out,
            y,
            {
                "the mean of all numbers, not of each row": values - values.mean(),
                "the mean of each column": values - values.mean(axis=0, keepdims=True),
                "x unchanged": values,
                "the mean added": 2 * values - y,
                "the sum of each row in place of its mean": values
                - values.sum(axis=-1, keepdims=True),
                "each row divided by its sum": values / values.sum(axis=-1, keepdims=True),
                "each row divided by its mean": values / values.mean(axis=-1, keepdims=True),
                "the mean alone": values - y,
            },
        )
        gy = rng.standard_normal(shape)
        mean = gy.mean(axis=-1, keepdims=True)
        mistakes = {
            "the backward of the exercise: the path through the mean is missing": gy,
            "the mean of all of gy, not of each row": gy - gy.mean(),
            "the mean of each column of gy": gy - gy.mean(axis=0, keepdims=True),
            "the sum of each row of gy in place of its mean": gy - n * mean,
            "the path of x_j to its own number alone: the mean is in every number": gy
            * (1 - 1 / n),
            "the path through the mean alone": -mean + 0 * gy,
            "the path through the mean added in place of subtracted": gy + mean,
            "the mean of x in place of that of gy": gy - values.mean(axis=-1, keepdims=True),
            "a division by n - 1": gy - n / (n - 1) * mean,
            "a division by the number of rows": gy - n / shape[0] * mean,
            "1 / n in place of the mean of gy": gy - 1 / n,
            "1 in place of the mean of gy": gy - 1,
            "the result in place of a gradient": y,
            "a gradient of x itself, without gy": values,
            "1 - 1 / n for each number, without gy": 1 - 1 / n + 0 * gy,
            "gy times the result": gy * y,
            "the mean handed back in place of gy": mean + 0 * gy,
            "zeros": 0 * gy,
        }
        if len(shape) == 2 and shape[0] == shape[1]:
            mistakes["means without keepdims: they are subtracted from columns"] = gy - mean[:, 0]
        equal(
            f"{case}, the gradient",
            gradient(f"{case}, the gradient", out, x, gy),
            gy - mean,
            mistakes,
        )


def check_fools_the_sum(fools_the_sum):
    """Check a wrong gradient that a check by the sum of the outputs accepts."""
    rng = np.random.default_rng(0)
    for shape in ((5,), (2, 4)):
        values = rng.standard_normal(shape)
        x = Tensor(values.copy())
        y = fools_the_sum(x)
        equal(f"x {shape}, the result x**2", y, values**2, {"2 x, its slope": 2 * values})
        equal(
            f"x {shape}, the gradient of the sum",
            gradient("the gradient of the sum", y, x, np.ones(shape)),
            2 * values,
            {
                "zeros, which fool only sums that never change, such as a softmax's": 0 * values,
                "x: the factor 2 is missing": values,
                "gy handed on unchanged": np.ones(shape),
                "half the slope": values,
                "x**2: that is the result": values**2,
                "2 gy: the slope of x**2 is 2 x": 2 * np.ones(shape),
                "the slope of x**3": 3 * values**2,
                "the sum of gy: it is as large as x has numbers": 2 * values * values.size,
                "the wrong sign": -2 * values,
            },
        )
        gy = rng.standard_normal(shape)
        found = gradient("the gradient", fools_the_sum(x), x, gy)
        again = gradient("the gradient of the sum", fools_the_sum(x), x, np.ones(shape))
        equal(f"x {shape}, the gradient of the sum, a second time", again, 2 * values)
        if np.allclose(found, 2 * gy * values):
            raise AssertionError(
                "grad_check accepts it too: found the backward 2 x gy, which is right, and it "
                "should be wrong where gy is not all ones"
            )
        try:
            grad_check(fools_the_sum, values, verbose=False)
        except AssertionError as error:
            assert "gradient of" in str(error), str(error)
        else:
            raise AssertionError("grad_check accepts it too: the backward should be wrong")
