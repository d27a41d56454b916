"""What is not the architecture, or not a model at all, is refused in one line."""

import json
import re
import shutil
import struct

import numpy as np
import pytest
from public_files import PUBLIC, hugging_face, marian
from safetensors.numpy import load_file, save_file
from saved_files import message, quiet, weights_in

from minitf.commands import translate
from minitf.files.models import read_notes
from minitf.public.commandline import main
from minitf.public.importing import import_model


def refused(source, tmp_path):
    """Return the message with which a model is refused; nothing is written."""
    said = message(lambda: import_model(source, tmp_path / "out", say=quiet))
    assert not (tmp_path / "out").exists()
    return said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"normalize_before": True}, "pre-norm"),
        ({"add_final_layer_norm": True}, "last norm"),
        ({"normalize_embedding": True}, "embeddings are normalised"),
        ({"static_position_embeddings": False}, "positions are learned"),
        ({"scale_embedding": False}, "root of d_model"),
        ({"share_encoder_decoder_embeddings": False}, "separate vocabularies"),
        ({"tie_word_embeddings": False}, "a matrix of its own"),
        ({"activation_function": "gelu"}, "'gelu': minitf has relu and swish"),
        ({"model_type": "mbart"}, "'mbart': minitf reads MarianMT models only"),
        ({"decoder_ffn_dim": 25}, "differ in ffn_dim"),
        ({"encoder_ffn_dim": 25, "decoder_ffn_dim": 25}, r"shape \(24, 16\)"),
        ({"encoder_layers": 1}, "unknown array 'model.encoder.layers.1"),
        ({"encoder_layers": 10**12}, "lack 'model.encoder.layers.2"),
        ({"encoder_layers": "two"}, "'encoder_layers' is not an integer"),
        ({"activation_function": ["relu"]}, "'activation_function' is not a text"),
        ({"normalize_before": None}, "'normalize_before' is not true or false"),
        ({"d_model": 10**9}, "shape"),
        ({"d_model": 0}, "d_model must be an integer of at least 1"),
        ({"vocab_size": 58101}, "subwords, but the table has 58,101 rows"),
        ({"eos_token_id": 10**9}, "a special id is wrong"),
        ({"pad_token_id": 0}, "a special id is wrong"),
        ({"minitf": {"vocabulary_size": 7, "eps": -1}}, "eps must be at least 0"),
        ({"minitf": 7}, "entry 'minitf' is not an object"),
        ({"minitf_notes": {"source": ["x"]}}, r"config.json: .*entry \"source\": \['x'\]"),
    ],
)
def test_other_architectures_and_settings(settings, message, tmp_path):
    assert re.search(message, refused(hugging_face(tmp_path / "in", settings=settings), tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transformer-decoder-autoreg": "rnn"}, "another recurrent cell than the SSRU"),
        ({"transformer-preprocess": "n"}, "pre-norm"),
        ({"transformer-postprocess": "da"}, "Add & Norm"),
        ({"transformer-postprocess-top": "n"}, "last norm"),
        ({"transformer-tied-layers": "\n  - 1\n  - 1"}, "transformer-tied-layers is on"),
        ({"transformer-no-projection": "true"}, "transformer-no-projection is on"),
        ({"transformer-ffn-activation": "gelu"}, "'gelu': minitf has relu and swish"),
        ({"tied-embeddings-all": "false"}, "lack 'encoder_Wemb'"),
        ({"type": "s2s"}, "not a Transformer"),
        ({"right-left": "true"}, "writes from the last word to the first"),
        ({"enc-depth": "many"}, "'enc-depth' is not a number"),
        ({"enc-depth": "999999999"}, "lack 'encoder_l3_self_Wq'"),
    ],
)
def test_other_architectures_of_marian(settings, message, tmp_path):
    assert message in refused(marian(tmp_path / "in", settings), tmp_path)


def test_settings_that_change_nothing_are_read(tmp_path):
    names = "right-left", "transformer-pool", "transformer-decoder-dim-ffn", "transformer-dim-aan"
    settings = dict(zip(names, ("false", "false", "0", "2048"), strict=True))
    settings |= {"transformer-tied-layers": "\n  []", "transformer-preprocess": '"d"'}
    import_model(marian(tmp_path / "in", settings), tmp_path / "out", say=print)


def test_other_weights_are_known_by_their_arrays(tmp_path):
    one = np.ones((1, 16), "f4")
    assert "'decoder_l1_rnn_W'" in refused(marian(tmp_path / "a", decoder_l1_rnn_W=one), tmp_path)
    assert "'Wpos'" in refused(marian(tmp_path / "b", Wpos=one), tmp_path)
    quantised = marian(tmp_path / "c", encoder_l1_self_Wq=np.ones((16, 16), np.int8))
    assert "int8" in refused(quantised, tmp_path)


