"""The page's engine in JavaScript against Python: subwords, greedy decoding, beam search."""

import itertools
import json
import random
import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from decoding import likely_end
from odd_lines import ODD, random_line
from page_file import parsed
from paths import EXAMPLES, PACKAGE, ROOT, SUPPORT

from minitf.config import Config
from minitf.decode import Decoding, beam_search, greedy
from minitf.files.models import to_stored, with_scales
from minitf.page.writer import _head_and_weights, page
from minitf.text.normalise import normalise, with_and
from minitf.text.vocabulary import valid_unicode
from minitf.transformer import Transformer
from minitf.translation.reading import truecase
from minitf.translation.translator import Translator

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
CLOSE = 1e-4  # ln P or score; texts nearer than this may change places
TOY, BUNDLED = ROOT / "lessons" / "toy-model", EXAMPLES / "models" / "en-de"


@pytest.fixture(scope="module", params=["toy", pytest.param("bundled", marks=pytest.mark.slow)])
def translator(request):
    return Translator.load({"toy": TOY, "bundled": BUNDLED}[request.param])


def run_engine(folder, translator, lines, width=1, search=(), **options):
    """Return what the engine makes of the lines, with the model as a page contains it.

    search: alpha and max_extra; options: see page_engine.js.
    """
    explained = translator.explain("the", beam=1, max_extra=1)
    found = parsed(page(explained, translator.model, translator.subwords))
    request = {
        "head": json.loads(found["head"]),
        "low": found["low"],
        "high": found["high"],
        "lines": lines,
        "width": width,
        "search": search,
        **options,
    }
    (folder / "page.json").write_text(json.dumps(request), encoding="utf-8")
    engine = PACKAGE / "page" / "engine.js"
    command = ["node", SUPPORT / "page_engine.js", engine, folder / "page.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    answer = json.loads(done.stdout)
    print(f"{answer['milliseconds']} ms for each token")
    return answer["results"]


def test_subwords_are_those_of_sentencepiece(translator, tmp_path):
    rng = random.Random(0)
    raw = [*ODD.values(), *(random_line(rng) for _ in range(300))]
    lines = [valid_unicode(line.decode(errors="surrogateescape")) for line in raw]
    found = run_engine(tmp_path, translator, lines, ids_only=True)
    assert [each["ids"] for each in found] == translator.subwords.encode(lines)


def sentences(translator, count):
    """Return made-up sentences, each short enough for the model to read it as one part."""
    rng = random.Random(1)
    who = ["the teacher", "Tom", "my old friend", "a small cat", "the children", "she", "nobody"]
    does = ["saw", "will help", "has bought", "did not find", "likes", "is looking for", "forgot"]
    what = ["the book", "a black dog", "three houses", "her", "the tall man", "13 apples", "it"]
    more = ["", " yesterday", " in the garden", " because it rains", ", I think", " \U0001f642"]
    found = []
    while len(found) < count:
        line = f"{rng.choice(who)} {rng.choice(does)} {rng.choice(what)}{rng.choice(more)}"
        line = line[0].upper() + line[1:] + rng.choice([".", "?", "!", ""])
        (read,) = translator._read([line])  # spans and markup are kept by Python only
        if line not in found and [[*part.spans, *part.markup] for part in read.parts] == [[]]:
            found.append(line)
    return found


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [1, 4])
def test_translations_are_those_of_python(translator, tmp_path, width, count):
    lines = sentences(translator, count)
    expected = [best[0] for best in translator.translate(lines, beam=width, wellformed=False)]
    differing = {}
    for line, here, there in zip(
        lines, run_engine(tmp_path, translator, lines, width), expected, strict=True
    ):
        if here["text"] == there.text:
            assert abs(here["score"] - there.score) < CLOSE * max(1, abs(there.score))
        else:
            differing[line] = (here["text"], there.text, here["score"] - there.score)
    print(len(lines) - len(differing), "of", len(lines), "are equal; others:", differing)
    assert all(abs(far) < CLOSE for *_, far in differing.values()), differing


