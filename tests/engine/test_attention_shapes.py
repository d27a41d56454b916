"""Attention with different or empty axes in front, against its composition of primitive ops."""

import math

import numpy as np
import pytest
from sizes import B, H, K, S, T

from minitf import functions as F
from minitf.backend import to_device, to_numpy, using
from minitf.cpu import attention as cpu_attention
from minitf.tensor import Tensor, no_grad

RATE, SEED = 0.4, 6


def composed(query, key, value, mask=None, rate=0.0):
    """softmax(Q K^T / sqrt(d_k)) V, where a query with nothing to attend to gets zeros."""
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    fronts = [array.shape[:-2] for array in (scores, value, mask) if array is not None]
    shape = *np.broadcast_shapes(*fronts), *scores.shape[-2:]
    weights = F.exp(scores) * np.broadcast_to(True if mask is None else mask, shape)
    total = weights.sum(-1, keepdims=True)
    weights = weights / (total + (total == 0))
    if rate:
        weights = F.dropout(weights, rate, seed=SEED)
    return weights @ value


def draw(rng):
    """Return arguments of attention; each lacks some axes in front or has length 1 there."""
    front = rng.integers(1, 4, rng.integers(4))
    t, s, k, d = (
        *rng.choice([0, 1, 2, 3, 5], 2, p=[0.05, 0.2, 0.25, 0.25, 0.25]),
        *rng.integers(1, 4, 2),
    )

    def shape(*last):
        axes = np.where(rng.random(len(front)) < 0.3, 1, front)
        return tuple(
            int(n)
            for n in (*axes[rng.integers(len(front) + 1) if rng.random() < 0.4 else 0 :], *last)
        )

    arrays = [rng.normal(size=shape(*last)) for last in ((t, k), (s, k), (s, d))]
    if rng.random() < 0.3:
        return arrays, None
    last = tuple(1 if rng.random() < 0.3 else n for n in (t, s))
    mask = shape(*last)
    mask = mask[rng.integers(len(mask)) if rng.random() < 0.2 else 0 :]
    return arrays, rng.random(mask) < 0.6


def results(function, arrays, *arguments):
    """Return the function's result and the gradients of its arrays, for a random cotangent."""
    tensors = [Tensor(array) for array in arrays]
    y = function(*tensors, *arguments)
    y.backward(np.random.default_rng(1).normal(size=y.shape).astype(arrays[0].dtype))
    return [to_numpy(y.data), *(to_numpy(tensor.grad) for tensor in tensors)]


def agree(found, expected, rtol):
    for got, wanted in zip(found, expected, strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "library", ["numpy", "strict", pytest.param("cupy", marks=pytest.mark.gpu)], indirect=True
)
@pytest.mark.parametrize("first", [0, pytest.param(50, marks=pytest.mark.slow)])
def test_any_axes_in_front(first, library):
    """Recorded or not, in tiles of any size, with weights kept or computed again."""
    for seed in range(first, 50 if first == 0 else 150):
        with pytest.MonkeyPatch.context() as patch:
            try:
                any_axes_in_front(np.random.default_rng(seed), patch)
            except Exception as error:
                error.add_note(f"drawn by the seed {seed}")
                raise


def any_axes_in_front(rng, monkeypatch):
    arrays, mask = draw(rng)
    rate = float(rng.choice([0.0, RATE]))
    with using("numpy"):
        expected = results(composed, arrays, mask, rate)
    monkeypatch.setattr(cpu_attention, "TILE_SCORES", int(rng.choice([1, 4, 10, 30, 10**6])))
    monkeypatch.setattr(cpu_attention, "LONGEST_KEPT", int(rng.choice([0, 3, 512])))
    monkeypatch.setattr(cpu_attention, "LARGE", int(rng.choice([0, 2, 40])))
    agree(results(F.attention, arrays, mask, rate, SEED), expected, 1e-10)
    with no_grad():
        y = F.attention(*map(to_device, arrays), mask, rate, SEED)
    agree([y.numpy()], expected[:1], 1e-10)
    if not rate:
        weights = F.attention_weights(*(Tensor(array) for array in arrays[:2]), mask)
        agree([(weights @ to_device(arrays[2])).numpy()], expected[:1], 1e-10)


