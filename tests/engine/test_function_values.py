"""The values of the functions: large numbers, other axes, NaN, infinity, without recording."""

import contextlib
import warnings

import numpy as np
import pytest

from minitf import functions as F
from minitf.tensor import Tensor, no_grad


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