@pytest.mark.parametrize("width", [4, pytest.param(3, marks=pytest.mark.slow)])
def test_all_that_explains_a_translation_is_that_of_python(tmp_path, width):
    toy, line = Translator.load(TOY), "The old woman gave the child a red book."
    explained = toy.explain(line, beam=width)
    (found,) = run_engine(tmp_path, toy, [line], width, explained=True)
    assert len(found["beam"]) == len(explained.beam) > 5
    for here, there in zip(found["beam"], explained.beam, strict=True):
        for name in ("parents", "tokens", "finished", "kept"):
            assert here[name] == getattr(there, name), name
        assert here["log_probabilities"] == pytest.approx(there.log_probabilities, abs=1e-3)
    for here, there in zip(found["steps"], explained.next_tokens, strict=True):
        assert [token for token, _ in here] == [token for token, _ in there]
        assert [p for _, p in here] == pytest.approx([p for _, p in there], abs=1e-4)
    for kind, weights in explained.weights.items():
        np.testing.assert_allclose(found["weights"][kind], weights, atol=1e-4, err_msg=kind)
    size = toy.model.config.d_model
    for kind, vectors in explained.vectors.items():
        some = np.arange(vectors.shape[-1]) * size // vectors.shape[-1]
        here = np.array(found["vectors"][kind])[..., some]
        np.testing.assert_allclose(here, vectors, atol=1e-3, err_msg=kind)


def test_the_text_of_any_ids_is_that_of_python(translator, tmp_path):
    """Also of bytes that are no UTF-8, and of U+FEFF, which is no white space in Python."""
    rng = random.Random(2)
    first = translator.subwords.names.index("<0x00>")
    texts = ["\ufeffa\ufeff", "\u3000 \x1c a \x85\x00", "\N{CAT FACE}"]
    rows = [[first + byte for byte in text.encode()] for text in texts]
    rows += [[first + rng.randrange(256) for _ in range(9)] for _ in range(100)]
    rows += [[first + rng.choice([*range(0xE0, 0xF8), 0x80, 0xBF])] * 3 for _ in range(20)]
    rows += [rng.choices(range(len(translator.subwords)), k=9) for _ in range(100)]
    expected = [text.strip() for text in translator.subwords.decode(rows)]
    assert run_engine(tmp_path, translator, rows, texts_of=True) == expected
    assert expected[:3] == ["\ufeffa\ufeff", "a", "\N{CAT FACE}"]


def test_a_line_in_capitals_is_written_small_as_in_python(translator, tmp_path):
    lines = [
        "THE DOG IS HERE",
        "\u201cTHE DOG!\u201d",
        "3 HOUSES",
        "STRASSE",
        "\u0130\u01c5 A\u01c4",
        "NATO",
    ]
    lines += ["AN SSD IS HERE", "THE SS IS NOT", "I", "Tom", "\u00dcBER DEM HAUS"]
    lines = [normalise(line) for line in lines]
    found = run_engine(tmp_path, translator, lines, small=True)
    assert found == [truecase(line, translator.subwords) for line in lines] != lines


def test_a_sign_for_and_is_read_as_in_python(translator, tmp_path):
    lines = [
        "Tom & Mary",
        "TOM & ANNA & 3",
        "AT&T & you",
        "& so on &",
        "\u00fc & \u00fc",
        "a &amp; b",
    ]
    found = run_engine(tmp_path, translator, lines, **{"and": "und"})
    assert found == [with_and(line, "und") for line in lines] != lines


