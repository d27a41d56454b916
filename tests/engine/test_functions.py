"""Functions and operators: broadcast, empty and 0-d arrays, NaN and infinity, wrong arguments.

They are compared with NumPy and with central differences.
"""

import contextlib
import functools
import math
import warnings

import numpy as np
import pytest
from gradient_table import operators, table
from sizes import B, D, V

from minitf import forms
from minitf import functions as F
from minitf.backend import to_numpy, using
from minitf.beyond import functions as variations
from minitf.check import grad_check
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.tensor import Tensor, no_grad

BINARY = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "where": lambda x, y: F.where(MASK, x, y) if isinstance(x, Tensor) else np.where(MASK, x, y),
    "@": lambda x, y: x @ y,
}
MASK = np.array([True, False, True])
PAIRS = [
    ((), ()),
    ((3,), ()),
    ((), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((4, 1, 3), (2, 1)),
    ((1,), (3,)),
]
EMPTY = [((0, 3), (3,)), ((0, 3), (1, 3)), ((2, 0, 3), (1, 1))]
PRODUCTS = [
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 1)),
    ((2, 0), (0, 3)),
]
PRODUCTS += [((0, 3), (3, 2)), ((0, 2, 3), (3, 1)), ((4, 1, 2, 3), (5, 3, 2))]


def away_from_zero(rng, shape):
    return rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)


def check_gradients(function, *arrays):
    """Run grad_check; for empty inputs, check that the gradients have the same shapes."""
    inputs = [Tensor(array) for array in arrays]
    out = function(*inputs)
    if out.size and any(array.size for array in arrays):
        grad_check(function, *arrays, verbose=False)
    else:
        out.backward(np.zeros(out.shape))
        assert [x.grad.shape for x in inputs] == [x.shape for x in inputs]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", BINARY)
def test_two_operands_broadcast_as_in_numpy(sign, dtype, rng):
    function = BINARY[sign]
    for shapes in PRODUCTS if sign == "@" else PAIRS + EMPTY:
        x, y = (away_from_zero(rng, shape).astype(dtype) for shape in shapes)
        a, b = Tensor(x), Tensor(y)
        out = function(a, b)
        expected = np.asarray(function(x, y))
        assert out.shape == expected.shape and out.dtype == dtype, shapes
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
        out.backward(np.ones(out.shape))
        for tensor in (a, b):
            assert isinstance(tensor.grad, np.ndarray), "a number is not an array"
            assert tensor.grad.shape == tensor.shape and tensor.grad.dtype == dtype, shapes
        if dtype == np.float64:
            check_gradients(function, x, y)


AXES = [None, 0, 1, -1, (0, 2), (-1, 0), (0, 1, 2)]


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (0, 3, 4), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "var", "max"])
def test_reductions_are_those_of_numpy(name, shape, rng):
    x = rng.normal(size=shape)
    for axis in AXES:
        for keepdims in (False, True):
            reduce = functools.partial(
                lambda x, **how: getattr(x, name)(**how), axis=axis, keepdims=keepdims
            )
            if not x.size and name != "sum" and np.sum(x, axis).size:
                with pytest.raises(ValueError, match=r"no numbers|zero-size"):
                    reduce(Tensor(x))
                continue
            out = reduce(Tensor(x))
            assert out.shape == reduce(x).shape
            np.testing.assert_allclose(out.numpy(), reduce(x), rtol=1e-12)
            check_gradients(reduce, x)


@pytest.mark.parametrize("keepdims", [False, True])
def test_equal_maxima_share_the_gradient(keepdims):
    for axis, gradient, expected in [
        (1, [1.0, 5.0], [[0, 0.5, 0.5], [0, 0, 5]]),
        (0, [1.0, 5.0, 3.0], [[0, 5, 1.5], [1, 0, 1.5]]),
        ((0, 1), 6.0, [[0, 2, 2], [0, 0, 2]]),
        (None, 6.0, [[0, 2, 2], [0, 0, 2]]),
        ((), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1, 2, 3], [4, 5, 6]]),
    ]:
        x = Tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 3.0]])
        y = x.max(axis, keepdims)
        y.backward(np.reshape(gradient, y.shape))
        assert x.grad.tolist() == expected, axis


def test_the_slope_at_a_kink_is_0():
    for function in (F.relu, abs):
        x = Tensor([-2.0, 0.0, -0.0, 3.0])
        function(x).backward(np.ones(4))
        assert x.grad.tolist() == [-1.0 if function is abs else 0, 0, 0, 1]


