"""The switches that public models need: biases, swish, a decoder of another depth, suppressed ids.

The other tests of the engine run with them too: see SWITCHES in tests/support/models.py.
"""

import functools
import json

import numpy as np
import pytest
from models import PUBLIC, random_batch, small_config, small_model, sources
from sizes import B, D, T, V

from minitf import forms
from minitf import functions as F
from minitf.backend import to_device, to_numpy
from minitf.beyond.sampling import sample
from minitf.config import Config
from minitf.decode import beam_search, greedy
from minitf.files.models import save_model
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.tensor import Tensor
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_swish_of_large_numbers(dtype):
    largest = np.finfo(dtype).max
    x = Tensor(np.array([-largest, -1e4, 0, 1e4, largest], dtype))
    with np.errstate(all="raise", under="ignore"):
        y = F.swish(x)
        y.backward(np.ones(5, dtype))
    assert np.array_equal(y.numpy(), np.array([0, 0, 0, 1e4, largest], dtype))
    assert np.array_equal(x.grad, [0, 0, 0.5, 1, 1])


def test_the_feed_forward_network_with_swish_by_hand(library, rng):
    layer = FeedForward(small_config(activation="swish"), rng)
    x = rng.normal(size=(B, T, D)).astype(np.float32)
    inner = x @ to_numpy(layer.inner.weight.data)
    expected = inner / (1 + np.exp(-inner)) @ to_numpy(layer.outer.weight.data)
    assert np.allclose(to_numpy(layer(to_device(x)).data), expected, atol=1e-5)


# Logits -------------------------------------------------------------------------------------------


def test_the_bias_of_the_logits():
    model = small_model(output_bias=True, suppressed_ids=NEVER)
    bias = model.logit_bias()
    assert isinstance(bias, np.ndarray) and bias.dtype == np.float64
    allowed = np.isin(np.arange(V), NEVER, invert=True)
    assert np.array_equal(bias[allowed], model.output_bias.data[allowed])
    assert (bias[~allowed] == -np.inf).all()
    assert np.isfinite(model.output_bias.data).all(), "the parameter itself stays finite"
    hidden = np.random.default_rng(1).normal(size=(B, T, D))
    expected = hidden @ model.output_embedding.weight.data.T + bias
    assert np.allclose(model.logits(hidden).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_of_suppressed_ids_keep_the_type(library, dtype):
    model = small_model(dtype, suppressed_ids=(1, 5))
    logits = to_numpy(model(np.array([[4, 3]]), np.array([[2, 6]])).data)
    assert logits.dtype == to_numpy(model.logit_bias()).dtype == dtype
    assert (logits[..., [1, 5]] == -np.inf).all()
    assert np.isfinite(np.delete(logits, [1, 5], axis=-1)).all()


# The loss -----------------------------------------------------------------------------------------


@pytest.fixture
def case(rng):
    """Logits, and targets: one is padding, two are suppressed."""
    target = rng.choice([3, 4, 6, 7, 8, 10], (B, T))
    target[0, 1], target[1, :2] = 0, (5, 9)
    return rng.normal(size=(B, T, V)), target


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_the_loss_without_suppressed_ids_by_hand(case, smoothing):
    """It is the loss of a vocabulary without these ids."""
    logits, target = case
    allowed = np.flatnonzero(np.isin(np.arange(V), NEVER, invert=True))
    suppressed = logits.copy()
    suppressed[..., NEVER] = -np.inf
    real = np.isin(target, allowed)
    x, small = Tensor(suppressed), Tensor(logits[real][:, allowed])
    loss = label_smoothed_cross_entropy(x, target, smoothing, 0, None, NEVER)
    expected = label_smoothed_cross_entropy(
        small, np.searchsorted(allowed, target[real]), smoothing
    )
    assert float(loss) == pytest.approx(float(expected), rel=1e-12)
    loss.backward()
    expected.backward()
    assert np.allclose(x.grad[real][:, allowed], small.grad, rtol=1e-12)
    assert not x.grad[..., NEVER].any(), "exactly 0"
    assert not x.grad[~real].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_projected_loss_is_that_of_its_logits(case, rng, library, dtype, smoothing):
    target = case[1]
    arrays = rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), rng.normal(size=V)
    arrays[2][list(NEVER)] = -np.inf
    hidden, weight, bias = (Tensor(to_device(x.astype(dtype))) for x in arrays)
    loss, nll = projected_cross_entropy(
        hidden, weight, target, smoothing, 0, None, bias, suppressed_ids=NEVER
    )
    loss.backward()
    logits = arrays[0] @ arrays[1].T + arrays[2]
    p, real = softmax(logits), np.isin(target, (0, *NEVER), invert=True)
    q = np.full((B, T, V), smoothing / (V - 1 - len(NEVER)))
    np.put_along_axis(q, target[..., None], 1 - smoothing, axis=-1)
    q[..., NEVER] = 0
    ln_p = np.log(np.where(p > 0, p, 1))
    n = real.sum()
    close = functools.partial(np.allclose, rtol=1e-5, atol=1e-6)
    assert close(float(loss), -(q * ln_p).sum(-1)[real].sum() / n)
    true = np.take_along_axis(ln_p, target[..., None], -1)[..., 0]
    assert close(float(nll), -true[real].sum() / n)
    g_logits = (p - q) * real[..., None] / n
    assert close(to_numpy(hidden.grad), g_logits @ arrays[1])
    assert close(to_numpy(weight.grad), np.einsum("btv,btd->vd", g_logits, arrays[0]))
    assert close(to_numpy(bias.grad), g_logits.sum((0, 1)))
    assert not to_numpy(bias.grad)[list(NEVER)].any(), "exactly 0"
    assert not to_numpy(weight.grad)[list(NEVER)].any(), "exactly 0"


