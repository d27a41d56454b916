"""Public models in the formats in which they are published become ordinary folders of minitf."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from public_files import PUBLIC, difference, hugging_face, marian, vocabulary, write_yaml
from safetensors.numpy import load_file, save_file
from saved_files import quiet, weights_in

from minitf import Translator
from minitf.commands import translate
from minitf.errors import UserError
from minitf.files.models import read_notes
from minitf.public import importing
from minitf.public.formats import is_opus, languages_of_name
from minitf.public.importing import import_model
from minitf.text import PairedSubwords
from minitf.translation.languages import naming_languages
from minitf.translation.loading import load_model


def imported(source, tmp_path, **options):
    """Import a model, and load what was written."""
    said = []
    import_model(source, tmp_path / "out", **{"dtype": "float32", **options}, say=said.append)
    model, subwords, notes = load_model(tmp_path / "out")
    return model, subwords, notes, said


def zipped(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(folder.iterdir()):
            archive.write(each, each.name)
    return path


def test_the_logits_are_those_of_transformers(tmp_path):
    model, *_ = imported(hugging_face(tmp_path / "in"), tmp_path, like="transformers")
    assert difference(model) < 1e-6


def test_an_output_matrix_beside_the_table_is_left_out(tmp_path):
    """The first tc-big models have one with other numbers, which the right program ignores."""
    folder = hugging_face(tmp_path / "in")
    weights = load_file(folder / "model.safetensors")
    stray = weights["model.shared.weight"][::-1].copy()
    save_file(weights | {"lm_head.weight": stray}, folder / "model.safetensors")
    model, *_, said = imported(folder, tmp_path, like="transformers")
    assert difference(model) < 1e-6
    assert [line for line in said if "lm_head.weight" in line and line.startswith("notice")]


def test_relu_has_the_logits_of_transformers(tmp_path):
    folder = hugging_face(tmp_path / "in", settings={"activation_function": "relu"})
    assert difference(imported(folder, tmp_path, like="transformers")[0], "relu") < 1e-6


def test_a_marian_file_with_three_tables_and_two_lists_of_subwords(tmp_path):
    """The rows of the source in another order, the source's list last by its name."""
    folder = marian(tmp_path / "in", {"tied-embeddings-all": "false", "output-omit-bias": "true"})
    with np.load(folder / "opus.npz") as file:
        arrays = dict(file)
    table, order = arrays.pop("Wemb"), np.random.default_rng(0).permutation(len(vocabulary()) - 1)
    arrays |= {"encoder_Wemb": table[order], "decoder_Wemb": table}
    bias = arrays.pop("decoder_ff_logit_out_b")
    np.savez(folder / "opus.npz", decoder_ff_logit_out_Wt=table, **arrays)
    np.savez(folder / "opus.npz.optimizer.npz", adam=table)
    names = sorted(vocabulary(), key=vocabulary().get)[:-1]
    (folder / "opus.vocab.yml").rename(folder / "a.yml")
    write_yaml(folder / "b.yml", [names[i] for i in order])
    (folder / "opus.npz.decoder.yml").write_text("vocabs:\n  - /there/b.yml\n  - /there/a.yml\n")
    model, *_ = imported(folder, tmp_path, like="transformers")
    model.output_bias.data[3:] = np.concatenate([bias[0, :1], bias[0, 2:]])
    assert difference(model) < 1e-6


def test_all_formats_give_the_same_bits(tmp_path):
    sources = [
        hugging_face(tmp_path / "a" / "in"),
        hugging_face(tmp_path / "b" / "in", "new.bin"),
        hugging_face(tmp_path / "c" / "in", "legacy.bin"),
        marian(tmp_path / "d" / "in"),
        zipped(marian(tmp_path / "e" / "opus"), tmp_path / "e" / "opus-2020-02-26.zip"),
    ]
    first = None
    for source in sources:
        found = imported(source, source.parent)[0].state()
        first = first or found
        assert found.keys() == first.keys()
        assert all(np.array_equal(found[name], first[name]) for name in first)


def test_by_default_it_computes_as_marian_does(tmp_path):
    config = imported(PUBLIC, tmp_path)[0].config
    assert (config.sinusoid_base, config.eps, config.suppressed_ids) == ("t2t", 1e-6, (0, 1, 2))
    assert (config.n_layers, config.n_decoder_layers, config.activation) == (2, 1, "swish")
    assert config.attention_bias and config.output_bias and config.tie