def test_marians_binaries(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "model.intgemm.alphas.bin"
    path.write_bytes(struct.pack("<QQ", 1, 300) + bytes(200))
    assert "damaged" in refused(path, tmp_path)
    assert "damaged" in refused(path.parent, tmp_path)
    folder = hugging_face(tmp_path / "hf", "new.bin")
    shutil.copy(path, folder / "pytorch_model.bin")
    assert "Firefox" in refused(folder, tmp_path)


def test_a_file_stands_for_its_folder(tmp_path):
    folder = hugging_face(tmp_path / "in")
    import_model(folder / "model.safetensors", tmp_path / "a", say=quiet)
    assert read_notes(tmp_path / "a")["source"] == "in"
    for name in ("config.json", weights_in(tmp_path / "a").name):  # minitf's own, stored again
        import_model(tmp_path / "a" / name, tmp_path / name, "int8", say=quiet)
    assert "no such file" in refused(folder / "other.bin", tmp_path)


def test_embeddings_are_not_scaled_where_nothing_says_so(tmp_path):
    """As in transformers, whose default it is."""
    folder = hugging_face(tmp_path / "in")
    settings = json.loads((folder / "config.json").read_text())
    del settings["scale_embedding"]
    (folder / "config.json").write_text(json.dumps(settings))
    assert "root of d_model" in refused(folder, tmp_path)


def test_words_without_sentencepiece(tmp_path):
    folder = hugging_face(tmp_path / "in")
    (folder / "source.spm").unlink()
    assert "no source.spm: minitf cannot read models whose text" in refused(folder, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids.pop("e"), "ids are not 0, 1, 2"),
        (lambda ids: ids.update(e=0), "ids are not 0, 1, 2"),
        (lambda ids: ids.update(e="x"), "ids are not 0, 1, 2"),
        (lambda ids: ids.update(more=len(ids)), "subwords, but the table has"),
        (lambda ids: ids.update(unknown=ids.pop("<unk>")), "lacks <unk>"),
    ],
)
def test_vocabularies_that_do_not_fit(change, message, tmp_path):
    folder = hugging_face(tmp_path / "in")
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    change(ids)
    (folder / "vocab.json").write_text(json.dumps(ids))
    assert message in refused(folder, tmp_path)


def test_tables_that_differ_and_positions_that_are_learned(tmp_path):
    folder = hugging_face(tmp_path / "in")
    weights = load_file(folder / "model.safetensors")
    more = {"model.decoder.embed_tokens.weight": weights["model.shared.weight"] + 1}
    save_file(weights | more, folder / "model.safetensors")
    assert "model.decoder.embed_tokens.weight differ" in refused(folder, tmp_path)
    more = {"model.encoder.embed_positions.weight": np.ones((9, 16), "f4")}
    save_file(weights | more, folder / "model.safetensors")
    assert "learned positions" in refused(folder, tmp_path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 295000000\n"


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (hugging_face, ["model.safetensors", "source.spm", "target.spm", "vocab.json"]),
        (lambda folder: hugging_face(folder, "new.bin"), ["pytorch_model.bin"]),
        (marian, ["opus.npz", "source.spm", "opus.vocab.yml"]),
    ],
)
def test_a_folder_that_was_cloned_without_git_lfs(make, names, tmp_path):
    for name in names:
        folder = make(tmp_path / f"with {name}")
        (folder / name).write_bytes(POINTER)
        message = refused(folder, tmp_path)
        assert message.startswith(f"{folder / name}: ") and "git lfs pull" in message


def test_a_pointer_that_is_not_needed_is_ignored(tmp_path):
    folder = hugging_face(tmp_path / "in")
    (folder / "pytorch_model.bin").write_bytes(POINTER)
    import_model(folder, tmp_path / "out", say=quiet)


def test_translate_tells_how_to_convert_a_folder_of_the_hub(tmp_path, capsys):
    folder = hugging_face(tmp_path / "in")
    assert translate.main(["--model", str(folder), "the dog"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "update minitf" not in message
    assert f"convert it first: python -m minitf public {folder} OUT" in message


def test_files_that_are_missing_or_something_else(tmp_path):
    assert "no such file or folder" in refused(tmp_path / "nothing", tmp_path)
    assert "cannot be read (File name too long)" in refused(tmp_path / ("x" * 300), tmp_path)
    (tmp_path / "text.txt").write_text("hello")
    assert "not a public model" in refused(tmp_path / "text.txt", tmp_path)
    (tmp_path / "empty").mkdir()
    assert "0 .npz or .bin files" in refused(tmp_path / "empty", tmp_path)
    folder = hugging_face(tmp_path / "in")
    (folder / "model.safetensors").unlink()
    assert "neither model.safetensors nor pytorch_model.bin" in refused(folder, tmp_path)


def test_the_command_line_ends_in_one_line(tmp_path, capsys):
    assert main([str(tmp_path / "nothing"), str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([str(PUBLIC), str(tmp_path / "out"), "--keep", "float32"]) == 0
    assert main([str(PUBLIC), str(tmp_path / "out")]) == 2
