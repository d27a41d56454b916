"""The page in a browser: its own test, without console messages, wide and narrow."""

import re
import shutil
import subprocess

import pytest
from paths import ROOT

from minitf.page.writer import write_page
from minitf.translation.translator import Translator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def translator():
    return Translator.load(ROOT / "lessons" / "toy-model")


QUIETLY = ("--no-first-run", "--disable-background-networking", "--disable-component-update")


def opened(path, folder, *options):
    """Return the page after its own test, and the messages on its console."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", *QUIETLY]
    command += ["--virtual-time-budget=60000", "--enable-logging=stderr", *options]
    for profile in ("first", "second"):  # on a busy machine the browser may hang as it starts
        try:
            done = subprocess.run(
                [*command, f"--user-data-dir={folder / profile}", f"{path.as_uri()}#selftest"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                encoding="utf-8",
            )
            break
        except subprocess.TimeoutExpired:
            if profile == "second":
                raise
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


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
    page, messages = opened(path, tmp_path, f"--window-size={width},900")
    assert re.search(r'<pre id="selftest">(.*?)</pre>', page)[1].startswith("ok ")
    assert messages == []


def test_markup_in_a_sentence_is_not_run(translator, tmp_path):
    line = "</script><img src=x onerror=alert(1)>"
    path = tmp_path / "page.html"
    write_page(path, translator.explain(line))
    page, messages = opened(path, tmp_path)
    assert '<pre id="selftest">ok ' in page and "<img" not in page and messages == []


def test_a_wrong_weight_is_noticed(translator, tmp_path):
    path = tmp_path / "page.html"
    explained = translator.explain("The old woman gave the child a red book.")
    explained.weights["source"][0, 0, 0] = explained.weights["source"][0, 0, 0, ::-1].copy()
    write_page(path, explained, model=translator.model, subwords=translator.subwords)
    page, _ = opened(path, tmp_path)
    assert "failed: source attention is Python" in page
