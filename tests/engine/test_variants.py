"""A changed model is trained, saved, resumed and used with its own code, and refused where the
code is another.
"""

import json
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import variants
from runs import PACE, SMALL, assert_same_run, at_step, copied_run, prepare_folder, run, terminate
from variants import SwiGLU, Variant

from minitf import transformer
from minitf.config import Config
from minitf.errors import UserError
from minitf.files.arrays import load_arrays
from minitf.files.models import read_model, save_model
from minitf.text import Words
from minitf.training import commandline, update
from minitf.training.settings import parse
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.loading import check_probe, load_model, probe

TEXTS = shlex.split("--train train.en train.de --valid valid.en valid.de")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


@pytest.fixture
def begun(folder):
    """A run of one step, in the folder `here`."""
    copied_run("here", "--steps", "1")


def trained(out, *more, model=Variant):
    """Train from Python; returns the results."""
    settings, _ = parse([*TEXTS, *SMALL, *PACE, "--out", out, *more])
    return commandline.train(settings, model)


# A model that is made by its own class ------------------------------------------------------------


def test_a_variant_is_trained_and_used(folder):
    results = trained("here")
    assert results == json.loads(Path("here/results.json").read_text()) and results["step"] == 13
    model, _, _ = load_model("here", Variant)
    assert type(model) is Variant and type(model.decoder.layers[0].feed_forward) is SwiGLU
    scales = load_arrays("here/checkpoint.safetensors")[0][
        "model.encoder.layers.0.self_attention.scale"
    ]
    assert not np.any(scales == np.float32(0.9))  # it has learnt
    translator = Translator.load("here", 250, Variant)
    lines = Path("valid.en").read_text().splitlines()
    assert [
        best[0].text for best in translator.translate(lines, max_extra=2, wellformed=False)
    ] == Path("here", "valid.out").read_text().splitlines()


def test_a_variant_is_resumed_bit_for_bit(folder, monkeypatch):
    monkeypatch.setattr(update, "_MIN_ACTIVATIONS", 1)  # on two replicas
    assert trained("whole", "--replicas", "2") is not None
    with monkeypatch.context() as patch:
        at_step(patch, 6, terminate)
        assert trained("parts", "--replicas", "2") is None
    assert trained("parts", "--resume") is not None
    assert_same_run("whole", "parts")


def test_the_command_line_takes_the_class(folder):
    assert commandline.main([*TEXTS, *SMALL, *PACE, "--out", "here"], model=Variant) == 0
    assert commandline.main(["--resume", "--out", "here", "--steps", "14"], model=Variant) == 0


def assert_refused(capsys, said):
    """The folder "here" can neither be resumed nor started from."""
    for more, place in (
        (["--resume", "--out", "here"], "here/checkpoint.safetensors"),
        (["--start-from", "here"], "here"),
    ):
        assert commandline.main([*TEXTS, *more]) == 2
        error = capsys.readouterr().err
        assert f": {place}: {said}" in error and error.count("\n") == 1


def test_without_its_class_a_variant_is_refused(folder, capsys):
    trained("here")
    capsys.readouterr()
    said = "the model has no decoder.layers.0.feed_forward.gate.weight and"
    with pytest.raises(UserError, match=f"^here: {said}"):
        Translator.load("here")
    assert_refused(capsys, said)


# A model whose code was changed -------------------------------------------------------------------