ONE = {
    "exp": (F.exp, np.exp),
    "log": (lambda x: F.log(abs(x)), lambda x: np.log(abs(x))),
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "softmax": (F.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "log_softmax": (
        F.log_softmax,
        lambda x: x - np.log(np.maximum(np.exp(x).sum(-1, keepdims=True), 1e-9)),
    ),
    "tanh": (variations.tanh, np.tanh),
    "sigmoid": (variations.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": (lambda x: variations.sqrt(abs(x)), lambda x: np.sqrt(abs(x))),
    "abs": (abs, abs),
    "x ** 3": (lambda x: x**3, lambda x: x**3),
    "T": (lambda x: x.T, lambda x: x.T),
    "copy": (lambda x: F.concatenate([x, x * 2], axis=0), lambda x: np.concatenate([x, x * 2])),
    "stack": (
        lambda x: variations.stack([x, x * 2], axis=1),
        lambda x: np.stack([x, x * 2], axis=1),
    ),
    "reshape": (lambda x: x.reshape([x.size]), lambda x: x.reshape(x.size)),
}
SHAPES = [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0), (0, 3)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE)
def test_one_operand_of_any_shape(name, dtype, rng):
    function, expected = ONE[name]
    for shape in SHAPES:
        if len(shape) < {"softmax": 1, "log_softmax": 1, "copy": 1, "stack": 1}.get(name, 0):
            continue
        x = away_from_zero(rng, shape).astype(dtype)
        out = function(Tensor(x))
        assert out.shape == np.shape(expected(x)) and out.dtype == dtype
        np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-5, atol=1e-6)
        if dtype == np.float64:
            check_gradients(function, x)


# Linear maps, norms, embeddings -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: F.linear(np.ones((2, 5)), np.ones((3, 4))),
            "linear: x has 5 features, but the weight takes 3",
        ),
        (
            lambda: F.linear(np.ones((2, 3)), np.ones((3, 4)), np.ones(3)),
            r"linear: the bias has shape \(3,\)",
        ),
        (lambda: F.embedding(np.ones(3), [1]), r"a table \(V, D\), not shape \(3,\)"),
        (
            lambda: F.linear(np.ones((2, 3)), np.ones(3)),
            r"linear: the weight must be a matrix, not of shape \(3,\)",
        ),
        (
            lambda: F.layer_norm(np.ones((2, 5)), np.ones(3), np.ones(5)),
            r"the gain has shape \(3,\), but needs \(5,\)",
        ),
        (
            lambda: F.layer_norm(np.ones((2, 5)), np.ones(5), np.ones(3)),
            r"the bias has shape \(3,\), but needs \(5,\)",
        ),
        (lambda: F.layer_norm(np.ones((2, 0)), np.ones(0), np.ones(0)), "no features to normalise"),
        (lambda: F.layer_norm(np.ones(()), np.ones(1), np.ones(1)), "no features"),
        (lambda: F.linear(np.ones(()), np.ones((1, 1))), "no features"),
        (
            lambda: Tensor(np.ones((2, 5))) @ Tensor(np.ones((3, 4))),
            r"@ takes matrices, .* not shapes \(2, 5\) and \(3, 4\)",
        ),
        (lambda: Tensor(np.ones(5)) @ Tensor(np.ones((5, 4))), "reshape a vector"),
        (lambda: F.concatenate([Tensor(1.0), Tensor(2.0)]), "zero-dimensional arrays"),
    ],
)
def test_sizes_that_do_not_fit_are_named_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [-1, -V, V, 10**9])
def test_an_embedding_refuses_ids_outside_its_table(wrong, library):
    """NumPy would count a negative id from the end, and a GPU would read some other row."""
    with pytest.raises(
        IndexError,
        match=rf"ids must be from 0 to {V - 1}, but range from {min(wrong, 2)} to {max(wrong, 2)}",
    ):
        F.embedding(Tensor(np.ones((V, D))), np.array([[2, wrong]]))


@pytest.mark.parametrize("ids", [[1.0, 2.0], [True, False], ["one"], Tensor([1, 2])])
def test_ids_are_integers(ids):
    with pytest.raises(TypeError, match="ids must be integers, not"):
        F.embedding(Tensor(np.ones((V, D))), ids)


# Variations ---------------------------------------------------------------------------------------


def test_a_recurrence_without_positions_has_gradients(library):
    arguments = [Tensor(np.zeros(shape)) for shape in [(B, 0, D), (B, 0, D), (B, D)]]
    variations.gated_recurrence(*arguments).sum().backward()
    assert [x.grad.shape for x in arguments] == [x.shape for x in arguments]


