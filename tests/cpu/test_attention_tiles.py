"""The CPU form of attention: tiles that fit the cache, and weights computed again in backward."""

import tracemalloc

import numpy as np
import pytest
from sizes import B, D, H, K, S, T

from minitf import functions as F
from minitf.check import grad_check
from minitf.cpu import attention as cpu_attention
from minitf.tensor import Tensor, no_grad

SIZES = [1, 2 * S, T * S + 1, H * T * S, 10**6]  # one query, two, a head, a sentence, all


@pytest.fixture(
    params=[
        pytest.param(n, id=f"{n} scores", marks=pytest.mark.slow if n in SIZES[1::2] else [])
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


def test_a_single_head_without_batch(tile, rng):
    grad_check(
        F.attention, rng.normal(size=(T, K)), rng.normal(size=(S, K)), rng.normal(size=(S, D))
    )


def peak(length):
    """Return the peak memory of attention over a text of this length, forward and backward."""
    x = Tensor(np.ones((1, 2, length, 8), np.float32))
    tracemalloc.start()
    try:
        F.attention(x, x, x).backward(x.data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_length_and_not_with_its_square(monkeypatch):
    monkeypatch.setattr(cpu_attention, "TILE_SCORES", 1 << 16)
    assert peak(2048) < 1.5 * peak(1024)
    monkeypatch.setattr(cpu_attention, "LONGEST_KEPT", 2048)  # all weights are kept
    assert peak(2048) > 3 * peak(1024)