def test_a_layer_with_other_parameters(folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(transformer, "FeedForward", SwiGLU)
        assert run("here") == 0
        assert Translator.load("here").translate(["the cat"], beam=1)
        assert run("here", "--resume", "--steps", "14") == 0
    with pytest.raises(
        UserError, match=r"^here: the model has no decoder.layers.0.feed_forward.gate"
    ):
        Translator.load("here")


def test_a_layer_that_computes_something_else_is_noticed(folder, monkeypatch, capsys):
    """The weights fit: nothing but what it computes tells that it is another model."""
    assert run("here", "--steps", "4", "--preset", "tiny") == 0
    capsys.readouterr()
    monkeypatch.setattr(transformer.FeedForward, "__call__", variants.gelu)
    with pytest.raises(
        UserError, match=r"^here: the model computes other numbers than when it was saved"
    ):
        Translator.load("here")
    assert_refused(capsys, "the model computes other")


def no_causal_mask(length):
    return np.ones((1, 1, length, length), bool)


def no_padding_mask(ids, pad_id=0):
    return np.ones((len(ids), 1, 1, ids.shape[1]), bool)


def other_heads(self, x):
    """Lay the features out so that a head has every H-th one."""
    batch, length, _ = x.shape
    return x.reshape(batch, length, -1, self.n_heads).transpose(0, 3, 1, 2)


def pre_norm(self, x, sublayer):
    return x + self.dropout(sublayer(self.norm(x)))


CHANGES = {
    "no causal mask": (transformer, "causal_mask", no_causal_mask),
    "no padding mask": (transformer, "padding_mask", no_padding_mask),
    "other heads": (transformer.MultiHeadAttention, "split_heads", other_heads),
    "pre-norm": (transformer.Residual, "__call__", pre_norm),
    "gelu": (transformer.FeedForward, "__call__", variants.gelu),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("preset", ["tiny", pytest.param("small", marks=pytest.mark.slow)])
def test_changes_are_told_from_rounding(preset, name, monkeypatch):
    model = Transformer(Config.preset(preset, 300), seed=1)
    saved, state, rng = probe(model), model.state(), np.random.default_rng(0)
    check_probe(
        model.load_state({key: array.astype(np.float16) for key, array in state.items()}), saved
    )
    bfloat16 = {
        key: array * rng.uniform(1 - 2**-9, 1 + 2**-9, array.shape) for key, array in state.items()
    }
    check_probe(model.load_state(bfloat16), saved)
    model.load_state(state)
    monkeypatch.setattr(*CHANGES[name])
    with pytest.raises(UserError, match="computes other numbers"):
        check_probe(model, saved)


# The probe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "learned", "max_length": 3, "dropout": 0.5}, {"suppressed_ids": (6,)}],
)
def test_the_probe_is_that_of_the_weights_that_are_saved(folder, changes):
    words = Words.train(["a b c"])
    config = Config.preset("tiny", len(words), **changes)
    model, other = Transformer(config, seed=1), Transformer(config, seed=2)
    before, saved = model.state(), other.state()
    save_model("here", saved, config.to_dict(), words, probe=partial(probe, model))
    assert all(np.array_equal(array, before[name]) for name, array in model.state().items())
    loaded, _, notes = load_model("here")
    card = json.loads(Path("here/config.json").read_text())
    assert np.allclose(card["probe"], probe(loaded), rtol=1e-4) and "probe" not in notes
    assert card["probe"] == probe(model, read_model("here")[0]) != probe(model)
    assert model.training and loaded.training


def test_models_without_a_probe_are_loaded(folder):
    words = Words.train(["a b c"])
    model = Transformer(Config.preset("tiny", len(words)))
    save_model("here", model.state(), model.config.to_dict(), words)
    assert "probe" not in json.loads(Path("here/config.json").read_text())
    load_model("here")
    overflowing = {name: array * 1e20 for name, array in model.state().items()}
    save_model(
        "there", overflowing, model.config.to_dict(), words, "float32", probe=partial(probe, model)
    )
    assert json.loads(Path("there/config.json").read_text())["probe"] is None
    load_model("there")  # and translating says that it computes no numbers


ODD = [
    5,
    "text",
    {},
    [],
    [None] * 8,
    ["1"] * 8,
    [True] * 8,
    [1e300] * 8,
    [10**400] * 8,
    [0.5] * 10**5,
    [[1.0]] * 8,
]
ODD += [[float("nan")] * 8, [float("inf")] * 8]


def test_a_damaged_probe_is_one_line(begun):
    card = json.loads(Path("here/config.json").read_text())
    for value in ODD:
        Path("here/config.json").write_text(json.dumps(card | {"probe": value}))
        with pytest.raises(UserError, match=r'^here: damaged \(entry "probe": ') as error:
            Translator.load("here")
        assert len(str(error.value)) < 400 and "\n" not in str(error.value)