def test_rows_are_renumbered_and_start_is_their_pad(tmp_path):
    model, subwords, *_ = imported(PUBLIC, tmp_path)
    theirs, table = load_file(PUBLIC / "model.safetensors"), model.embedding.weight.data
    shared, ids = theirs["model.shared.weight"], vocabulary()
    for ours, name in enumerate(["<pad>", "<unk>", "<pad>", "</s>", *subwords.names[4:]]):
        assert np.array_equal(table[ours], shared[ids[name]])
        assert model.output_bias.data[ours] == theirs["final_logits_bias"][0, ids[name]]
    assert not table[2].any()


def test_float16_is_the_default_and_a_card_is_written(tmp_path):
    folder = hugging_face(tmp_path / "opus-mt-en-de")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    said = []
    import_model(folder, tmp_path / "out", say=said.append)
    arrays = load_file(weights_in(tmp_path / "out"))
    assert {str(array.dtype) for array in arrays.values()} == {"float16"}
    notes = read_notes(tmp_path / "out")
    assert (notes["source_language"], notes["target_language"]) == ("en", "de")
    assert (notes["licence"], notes["source"]) == ("apache-2.0", "opus-mt-en-de")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "apache-2.0" in card and "Tiedemann" in card and "float16" in card
    assert any("apache-2.0" in line for line in said) and any(">>deu<<" in line for line in said)


def test_a_folder_may_be_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(hugging_face(tmp_path / "opus-mt-en-de"))
    import_model(".", tmp_path / "out", say=quiet)
    assert read_notes(tmp_path / "out")["source"] == "opus-mt-en-de"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    import_model(tmp_path / "opus-mt-en-de", ".", say=quiet)
    assert Path("README.md").exists() and Path("config.json").exists()


def test_it_translates_and_draws_like_any_other_model(tmp_path):
    import_model(PUBLIC, tmp_path / "out", say=quiet)
    translator = Translator.load(tmp_path / "out")
    found = translator.translate(["the dog sleeps", "", ">>deu<< the dog"], max_extra=3)
    assert [len(best) for best in found] == [1, 1, 1] and found[1][0].text == ""
    weights, rows, columns = translator.attention("the dog sleeps", max_extra=3)
    assert weights.shape == (4, len(rows), len(columns)) and columns[-1] == "</s>"


def test_the_words_that_it_copies_are_noted(tmp_path, monkeypatch):
    """They are tried in the language of its name."""
    tried = []
    words = lambda model, language: tried.append((type(model), language)) or ["4711"]  # noqa: E731
    monkeypatch.setattr(importing, "copied_placeholders", words)
    import_model(hugging_face(tmp_path / "opus-mt-en-de"), tmp_path / "out", say=quiet)
    assert tried == [(Translator, "en")] and read_notes(tmp_path / "out")["placeholders"] == [
        "4711"
    ]
    assert Translator.load(tmp_path / "out").placeholders == ["4711"]


@pytest.mark.parametrize("ids", [[0], [0, len(vocabulary()) - 1]])
def test_an_end_mark_in_a_list(ids, tmp_path):
    """Padding in it changes nothing: it is never written."""
    folder = hugging_face(tmp_path / "in", settings={"eos_token_id": ids})
    assert difference(imported(folder, tmp_path, like="transformers")[0]) < 1e-6


