"""Whoever edits an equation sees what the edit does, although a form does not know of it."""

import ast
import io
import os
import shutil
import subprocess
import sys
import tokenize

import pytest
from paths import EXAMPLES, PACKAGE

from minitf import Config, Transformer
from minitf.edited import _DOCSTRING, DIGESTS, digest_of, edited
from minitf.errors import UserError
from minitf.translation.probe import check_probe

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


@pytest.mark.parametrize("name", DIGESTS)
def test_what_does_not_count_is_docstrings_and_comments(name):
    """In a file with other long strings, `digest_of` might take code for a docstring."""
    source = (PACKAGE / name).read_text(encoding="utf-8")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        ast.get_source_segment(source, node.body[0].value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, kinds) and ast.get_docstring(node) is not None
    }
    assert {match[0].strip() for match in _DOCSTRING.finditer(source)} == docstrings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        assert "\n" not in token.string.strip() or token.string in docstrings


def test_an_edit_that_changes_no_number_is_not_blamed_for_others(monkeypatch):
    config = Config(30, n_layers=1, d_model=16, d_ff=32, n_heads=2)
    monkeypatch.setattr("minitf.translation.probe.edited", ["optim.py", "nn.py"])
    with pytest.raises(UserError, match=r"trained before nn\.py had"):
        check_probe(Transformer(config).eval(), [1.0] * 8)
    monkeypatch.setattr("minitf.translation.probe.edited", ["optim.py"])
    with pytest.raises(UserError, match="was a layer changed"):
        check_probe(Transformer(config).eval(), [1.0] * 8)


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
