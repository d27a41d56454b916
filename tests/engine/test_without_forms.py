"""The equations alone are the library: its tests pass with MINITF_FORMS=off, but for what only a
form promises.
"""

import os
import subprocess
import sys

import pytest
from conftest import ONLY_FORMS
from paths import ROOT

SAMPLE = [
    "test_attention_shapes",
    "test_beam",
    "test_decode",
    "test_dropout",
    "test_function_values",
    "test_functions",
    "test_gradients",
    "test_learning",
    "test_loss",
    "test_nn",
    "test_optim",
    "test_parity",
    "test_positions",
    "test_sampling",
    "test_switches",
    "test_transformer",
    "test_update",
    "test_variants",
]


@pytest.mark.slow
def test_a_sample_of_the_engine_s_tests_passes_without_forms():
    files = [f"tests/engine/{name}.py" for name in SAMPLE]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"MINITF_FORMS": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "no test ran" not in done.stdout


def test_what_only_a_form_promises_is_there():
    """A test that was renamed would run without forms, and one that is gone would be
    listed for nothing.
    """
    for name in ONLY_FORMS:
        file, _, test = name.partition("::")
        (path,) = (ROOT / "tests").rglob(f"{file}.py")
        assert f"def {test}" in path.read_text(encoding="utf-8"), name
