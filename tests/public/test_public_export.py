"""Models of minitf in Hugging Face's format: what comes back computes what went out."""

import json

import numpy as np
import pytest
import tiny_translator
from public_files import PUBLIC, hugging_face, logits_of, rows
from safetensors import safe_open
from safetensors.numpy import load_file
from saved_files import quiet

from minitf import Config, Transformer
from minitf.atomic import save_bytes
from minitf.errors import UserError
from minitf.files.arrays import file_content
from minitf.files.models import read_notes, save_model
from minitf.public.commandline import main
from minitf.public.hugging_face import export_model
from minitf.public.importing import import_model
from minitf.text import Words
from minitf.translation.loading import load_model

SUBWORDS = tiny_translator.make_subwords()
SIZES = {"d_model": 12, "d_ff": 20, "n_heads": 3, "n_layers": 2}
SWITCHES = [
    {},
    {"n_decoder_layers": 1, "activation": "swish", "eps": 1e-5},
    {"attention_bias": True, "output_bias": True, "suppressed_ids": (0, 1, 2)},
    {"sinusoid_layout": "halves", "attention_bias": True},
]


def saved(folder, **switches):
    """Save a model whose arrays are all random, none 0 or 1; return it."""
    model = Transformer(Config(len(SUBWORDS), **(SIZES | switches)))
    rng = np.random.default_rng(3)
    for parameter in model.parameters():
        parameter.data = rng.normal(size=parameter.shape).astype("f4")
    save_model(folder, model.state(), model.config.to_dict(), SUBWORDS, "float32")
    return model


@pytest.mark.parametrize("switches", SWITCHES)
def test_what_comes_back_computes_what_went_out(switches, tmp_path):
    model = saved(tmp_path / "mine", **switches)
    export_model(tmp_path / "mine", tmp_path / "out", say=quiet)
    import_model(tmp_path / "out", tmp_path / "back", "float32", say=quiet)
    again, subwords, _ = load_model(tmp_path / "back")
    theirs = {"sinusoid_layout": "halves", "attention_bias": True, "output_bias": True}
    assert again.config == model.config.replace(**theirs)
    assert subwords.contents() == SUBWORDS.contents()
    ids = np.array([[5, 6, 7, 3]]), np.array([[2, 8, 9, 10, 4]])
    expected = logits_of(model, *ids)
    assert np.allclose(logits_of(again, *ids), expected, rtol=1e-4, atol=1e-4)


def test_a_model_of_minitf_is_stored_as_int8(library, tmp_path):
    model = saved(tmp_path / "mine")
    main(["--keep", "int8", str(tmp_path / "mine"), str(tmp_path / "small")])
    small, *_ = load_model(tmp_path / "small")
    assert small.config == model.config
    for array, other in zip(model.state().values(), small.state().values(), strict=True):
        assert np.abs(array - other).max() <= (array.ndim == 2) * np.abs(array).max() / 250
    export_model(tmp_path / "small", tmp_path / "out", say=quiet)


def test_biases_that_were_trained_elsewhere_come_back(tmp_path):
    """Exported, and fine-tuned in transformers."""
    saved(tmp_path / "mine")
    export_model(tmp_path / "mine", tmp_path / "out", say=quiet)
    arrays = load_file(tmp_path / "out" / "model.safetensors")
    name = "model.encoder.layers.0.self_attn.q_proj.bias"
    arrays[name] = np.arange(12, dtype="f4")
    save_bytes(tmp_path / "out" / "model.safetensors", *file_content(arrays))
    import_model(tmp_path / "out", tmp_path / "back", "float32", say=quiet)
    found = load_model(tmp_path / "back")[0].state()
    assert np.array_equal(found["encoder.layers.0.self_attention.query.bias"], arrays[name])


