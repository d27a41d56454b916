"""From an empty folder to translated sentences: lesson 09's quick form learns the toy corpus."""

import json
import re
import subprocess
import sys

import pytest
from paths import ROOT

from minitf.data import toy


@pytest.mark.slow
@pytest.mark.lesson09
def test_quick_learns_the_toy_corpus(tmp_path):
    """Run lessons/09_train_wmt.py --quick in an empty folder, and translate.py with its model."""
    lesson, translate = ROOT / "lessons" / "09_train_wmt.py", ROOT / "examples" / "translate.py"
    trained = subprocess.run(
        [sys.executable, "-W", "error", lesson, "--quick"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr
    assert re.search(
        r"^lesson 09_train_wmt: \d+ claims hold, 7 figures", trained.stdout, re.MULTILINE
    )
    (out,) = (tmp_path / "runs").iterdir()
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["tests"]["test"]["bleu"] >= 90, trained.stdout
    assert (out / "curves.png").stat().st_size > 10_000
    sources, targets = toy.splits()["test"]
    done = subprocess.run(
        [sys.executable, translate, "--model", out, *sources[:200]],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    right = sum(a == b for a, b in zip(done.stdout.splitlines(), targets[:200], strict=True))
    assert right >= 130, f"{right} of 200 sentences are exactly right"
