"""The whole chain, from nothing to translated sentences: the trainer's quick form learns the toy corpus."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minitf import toy

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_quick_learns_the_toy_corpus(tmp_path):
    """lessons/09_train_wmt.py --quick, started in an empty folder, and translate.py with what it made."""
    out = tmp_path / "toy"
    lesson, translate = ROOT / "lessons" / "09_train_wmt.py", ROOT / "examples" / "translate.py"
    # A fixed number of steps in place of the minutes: about as many as two idle cores make in that time.
    trained = subprocess.run(
        [sys.executable, lesson, "--quick", "--minutes", "0", "--steps", "3200", "--out", out],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["tests"]["test"]["bleu"] >= 95, trained.stdout
    assert (out / "curves.png").stat().st_size > 10_000
    sources, targets = toy.splits()["test"]
    done = subprocess.run(
        [sys.executable, translate, "--model", out, *sources[:200]],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    right = sum(a == b for a, b in zip(done.stdout.splitlines(), targets[:200], strict=True))
    assert right >= 140, f"{right} of 200 sentences are exactly right"
