"""The pages beside the lessons run from an empty folder, and their claims are true."""

import os
import subprocess
import sys

import pytest
from paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(("page", "claims"), [("collapse", 3), ("decoder_only", 3)])
def test_the_page_runs_and_proves_its_claims(page, claims, tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "lessons" / f"{page}.py"), "-v"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("ok") for line in done.stdout.splitlines()) == claims