@pytest.mark.parametrize("program", [forms.on, forms.off])
def test_suppressed_ids_may_be_an_array(rng, program):
    hidden, weight, target = rng.normal(size=(2, D)), rng.normal(size=(V, D)), [6, 7]
    for ids in (np.array([4, 5]), np.array([], int)):
        with program():
            found, expected = (
                projected_cross_entropy(hidden, weight, target, suppressed_ids=given)[0].item()
                for given in (ids, ids.tolist())
            )
        assert found == expected


def test_suppressed_ids_that_are_refused(case):
    logits, target = case
    for ids in ((V,), (-1,), (4, 4)):
        with pytest.raises(ValueError, match="suppressed_ids must be different integers from 0"):
            label_smoothed_cross_entropy(logits, target, suppressed_ids=ids)
    with pytest.raises(ValueError, match="at least 2 ids in the vocabulary, not 1"):
        label_smoothed_cross_entropy(
            logits, 0 * target + 3, suppressed_ids=(*range(3), *range(4, V))
        )
    with pytest.raises(ValueError, match=r"the bias has shape \(3,\), but 11 logits need \(11,\)"):
        projected_cross_entropy(np.ones((B, T, D)), np.ones((V, D)), target, bias=np.ones(3))


def test_a_model_learns_nothing_for_suppressed_ids(rng):
    model = small_model(tie=False, **{**PUBLIC, "suppressed_ids": NEVER})
    batch = random_batch(rng)
    loss, nll = model.loss(batch.source, batch.target_in, batch.target_out)
    assert np.isfinite(float(loss)) and np.isfinite(float(nll))
    loss.backward()
    assert not model.output_bias.grad[list(NEVER)].any()
    assert not model.output_embedding.weight.grad[list(NEVER)].any()
    for name, parameter in model.named_parameters():
        assert np.isfinite(parameter.grad).all(), name
    counted = np.isin(batch.target_out, (0, *NEVER), invert=True).sum()
    total, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens=1)
    assert float(total) == pytest.approx(float(loss) * counted, rel=1e-12)


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
        lambda *given: [[hypothesis] for hypothesis in greedy(*given, cached=False)],
        lambda *given: [[hypothesis] for hypothesis in sample(*given, seed=3)],
        lambda *given: beam_search(*given, n_best=4),
        lambda *given: beam_search(*given, n_best=4, cached=False),
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


def test_a_model_that_can_write_the_end_mark_only():
    model = small_model(suppressed_ids=tuple(i for i in range(V) if i != 3))
    for found in (
        *greedy(model, sources(1, 4)),
        *(h for (h,) in beam_search(model, sources(1, 4))),
    ):
        assert (found.ids, found.log_probability) == ([], 0)


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
