"""The package as a person installs it: found from any folder, and never confused with another project of its name."""

import configparser
import functools
import os
import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

import minitf

FOLDERS = ("minitf", "lessons", "examples")
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("tests/*.md")),
    *(path for folder in FOLDERS for kind in ("md", "py") for path in sorted((ROOT / folder).rglob(f"*.{kind}"))),
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


@pytest.mark.slow
def test_a_wheel_works_away_from_the_repository(tmp_path):
    """Its commands translate and train; where the model or the lessons are missing, one line says so."""
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    source = tmp_path / "source"  # building writes into the folder of the sources
    shutil.copytree(ROOT / "minitf", source / "minitf", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source])
    assert built.returncode == 0, built.stdout + built.stderr
    done = run([*pip, "install", "--no-deps", "--target", site, *wheels.glob("*.whl")])
    assert done.returncode == 0, done.stdout + done.stderr
    names = {str(path.relative_to(site)) for path in site.glob("minitf/*")}
    assert "minitf/py.typed" in names and names >= {f"minitf/{path.name}" for path in ROOT.glob("minitf/*.py")}
    environment = os.environ | {"PYTHONPATH": str(site)}
    (tmp_path / "empty").mkdir()

    def command(name, *arguments):
        words = [sys.executable, site / "bin" / name, *arguments]
        return run(words, cwd=tmp_path / "empty", env=environment)

    assert "minitf-translate --model DIR" in command("minitf").stdout
    sentence = "The children are playing in the garden."
    done = command("minitf-translate", "--model", ROOT / "examples" / "models" / "en-de", sentence)
    assert done.stdout == "Die Kinder spielen im Garten.\n", done.stderr
    done = command("minitf-translate", sentence)
    assert done.returncode == 2 and done.stderr.startswith("minitf-translate: name a trained model with --model DIR")
    assert done.stderr.count("\n") == 1
    assert "--corpus" in command("minitf-train", "--help").stdout
    done = run(
        [sys.executable, "-c", "from minitf.course.lesson import toy_model; toy_model()"],
        cwd=tmp_path / "empty",
        env=environment,
    )
    assert done.returncode == 2 and "it is beside the lessons in the repository" in done.stderr
    assert done.stderr.count("\n") == 1
