"""The page in a browser: a walk through it, wide and narrow, without a message; its files."""

import base64
import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import numpy as np
import pytest
from page_browser import CHROMIUM, report_of
from paths import ROOT

from minitf.page import writer
from minitf.page.writer import write_page
from minitf.translation.translator import Translator

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def translator():
    return Translator.load(ROOT / "lessons" / "toy-model")


READY = """
while (!shown || (hasModel && !data.is_cut && !shown.inner))
  await new Promise((resolve) => setTimeout(resolve, 20));
const at = (id) => document.getElementById(id);
"""
# Returns what is wrong, or nothing.
WALK = (
    READY
    + """
const wrong = [], check = (holds, what) => { if (!holds) wrong.push(what); };
const press = (key) => document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true }));
const sumsTo1 = (row) => {
  const more = row.reduce((a, b) => a + b) - 1;
  return more < 0.003 * row.length && (shown.isCut || more > -0.003 * row.length);
};
check(Object.values(shown.weights).flat(3).every(sumsTo1), "a row of weights does not sum to 1");
const wide = () => document.documentElement.scrollWidth <= innerWidth;
for (const [id] of VIEWS) {
  at(`open-${id}`).focus();
  at(`open-${id}`).click();
  check(at(id).children.length > 1, `view ${id} is empty`);
  check(document.activeElement.id === `${id}-title`, `view ${id} has no focus`);
  check(wide(), `view ${id} makes the page too wide`);
  check(VIEWS.every(([each]) => at(each).hidden === (each !== id)), `${id} is not alone`);
  const controls = [...document.querySelectorAll("button, select, input, svg[role=img]")];
  check(controls.every((node) => node.getAttribute("aria-label") || (node.tagName === "BUTTON"
    ? node.textContent.trim() : node.labels?.length)), `a control of ${id} has no name`);
  press("Escape");
  check(at("panel").hidden && document.activeElement.id === `open-${id}`, `${id} does not close`);
}
for (const part of [...document.querySelectorAll(".part")].map((node) => node.dataset.part)) {
  document.querySelector(`[data-part=${part}]`).focus();
  press("Enter");
  check(chosen.view && (!KINDS[part] || chosen.kind === part), `the box ${part} opens nothing`);
  press("Escape");
  check(document.activeElement.dataset.part === part, `the box ${part} has lost the focus`);
}
chooseKind("source");
openView("attention");
at("row-0").focus();
press("ArrowRight");
check(document.activeElement.id === "row-1" && chosen.row === 1, "no arrow to the next token");
check(/attends to/.test(at("live").textContent), "the live line is silent");
at("column-0").click();
check(document.activeElement.id === "column-0" && chosen.reverse, "no token of the input");
check(/is looked at by/.test(at("live").textContent), "the live line does not say who looks");
at("layer").focus();
at("layer").value = 0;
at("layer").dispatchEvent(new Event("change"));
check(document.activeElement.id === "layer" && chosen.layer === 0, "the layer loses the focus");
openView("heads");
at("head-0-0").focus();
press("End");
check(document.activeElement.classList.contains("head"), "End does not move to the last head");
document.activeElement.click();
check(chosen.head === shown.weights.source[0].length - 1, "no head is chosen");
for (const [id, view, value] of [["step", "steps", 1], ["alpha", "beam", 1.5]]) {
  openView(view);
  const slider = at(id);
  if (!slider) continue; // greedy decoding has no alpha
  slider.focus();
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
  check(chosen[id] === value && document.activeElement === slider, `${id} does not move`);
}
openView("beam");
check(!shown.beam.length || document.querySelector(".node.won"), "the beam has no winner");
if (hasModel) {
  for (const odd of ["", " \\t ", "word ".repeat(300), "x".repeat(1e6)]) {
    const before = shown;
    await translateAndShow(odd, 1);
    const said = at("took").textContent;
    check(shown === before && /Type /.test(said), `no line tells what is wrong: ${said}`);
  }
  await translateAndShow(shown.line, data.search.width);
  check(shown.translation === data.translation, "the page does not translate as Python does");
}
return wrong;
"""
)