def test_a_table_that_was_padded_and_weights_of_bfloat16(tmp_path):
    folder, size = hugging_face(tmp_path / "in"), len(vocabulary())
    path, padded = folder / "model.safetensors", -(-size // 32) * 32
    stored = load_file(path).items()
    weights = {name: (x.view("<u4") & 0xFFFF0000).view("<f4") for name, x in stored}  # 16 bits
    save_file(weights, path)
    expected = imported(folder, tmp_path / "a")[0].state()
    settings = json.loads((folder / "config.json").read_text()) | {"vocab_size": padded}
    (folder / "config.json").write_text(json.dumps(settings))
    more, table, bias = (0, padded - size), "model.shared.weight", "final_logits_bias"
    weights[table] = np.pad(weights[table], (more, (0, 0)))
    weights[bias] = np.pad(weights[bias], ((0, 0), more))
    header, data = {}, b""
    for name, array in weights.items():
        start, data = len(data), data + array.view("<u2")[..., 1::2].tobytes()
        header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    found = imported(folder, tmp_path / "b")[0].state()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_the_licence_of_a_release_is_that_of_its_file(tmp_path):
    folder = marian(tmp_path / "in")
    (folder / "LICENSE").write_text("\n  Attribution 4.0 International\n\nmore\n")
    release = zipped(folder, tmp_path / "opus-2020-02-26.zip")
    assert imported(release, tmp_path / "a")[2]["licence"] == "Attribution 4.0 International"
    for text, expected in (
        ("license: cc-by-4.0\n", "cc-by-4.0"),
        ("license:\n- mit\n- cc-by-4.0\ntags:\n- x\n", "mit and cc-by-4.0"),
        ("license: [mit, 'cc-by-4.0']\n", "mit and cc-by-4.0"),
    ):
        (folder / "README.md").write_text(text)
        assert imported(folder, tmp_path / text[-5:-1])[2]["licence"] == expected


LANGUAGES = {  # the name of a model: the languages that it tells
    "opus-mt-en-de": ("en", "de"),
    "Helsinki-NLP/opus-mt-tc-big-en-fi": ("en", "fi"),
    "Helsinki-NLP/opus-mt_tiny_fra-eng": ("fra", "eng"),
    "HPLT/translate-en-de": ("en", "de"),
    "eng-deu": ("eng", "deu"),
    "opus-mt-tc-big-en-cat_oci_spa": (None, None),  # several targets
    "opus-mt-tc-big-cat_oci_spa-en": (None, None),
    "opus-mt-tc-base-uk-ces_slk": (None, None),
    "my_model_ab_cd": (None, None),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_name_tells_single_languages_only(name):
    notes = languages_of_name(name)
    assert (notes.get("source_language"), notes.get("target_language")) == LANGUAGES[name]


def test_a_line_is_one_part_as_long_as_it_can_be_read_at_once(tmp_path):
    """Most were trained on several sentences in a line, too, and in languages of any script."""
    import_model(PUBLIC, tmp_path / "out", say=quiet)
    translator = Translator.load(tmp_path / "out")
    line = "The dog sleeps. The bird sings. " * 4
    assert translator.max_subwords == 200 > len(translator.subwords.encode([line])[0]) > 33
    assert len(translator.parts(line)) == 1


def test_a_missing_or_unknown_target_language_is_told(tmp_path, capsys):
    import_model(PUBLIC, tmp_path / "out", say=quiet)
    lines = [">>deu<< the dog", "", "the dog", "a bird", ">>ger<< dog", ">>ger<< dog", " >>x<<a"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    command = ["--model", str(tmp_path / "out"), "--max-extra", "1"]
    assert translate.main([*command, "--input", str(tmp_path / "in.txt")]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == len(lines)
    missing, unknown, other = (line for line in err.split("\n") if line.startswith("notice"))
    assert "line 3 " in missing and ">>deu<<, >>fra<<" in missing
    assert "line 5 " in unknown and "'>>ger<<'" in unknown and ">>deu<<, >>fra<<" in unknown
    assert "line 7 " in other and "'>>x<<'" in other
    assert translate.main([*command, ">>fra<< the dog"]) == 0
    assert "notice" not in capsys.readouterr().err


# The vocabulary -----------------------------------------------------------------------------------


def paired(opus=True):
    names = [name for name in vocabulary() if name not in ("<pad>", "<unk>", "</s>")]
    models = [(PUBLIC / f"{side}.spm").read_bytes() for side in ("source", "target")]
    return PairedSubwords(*models, names, opus)


def test_the_vocabulary_cuts_each_side_by_its_own_model():
    subwords = paired()
    (source,) = subwords.encode(["ist gut"])
    (target,) = subwords.encode(["ist gut"], side="target")
    assert source != target
    assert subwords.decode([target]) == ["ist gut"]
    assert subwords.decode([source], side="source") == ["ist gut"]


def test_subwords_of_the_source_alone_are_text_in_the_target():
    """As those of a copied name: target.spm does not know them, and returns them as they are."""
    subwords = paired()
    (dog,), (good,) = subwords.encode(["the dog"]), subwords.encode(["ist gut"], side="target")
    assert subwords.pieces(dog) == ["\u2581the", "\u2581do", "g"]
    found = subwords.decode([dog, [*good, *dog], [*dog, *good]])
    assert found == ["the dog", "ist gut the dog", "the dog ist gut"]


def test_the_source_is_normalised_as_opus_does():
    curly, plain = "“the  dog”…  sleeps", '"the dog"... sleeps'
    for side in ("source", "target"):
        assert paired().encode([curly], side=side) == paired().encode([plain], side=side)
    assert paired(opus=False).encode([curly]) != paired(opus=False).encode([plain])


CARDS = {  # the beginning of a card: whether the model's text was normalised as OPUS does
    "": False,
    "### opus-mt-en-de\n": True,
    "---\ntags:\n- translation\n- opus-mt-tc\n---\n": True,
    "* OPUS readme: [en-de](https://github.com/Helsinki-NLP/...)": True,
    "---\nbase_model: Helsinki-NLP/opus-mt-en-de\n---\n": True,
    "# ElanMT\n| model | BLEU |\n| Helsinki-NLP/opus-mt-ja-en | 20 |\ntested on Tatoeba": False,
    "trained on data of OPUS": False,
}


@pytest.mark.parametrize("card", CARDS)
def test_only_the_text_of_opus_is_normalised(card, tmp_path):
    (tmp_path / "README.md").write_text(card)
    assert is_opus(tmp_path) == CARDS[card]


def test_a_language_token_is_one_id_and_begins_every_part(tmp_path):
    subwords = paired()
    (ids,), (plain,) = subwords.encode([">>deu<< the dog"]), subwords.encode(["the dog"])
    (deu,) = [i for i in range(len(subwords)) if subwords.pieces([i]) == [">>deu<<"]]
    assert ids == [deu, *plain]
    assert subwords.encode([">>xyz<< the dog"]) != subwords.encode(["the dog"])
    assert deu not in subwords.encode([">>deu<< the dog"], side="target")[0]
    assert subwords.languages() == [">>deu<<", ">>fra<<"]
    import_model(PUBLIC, tmp_path / "out", say=quiet)
    translator = Translator.load(tmp_path / "out")
    translator.max_subwords = translator.max_unsplit = 9
    line = "the dog sleeps in the house. " * 4
    parts = translator.parts(f">>deu<< {line}")
    assert [i for part in parts for i in part[1:]] == subwords.encode([line])[0], "none is lost"
    assert len(parts) > 3 and all(part[0] == deu and len(part) <= 9 for part in parts)


def test_lines_that_name_no_language_are_numbered_through_all_batches():
    batches, said = [[">>deu<< One.", "Two."], ["", "Four.", ">>xyz<< Five."]], []
    assert list(naming_languages(batches, paired(), said.append)) == batches
    beginnings = ["line 2 does not say into which", "line 5 begins with '>>xyz<<', which"]
    for line, beginning in zip(said, beginnings, strict=True):
        assert line.startswith(f"notice   {beginning}") and line.endswith(">>deu<<, >>fra<<")


def test_every_string_can_be_cut():
    odd = ["", " ", "\ud800", "\x00\x1f", "<s></s><pad>", ">><<", ">>deu<<", "é ﷽ 👩‍🚀", "。．１"]
    for ids in paired().encode(odd) + paired().encode(odd, side="target"):
        assert all(0 < i < len(paired()) and i not in (0, 2, 3) for i in ids)


def test_damaged_vocabularies_are_refused(tmp_path):
    path = tmp_path / PairedSubwords.file_name
    contents = paired().contents()
    for name in contents:
        for damaged in (b"", b"\xff\xfe", b"[1, 2]", b'{"pieces": 3, "normalise": "opus"}'):
            for each, content in contents.items():
                (tmp_path / each).write_bytes(damaged if each == name else content)
            with pytest.raises(UserError, match=name):
                PairedSubwords.load(path)


def test_yaml_vocabularies_with_every_kind_of_quotes(tmp_path):
    folder = marian(tmp_path / "in")
    ids = vocabulary()
    names = sorted(ids, key=ids.get)[:-1]
    names[5:9] = ["a: b", "it's", '"', "\x85"]
    lines = [f"{json.dumps(name)}: {i}" for i, name in enumerate(names)]
    lines[4] = f"{names[4]}: 4"
    lines[5:9] = ["? 'a: b'", ": 5", "'it''s': 6", '"\\"": 7', '"\\x85": 8']
    (folder / "opus.vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert imported(folder, tmp_path)[1].names[7:11] == ["a: b", "it's", '"', "\x85"]


def test_an_existing_folder_is_kept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="out is not empty"):
        import_model(PUBLIC, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