def test_notes_come_back(tmp_path, monkeypatch):
    """What is known about a model stays with it, and nobody is credited for it by mistake."""
    limits, notes = [], {"max_subwords": 48, "licence": "mine"}
    notes |= {"source_language": "en", "target_language": "de"}
    tried = lambda translator, _: limits.append(translator.max_subwords) or []  # noqa: E731
    monkeypatch.setattr("minitf.public.importing.copied_placeholders", tried)
    model = Transformer(Config(len(SUBWORDS), **SIZES))
    arrays, fields = model.state(), model.config.to_dict()
    save_model(tmp_path / "mine", arrays, fields, SUBWORDS, notes=notes | {"step": 5})
    said = []
    export_model(tmp_path / "mine", tmp_path / "out", say=said.append)
    assert "- licence: mine" in (tmp_path / "out" / "README.md").read_text()
    assert not any("names no licence" in line for line in said)
    import_model(tmp_path / "out", tmp_path / "back", say=quiet)
    found = read_notes(tmp_path / "back")
    assert {name: found[name] for name in notes} == notes and "step" not in found
    assert "credit" not in found and limits == [48]


@pytest.mark.parametrize("name", ["opus-mt-en-de", "another"])
def test_a_round_trip_keeps_the_normalisation(name, tmp_path):
    import_model(hugging_face(tmp_path / name), tmp_path / "a", like="transformers", say=quiet)
    said = []
    export_model(tmp_path / "a", tmp_path / "b", say=quiet)
    import_model(tmp_path / "b", tmp_path / "c", say=said.append)
    first, second = (load_model(tmp_path / at)[1] for at in "ac")
    assert first.opus == second.opus == (name != "another")
    assert not any("normalised" in line for line in said)
    assert not {"licence", "unknown"} & read_notes(tmp_path / "c").keys()
    export_model(tmp_path / "c", tmp_path / "d", say=said.append)
    assert "names no licence" in said[-1]


def test_an_imported_model_goes_out_as_it_came(tmp_path):
    import_model(PUBLIC, tmp_path / "a", "float32", like="transformers", say=quiet)
    export_model(tmp_path / "a", tmp_path / "b", say=quiet)
    theirs, found = (load_file(f / "model.safetensors") for f in (PUBLIC, tmp_path / "b"))
    assert found.keys() == theirs.keys()
    theirs["model.shared.weight"] = theirs["model.shared.weight"][rows()]
    theirs["final_logits_bias"] = theirs["final_logits_bias"][:, rows()]
    assert all(np.array_equal(found[name], theirs[name]) for name in theirs)


def test_the_configuration_names_the_special_ids(tmp_path):
    saved(tmp_path / "mine", suppressed_ids=(0, 1, 2))
    export_model(tmp_path / "mine", tmp_path / "out", say=quiet)
    config, generation = (
        json.loads((tmp_path / "out" / f"{name}.json").read_text())
        for name in ("config", "generation_config")
    )
    assert config["decoder_start_token_id"] == 2 and config["pad_token_id"] == 0
    assert config["eos_token_id"] == 3 and config["minitf"]["eps"] == 1e-6
    assert generation["bad_words_ids"] == [[0], [1], [2]]
    ids = json.loads((tmp_path / "out" / "vocab.json").read_text(encoding="utf-8"))
    assert sorted(ids.values()) == list(range(len(SUBWORDS)))
    with safe_open(tmp_path / "out" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert not file.get_tensor("final_logits_bias").any()


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"norm": "pre"}, "norm pre"),
        ({"positions": "learned", "max_length": 9}, "positions are learned"),
        ({"d_k": 5}, "d_k or d_v"),
        ({"d_v": 5}, "d_k or d_v"),
        ({"sinusoid_base": "t2t"}, "exponents"),
        ({"tie": False}, "one matrix"),
    ],
)
def test_what_transformers_cannot_run_is_refused(switches, message, tmp_path):
    saved(tmp_path / "mine", **switches)
    with pytest.raises(UserError, match=message):
        export_model(tmp_path / "mine", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_list_of_words_is_refused(tmp_path):
    words = Words([f"w{i}" for i in range(7)])
    model = Transformer(Config(11, **SIZES))
    save_model(tmp_path / "mine", model.state(), model.config.to_dict(), words)
    with pytest.raises(UserError, match="a list of words"):
        export_model(tmp_path / "mine", tmp_path / "out")


def test_the_command_exports_and_tells_the_difference(tmp_path, capsys):
    saved(tmp_path / "mine")
    assert main(["--export", "hf", str(tmp_path / "mine"), str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "1e-05" in out and "names no licence" in out
