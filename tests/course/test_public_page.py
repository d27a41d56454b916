"""The page about public models runs from an empty folder, and its claims are true."""

import os
import subprocess
import sys

import pytest
from paths import ROOT


@pytest.mark.slow
def test_the_page_runs_and_proves_its_claims(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "lessons" / "public_models.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("ok") for line in done.stdout.splitlines()) == 11
