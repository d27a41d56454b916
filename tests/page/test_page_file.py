"""The page as a file: what it contains, what it may do, and how it treats odd text."""

import base64
import copy
import hashlib
import json
import re
import zlib
from unittest import mock

import numpy as np
import pytest
import tiny_translator
from odd_lines import ODD
from page_file import attributes, parsed
from paths import EXAMPLES, ROOT

from minitf.commands import picture
from minitf.commands.translate import main
from minitf.errors import UserError
from minitf.files.models import read_notes
from minitf.page import writer
from minitf.page.writer import page
from minitf.text import PairedSubwords, Subwords, Words
from minitf.transformer import MultiHeadAttention, Transformer, sinusoid
from minitf.translation.translator import Translator

TOY = ROOT / "lessons" / "toy-model"
PAGE = ROOT / "lessons" / "toy-page.html"


@pytest.fixture(scope="module")
def translator():
    subwords = tiny_translator.make_subwords()
    return Translator(tiny_translator.make_model(subwords), subwords, tiny_translator.LONGEST)


@pytest.fixture(scope="module")
def toy():
    return Translator.load(TOY)


@pytest.fixture(scope="module")
def explained(toy):
    return toy.explain("The old woman gave the child a red book.")


def unpacked(text):
    return zlib.decompress(base64.b64decode(text), -15)


def test_the_weights_in_the_page_are_the_models(explained):
    data = json.loads(parsed(page(explained))["data"])
    assert data["source"] == explained.source and data["target"] == explained.target
    for kind, weights in explained.weights.items():
        stored = data["weights"][kind]
        numbers = np.frombuffer(unpacked(stored["packed"]), np.uint8).reshape(stored["shape"])
        assert stored["shape"] == list(weights.shape)
        assert np.abs(numbers / 255 - weights).max() < 0.51 / 255


def test_the_vectors_in_the_page_are_the_models(explained, toy):
    """What enters the encoder is an embedding and a sinusoid; each layer makes new vectors."""
    data = json.loads(parsed(page(explained))["data"])
    vectors = explained.vectors
    for kind, expected in vectors.items():
        stored = data["vectors"][kind]
        numbers = np.frombuffer(unpacked(stored["packed"]), np.int8).reshape(stored["shape"])
        assert np.abs(numbers / 32 - expected.clip(-3.9, 3.9)).max() < 0.51 / 32
    some = np.arange(8) * 8  # of 64
    table = toy.model.embedding.weight.numpy()[explained.source_ids] * 8
    assert np.allclose(vectors["embeddings"], table[:, some])
    waves = sinusoid(len(explained.source_ids), 64)
    assert np.allclose(vectors["source"][0], (table + waves)[:, some], atol=1e-5)
    memory, _ = toy.model.encode(np.array([explained.source_ids]))
    assert np.allclose(vectors["source"][-1], memory.numpy()[0][:, some], atol=1e-5)
    assert vectors["target"].shape == (3, len(explained.target_ids), 8)


def test_the_policy_allows_the_script_and_the_style_of_the_page_alone(explained, toy):
    for options in ({}, {"model": toy.model, "subwords": toy.subwords}):
        text = page(explained, **options)
        policy = next(v for _, name, v in attributes(text) if name == "content" and "src" in v)
        script = text.rpartition("<script>")[2].partition("</script>")[0]
        style = text.partition("<style>")[2].partition("</style>")[0]
        digest = [
            base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
            for part in (style, script)
        ]
        assert policy == (
            f"default-src 'none'; style-src 'sha256-{digest[0]}'; "
            f"script-src 'sha256-{digest[1]}'; img-src data:; form-action 'none'; base-uri 'none'"
        )
        assert text.count("<script>") == 1 and "unsafe" not in policy


