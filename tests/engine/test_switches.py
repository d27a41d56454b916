"""The switches that public models need: biases, swish, a decoder of another depth, suppressed ids.

The other tests of the engine run with them too: see SWITCHES in tests/support/models.py.
"""

import functools
import json

import numpy as np
import pytest
from models import PUBLIC, random_batch, small_config, small_model, sources
from sizes import B, D, T, V

from minitf import functions as F
from minitf.backend import to_device, to_numpy
from minitf.beyond.sampling import sample
from minitf.config import Config
from minitf.decode import Decoding, beam_search, greedy
from minitf.files.models import save_model
from minitf.text import Words
from minitf.transformer import FeedForward, Transformer
from minitf.translation.loading import load_model, probe

NEVER = (0, 1, 2, 5, 9)  # the special ids but the end mark, and two tokens


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# Weights ------------------------------------------------------------------------------------------


def test_an_old_seed_draws_the_old_weights():
    """A switch adds weights that are not drawn, at the end of the list or beside their matrix."""
    before = Transformer(small_config(tie=False), seed=3).state()
    with_switches = Transformer(
        small_config(tie=False, **{**PUBLIC, "n_decoder_layers": 2}), seed=3
    ).state()
    for name, array in before.items():
        assert np.array_equal(array, with_switches[name]), name
    added = {name: array for name, array in with_switches.items() if name not in before}
    assert len(added) == 1 + 4 * (2 + 2 * 2)
    assert not any(array.any() for array in added.values())
    assert list(with_switches)[-1] == "output_bias"
    assert with_switches["output_bias"].shape == (V,)


def test_switches_that_are_off_add_nothing():
    model = Transformer(small_config())
    assert model.output_bias is None and model.logit_bias() is None
    assert model.encoder.layers[0].self_attention.query.bias is None
    assert len(model.encoder.layers) == len(model.decoder.layers) == 2


def test_the_stacks_may_differ_in_depth():
    for depth in (1, 5):
        model = Transformer(small_config(n_decoder_layers=depth))
        assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, depth)


# Swish --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_swish_by_its_definition(library, dtype):
    x = np.linspace(-20, 20, 81).astype(dtype)
    y = to_numpy(F.swish(to_device(x)).data)
    assert y.dtype == dtype
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    assert np.allclose(y, x / (1 + np.exp(-x.astype(float))), rtol=tolerance, atol=0)


def test_the_feed_forward_network_with_swish_by_hand(library, rng):
    layer = FeedForward(small_config(activation="swish"), rng)
    x = rng.normal(size=(B, T, D)).astype(np.float32)
    inner = x @ to_numpy(layer.inner.weight.data)
    expected = inner / (1 + np.exp(-inner)) @ to_numpy(layer.outer.weight.data)
    assert np.allclose(to_numpy(layer(to_device(x)).data), expected, atol=1e-5)


# Logits -------------------------------------------------------------------------------------------


def test_the_bias_of_the_logits():
    model = small_model(output_bias=True, suppressed_ids=NEVER)
    bias = model.logit_bias().data
    assert isinstance(bias, np.ndarray) and bias.dtype == np.float64
    allowed = np.isin(np.arange(V), NEVER, invert=True)
    assert np.array_equal(bias[allowed], model.output_bias.data[allowed])
    assert (bias[~allowed] == -np.inf).all()
    assert np.isfinite(model.output_bias.data).all(), "the parameter itself stays finite"
    hidden = np.random.default_rng(1).normal(size=(B, T, D))
    expected = hidden @ model.output_embedding.weight.data.T + bias
    assert np.allclose(model.logits(hidden).numpy(), expected, rtol=1e-12)


# The loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_that_are_suppressed_do_not_count(rng, smoothing):
    """As padding does not; and q gives ids that are never written no probability."""
    model, batch = small_model(output_bias=True, suppressed_ids=NEVER), random_batch(rng)
    assert np.isin(batch.target_out, NEVER).any()
    left_out = np.where(np.isin(batch.target_out, NEVER), 0, batch.target_out)
    assert model.count_targets(batch.target_out) == np.count_nonzero(left_out)
    found, expected = (
        model.loss(batch.source, batch.target_in, target, None, smoothing)[0]
        for target in (batch.target_out, left_out)
    )
    assert np.isfinite(float(found)) and float(found) == float(expected)
    found.backward()
    assert (
        np.isfinite(model.output_bias.grad).all() and not model.output_bias.grad[list(NEVER)].any()
    )


# Decoding -----------------------------------------------------------------------------------------


def tempting():
    """A model in which suppressed ids would be the most probable ones everywhere."""
    model = small_model(**{**PUBLIC, "suppressed_ids": NEVER})
    model.output_bias.data[list(NEVER)] = 30
    return model


@pytest.mark.parametrize(
    "search",
    [
        lambda *given: [[hypothesis] for hypothesis in greedy(*given)],
        lambda model, *given: [[found] for found in greedy(Decoding(model, False), *given)],
        lambda *given: [[hypothesis] for hypothesis in sample(*given, seed=3)],
        lambda *given: beam_search(*given, n_best=4),
        lambda model, *given: beam_search(Decoding(model, False), *given, n_best=4),
    ],
    ids=["greedy", "greedy, no cache", "sampling", "beam", "beam, no cache"],
)
def test_suppressed_ids_are_never_written(search):
    """Also, ln P is that of a vocabulary without them."""
    model, source = tempting(), sources(1, 4, 2)
    unbiased = Transformer(model.config.replace(suppressed_ids=()), seed=0).astype("float64")
    unbiased.load_state(model.state())
    for row, hypotheses in zip(source, search(model, source), strict=True):
        for found in hypotheses:
            assert not set(found.ids) & set(NEVER)
            text = [*found.ids, 3]
            logits = unbiased(row[None], np.array([[2, *found.ids]])).numpy()[0]
            logits[:, NEVER] = -np.inf
            ln_p = np.log(np.take_along_axis(softmax(logits), np.array(text)[:, None], -1))
            ended = len(found.ids) < 50 + np.isin(row, (0, 3), invert=True).sum()
            expected = ln_p.sum() if ended else ln_p[:-1].sum()
            assert found.log_probability == pytest.approx(expected, rel=1e-9)


# Files --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_a_saved_model_is_loaded_again(stored):
    words = Words.train(["a b c d e"])
    config = Config.preset("tiny", len(words), **PUBLIC)
    model = Transformer(config, seed=1)
    model.output_bias.data[:] = np.linspace(-1, 1, len(words))
    save_model(
        "here",
        model.state(),
        config.to_dict(),
        words,
        stored,
        probe=functools.partial(probe, model),
    )
    with open("here/config.json", encoding="utf-8") as file:
        card = json.load(file)
    assert card["probe"] is not None, "suppressed ids leave the probe finite"
    loaded, _, _ = load_model("here")
    assert loaded.config == config
    for name, array in loaded.state().items():
        assert np.allclose(array, model.state()[name], rtol=1e-3, atol=1e-6), name
