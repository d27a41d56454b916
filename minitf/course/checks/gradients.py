"""The checks of lesson 02, gradients."""

import numpy as np

from minitf import functions as F
from minitf.check import grad_check
from minitf.course.checks.compare import check, gradients, on_paper
from minitf.tensor import Tensor, record


def _slopes():
    a, b = Tensor(2.0), Tensor(3.0)
    u = a * b
    (u * (u + a)).backward()
    return [float(a.grad), float(b.grad)]


check_predicted = on_paper(
    ["dL/da", "dL/db"],
    _slopes,
    {
        "two paths of three: v is made from a, too": [42, 28],
        "a path that is missing: L is made from u, too": [24, 12],
        "a path that is missing: v is made from u, too": [30, 16],
        "the slopes of u alone": [3, 2],
        "dL/du = u and dL/dv = v: the slope of a product is the other factor": [50, 28],
    },
    within=0,
)


def made(forward, backward):
    """Return an answer that computes forward(x); its gradient is backward(gy, x), of arrays."""
    return lambda x: record(forward(x.data), (x,), lambda gy: backward(gy, x.data))


def _log_sum(x):
    return np.logaddexp.reduce(x, axis=-1)


def _gradient_of_log_sum(gy, x):
    return gy[..., None] * F.softmax(x).numpy()


@check(
    right=made(_log_sum, _gradient_of_log_sum),
    wrong={
        "an overflow: the largest number of each row is to be subtracted first": made(
            lambda x: np.log(np.exp(x).sum(axis=-1)), _gradient_of_log_sum
        ),
        "one maximum for all rows: a row far below it sums to 0": made(
            lambda x: np.log(np.exp(x - x.max()).sum(axis=-1)) + x.max(), _gradient_of_log_sum
        ),
        "the largest number subtracted, and not added again": made(
            lambda x: _log_sum(x) - x.max(axis=-1), _gradient_of_log_sum
        ),
        "a backward without gy: the result need not be the loss": made(
            _log_sum, lambda gy, x: F.softmax(x).numpy()
        ),
        "gy times the powers, not divided by their sum": made(
            _log_sum, lambda gy, x: gy[..., None] * np.exp(x - x.max(axis=-1, keepdims=True))
        ),
    },
)
def check_logsumexp(logsumexp):
    """Check ln sum exp and its gradient, near overflow as well."""
    rng = np.random.default_rng(0)
    apart = np.array([-2000.0, 0.0, 2000.0])[:, None, None]
    for name, values in {
        "x (2, 3) near 1000": rng.standard_normal((2, 3)) + 1000,
        "x (3, 1, 5), rows 2000 apart": rng.standard_normal((3, 1, 5)) + apart,
        "x (5,), 2000 apart in a row": np.array([-1000.0, 1000.0, -900.0, 999.0, -950.0]),
    }.items():
        x = Tensor(values)
        out = logsumexp(x)
        yield f"{name}, ln sum exp", out
        name, gy = f"{name}, the gradient", rng.standard_normal(values.shape[:-1])
        yield name, gradients(name, out, [x], gy)[0]


def _less_its_mean(x):
    return x - x.mean(axis=-1, keepdims=True)


@check(
    right=made(_less_its_mean, lambda gy, x: _less_its_mean(gy)),
    wrong={
        "the backward of the exercise: the path through the mean is missing": made(
            _less_its_mean, lambda gy, x: gy
        ),
        "the mean of all of gy, not of each row": made(
            _less_its_mean, lambda gy, x: gy - gy.mean()
        ),
        "the sum of each row of gy in place of its mean": made(
            _less_its_mean, lambda gy, x: gy - gy.sum(axis=-1, keepdims=True)
        ),
        "the path of x_j to its own number alone: the mean is in every number": made(
            _less_its_mean, lambda gy, x: gy * (1 - 1 / x.shape[-1])
        ),
        "the mean of x in place of that of gy": made(
            _less_its_mean, lambda gy, x: gy - x.mean(axis=-1, keepdims=True)
        ),
    },
)
def check_centred(centred):
    """Check rows less their means, and the gradient."""
    rng = np.random.default_rng(0)
    for shape in ((2, 4), (4, 4), (3, 2, 5)):
        x = Tensor(rng.standard_normal(shape))
        out = centred(x)
        yield f"x {shape}, each row less its mean", out
        name = f"x {shape}, the gradient"
        yield name, gradients(name, out, [x], rng.standard_normal(shape))[0]


@check(
    right=made(np.square, lambda gy, x: 2 * x * gy**2),
    wrong={
        "zeros, which fool only sums that never change, such as a softmax's": made(
            np.square, lambda gy, x: 0 * x
        ),
        "gy handed on unchanged": made(np.square, lambda gy, x: gy),
        "2 gy: the slope of x**2 is 2 x": made(np.square, lambda gy, x: 2 * gy),
        "the sum of gy: it is as large as x has numbers": made(
            np.square, lambda gy, x: 2 * x * gy.sum()
        ),
    },
)
def check_fools_the_sum(fools_the_sum):
    """Check a wrong gradient that a check by the sum of the outputs accepts."""
    rng = np.random.default_rng(0)
    for shape in ((5,), (2, 4)):
        values = rng.standard_normal(shape)
        x, ones, name = Tensor(values), np.ones(shape), f"x {shape}, the gradient of the sum"
        y = fools_the_sum(x)
        yield f"x {shape}, the result x**2", y
        yield name, gradients(name, y, [x], ones)[0]
        gy = rng.standard_normal(shape)
        (found,) = gradients("the gradient", fools_the_sum(x), [x], gy)
        yield f"{name}, a second time", gradients(name, fools_the_sum(x), [x], ones)[0]
        assert not np.allclose(found, 2 * gy * values), (
            "grad_check accepts it too: found the backward 2 x gy, which is right, and it should "
            "be wrong where gy is not all ones"
        )
        try:
            grad_check(fools_the_sum, values, verbose=False)
        except AssertionError as error:
            assert "gradient of" in str(error), str(error)
        else:
            raise AssertionError("grad_check accepts it too: the backward should be wrong")