PROGRAM = """
const fs = require("node:fs"), zlib = require("node:zlib"), engine = require(process.argv[1]);
async function run() {
  const found = [];
  for (const { head, low, high, cases } of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const bytes = [Buffer.from(low, "base64"), zlib.inflateRawSync(Buffer.from(high, "base64"))];
    const model = engine.loadModel(head, ...bytes);
    for (const [ids, width, ...search] of cases) {
      const source = engine.encode(model, [...ids, model.config.eos_id]);
      found.push(await (width ? engine.beamSearch(model, source, width, ...search)
        : engine.greedy(model, source, ...search)));
    }
  }
  console.log(JSON.stringify(found.map(({ ids, score, beam }) => [ids, score, beam.length])));
}
run();
"""


def test_the_searches_of_small_models_are_those_of_python():
    """With early ends, late ones and none, with limits from one token on, and with equal tokens."""
    requests, expected = [], []
    for seed, norm in itertools.product(range(3), ("post", "pre")):
        sizes = {"n_layers": 2, "n_decoder_layers": 1 + seed % 2, "d_model": 8, "d_ff": 12}
        config = Config(9, n_heads=2, norm=norm, eps=1e-3, **sizes)
        model, rng = Transformer(config, seed), np.random.default_rng(seed)
        for parameter in model.parameters():
            parameter.data += rng.normal(0, 0.3, parameter.shape).astype(np.float32)
        state = likely_end(model, by=-1.0 if seed == 2 else 1.0).state()
        if seed == 2:
            state["embedding.weight"][4:] = 0  # tokens with equal logits
        kind, stored = "int8" if seed == 1 else "float16", {}
        for name, array in state.items():
            stored |= to_stored(kind, name, array.astype(np.float16))
        arrays = with_scales(stored)
        model.load_state(arrays).astype("float64").eval()
        cases = []
        for length, width, alpha, max_extra in itertools.product(
            (0, 2), (0, 1) if seed == 2 else (0, 1, 4), (0.0, 1.5), (0, 6)
        ):
            ids = rng.integers(4, 9, length).tolist()
            cases.append([ids, width, alpha, max_extra])
            source = np.array([[*ids, config.eos_id]])
            decoding, steps = Decoding(model, cached=False), []
            if width:
                ((best,),) = beam_search(decoding, source, width, alpha, max_extra, trace=steps)
            else:
                (best,) = greedy(decoding, source, max_extra, alpha)
            expected.append((best.ids, best.score, len(steps[0]) if width else 0))
        elements = "".join(_head_and_weights(model, SimpleNamespace(names=list("abcdefghi"))))
        found = dict(re.findall(r'id="(\w+)">(.*?)<', elements))
        requests.append(found | {"head": json.loads(found["head"]), "cases": cases})
        int8 = [name for name, _, *scales in requests[-1]["head"]["arrays"] if scales]
        assert int8 == [name for name, array in stored.items() if array.dtype == np.int8]
    command = ["node", "-e", PROGRAM, PACKAGE / "page" / "engine.js"]
    given = json.dumps(requests)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [(ids, steps) for ids, _, steps in found] == [(ids, n) for ids, _, n in expected]
    assert [score for _, score, _ in found] == pytest.approx([x for _, x, _ in expected], rel=1e-4)
    assert {0, 1, 8} <= {len(ids) for ids, *_ in expected}


def test_no_name_of_a_saved_row_or_column_is_a_formula():
    page = (PACKAGE / "page" / "heads.js").read_text(encoding="utf-8")
    (function,) = re.findall(r"^function tsvOf\(.*?^}$", page, re.MULTILINE | re.DOTALL)
    names = ["=", "+", "@x", "-y", "a-b", '"']
    program = (
        f"const word = (token) => token;\n{function}\n"
        f"console.log(JSON.stringify(tsvOf({json.dumps(names)}, {json.dumps(names)}, "
        f"{json.dumps([[0.5] * len(names)] * len(names))})))"
    )
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in json.loads(done.stdout).split("\n")]
    expected = ["\uff1d", "\uff0b", "\uff20x", "\u2010y", "a-b", '""""']
    assert lines[0] == ["", *expected] and [line[0] for line in lines[1:]] == expected
