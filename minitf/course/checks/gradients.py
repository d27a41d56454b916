"""The checks of lesson 02, gradients."""

import numpy as np

from minitf import functions as F
from minitf.check import grad_check
from minitf.course.checks.compare import equal, gradient, on_paper
from minitf.tensor import Tensor

__all__ = ["check_centred", "check_fools_the_sum", "check_log_sum_exp", "check_predicted"]


def check_predicted(predicted):
    """Check two slopes found on paper."""
    a, b = Tensor(2.0), Tensor(3.0)
    u = a * b
    (u * (u + a)).backward()
    right = [float(a.grad), float(b.grad)]
    on_paper(
        predicted(),
        right,
        ["dL/da", "dL/db"],
        {
            "the two the wrong way round": right[::-1],
            "the slopes of u alone": [3, 2],
            "the slopes of L with respect to u and v": [14, 6],
            "v and u, the slopes of the product u v": [8, 6],
            "L, and not its slopes": [48, 48],
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
            },
            {
                "one path of two: L is made from u, too": 12,
                "one path of two: v is made from u, too": 16,
                "a path from b straight to v, which is not there": 34,
            },
        ],
        within=0,
    )


def check_log_sum_exp(log_sum_exp):
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
        largest = values.max(axis=-1, keepdims=True)
        powers = np.exp(values - largest)
        sums = powers.sum(axis=-1)
        y = np.log(sums) + largest[..., 0]
        with np.errstate(all="ignore"):
            out = log_sum_exp(x)
            of_all = values.max()
            mistakes = {
                "an overflow: the largest number of each row is to be subtracted first": np.log(
                    np.exp(values).sum(axis=-1)
                ),
                "one maximum for all rows: a row far below it sums to 0": np.log(
                    np.exp(values - of_all).sum(axis=-1)
                )
                + of_all,
                "an overflow: the mean of a row is not its largest number": np.log(
                    np.exp(values - values.mean(axis=-1, keepdims=True)).sum(axis=-1)
                )
                + values.mean(axis=-1),
                "the largest number subtracted, and not added again": np.log(sums),
                "the mean of the powers in place of their sum": y - np.log(values.shape[-1]),
                "the sum over all rows": np.log(powers.sum()) + of_all,
                "the sum without its logarithm": sums,
                "an axis more than x has without its last (keepdims)": y[..., None],
                "the largest number alone": largest[..., 0],
                "sums over the first axis": np.log(np.exp(values - of_all).sum(axis=0)) + of_all,
            }
        equal(f"{name}, ln sum exp", out, y, mistakes)
        gy = rng.standard_normal(y.shape)
        weights = F.softmax(values).numpy()
        equal(
            f"{name}, the gradient",
            gradient(f"{name}, the gradient", out, x, gy),
            gy[..., None] * weights,
            {
                "a backward without gy: the result need not be the loss": weights,
                "gy times the powers, not divided by their sum": gy[..., None] * powers,
                "gy divided by the sum: the slope of the powers is missing": gy[..., None]
                / sums[..., None]
                + 0 * values,
                "gy handed on unchanged to each x_j": gy[..., None] + 0 * values,
                "the slopes of the softmax in place of those of ln s": weights
                * (gy[..., None] - gy[..., None] * weights),
                "zeros": 0 * values,
                "the wrong sign": -gy[..., None] * weights,
            },
        )


def check_centred(centred):
    """Check rows less their means, and the gradient."""
    rng = np.random.default_rng(0)
    for shape in ((2, 3), (4, 4), (3, 2, 5)):
        values = rng.standard_normal(shape)
        x, n = Tensor(values.copy()), shape[-1]
        out = centred(x)
        what = f"x {shape}"
        y = values - values.mean(axis=-1, keepdims=True)
        equal(
            f"{what}, each row less its mean",
            out,
            y,
            {
                "the mean of all numbers, not of each row": values - values.mean(),
                "the mean of each column": values - values.mean(axis=0, keepdims=True),
                "x unchanged": values,
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
            "gy times the result": gy * y,
            "the mean handed back in place of gy": mean + 0 * gy,
            "zeros": 0 * gy,
        }
        if len(shape) == 2 and shape[0] == shape[1]:
            mistakes["means without keepdims: they are subtracted from columns"] = gy - mean[:, 0]
        equal(
            f"{what}, the gradient",
            gradient(f"{what}, the gradient", out, x, gy),
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