@pytest.mark.parametrize(
    ("with_model", "beam", "width"),
    [(False, 4, 1280), (False, 1, 500), (True, 4, 500), (True, 1, 1280)],
)
def test_a_walk_through_the_page(translator, tmp_path, with_model, beam, width):
    """With the keyboard and the mouse, through all views, boxes and odd sentences.

    The policy of the page forbids every request: one that it tried would be on the console.
    """
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.", beam=beam)
    chosen = {"model": translator.model, "subwords": translator.subwords} if with_model else {}
    write_page(path, explained, **chosen)
    assert report_of(path, WALK, f"--window-size={width},900") == ([], [])


def named(token):
    """Return what the views call a subword."""
    return f"-{token}" if token[0].isalpha() else token.lstrip("▁") or "␣"


def test_what_the_page_saves(translator, tmp_path):
    """The picture as SVG and PNG and the numbers show the attention of `Translator.explain`."""
    line = 'The old "woman" & the child\'s <b>red</b> dog?'
    explained = translator.explain(line)
    path = tmp_path / "page.html"
    write_page(path, explained)
    script = """
    openView("heads");
    const { kind, layer, head } = chosen, picture = document.querySelector("svg[data-map]");
    const png = new Uint8Array(await (await pngOf(picture)).arrayBuffer());
    const characters = Array.from(png, (byte) => String.fromCharCode(byte)).join("");
    return { kind, layer, head, svg: svgText(picture), png: btoa(characters),
      tsv: tsvOf(...namesOf(kind), matrixOf(kind, layer, head)) };
    """
    saved, messages = report_of(path, READY + script)
    assert messages == []
    kind, layer = saved["kind"], saved["layer"]
    assert (kind, layer, saved["head"]) == ("source", 1, -1)
    weights = explained.weights[kind][layer].mean(axis=0)
    rows, columns = ([named(token) for token in tokens] for tokens in explained.tokens(kind))

    table = list(csv.reader(io.StringIO(saved["tsv"]), delimiter="\t"))
    told = [table[0][1:], [row[0] for row in table[1:]]]
    # A spreadsheet takes a cell that begins with the hyphen of ASCII for a formula.
    assert told == [[re.sub("^-", "\u2010", name) for name in names] for names in (columns, rows)]
    assert any(name.startswith("\u2010") for name in told[0])
    numbers = np.array([row[1:] for row in table[1:]], float)
    assert np.abs(numbers - weights).max() < 0.5 / 255 + 0.0006  # bytes, then three decimals

    picture = ElementTree.fromstring(saved["svg"])
    name = "{http://www.w3.org/2000/svg}"
    assert picture.tag == name + "svg"
    texts = [node.text for node in picture.iter(name + "text")]
    labels = iter(texts)
    assert all(word in labels for word in columns)  # in this order
    assert all(word in iter(texts) for word in rows)
    cells = [node for node in picture.iter(name + "rect") if node.find(name + "title") is not None]
    told = [float(cell.find(name + "title").text.rpartition(" ")[2]) for cell in cells]
    assert np.abs(np.reshape(told, weights.shape) - weights).max() < 0.5 / 255 + 0.006

    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(saved["png"])))
    assert pixels.shape[:2] == tuple(2 * int(picture.get(side)) for side in ("height", "width"))
    corners = [(2 * int(cell.get("x")) + 8, 2 * int(cell.get("y")) + 8) for cell in cells]
    red = np.reshape([pixels[y, x, 0] for x, y in corners], weights.shape)
    painted = ((1 - red) * 255 / (255 - 8)) ** 2  # the inverse of `shade` in heads.js
    assert np.abs(painted - weights).max() < 0.02


