"""The CPU form of attention: tiles that fit the cache, and weights computed again."""

import tracemalloc
import weakref

import numpy as np
import pytest
from sizes import B, D, H, K, S, T

from minitf import forms
from minitf import functions as F
from minitf.check import grad_check
from minitf.cpu import attention as cpu_attention
from minitf.nn import Parameter
from minitf.tensor import Tensor, no_grad

SIZES = [1, 2 * S, T * S + 1, H * T * S, 10**6]  # one query, two, a head, a sentence, all


@pytest.fixture(autouse=True)
def with_forms():
    with forms.on():
        yield


@pytest.fixture(
    params=[
        pytest.param(n, id=f"{n} scores", marks=() if n == T * S + 1 else pytest.mark.slow)
        for n in SIZES
    ]
)
def tile(request, monkeypatch):
    """How many scores a tile may hold."""
    monkeypatch.setattr(cpu_attention, "TILE_SCORES", request.param)
    return request.param


@pytest.mark.parametrize("longest", [0, S], ids=["computed again", "kept"])
@pytest.mark.parametrize("rate", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_gradients_do_not_depend_on_the_tiles(tile, longest, rate, rng, monkeypatch):
    monkeypatch.setattr(cpu_attention, "LONGEST_KEPT", longest)
    arrays = (
        rng.normal(size=(B, H, T, K)),
        rng.normal(size=(B, H, S, K)),
        rng.normal(size=(B, H, S, D)),
    )
    mask = rng.random((B, 1, T, S)) < 0.6
    mask[0, 0, 2] = False  # a query with nothing to attend to
    grad_check(lambda *inputs: F.attention(*inputs, mask, rate, seed=4), *arrays, name="attention")
    with no_grad():
        y = F.attention(*arrays, mask, rate, seed=4).numpy()
        monkeypatch.setattr(cpu_attention, "TILE_SCORES", 10**6)
        np.testing.assert_allclose(
            y, F.attention(*arrays, mask, rate, seed=4).numpy(), rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize("longest", [0, S], ids=["computed again", "kept"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_far_from_0_have_a_softmax(longest, dtype, rng, monkeypatch):
    """Of one head or of all. Their powers would all be 0, or infinite, if the largest were not
    subtracted.
    """
    monkeypatch.setattr(cpu_attention, "LONGEST_KEPT", longest)
    value, mask = rng.normal(size=(2, 3, S, D)).astype(dtype), np.arange(S) < 5
    for of_query, of_key in ((-1000, 1), (1000, 1), (1, -1000), (1, 1000)):
        query, key = np.ones((2, 3, T, K), dtype), np.ones((2, 3, S, K), dtype)
        for heads in (0, (1, 1)):
            query[heads] *= of_query
            key[heads] *= of_key
        for visible in (None, mask):
            y = F.attention(Tensor(query), Tensor(key), Tensor(value), visible).numpy()
            mean = value[:, :, slice(None) if visible is None else visible].mean(axis=2)
            np.testing.assert_allclose(y, np.repeat(mean[:, :, None], T, 2), atol=1e-3)


LONG = 600  # more than LONGEST_KEPT


def equation(*arguments):
    """Return attention and its gradients by the equation."""
    with forms.off():
        return outcome(*arguments)


def outcome(*arguments):
    tensors = [Tensor(x) for x in arguments[:3]]
    y = F.attention(*tensors, *arguments[3:])
    y.backward(np.cos(np.arange(y.data.size, dtype=y.dtype)).reshape(y.shape))
    return [y.data, *(tensor.grad for tensor in tensors)]


def heads(rng, dtype, length=LONG):
    """Return queries, keys and values as a model has them: views of one array."""
    packed = rng.normal(size=(1, length, 3, 2, 16)).astype(dtype)
    return list(packed.transpose(2, 0, 3, 1, 4))


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("scale", [1, 100], ids=["small scores", "large scores"])
@pytest.mark.parametrize("kind", ["no mask", "causal", "keys"])
def test_a_long_text_against_the_equation(kind, scale, dtype, tolerance, rng):
    arrays = heads(rng, dtype)
    arrays[0] *= scale
    mask = {
        "no mask": None,
        "causal": np.tri(LONG, dtype=bool),
        "keys": np.arange(LONG) % 600 < rng.integers(1, 600, size=(LONG, 1)),
    }[kind]
    if mask is not None:
        mask[3] = False  # a query with nothing to attend to
    found, expected = outcome(*arrays, mask), equation(*arrays, mask)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
    if mask is not None:
        assert not found[0][..., 3, :].any() and not found[1][..., 3, :].any()


@np.errstate(invalid="ignore")
def test_keys_that_are_not_finite_under_the_mask_of_a_long_text(rng):
    q, k, v = heads(rng, "float32")
    k[..., -3:, :] = np.array([np.nan, np.inf, -np.inf])[:, None]
    mask = np.arange(LONG) < LONG - 3
    y = F.attention(q, k, v, mask).numpy()
    expected = F.attention(q, k[..., :-3, :], v[..., :-3, :]).numpy()
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_a_head_has_the_same_bits_beside_others(rng):
    """Also beside a head with large scores, which is computed in another way."""
    for length in (20, LONG):
        arrays = [np.repeat(x, 2, axis=0) for x in heads(rng, "float32", length)]
        arrays[0][1] *= 100
        both = outcome(*arrays)
        alone = F.attention(*(x[:1] for x in arrays)).numpy()
        assert np.array_equal(both[0][:1], alone)


def peak(length):
    """Return the peak memory of attention over a text of this length, forward and backward."""
    x = Tensor(np.ones((1, 2, length, 8), np.float32))
    tracemalloc.start()
    try:
        F.attention(x, x, x).backward(x.data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_length_and_not_with_its_square():
    assert peak(2048) < 1.5 * peak(1024)


def test_averages_that_only_a_product_reads_are_not_kept(rng):
    x = Parameter(rng.standard_normal((B, T, H, K))).transpose(0, 2, 1, 3)
    weight = Parameter(np.ones((H * K, 2)))
    averages = F.attention(x, x, x)
    merged = averages.transpose(0, 2, 1, 3).reshape(B, T, H * K)
    expected = merged.data.sum(axis=(0, 1))  # the gradient of each column of the weight
    kept = weakref.ref(averages.data)
    out = F.linear(merged, weight)
    del averages, merged
    assert kept() is None
    out.sum().backward()
    np.testing.assert_allclose(weight.grad, np.stack([expected, expected], axis=1), rtol=1e-6)
