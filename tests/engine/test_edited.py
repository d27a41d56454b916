"""Whoever edits an equation sees what the edit does, although a form does not know of it."""

import os
import shutil
import subprocess
import sys

import pytest
from paths import EXAMPLES, PACKAGE

from minitf.edited import DIGESTS, digest_of, edited

LOSS = """
from minitf import Config, Transformer
model = Transformer(Config(30, n_layers=1, d_model=16, d_ff=32, n_heads=2)).eval()
loss, _ = model.loss([[5, 6, 2]], [[1, 7, 8]], [[7, 8, 2]])
print(f"{float(loss.numpy()):.5f}")
"""


def test_the_forms_were_checked_against_these_equations():
    now = {name: digest_of((PACKAGE / name).read_text(encoding="utf-8")) for name in DIGESTS}
    assert now == DIGESTS, "if the forms still compute the same, write these into minitf/edited.py"
    assert edited == []


def test_only_the_code_counts():
    docstring, long = '    """Double x."""\n', '    """Return x and x.\n\n    A sum.\n    """\n\n'
    before = digest_of(f"def f(x):\n{docstring}    return 2 * x\n")
    assert before == digest_of(f"def f(x):\n{long}    # Why not?\n    return 2 * x\n")
    assert before != digest_of(f"def f(x):\n{docstring}    return 3 * x\n")


LOAD = """
import sys
from minitf.translation import Translator
Translator.load(sys.argv[1])
"""
CACHE = """
from minitf import Config, Transformer
from minitf.decode import can_cache
print(can_cache(Transformer(Config(30, n_layers=1, d_model=16, d_ff=32, n_heads=2))))
"""


@pytest.mark.parametrize(
    ("name", "right", "edited"),
    [
        ("transformer.py", "return F.attention(", "return 0.0 * F.attention("),
        ("functions.py", "math.sqrt(", "0.1 * math.sqrt("),
    ],
)
def test_an_edited_equation_is_computed(name, right, edited, tmp_path):
    """Its form, which decoding and training would use, still computes what it said before."""
    shutil.copytree(PACKAGE, tmp_path / "minitf", ignore=shutil.ignore_patterns("__pycache__"))

    def loss(setting, program=LOSS):
        """Return what the program prints, and its messages."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            cwd=tmp_path,
            env=os.environ | {"MINITF_FORMS": setting, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        return done.stdout, done.stderr

    before = loss("")
    assert before == (loss("off")[0], ""), "an equation and its form agree, without a notice"
    path = tmp_path / "minitf" / name
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, edited), encoding="utf-8")
    after, said = loss("")
    assert after == loss("off")[0] != before[0]
    assert said.startswith(f"minitf: edited ({name}): ") and said.count("\n") == 1
    assert loss("", CACHE)[0] == f"{name != 'transformer.py'}\n", (
        "layers may compute other keys now"
    )
    assert loss("on") == before, "the form is used where a user insists, without a notice"


def test_a_model_that_was_trained_before_the_edit_says_so(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "minitf", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "minitf" / "transformer.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("return F.attention(", "return 0.5 * F.attention("), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, EXAMPLES / "models" / "en-de"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"MINITF_FORMS": "", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "trained before transformer.py had the edits of now" in done.stderr.splitlines()[-1]