@pytest.mark.parametrize(("t", "s", "d"), [(T, 0, K), (0, S, K), (T, S, 0), (0, 0, 0)])
def test_empty_sets(t, s, d, library):
    """A query without keys gets zeros, and an input without effect a gradient of zeros."""
    for front in ((), (B,), (B, H), (0, H), (B, 0)):
        empty_sets(front, t, s, d)


def empty_sets(front, t, s, d):
    rng = np.random.default_rng(2)
    arrays = [
        rng.normal(size=(*front, *last)).astype(np.float32) for last in ((t, K), (s, K), (s, d))
    ]
    for rate in (0.0, RATE):
        for mask in (None, np.ones((t, s), bool)):
            found = results(F.attention, arrays, mask, rate, SEED)
            assert [x.shape for x in found] == [(*front, t, d), *(array.shape for array in arrays)]
            assert not any(x.any() for x in found)
            with no_grad():
                assert not F.attention(*map(to_device, arrays), mask, rate, SEED).numpy().any()
    weights = F.attention_weights(*map(to_device, arrays[:2]))
    assert weights.shape == (*front, t, s)


@pytest.mark.parametrize(
    "shapes",
    [
        ((T, K), (S, K + 1), (S, K)),
        ((T, K), (S, K), (S + 1, K)),
        ((T, K), (S, K), (1, K)),
        ((T, K), (1, K), (S, K)),
        ((T, K), (S, 1), (S, K)),
        ((T, 1), (S, K), (S, K)),
        ((T, 0), (S, 0), (S, K)),
        ((K,), (S, K), (S, K)),
        ((B, T, K), (H, S, K), (S, K)),
        ((T, K), (S, K), (S, K), (T + 1, S)),
        ((1, K), (S, K), (S, K), (T, S)),
        ((T, K), (1, K), (1, K), (T, S)),
        ((B, T, K), (S, K), (S, K), (H, T, S)),
    ],
)
def test_what_does_not_fit_is_refused_with_its_shapes(shapes, library):
    arrays = [to_device(np.ones(shape)) for shape in shapes[:3]]
    mask = np.ones(shapes[3], bool) if len(shapes) == 4 else None
    for recording in (True, False):
        with pytest.raises(ValueError, match=r"a query \(..., T, K\)") as error:
            if recording:
                F.attention(*map(Tensor, arrays), mask)
            else:
                with no_grad():
                    F.attention(*arrays, mask)
        names = ("query", "key", "value", "mask")
        given = [f"{name} {shape}" for name, shape in zip(names, shapes, strict=False)]
        assert str(error.value).endswith(f"not {', '.join(given)}")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["0 and -inf", "float", "integers", "lists", "a tensor"])
def test_masks_are_boolean(kind, library, rng):
    """As truth values, 0 and -infinity would mean the opposite of what they mean when added."""
    may = rng.random((T, S)) < 0.6
    mask = {
        "0 and -inf": np.where(may, 0.0, -np.inf),
        "float": may.astype(np.float32),
        "integers": may.astype(int),
        "lists": may.astype(int).tolist(),
        "a tensor": Tensor(may),
    }[kind]
    arrays = [Tensor(rng.normal(size=shape)) for shape in ((T, K), (S, K), (S, K))]
    for call in (
        lambda mask: F.attention(*arrays, mask),
        lambda mask: F.attention_weights(*arrays[:2], mask),
        lambda mask: F.where(mask, arrays[0] @ arrays[1].T, 0.0),
    ):
        with pytest.raises(TypeError, match=r"a mask must be boolean, not (float|int)") as error:
            call(mask)
        assert "\n" not in str(error.value)
        assert np.array_equal(call(may).numpy(), call(may.tolist()).numpy())
