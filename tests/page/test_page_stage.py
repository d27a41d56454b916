"""The stage of the page: what it shows at each moment, and what a reader changes in the model."""

import copy
import json
import re
from unittest import mock

import numpy as np
import pytest
from page_browser import CHROMIUM, report_of
from paths import ROOT

from minitf import transformer
from minitf.files.models import read_notes
from minitf.page.explained import recorded_pass
from minitf.page.writer import write_page
from minitf.text import BOS
from minitf.translation.translator import Translator

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
TURNING = read_notes(ROOT / "lessons" / "toy-model")["page"]["turning"]
READY = """
while (!shown?.inner) await new Promise((resolve) => setTimeout(resolve, 20));
const at = (id) => document.getElementById(id);
const frame = () => new Promise(requestAnimationFrame);
"""


@pytest.fixture(scope="module")
def toy():
    return Translator.load(ROOT / "lessons" / "toy-model")


@pytest.fixture(scope="module")
def explained(toy):
    return toy.explain("The old woman gave the child a red book.")


@pytest.fixture(scope="module")
def path(toy, explained, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    options = {"languages": ("en", "de"), "turning": TURNING}
    write_page(path, explained, model=toy.model, subwords=toy.subwords, **options)
    return path


def asked(path, script, value=None, *options):
    """Return what a script reports about the page; in it, GIVEN is a value from Python."""
    found, messages = report_of(path, READY + script.replace("GIVEN", json.dumps(value)), *options)
    assert messages == []
    return found


def test_each_moment_in_its_order(explained, path):
    """At every still, the words that are written by then, the bars and the beam of the step."""
    script = """
    const welcome = at("caption").textContent;
    const stills = stage.moments.map(({ name, t, layer }, i) => {
      goTo(i + 1);
      const { written, next, beam } = stage.scene;
      return { name, number: t ?? layer ?? null, caption: at("caption").textContent,
        told: at("timeline").getAttribute("aria-valuetext"),
        written: written.filter((node) => node.style.visibility === "visible").length,
        next: next.rows.map((row) => row.name.textContent),
        beam: beam.rows.map(({ text }) => text.textContent) };
    });
    return [welcome, stills];
    """
    welcome, stills = asked(path, script)
    assert welcome.startswith("Attention: ") and "Done" in stills[-1]["caption"]
    steps = range(len(explained.target))
    order = [("tokens", None), ("vectors", None), ("positions", None)]
    order += [(name, layer) for layer in range(2) for name in ("encoder", "network")]
    order += [(name, t) for t in steps for name in ("decoder", "source", "next", "drop")]
    assert [(still["name"], still["number"]) for still in stills] == [*order, ("end", None)]
    for still in stills:
        name, t = still["name"], still["number"]
        assert still["told"] == still["caption"] and still["caption"].count(". ") <= 1
        if name in ("decoder", "source", "next", "drop"):
            assert still["written"] == t + (name == "drop")
        if name == "next":
            likely = [token.removeprefix("\u2581") for token, _ in explained.next_tokens[t]]
            assert still["next"] == [*likely[:4], "all other words"]
        if name == "drop" and t < 6:
            words = "".join(explained.target[: t + 1]).replace("\u2581", " ").strip()
            assert words in still["beam"] and len(set(still["beam"])) == 4
    assert stills[-1]["written"] == len(steps) and stills[6]["written"] == 0


def test_the_lines_are_the_weights(explained, path):
    """The mean of the last layer's heads, or the head that is chosen."""
    script = """
    const lines = () => stage.scene.lines.map(({ kind, layer, t, s, weight }) =>
      [kind, layer, t, s, weight]);
    const mean = lines();
    Object.assign(chosen, { kind: "source", layer: 0, head: 2 });
    updateChosen();
    return [mean, lines()];
    """
    mean, of_head = asked(path, script)
    expected = {kind: w[-1].mean(axis=0) for kind, w in explained.weights.items()}
    one = {**expected, "source": explained.weights["source"][0, 2]}
    for lines, weights in ((mean, expected), (of_head, one)):
        for kind in weights:
            drawn = np.zeros_like(weights[kind])
            for name, layer, t, s, weight in lines:
                if name == kind and (kind != "encoder" or layer == 1):
                    drawn[t, s] = weight
            assert np.abs(drawn - np.where(weights[kind] < 0.03, 0, weights[kind])).max() < 0.031
            seen = weights[kind] > 0.04
            assert np.abs(drawn - weights[kind])[seen].max() < 1e-3


def test_a_token_under_the_pointer_lights_up_everywhere(path):
    script = """
    openView("attention");
    const point = (node) => node.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    point(document.querySelector(".token[data-token=s3]"));
    const lit = [...document.querySelectorAll(".lit")].map((node) => node.dataset.token);
    const inside = (id) => document.querySelectorAll(`#${id} .lit`).length;
    const places = [inside("scene"), inside("attention")];
    const crossing = stage.scene.lines.filter(({ kind }) => kind === "source");
    const shades = crossing.map(({ line, s, weight }) =>
      [s, Number(line.style.opacity) / (0.25 + 0.75 * weight)]);
    point(document.body);
    return { lit, places, shades, after: document.querySelectorAll(".lit").length };
    """
    found = asked(path, script)
    assert set(found["lit"]) == {"s3"} and found["places"] == [3, 1] and found["after"] == 0
    assert min(shade for s, shade in found["shades"] if s == 3) > 0.9
    assert max(shade for s, shade in found["shades"] if s != 3) < 0.2


def test_a_link_names_a_moment_and_a_view(path):
    script = """
    location.hash = "source-9&beam";
    while (chosen.view !== "beam") await frame();
    return [stage.time, placeOf("source", 9) + 1];
    """
    now, expected = asked(path, script)
    assert now == expected


def shares_in(caption):
    """Return the shares that a caption tells: [(percent, word)]."""
    words = re.findall(r"(\d+)% \u201c\u2068(.+?)\u2069", caption)
    words += [
        pair[::-1] for pair in re.findall(r"back at \u201c\u2068(.+?)\u2069\u201d \((\d+)", caption)
    ]
    return [(int(share), name) for share, name in words]


LINES = {  # a line: the verb at its end that the decoder goes back for
    "The old woman gave the child a red book.": "gegeben",
    "I think that Tom bought a horse yesterday.": "gekauft",
    "Did the student read the letter yesterday?": "gelesen",
    "The child will not open the window.": None,
    "Where is my friend?": None,
}


def test_the_captions_tell_the_weights(toy, path):
    """The shares are those of the last layer; that all else is translated is said where it is."""
    script = """
    const found = {};
    for (const line of GIVEN) {
      if (line !== shown.line) await translateAndShow(line, 4);
      pause();
      found[line] = shown.target.map((_, t) => {
        goTo(placeOf("source", t) + 1);
        const shares = stage.scene.shares.filter((node) => node.style.visibility === "visible");
        return [at("caption").textContent, shares.map((node) => node.textContent)];
      });
    }
    return found;
    """
    found = asked(path, script, list(LINES))
    for line, verb in LINES.items():
        explained = toy.explain(line)
        weights = explained.weights["source"][-1].mean(axis=0)
        names = [token.removeprefix("\u2581") for token in explained.source]
        most = weights.argmax(axis=-1)
        at_end = [word for word in explained.target if word.removeprefix("\u2581") == verb]
        told = []
        for t, (caption, shares) in enumerate(found[line]):
            pairs = shares_in(caption)
            assert pairs, caption
            for share, name in pairs:
                of_name = [w for w, each in zip(weights[t], names, strict=True) if each == name]
                assert min(abs(100 * w - share) for w in of_name) < 1, caption
            assert pairs[0][1] == names[most[t]]
            assert f"{pairs[0][0]}%" in shares and len(shares) <= 4
            if "All other words" in caption:
                others = {s for s, name in enumerate(names) if name.isalpha()} - {most[t]}
                assert others <= set(most[:t]) and not others & set(most[t + 1 :])
            if "In German" in caption:
                told.append(explained.target[t])
        assert told == at_end, line


def test_a_sentence_that_the_beam_saves(toy, path):
    """The stage shows when greedy decoding would go wrong, and what it would have written."""
    line = TURNING
    script = """
    document.getElementById("rescue").dispatchEvent(new MouseEvent("click"));
    while (shown.line === data.line || busy || !stage.isPlaying) await frame();
    const begun = stage.time, { turn, lead } = storyOfBeam();
    pause();
    while (!shown.greedy) await frame();
    const captions = [["drop", turn], ["drop", lead], ["end"]].map(([name, t]) => {
      goTo(placeOf(name, t) + 1);
      return at("caption").textContent;
    });
    const kept = () => stage.scene.beam.rows.map(({ text }) => text.textContent);
    goTo(placeOf("drop", lead) + 0.01);
    const atLead = [kept()];
    goTo(placeOf("drop", lead) + 1);
    atLead.push(kept());
    stage.speed = 300;
    goTo(placeOf("drop", lead));
    stepBy(1);
    while (stage.isPlaying) await frame();
    const ended = stage.time === stage.moments.length;
    goTo(placeOf("drop", turn) + 1);
    const rows = stage.scene.beam.rows.map(({ bar }) => bar.classList.contains("taken"));
    return { atLead, ended, begun, expected: placeOf("source", turn), turn, lead, captions, rows,
      translation: shown.translation, isThere: at("rescue") !== null };
    """
    found = asked(path, script)
    greedy, best = (toy.translate([line], beam=beam)[0][0].text for beam in (1, 4))
    turn = next(
        t
        for t, (step, token) in enumerate(
            zip(toy.explain(line).next_tokens, toy.explain(line).target, strict=True)
        )
        if step[0][0] != token
    )
    assert greedy != best == found["translation"] and found["turn"] == turn < found["lead"]
    assert found["expected"] <= found["begun"] < found["expected"] + 1 and not found["isThere"]
    assert "likelier" in found["captions"][0] and "ahead" in found["captions"][1]
    assert greedy in found["captions"][2]
    assert found["rows"].index(True) == 1  # the winner is behind, and kept
    assert found["atLead"][0] == found["atLead"][1] and found["ended"]


def probabilities(model, source, target, hidden=()):
    """Return the P of each next token, and all attention weights, with source tokens hidden."""

    def padding_mask(ids, pad_id=0):
        return np.isin(np.arange(ids.shape[-1]), hidden, invert=True)[None, None, None]

    with mock.patch.object(transformer, "padding_mask", padding_mask):
        weights, logits, _ = recorded_pass(
            model, np.array([source]), np.array([[BOS, *target[:-1]]])
        )
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True), weights


