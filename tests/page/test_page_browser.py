"""The page in a browser: its own test, without console messages, wide and narrow; its files."""

import base64
import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import numpy as np
import pytest
from page_browser import CHROMIUM, report_of
from page_file import parsed
from paths import ROOT

from minitf.page import writer
from minitf.page.writer import write_page
from minitf.translation.translator import Translator

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def translator():
    return Translator.load(ROOT / "lessons" / "toy-model")


# The page after its own test, without the model and the program.
TESTED = """
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
while (!document.getElementById("selftest")) await pause();
const copy = document.documentElement.cloneNode(true);
for (const script of copy.querySelectorAll("script")) script.remove();
return copy.outerHTML;
"""


def opened(path, *options):
    """Return the page after its own test, and the messages on its console."""
    return report_of(path, TESTED, *options, fragment="#selftest")


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("with_model", [False, True], ids=["without model", "with model"])
def test_the_page_passes_its_own_test(translator, tmp_path, with_model, beam, width):
    """Rows that sum to 1, a walk with the keyboard, and with the model, Python's numbers.

    The policy of the page forbids every request: one that it tried would be on the console.
    """
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.", beam=beam)
    chosen = {"model": translator.model, "subwords": translator.subwords} if with_model else {}
    write_page(path, explained, **chosen)
    page, messages = opened(path, f"--window-size={width},900")
    assert re.search(r'<pre id="selftest">(.*?)</pre>', page)[1].startswith("ok ")
    assert messages == []


def test_markup_in_a_sentence_is_not_run(translator, tmp_path):
    line = "</script><img src=x onerror=alert(1)>"
    path = tmp_path / "page.html"
    write_page(path, translator.explain(line))
    page, messages = opened(path)
    assert '<pre id="selftest">ok ' in page and "<img" not in page and messages == []


def test_a_wrong_weight_is_noticed(translator, tmp_path):
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.")
    explained.weights["source"][0, 0, 0] = explained.weights["source"][0, 0, 0, ::-1].copy()
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    page, _ = opened(path)
    assert "failed: source attention is Python" in page


def named(token):
    """Return what the views call a subword."""
    return f"-{token}" if token[0].isalpha() else token.lstrip("▁") or "␣"


def test_what_the_page_saves(translator, tmp_path):
    """The picture as SVG and PNG and the numbers show the attention of `Translator.explain`."""
    line = 'The old "woman" & the child\'s <b>red</b> dog?'
    explained = translator.explain(line)
    path = tmp_path / "page.html"
    write_page(path, explained)
    page, _ = opened(path)
    saved = json.loads(parsed(page)["exported"])
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
    painted = ((1 - red) * 255 / (255 - 8)) ** 2  # the inverse of `shade` in page.js
    assert np.abs(painted - weights).max() < 0.02


def requests_of(path, folder):
    """Return the addresses that the page asked for while it tested itself, by the browser's log.

    The browser itself asks for updates; its own requests have no origin as their initiator.
    """
    log = folder / f"{path.stem}.json"
    opened(path, f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND")
    asked = re.findall(r'"initiator":"([^"]*)".*"url":"([^"]*)"', log.read_text(encoding="utf-8"))
    return {url for initiator, url in asked if initiator != "not an origin"}


def test_the_page_makes_no_request(translator, tmp_path):
    """The browser's log of the network has none, and it has one of a page that makes one."""
    line = "http://127.0.0.1:9/a.png <img src=http://127.0.0.1:9/b.png>"
    path = tmp_path / "page.html"
    explained = translator.explain(line)
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    assert requests_of(path, tmp_path) == set()
    asking = tmp_path / "asking.html"
    asking.write_text("<img src=http://127.0.0.1:9/c.png><pre id=selftest>", encoding="utf-8")
    assert "http://127.0.0.1:9/c.png" in requests_of(asking, tmp_path)


@pytest.mark.parametrize("with_model", [False, True], ids=["without model", "with model"])
def test_a_sentence_that_is_cut_off(translator, tmp_path, monkeypatch, with_model):
    """The page says that its rows are incomplete, and does not describe heads by them."""
    monkeypatch.setattr(writer, "LONGEST", 6)
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.")
    chosen = {"model": translator.model, "subwords": translator.subwords} if with_model else {}
    write_page(path, explained, **chosen)
    script = """
    while (!shown) await new Promise((resolve) => setTimeout(resolve, 20));
    const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
    return [texts(".head"), texts("#attention p")[1], texts("#masks h3")[0], await selfTest()];
    """
    (heads, told, masks, tested), messages = report_of(path, script)
    assert tested.startswith("ok ") and messages == []
    assert len(heads) == 8
    assert all(re.fullmatch(r"layer \d, head \d only its first tokens are shown", h) for h in heads)
    assert "sum to 1, with those of the tokens that are not shown (" in told
    assert masks == "This sentence (its first tokens)"


def test_a_narrow_page_scrolls_in_its_boxes_alone(translator, tmp_path):
    """At 320 px, which headless Chromium has no window for: in a frame."""
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.")
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    script = """
    while (!shown?.inner) await new Promise((resolve) => setTimeout(resolve, 20));
    document.querySelector("details").open = true;
    const { clientWidth, scrollWidth } = document.documentElement; // without the scroll bar
    const outside = [...document.querySelectorAll("body *")].filter((node) =>
      !node.closest(".scroll > *") && node.getBoundingClientRect().right > clientWidth);
    return [innerWidth, scrollWidth - clientWidth, outside.map((node) => node.outerHTML)];
    """
    found, messages = report_of(path, script, frame=320)
    assert found == [320, 0, []] and messages == []


def test_a_translation_in_the_page(translator, tmp_path):
    """Title, header and focus are of the new sentence; the page does one at a time, and says so."""
    path = tmp_path / "page.html"
    explained = translator.explain("Tom saw a dog. Can this tall teacher help Tom?")
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    script = """
    while (!shown?.inner) await new Promise((resolve) => setTimeout(resolve, 20));
    const texts = () => ["about", "line", "translation", "took", "live"].map((id) =>
      document.getElementById(id).textContent);
    document.getElementById("row-1").click();
    const before = texts(), first = translateAndShow("Can this tall teacher help Tom?", 4);
    await translateAndShow("Tom saw a dog.", 4);
    const busy = texts();
    await first;
    const after = texts(), focused = document.activeElement, title = document.title;
    const isChosen = focused.matches("#attention .words [aria-pressed=true]");
    document.getElementById("alpha").focus();
    await translateAndShow("Tom saw a dog.", 1); // without a beam, and so without alpha
    return { before, busy, after, title, isChosen, then: document.activeElement.id };
    """
    found, messages = report_of(path, script)
    line, translation = "Can this tall teacher help Tom?", "Kann dieser große Lehrer Tom helfen?"
    assert found["before"][:2] == [
        "The line was translated in 2 parts; this is the first of them.",
        "Tom saw a dog.",
    ]
    assert found["busy"][1] == "Tom saw a dog."
    assert found["busy"][3:] == ["The page is still translating: press again in a moment."] * 2
    assert found["after"][:3] == ["", line, translation]
    assert found["title"] == f"{line} \u2192 {translation}"
    assert found["isChosen"] and found["then"] == "beam-title"
    assert messages == []
