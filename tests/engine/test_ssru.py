"""The recurrent layer in the place of the decoder's self-attention: Config(decoder="ssru").

The other tests of the engine run with it too: see SWITCHES in tests/support/models.py.
"""

import numpy as np
import pytest
from models import random_batch, small_config, small_model
from sizes import B, D, T

from minitf import forms
from minitf.backend import to_numpy
from minitf.beyond.ssru import SSRU
from minitf.common.decoder import FusedDecoding
from minitf.decode import Cache, Decoding, fastest_decoding
from minitf.tensor import Tensor, no_grad


def layer(rng):
    ssru = SSRU(small_config(), rng).astype("float64")
    ssru.forget.bias.data += rng.normal(size=D)
    return ssru, Tensor(rng.normal(size=(B, T, D)))


@pytest.mark.parametrize("cuts", [[1, 2, 3, 4], [2], [1, 3]])
def test_a_text_in_pieces_has_the_outputs_of_the_whole(rng, cuts):
    ssru, x = layer(rng)
    with no_grad():
        cache = Cache(grows=True)
        pieces = np.split(x.data, cuts, axis=1)
        pieces = [ssru(Tensor(piece), None, cache=cache).data for piece in pieces]
        whole = ssru(x, x).data
    assert np.allclose(np.concatenate(pieces, axis=1), whole, rtol=0, atol=1e-12)


def assert_decoded_as_the_whole(model, decoding, rng, tolerance):
    """The logits of each step are those of the whole text, also after one text has ended."""
    batch = random_batch(rng, rows=4)
    with model.evaluating(), no_grad():
        whole = to_numpy(model(batch.source, batch.target_in).data)
        scorer, rows = decoding.start(batch.source), np.arange(4)
        for t in range(batch.target_in.shape[1]):
            found = to_numpy(scorer(batch.target_in[rows, : t + 1]))
            assert np.abs(found - whole[rows, t]).max() < tolerance * np.abs(whole).max()
            if t == 1:
                rows = rows[[0, 2, 3]]
                scorer.select(rows)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_model_decodes_with_the_state_in_its_cache(norm, rng):
    model = small_model(decoder="ssru", norm=norm)
    with forms.on():
        fused = fastest_decoding(model)
    assert type(fused) is FusedDecoding and fastest_decoding(model).cached
    for decoding in (Decoding(model), fused):
        assert_decoded_as_the_whole(model, decoding, rng, 1e-9)


LIBRARIES = (
    "strict",
    pytest.param("kernels", marks=pytest.mark.slow),
    pytest.param("cupy", marks=pytest.mark.gpu),
)


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_it_decodes_on_gpu_like_arrays(library, rng):
    model = small_model("float32", decoder="ssru", d_k=4, d_v=4)
    with forms.on():
        decoding = fastest_decoding(model)
    assert (type(decoding) is FusedDecoding) == (library != "strict") and decoding.cached
    assert_decoded_as_the_whole(model, decoding, rng, 1e-5)


def test_the_kept_weights_are_those_of_the_state(rng):
    """By their definition; and each row and what is left of the first state are 1 together."""
    ssru, x = layer(rng)
    ssru.keep_weights = True
    ssru(x, x)
    gate = 1 / (1 + np.exp(-ssru.forget(x).data))
    assert ssru.weights.shape == (B, 1, T, T)
    for t in range(T):
        for j in range(T):
            kept = np.prod(gate[:, j + 1 : t + 1], axis=1)
            expected = ((1 - gate[:, j]) * kept).mean(-1) if j <= t else 0
            assert np.allclose(ssru.weights[:, 0, t, j], expected, rtol=1e-12)
    left = np.cumprod(gate, axis=1).mean(-1)
    assert np.allclose(ssru.weights[:, 0].sum(-1) + left, 1)
