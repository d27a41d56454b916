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
    assert table[0] == ["", *columns] and [row[0] for row in table[1:]] == rows
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
