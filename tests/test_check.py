"""The checker is checked: it must reject gradients that are known to be wrong, and say why."""

import numpy as np
import pytest
from sizes import B, D, S, T

from minitf import functions as F
from minitf.check import grad_check, same, show
from minitf.tensor import Tensor, record


def mutant_softmax_zero(x):
    y = F.softmax(x).data
    return record(y, (x,), np.zeros_like)


def mutant_softmax_no_sum(x):
    y = F.softmax(x).data
    return record(y, (x,), lambda gy: gy * y)


def _normal(x):
    n = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((n * n).mean(-1, keepdims=True))
    return n / deviation, deviation


def mutant_norm_without_mean_term(x):
    n, deviation = _normal(x.data)
    return record(n, (x,), lambda gy: (gy - n * (gy * n).mean(-1, keepdims=True)) / deviation)


def mutant_norm_zero(x):
    return record(_normal(x.data)[0], (x,), np.zeros_like)


def mutant_norm_without_variance_term(x):
    n, deviation = _normal(x.data)
    return record(n, (x,), lambda gy: (gy - gy.mean(-1, keepdims=True)) / deviation)


def mutant_product_transposed(x, y):
    return record(x.data @ y.data, (x, y), lambda gy: (gy @ y.data, x.data.T @ gy))


def mutant_product_exchanged(x, y):
    return record(x.data @ y.data, (x, y), lambda gy: (gy @ y.data.T, gy.T @ x.data))


def mutant_bias_mean(x, bias):
    return record(x.data + bias.data, (x, bias), lambda gy: (gy, gy.mean(axis=(0, 1))))


def mutant_bias_not_summed(x, bias):
    return record(x.data + bias.data, (x, bias), lambda gy: (gy, gy[:, :1]))


def mutant_bias_first_row(x, bias):
    return record(x.data + bias.data, (x, bias), lambda gy: (gy, gy[0, 0]))


def mutant_square(x):
    return record(x.data**2, (x,), lambda gy: gy * x.data)


def mutant_sign(x):
    return record(-x.data, (x,), lambda gy: gy)


def mutant_one_element(x):
    def backward(gy):
        gx = gy.copy()
        gx[0, 0] *= 1.0001
        return gx

    return record(x.data.copy(), (x,), backward)


def mutant_wrong_shape(x):
    return record(x.data.sum(axis=0), (x,), lambda gy: gy[:2])


def mutant_changes_its_gradient(x):
    def backward(gy):
        gy *= 2
        return gy

    return record(2 * x.data, (x,), backward)


def mutant_changes_its_input(x):
    x.data += 1
    return record(x.data.copy(), (x,), lambda gy: gy)


def mutant_random(x):
    scale = np.random.default_rng().random()
    return record(x.data * scale, (x,), lambda gy: gy * scale)


def mutant_plain_array(x):
    return x.data


SQUARE = (4, 4)
MUTANTS = [
    (mutant_softmax_zero, [(B, D)], "zero everywhere"),
    (mutant_softmax_no_sum, [(B, D)], "should be"),
    (mutant_norm_zero, [(B, T, D)], "zero everywhere"),
    (mutant_norm_without_mean_term, [(B, T, D)], "same amount all along axis 2"),
    (mutant_norm_without_variance_term, [(B, T, D)], "should be"),
    (mutant_product_transposed, [SQUARE, SQUARE], "gy @ other, where gy @ other.T"),
    (mutant_product_exchanged, [SQUARE, SQUARE], "input 1 .y.*transpose"),
    (mutant_bias_mean, [(B, T, D), (D,)], "input 1 .bias.*factor 10 "),
    (mutant_bias_not_summed, [(B, T, D), (D,)], "input 1 .bias."),
    (mutant_bias_first_row, [(B, T, D), (D,)], "input 1 .bias."),
    (mutant_square, [(B, T)], "factor 2 "),
    (mutant_sign, [(B, T)], "factor -1 "),
    (mutant_one_element, [(B, T)], r"at \(0, 0\)"),
    (mutant_wrong_shape, [(5, 3)], "shape.*sum over the broadcast axes"),
    (mutant_changes_its_gradient, [(B, T)], "changed the gradient"),
    (mutant_changes_its_input, [(B, T)], "another result|changed its input"),
    (mutant_random, [(B, T)], "another result"),
    (mutant_plain_array, [(B, T)], "not a Tensor"),
]