CHANGES = {
    "hide a word": "document.querySelectorAll('#try .words button')[2].click();",
    "switch a head off": "at('switches').children[2].querySelectorAll('button')[5].click();",
    "take the positions away": "[...document.querySelectorAll('#try p button')]"
    ".find((node) => node.textContent.startsWith('Take')).click();",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_the_same_change_in_python(toy, explained, path, change):
    """And after Restore, the page computes what it computed before."""
    script = f"""
    const before = shown, done = async () => {{
      while (busy || isWaiting) await frame();
    }};
    openView("try");
    {CHANGES[change]}
    await done();
    const {{ translation, weights, steps }} = shown;
    const target = shown.target.map((token) => (await_model.pieces.indexOf(token)));
    const told = at("result").textContent;
    const rows = [...at("weight-row").options].map((option) => option.textContent);
    const areNamed = rows.length === shown.target.length
      && rows.every((row, t) => row === nameOfRow(t));
    at("restore").click();
    await done();
    const isSame = JSON.stringify([before.weights, before.steps, before.translation])
      === JSON.stringify([shown.weights, shown.steps, shown.translation]);
    return {{ translation, weights, steps, target, told, isSame, areNamed }};
    """
    found = asked(path, "const await_model = await unpackModel();" + script)
    model, hidden = copy.deepcopy(toy.model), ()
    if change == "hide a word":
        hidden = [2]
    elif change == "switch a head off":  # head 2 of layer 2: its rows of the output matrix
        weight = model.decoder.layers[1].source_attention.output.weight
        weight.data[16:32] = 0
    else:
        model.source_positions = model.target_positions = lambda x, start=0: x
    p, weights = probabilities(model, explained.source_ids, found["target"], hidden)
    best = np.sort(p, axis=-1)[:, ::-1]
    for t, step in enumerate(found["steps"]):
        assert [each for _, each in step] == pytest.approx(best[t, : len(step)], abs=2e-3)
    if change == "switch a head off":
        assert np.abs(np.array(found["weights"]["source"])[1, 1]).max() == 0
        weights["source"][1, 1] = 0
    for kind in weights:
        assert np.abs(np.array(found["weights"][kind]) - weights[kind]).max() < 2e-3, kind
    assert found["translation"] in found["told"] or "The same" in found["told"]
    assert found["isSame"] and found["areNamed"]


def test_a_changed_weight_and_a_temperature(path):
    """The weight is as it was set, the others of its row share the rest; a seed draws the same."""
    script = """
    const done = async () => { while (busy || isWaiting) await frame(); };
    const set = async (id, value) => {
      at(id).value = value;
      at(id).dispatchEvent(new Event(at(id).tagName === "SELECT" ? "change" : "input"));
      await done();
    };
    openView("try");
    await set("weight-row", " 3");
    await set("weight-column", " 5");
    await set("weight", 0.8);
    const row = shown.weights.source.map((heads) => heads.map((head) => head[3]));
    at("restore").click();
    await done();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await set("try-temperature", 3);
    const drawn = [shown.translation];
    await translateAndShow(shown.line);
    drawn.push(shown.translation);
    tried.seed++;
    await translateAndShow(shown.line);
    return [row, [...drawn, shown.translation], shown.beam.length];
    """
    row, drawn, beam = asked(path, script)
    row = np.array(row)
    assert np.allclose(row[..., 5], 0.8) and np.allclose(row.sum(axis=-1), 1)
    assert drawn[0] == drawn[1] != drawn[2] and beam == 0