def test_the_page_refers_to_nothing_outside(explained, toy):
    text = page(explained, model=toy.model, subwords=toy.subwords)
    assert not [row for row in attributes(text) if row[1] in ("src", "href", "action", "style")]
    assert set(re.findall(r"https?://[\w./]*", text)) == {"http://www.w3.org/2000/svg"}
    found = parsed(text)
    assert not re.findall(r"@import|url\(", found["style"])
    # What could make a request; links are to a file that the page saves, and to a lesson.
    asking = "fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|Worker"
    asking += r"|import\(|\.open\(|location\.\w+"
    assert set(re.findall(asking, found["script"])) == {"location.hash"}
    assert set(re.findall(r"\bhref: (\S+)", found["script"])) == {"url,", "address,"}
    assert re.findall(r"\.src = (\S{22})", found["script"]) == ["`data:image/svg+xml,${"]


def test_odd_lines_stay_text(translator):
    plain = [tag for tag, *_ in attributes(page(translator.explain("a dog", max_extra=1)))]
    lines = ["</script><script>alert(1)</script>", "<!-- <b>", "{{data}} {{style}}", "a & \u2028 b"]
    lines += [line.decode(errors="surrogateescape") for line in ODD.values()]
    for line in lines:
        if not translator.parts(line):
            continue
        explained = translator.explain(line, beam=2, max_extra=1)
        text = page(explained)
        found = parsed(text)
        assert json.loads(found["data"])["line"] == explained.line == found["line"]
        tags = [tag for tag, *_ in attributes(text)]
        assert tags == plain, line


def test_a_long_line_is_shown_up_to_fifty_tokens():
    subwords = tiny_translator.make_subwords()
    long = Translator(
        tiny_translator.make_model(subwords), subwords, max_subwords=200, max_unsplit=200
    )
    explained = long.explain("the dog saw a bird " * 14, beam=1, max_extra=0)
    assert len(explained.source) > 50
    text = page(explained)
    assert "first 50 tokens" in text
    assert json.loads(parsed(text)["data"])["weights"]["source"]["shape"][2:] == [50, 50]


def test_the_page_searches_as_the_line_was_searched(toy):
    explained = toy.explain("Tom saw a dog.", beam=3, alpha=1.25, max_extra=7)
    data = json.loads(
        parsed(page(explained, max_subwords=toy.max_subwords, max_unsplit=toy.max_unsplit))["data"]
    )
    assert data["search"] == {
        "width": 3, "alpha": 1.25, "max_extra": 7, "limit": 12,
        "max_subwords": 20, "max_unsplit": 3, "reads_capitals": True, "and": "&",
    }  # fmt: skip


@pytest.mark.slow
def test_sizes(explained, toy):
    bundled = Translator.load(EXAMPLES / "models" / "en-de")
    long = bundled.explain("I think that the old man wanted to buy a new car" + ", and a horse" * 6)
    assert len(long.source) > 36 and long.parts == 1
    assert len(page(long).encode()) < 200_000
    assert len(page(explained).encode()) < 200_000
    with_model = page(explained, model=toy.model, subwords=toy.subwords)
    assert len(with_model.encode()) < 1_100_000
    with_model = page(long, model=bundled.model, subwords=bundled.subwords)
    # A byte a weight; base64 has 4 characters for 3 bytes. The scales are decimal numbers.
    assert len(with_model.encode()) <= 1.35 * bundled.model.config.count_parameters() + 900_000


def test_a_page_that_is_too_large_is_refused(explained, monkeypatch):
    monkeypatch.setattr(writer, "LARGEST", 1000)
    with pytest.raises(UserError, match="leave the model out"):
        page(explained)


@pytest.mark.parametrize(
    "change",
    [{"positions": "learned"}, {"tie": False}, {"activation": "swish"}, {"d_v": 4}],
    ids=str,
)
def test_a_model_that_the_page_cannot_compute_is_refused(change, explained):
    subwords = tiny_translator.make_subwords()
    model = tiny_translator.make_model(subwords)
    model.config = model.config.replace(**{"tie": True, **change})
    with pytest.raises(UserError, match=f"{next(iter(change))}.*without --with-model"):
        page(explained, model, subwords)


class Blunt(MultiHeadAttention):
    """Looks at everything almost alike."""

    def attend(self, q, k, v, *more):
        return super().attend(q * 0.1, k, v, *more)


