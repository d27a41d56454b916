"""The numbers that the views of the page show, in a browser, against the model's in Python."""

import json
import re
import types

import numpy as np
import pytest
from page_browser import CHROMIUM, report_of
from paths import ROOT

from minitf.decode import length_penalty
from minitf.page.explained import recorded_pass
from minitf.page.writer import write_page
from minitf.text import BOS
from minitf.translation.translator import Translator

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
KINDS = ("encoder", "decoder", "source")
# The page has replaced the stored weights, which are rounded, by the model's own.
READY = """
while (!shown?.inner) await new Promise((resolve) => setTimeout(resolve, 20));
const at = (id) => document.getElementById(id);
const see = (id) => { if (chosen.view !== id) openView(id); return at(id); }; // a view, open
"""


@pytest.fixture(scope="module")
def toy():
    return Translator.load(ROOT / "lessons" / "toy-model")


@pytest.fixture(scope="module")
def explained(toy):
    return toy.explain("Tom saw a dog.", beam=3)


@pytest.fixture(scope="module")
def path(toy, explained, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(path, explained, model=toy.model, subwords=toy.subwords)
    return path


def test_the_added_end_mark_of_a_text_that_was_cut_off(path):
    """Neither the model nor beam search has chosen it."""
    script = """
    const last = shown.target.length - 1, weights = shown.weights.source[0][0];
    const told = (t) => stepOf(t, weights[t], 0).map((node) => node.textContent).join(" ");
    const before = told(last);
    shown.limit = last; // as if it had ended there
    return [before, told(last), told(last - 1)];
    """
    (chosen, added, earlier), messages = report_of(path, READY + script)
    assert messages == []
    assert "The first of them is taken." in chosen and "cut off" not in chosen + earlier
    assert "None of them is taken: the text was cut off here" in added


def shifted(by):
    """Return 4 rows, in each of which the token `by` places away gets all; or else, token 2."""
    return [[float(s == (t + by if 0 <= t + by < 4 else 2)) for s in range(4)] for t in range(4)]


def column(s):
    return [[float(i == s) for i in range(4)] for _ in range(4)]


SAME, UNIFORM = shifted(0), [[0.25] * 4] * 4
SCATTERED = [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
IN_PART = (0.5 * np.array(SAME) + 0.5 * np.array(UNIFORM)).tolist()
DESCRIBED = [
    ("encoder", SAME, "looks at the same token (1.00)"),
    ("encoder", shifted(-1), "looks at the token before (1.00)"),
    ("encoder", shifted(1), "looks at the token after (1.00)"),
    ("encoder", column(3), "rests on the end mark (1.00)"),
    ("encoder", IN_PART, "in part: looks at the same token (0.63)"),
    ("encoder", UNIFORM, "each row looks at several tokens (the greatest weight of a row: 0.25)"),
    (
        "encoder",
        SCATTERED,
        "each row looks mostly at one token (the greatest weight of a row: 1.00)",
    ),
    ("decoder", SAME, "looks at the token just written (1.00)"),
    ("decoder", shifted(-1), "looks one token further back (1.00)"),
    ("decoder", column(0), "rests on the start mark (1.00)"),
    ("source", SAME, "goes through the input in order (1.00)"),
    ("source", [SAME[0], SAME[3]], "goes through the input in order (1.00)"),
    ("source", column(3), "rests on the end mark (1.00)"),
]


def asked(path, script, value=None):
    """Return what a script reports about the page; in it, GIVEN is a value from Python."""
    found, messages = report_of(path, READY + script.replace("GIVEN", json.dumps(value)))
    assert messages == []
    return found


def test_what_is_said_about_a_head_is_true_of_its_matrix(path):
    script = """
    shown = { source: ["a", "b", "c", "</s>"], target: ["A", "B", "C", "</s>"] };
    return GIVEN.map(([kind, matrix]) => describe(kind, matrix));
    """
    found = asked(path, script, [case[:2] for case in DESCRIBED])
    assert found == [said for *_, said in DESCRIBED]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bars_of_a_token_are_its_weights(explained, path, kind):
    script = """
    const numbers = [];
    see("attention");
    for (const reverse of [false, true]) {
      Object.assign(chosen, { kind: GIVEN, layer: 0, head: 2, row: 1, reverse });
      updateAll();
      const line = document.querySelectorAll(reverse ? "[id^=row-]" : "[id^=column-]");
      numbers.push([...line].map((node) => [node.querySelector("small").textContent.trim(),
        node.querySelector(".tall span").style.height]));
    }
    return numbers;
    """
    matrix = explained.weights[kind][0, 2]
    for shown, weights in zip(asked(path, script, kind), (matrix[1], matrix[:, 1]), strict=True):
        for (text, height), weight in zip(shown, weights, strict=True):
            assert float(text.replace("hidden", "0")) == pytest.approx(weight, abs=0.006)
            assert float(height.rstrip("%")) == pytest.approx(100 * weight, abs=0.1)


def test_the_likely_tokens_of_each_step(explained, path):
    script = """
    const steps = [];
    see("steps");
    for (let t = 0; t < shown.target.length; t++) {
      chosen.step = t;
      update(showSteps);
      steps.push([...document.querySelectorAll("#steps .bars")].map((list) =>
        [...list.children].map((row) => row.lastChild.textContent)));
    }
    return steps;
    """
    found = asked(path, script)
    attention = explained.weights["source"][-1].mean(axis=0)
    for (likely, looks), step, weights in zip(found, explained.next_tokens, attention, strict=True):
        p = [p for _, p in step]
        for text, expected in zip(likely, [*p, 1 - sum(p)], strict=True):
            number = float(text.removeprefix("<").removesuffix("%"))
            assert number == pytest.approx(100 * expected, abs=0.55 if expected > 0.09 else 0.11)
        assert [float(text) for text in looks] == pytest.approx(weights, abs=0.006)


def finished(explained, subwords):
    """Return (text, ln P, length) of each text that the beam finished."""
    found, texts = [], [[]]
    for length, step in enumerate(explained.beam, 1):
        ids = [[*texts[p], i] for p, i in zip(step.parents, step.tokens, strict=True)]
        for rank in step.finished:
            (text,) = subwords.decode([ids[rank]])
            found.append((text.strip(), step.log_probabilities[rank], length))
        texts = [ids[rank] for rank in step.kept]
    return found


def test_what_the_beam_found_is_ranked_as_the_paper_says(toy, explained, path):
    script = """
    const rows = [];
    see("beam");
    for (const alpha of GIVEN) {
      at("alpha").value = alpha;
      at("alpha").dispatchEvent(new Event("input"));
      rows.push([...document.querySelectorAll(".ranked tbody tr")].map((row) =>
        [...row.cells].map((cell) => cell.textContent)));
    }
    chosen.alpha = data.search.alpha;
    return [rows, textOf(winnerOf(beamNodes(shown.beam)))];
    """
    alphas = [0, 0.6, 2]
    rankings, winner = asked(path, script, alphas)
    texts = finished(explained, toy.subwords)
    assert winner == explained.translation
    assert [row[0] for row in rankings[0]] != [row[0] for row in rankings[2]]
    for alpha, rows in zip(alphas, rankings, strict=True):
        penalties = [length_penalty(length, alpha) for *_, length in texts]
        table = [(*row, p, row[1] / p) for row, p in zip(texts, penalties, strict=True)]
        table.sort(key=lambda row: -row[-1])
        assert [row[0] for row in rows] == [row[0] for row in table]
        numbers = [[float(cell) for cell in row[1:]] for row in rows]
        assert np.abs(np.array(numbers) - [row[1:] for row in table]).max() < 6e-3


def test_the_text_of_a_box_is_that_of_its_subwords(toy, path):
    """Also where a character is spelled in bytes, or the text looks like the name of a byte."""
    texts = ["The dog.", "a \N{CAT FACE}!", "\ufeffTom\ufeff", "<0x41>", "\u3000Tom"]
    script = """
    return GIVEN.map((tokens) =>
      textOf(tokens.reduce((parent, token) => ({ parent, token }), null)));
    """
    rows = toy.subwords.encode(texts)
    first = toy.subwords.names.index("<0x00>")
    rows.append([first + byte for byte in "\ufeffTom".encode()])
    found = asked(path, script, [[*toy.subwords.pieces(row), "</s>"] for row in rows])
    assert found == [text.strip() for text in toy.subwords.decode(rows)]


def test_each_mask_hides_what_it_should(explained, path):
    script = """
    see("masks");
    return [...document.querySelectorAll(".mask")].map((picture) =>
      [picture.querySelectorAll(".hidden").length, picture.getAttribute("aria-label")]);
    """
    S, T = len(explained.source), len(explained.target)
    future, padding = T * (T - 1) // 2, S - (S + 1) // 2
    expected = [0, future, 0, S * padding, future, T * padding]
    sizes = [S * S, T * T, T * S] * 2
    assert S <= 14 and T <= 14  # longer ones are cut
    found = asked(path, script)
    assert [count for count, _ in found] == expected
    for (_, told), count, size in zip(found, expected, sizes, strict=True):
        assert told.endswith(f": {count} of {size} cells are hidden")


def heads_of(toy, explained):
    """Return for each kind what the heads of the last layer compute: softmax times V, (H, T, K)."""
    found = {}
    model = toy.model
    layers = {
        "encoder": model.encoder.layers[-1].self_attention,
        "decoder": model.decoder.layers[-1].self_attention,
        "source": model.decoder.layers[-1].source_attention,
    }
    for kind, attention in layers.items():

        def attend(self, queries, keys, values, mask, positions, kind=kind):
            found[kind] = values.numpy()[0]
            return type(self).attend(self, queries, keys, values, mask, positions)

        attention.attend = types.MethodType(attend, attention)  # a copy's is bound to the copy
    try:
        source, target = [explained.source_ids], [[BOS, *explained.target_ids[:-1]]]
        weights, _, _ = recorded_pass(model, np.array(source), np.array(target))
    finally:
        for attention in layers.values():
            del attention.attend
    return {kind: weights[kind][-1] @ values for kind, values in found.items()}


def test_the_sum_by_hand_is_softmax_times_v_of_the_model(toy, explained, path):
    script = """
    const lines = {};
    see("hand");
    for (const kind of Object.keys(KINDS)) {
      Object.assign(chosen, { kind, layer: 1, head: 1, row: 2, reverse: false, every: true });
      update(showByHand);
      lines[kind] = [...at("hand").querySelectorAll("p.numbers")].at(-1).textContent;
    }
    return lines;
    """
    lines = asked(path, script)
    expected = heads_of(toy, explained)
    for kind in KINDS:
        numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", lines[kind])]
        assert np.abs(np.array(numbers) - expected[kind][1, 2]).max() < 0.01, kind
        assert np.abs(expected[kind][1, 2]).max() > 0.1


ARABIC = ["\u2581\u0631\u0623\u0649", "\u2581\u062a\u0648\u0645", "\u2581\u0643\u0644\u0628\u0627"]


@pytest.mark.parametrize("codes", [["en", "ar"], ["eng", "heb"], ["en", "ps-AF"], ["", ""]])
def test_a_language_that_is_written_from_right_to_left(path, codes):
    """Its tokens begin on the right; if no language is known, the text tells."""
    script = """
    data.languages = GIVEN[0];
    Object.assign(shown, { target: [...GIVEN[1], "</s>"], translation: GIVEN[1].join("") });
    Object.assign(shown, { translation: shown.translation.replaceAll("\u2581", " ") });
    for (const kind of ["source", "encoder", "decoder"])
      shown.weights[kind] = shown.weights[kind].map((heads) => heads.map((rows) =>
        rows.slice(0, 4).map((row) => row.slice(0, 4))));
    Object.assign(chosen, { kind: "source", row: 1, reverse: false, step: 2 });
    shown.source = shown.source.slice(0, 4);
    see("attention");
    const left = (node) => node.getBoundingClientRect().left;
    const above = [at("column-0"), at("column-1")].map(left);
    const below = [at("row-0"), at("row-1")].map(left), said = at("said").textContent;
    see("steps");
    const sofar = [...at("steps").querySelectorAll(".sofar bdi")];
    return { above, below, sofar: sofar.map(left), names: sofar.map((node) => node.textContent),
      said };
    """
    found = asked(path, script, [codes, ARABIC])
    assert found["above"] == sorted(found["above"])
    for lefts in (found["below"], found["sofar"]):
        assert len(lefts) >= 2 and lefts == sorted(lefts, reverse=True)
    assert found["names"] == ["<s>", *(token[1:] for token in ARABIC)]
    assert f"\u2068{ARABIC[1][1:]}\u2069 attends to \u2068" in found["said"]