def requests_of(path, folder, script):
    """Return the addresses that the page asked for while a script ran, by the browser's log.

    The browser itself asks for updates; its own requests have no origin as their initiator.
    """
    log = folder / f"{path.stem}.json"
    report_of(path, script, f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND")
    asked = re.findall(r'"initiator":"([^"]*)".*"url":"([^"]*)"', log.read_text(encoding="utf-8"))
    return {url for initiator, url in asked if initiator != "not an origin"}


def test_the_page_makes_no_request(translator, tmp_path):
    """The browser's log of the network has none, and it has one of a page that makes one."""
    line = "http://127.0.0.1:9/a.png <img src=http://127.0.0.1:9/b.png>"
    path = tmp_path / "page.html"
    explained = translator.explain(line)
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    assert requests_of(path, tmp_path, WALK) == set()
    asking = tmp_path / "asking.html"
    asking.write_text("<img src=http://127.0.0.1:9/c.png>", encoding="utf-8")
    wait = "await new Promise((resolve) => setTimeout(resolve, 200)); return 0;"
    assert "http://127.0.0.1:9/c.png" in requests_of(asking, tmp_path, wait)


@pytest.mark.parametrize("with_model", [False, True], ids=["without model", "with model"])
def test_a_sentence_that_is_cut_off(translator, tmp_path, monkeypatch, with_model):
    """The page says that its rows are incomplete, and does not describe heads by them."""
    monkeypatch.setattr(writer, "MAX_TOKENS", 6)
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.")
    chosen = {"model": translator.model, "subwords": translator.subwords} if with_model else {}
    write_page(path, explained, **chosen)
    script = """
    for (const id of ["heads", "attention", "masks"]) openView(id);
    const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
    return [texts(".head"), texts("#attention .more p")[0], texts("#masks h3")[0]];
    """
    (heads, told, masks), messages = report_of(path, READY + script)
    assert messages == []
    assert report_of(path, WALK) == ([], [])
    assert len(heads) == 8
    assert all(re.fullmatch(r"layer \d, head \d only its first tokens are shown", h) for h in heads)
    assert "sum to 1, with those of the tokens that are not shown (" in told
    assert masks == "This sentence (its first tokens)"


def test_a_translation_in_the_page(translator, tmp_path):
    """Title, header and focus are of the new sentence; the page does one at a time, and says so."""
    path = tmp_path / "page.html"
    explained = translator.explain("Tom saw a dog. Can this tall teacher help Tom?")
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    script = """
    openView("attention");
    const texts = () => ["about", "line", "translation", "took", "live"].map((id) =>
      document.getElementById(id).textContent);
    document.getElementById("row-1").click();
    const before = texts(), first = translateAndShow("Can this tall teacher help Tom?", 4);
    await translateAndShow("Tom saw a dog.", 4);
    const busy = texts();
    await first;
    const after = texts(), focused = document.activeElement, title = document.title;
    const isChosen = focused.matches("#attention .words [aria-pressed=true]");
    openView("beam");
    document.getElementById("alpha").focus();
    await translateAndShow("Tom saw a dog.", 1); // without a beam, and so without alpha
    return { before, busy, after, title, isChosen, then: document.activeElement.id };
    """
    found, messages = report_of(path, READY + script)
    line, translation = "Can this tall teacher help Tom?", "Kann dieser große Lehrer Tom helfen?"
    assert found["before"][:2] == [
        "The line was translated in 2 parts; this is the first of them.",
        "Tom saw a dog.",
    ]
    assert found["busy"][1] == "Tom saw a dog."
    assert found["busy"][3:] == ["The page is still translating: press again in a moment."] * 2
    assert re.fullmatch(r"8 output tokens with the end mark, in \d\.\d\d s\.", found["after"][0])
    assert found["after"][1:3] == [line, translation]
    assert found["title"] == f"{line} \u2192 {translation}"
    assert found["isChosen"] and found["then"] == "beam-title"
    assert messages == []