@pytest.mark.parametrize("way", ["subclass", "attribute", "assignment"])
def test_a_model_with_a_changed_layer_is_refused(way, explained, toy, monkeypatch):
    model, own = copy.deepcopy(toy.model), MultiHeadAttention.attend
    attention = next(m for m in model.modules() if type(m) is MultiHeadAttention)
    if way == "subclass":
        attention.__class__ = Blunt
    elif way == "attribute":
        attention.attend = Blunt.attend.__get__(attention)
    else:
        blunt = lambda self, query, *more: own(self, query * 0.1, *more)  # noqa: E731
        monkeypatch.setattr(MultiHeadAttention, "attend", blunt)
    with pytest.raises(UserError, match="only with an unchanged Transformer: write"):
        page(explained, model, toy.subwords)


def test_words_and_public_models_are_refused(explained, toy):
    words = Words(["the", "dog", "saw", "a", "bird"])
    config = toy.model.config.replace(vocabulary_size=len(words))
    for others in (words, mock.MagicMock(spec=PairedSubwords)):
        with pytest.raises(UserError, match="not with words or a public model: write"):
            page(explained, Transformer(config), others)


@pytest.mark.parametrize("folder", [TOY, EXAMPLES / "models" / "en-de"], ids=["toy", "bundled"])
def test_the_line_that_a_beam_saves_is_one(folder):
    """Greedy decoding makes something else of it."""
    line = read_notes(folder)["page"]["turning"]
    translator = Translator.load(folder)
    greedy, beam = (translator.translate([line], beam=width)[0][0].text for width in (1, 4))
    assert greedy != beam


def test_subwords_with_symbols_are_refused(explained, toy):
    lines = ["(NP the dog )NP"] * 9
    subwords = Subwords.train(lines, 300, symbols=["(NP", ")NP"], log=lambda notice: None)
    config = toy.model.config.replace(vocabulary_size=len(subwords))
    with pytest.raises(UserError, match="subwords with symbols"):
        page(explained, Transformer(config), subwords)


def test_a_weight_that_float16_cannot_hold_is_refused(explained, toy):
    model = copy.deepcopy(toy.model)
    next(iter(model.parameters())).data[0] = 70_000
    with pytest.raises(UserError, match="too large for float16: write"):
        page(explained, model, toy.subwords)


def test_the_command_writes_a_page(tmp_path, capsys):
    path = tmp_path / "page.html"
    arguments = ["--model", str(TOY), "--attention", str(path), "Can this tall teacher help Tom?"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "Kann dieser große Lehrer Tom helfen?\n"
    found = parsed(path.read_text(encoding="utf-8"))
    assert found["translation"] == "Kann dieser große Lehrer Tom helfen?"
    assert "head" not in found
    assert main(["--with-model", *arguments]) == 0
    assert "MIT licence" in path.read_text(encoding="utf-8")


def test_the_page_of_the_lessons_is_that_of_today(toy, explained):
    """If it is not, write it with the command in minitf/README.md."""
    stored = parsed(PAGE.read_text(encoding="utf-8"))
    made = parsed(
        page(
            explained,
            toy.model,
            toy.subwords,
            toy.max_subwords,
            toy.max_unsplit,
            False,
            ("en", "de"),
        )
    )
    for key in ("script", "style", "head", "line", "translation"):
        assert stored[key] == made[key], key
    assert json.loads(stored["data"])["search"] == json.loads(made["data"])["search"]
    assert stored["low"] == made["low"] and unpacked(stored["high"]) == unpacked(made["high"])


def test_a_page_of_a_model_of_ones_own_has_no_names_of_the_trainer(toy, tmp_path):
    """It calls the text of the user `own`, from `source` to `target`."""
    mine = copy.copy(toy)
    mine.notes = {"corpus": "own", "source_language": "source", "target_language": "target"}
    picture.draw_page(mine, "Tom saw a dog.", tmp_path / "a.html", tmp_path / "mine")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert json.loads(parsed(text)["data"])["languages"] == ["", ""]
    assert "Model: mine; see its folder for whose it is." in text and "trained on own" not in text
