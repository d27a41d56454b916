"""The package as a person installs it: found from any folder, and never confused with another project of its name."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import minitf

ROOT = Path(__file__).parent.parent
TEXTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("*/*.md"),
    *ROOT.glob("examples/models/*/*.md"),
    *ROOT.glob("minitf/*.py"),
    *ROOT.glob("lessons/*.py"),
    *ROOT.glob("examples/**/*.py"),
]


def _setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_the_package_is_found_in_the_folder_above_a_clone(tmp_path):
    """There the clone's own folder `minitf` looks like a package without an __init__.py."""
    (tmp_path / "minitf").mkdir()
    command = [sys.executable, "-c", "import minitf; print(minitf.Config.__name__)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "Config\n", done.stderr


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_says_to_install_the_other_project_called_minitf(path):
    """`minitf` on the public package index is not this project: pip would install that one."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"pip (install|download)[^\n]*[\s'\"]minitf(\[|['\"\s]|$)", text)


def test_the_version_is_stated_once():
    assert _setup()["metadata"]["version"] == "attr: minitf.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", minitf.__version__)
    assert f"## {minitf.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {minitf.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
