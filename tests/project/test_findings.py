"""Each finding is a script that says what one would guess, what is true and why it matters."""

import os
import re

import pytest
from paths import ROOT

SCRIPTS = sorted((ROOT / "findings").glob("*.sh"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_has_its_three_sentences_and_pins_its_packages(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n# ") and "set -euo pipefail" in text
    comment = "".join(re.findall(r"^# (.*\n)", text, re.MULTILINE))
    for words in ("One would guess:", "What is true", "Why it matters:"):
        assert comment.count(words) == 1, words
    (packages,) = re.findall(r"pip\" install -q (.*)", text)
    versions = [re.fullmatch(r"[\w-]+==([\w.]+)", package)[1] for package in packages.split()]
    assert any(version in comment for version in versions), "the comment names no version"
    assert os.name == "nt" or os.access(path, os.X_OK), "chmod +x"


def test_the_page_lists_every_finding():
    page = (ROOT / "findings" / "README.md").read_text(encoding="utf-8")
    named = set()
    for word in re.findall(r"`([\w{},-]+)`", page):
        start, _, ends = word.rstrip("}").partition("{")
        named.update(start + end for end in ends.split(","))
    assert {path.stem for path in SCRIPTS} <= named