def test_sigmoid_neither_overflows_nor_loses_small_numbers():
    x = np.array([-800.0, -40.0, 0.0, 40.0, 800.0])
    with np.errstate(all="raise", under="ignore"):
        t = Tensor(x)
        y = variations.sigmoid(t)
        y.backward(np.ones(5))
    np.testing.assert_allclose(y.numpy(), [0, np.exp(-40), 0.5, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(t.grad, [0, np.exp(-40), 0.25, np.exp(-40), 0], rtol=1e-15)


def test_gelu_is_close_to_its_exact_form():
    """x times the probability that a standard normal variable is smaller, by the error function."""
    x = np.linspace(-6, 6, 241)
    exact = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
    assert 1e-4 < abs(variations.gelu_tanh(Tensor(x)).numpy() - exact).max() < 5e-4


HOST = ("array @ x", "array / x", "x[ids], an id twice")  # their constants are arrays of NumPy
EVERYWHERE = [row for row in operators() if row[0] not in HOST]
EVERYWHERE += [
    (
        f"{function.__name__} {options}",
        functools.partial(lambda f, how, *xs: f(*xs, **how), function, options),
        arguments,
    )
    for function, arguments, options in table()
    if function.__name__ in variations.__all__ and not isinstance(arguments[0], list)
]


@pytest.mark.parametrize(
    ("name", "function", "arguments"), EVERYWHERE, ids=[row[0] for row in EVERYWHERE]
)
def test_operators_and_variations_on_every_library(name, function, arguments, library):
    def run():
        tensors = [Tensor(array) for array in arguments]
        y = function(*tensors)
        y.backward(np.random.default_rng(1).normal(size=y.shape))
        return [to_numpy(y.data), *(to_numpy(tensor.grad) for tensor in tensors)]

    found = run()
    with using("numpy"):
        expected = run()
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("on", [True, False])
def test_a_number_of_numpy_is_a_number(on):
    """Beside an array of float32, NumPy's float64 would make one of float64."""
    half, count = np.float64(0.5), np.int64(3)
    x, ids = Tensor(np.float32([[1, 2, 3], [4, 5, 7]])), [1, 2]
    weight, ones = Tensor(np.ones((3, 3), np.float32)), np.ones(3)
    with forms.on() if on else forms.off():
        for y in (
            *(x + half, half - x, x * half, half / x, x / half, x**half, x**count, x**-half),
            F.where([True, False, True], x, half),
            F.layer_norm(x, ones, ones, half),
            F.dropout(x, half, count),
            F.attention(x, x * x, x, None, half, count),
            label_smoothed_cross_entropy(x, ids, half / 2, count, count),
            projected_cross_entropy(x, weight, ids, half / 2, count, count)[0],
            projected_cross_entropy(x, weight, ids, half, count, half)[0],
        ):
            assert y.dtype == np.float32
            y.sum().backward()  # which refuses gradients of another dtype
    assert x.grad.dtype == weight.grad.dtype == np.float32


@pytest.mark.parametrize("on", [True, False])
def test_a_constant_takes_the_dtype_of_the_tensor_beside_it(on):
    """So do forms and equations alike: float64 is what NumPy makes of a list of numbers."""
    x = Tensor(np.ones((2, 3), np.float32))
    with forms.on() if on else forms.off():
        assert F.linear(x, Tensor(np.ones((3, 4), np.float32)), np.zeros(4)).dtype == np.float32
        assert F.layer_norm(x, np.ones(3), np.zeros(3)).dtype == np.float32
        assert (x + np.ones(3)).dtype == (np.ones((4, 2)) @ x).dtype == np.float32
        assert F.where(np.eye(2, 3, dtype=bool), np.ones((2, 3)), x).dtype == np.float32
        assert F.concatenate([np.ones((2, 1)), x]).dtype == np.float32
        assert F.attention(np.ones((4, 3)), np.ones((2, 3)), x).dtype == np.float32
        loss, nll = projected_cross_entropy(x, np.ones((5, 3)), [1, 2])
        assert loss.dtype == nll.dtype == np.float32


# Values -------------------------------------------------------------------------------------------


def test_each_row_of_a_softmax_has_its_own_maximum():
    """With one maximum for all rows, the exponentials of those far below it would all be 0."""
    x = np.array([[0.0, 1.0], [2000.0, 2001.0], [-2000.0, -1999.0]])
    for function in (F.softmax, F.log_softmax):
        expected = np.broadcast_to(function(x[:1]).numpy(), x.shape)
        np.testing.assert_allclose(function(x).numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(function(x.T, axis=0).numpy(), expected.T, rtol=1e-12)


def test_relu_keeps_nan():
    """A model that has diverged must not look as if it went on."""
    assert np.array_equal(
        F.relu(np.array([np.nan, -1.0, np.inf])).numpy(), [np.nan, 0, np.inf], equal_nan=True
    )


def test_where_takes_nothing_from_masked_elements():
    mask, x = np.array([True, False, False]), Tensor([1.0, np.nan, np.inf])
    y = F.where(mask, x, -2.0)
    y.backward(np.array([3.0, 4.0, 5.0]))
    assert y.numpy().tolist() == [1, -2, -2] and x.grad.tolist() == [3, 0, 0]
    x, value = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    F.where(mask, x, value).backward(np.array([np.inf, np.nan, 5.0]))
    assert x.grad.tolist() == [np.inf, 0, 0] and np.isnan(value.grad).tolist() == [0, 1, 0]
    never = F.where(mask, Tensor([1.0, 2.0, 3.0]), -np.inf)
    assert never.numpy().tolist() == [1, -np.inf, -np.inf]


def test_the_remedy_that_where_names():
    """As its docstring says: NaN comes back from a branch that was not taken."""
    x = Tensor([0.0, 2.0])
    with np.errstate(divide="ignore", invalid="ignore"):
        F.where(x > 0, F.log(x), 0).sum().backward()
    assert np.isnan(x.grad).tolist() == [True, False]
    x = Tensor([0.0, 2.0])
    F.where(x > 0, F.log(F.where(x > 0, x, 1)), 0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.5]


def test_masked_arrays_are_refused():
    """Their masks would be lost without a word: as numbers, constants, masks and ids."""
    x, masked = Tensor([1.0, 2.0]), np.ma.masked_greater([0, 1], 0)
    for use in (
        lambda: Tensor(masked),
        lambda: x * masked,
        lambda: F.where(masked > 0, x, 0),
        lambda: F.embedding(np.ones((2, 2)), masked),
    ):
        with pytest.raises(TypeError, match=r"a masked array would lose its mask: use \.filled"):
            use()


def test_the_variance_survives_a_large_mean(rng):
    """The mean of the squares less the square of the mean would lose all digits in float32."""
    x = rng.integers(-8, 8, (3, 16)) / 4
    far = F.layer_norm(
        (x + 4096).astype(np.float32), np.ones(16, np.float32), np.zeros(16, np.float32)
    )
    near = F.layer_norm(x, np.ones(16), np.zeros(16))
    np.testing.assert_allclose(far.numpy(), near.numpy(), atol=1e-5)


def test_attention_without_recording_is_attention(rng):
    """A short way is taken then, but not past dropout, nor past the mask."""
    query, key, value = (Tensor(rng.normal(size=(2, 3, n, 4))) for n in (5, 6, 6))
    mask = rng.random((2, 1, 5, 6)) < 0.7
    for arguments in ((None,), (mask,), (mask, 0.5, 3)):
        recorded = F.attention(query, key, value, *arguments).numpy()
        with no_grad():
            np.testing.assert_allclose(
                F.attention(query, key, value, *arguments).numpy(), recorded, rtol=1e-12
            )
    assert not np.allclose(recorded, F.attention(query, key, value, mask).numpy())


@np.errstate(invalid="ignore")
def test_an_infinite_score_is_that_of_a_softmax():
    """NaN if it may be attended to: nothing there says how much of it."""
    key = np.array([[np.inf], [1.0], [-np.inf]])
    for mask, expected in [
        ([1, 1, 1], [np.nan, np.nan, np.nan]),
        ([0, 1, 1], [0, 1, 0]),
        ([0, 0, 1], [0, 0, 0]),
        ([1, 0, 0], [np.nan, np.nan, np.nan]),
    ]:
        for weights in (
            F.attention_weights(np.ones((1, 1)), key, np.array([mask], bool)),
            F.attention(np.ones((1, 1)), key, np.eye(3), np.array([mask], bool)),
        ):
            np.testing.assert_array_equal(weights.numpy(), [expected], str(mask))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_that_is_nan_gives_nan_without_a_warning(dtype, rng):
    """A NaN where a query may attend spoils that query only; a masked one has no effect."""
    query, key, value = (rng.normal(size=(2, n, 4)).astype(dtype) for n in (5, 6, 6))
    mask = rng.random((2, 5, 6)) < 0.5
    key[0, 3] = np.nan
    expected = np.zeros(5, bool) | mask[0, :, 3]
    assert 0 < expected.sum() < 5
    for options in ({}, {"rate": 0.5, "seed": 1}):
        for recording in (contextlib.nullcontext, no_grad):
            with warnings.catch_warnings(), recording():
                warnings.simplefilter("error")
                y = F.attention(query, key, value, mask, **options).numpy()
            assert not np.isnan(y[1]).any()
            if not options:
                assert np.array_equal(np.isnan(y[0]).all(axis=-1), expected)
                assert np.array_equal(np.isnan(y[0]).any(axis=-1), expected)