@pytest.mark.parametrize(("mutant", "shapes", "message"), MUTANTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_wrong_gradient_is_rejected(mutant, shapes, message, rng):
    with pytest.raises(AssertionError, match=message):
        grad_check(mutant, *[rng.normal(size=shape) for shape in shapes])


@pytest.mark.parametrize("mutant", [mutant_softmax_zero, mutant_norm_zero])
def test_a_check_of_the_sum_would_accept_some_of_them(mutant, rng):
    """Why grad_check weighs the outputs at random: their plain sum does not change, so any check of it passes."""
    x, step = rng.normal(size=(B, D)), 1e-5
    t = Tensor(x)
    mutant(t).sum().backward()
    for at in np.ndindex(x.shape):
        moved = x.copy()
        moved[at] += step
        numeric = (float(mutant(Tensor(moved)).sum()) - float(mutant(Tensor(x)).sum())) / step
        assert abs(t.grad[at] - numeric) < 1e-6


def test_a_large_input_is_checked_along_a_direction(rng):
    def wrong_in_one_place(x):
        def backward(gy):
            gx = 2 * gy * x.data
            gx[17, 23] *= 1.01
            return gx

        return record(x.data**2, (x,), backward)

    with pytest.raises(AssertionError, match="along a random direction"):
        grad_check(wrong_in_one_place, rng.normal(size=(40, 30)))


def test_a_right_gradient_passes_in_float64(rng, capsys):
    error = grad_check(F.softmax, rng.normal(size=(B, D)).astype(np.float32))
    assert 0 < error < 1e-8
    assert capsys.readouterr().out.startswith("ok  softmax gradient")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [2, 500])  # element by element, and along a direction only
def test_a_gradient_that_is_not_finite_is_wrong(bad, size):
    def op(x):
        return record(x.data**2, (x,), lambda gy: np.where(np.arange(size) == 1, bad, 2 * gy * x.data))

    with pytest.raises(AssertionError, match=rf"op: the gradient of input 0 \(x\) is not finite \(1 of {size}\)"):
        grad_check(op, np.linspace(1, 2, size))


def test_a_function_that_leaves_its_domain_on_the_way_is_no_success():
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match="should be nan"):
        grad_check(F.log, np.array([1.0, 1e-9]))


@pytest.mark.parametrize("arguments", [([1.0, 2.0],), (np.array([1, 2]),), ()])
def test_nothing_to_check_is_no_success(arguments):
    with pytest.raises(ValueError, match="nothing to check"):
        grad_check(lambda *x: F.exp(Tensor([1.0])), *arguments)


def test_constants_are_passed_on(rng):
    grad_check(F.embedding, rng.normal(size=(S, D)), np.array([[1, 2], [2, 0]]))
    grad_check(F.where, np.array([True, False]), rng.normal(size=2), -1.0)


def test_same(capsys):
    assert same("equal", [1.0, 2.0], np.array([1.0, 2.0 + 1e-12])) < 1e-11
    assert capsys.readouterr().out.startswith("ok  equal")
    same("nan is where nan is", np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), verbose=False)
    same("tensors and arrays", Tensor([1.0]), np.ones(1), verbose=False)
    with pytest.raises(AssertionError, match=r"2 and 2.1 at \(1,\) differ \(1 of 2\)"):
        same("different", np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    with pytest.raises(AssertionError, match=r"shapes differ, \(2,\) and \(1, 2\)"):
        same("shapes", np.ones(2), np.ones((1, 2)))
    with pytest.raises(AssertionError, match="nan"):
        same("nan on one side", np.array([np.nan]), np.array([1.0]))
    for a, b in ((1.0, np.inf), (np.inf, 1.0), (np.inf, -np.inf)):
        with pytest.raises(AssertionError, match="inf"):
            same("infinity is equal to itself alone", np.array([a]), np.array([b]))


def test_show_prints_the_source(capsys):
    show(F.softmax)
    assert "def softmax(x, axis=-1):" in capsys.readouterr().out
