"""The installed package: found from any folder, never confused with a project of its name."""

import configparser
import functools
import os
import re
import shutil
import subprocess
import sys

import pytest
from paths import PACKAGE, ROOT

import minitf
from minitf.page.writer import PROGRAM

FOLDERS = ("minitf", "lessons", "examples")
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("tests/*.md")),
    *(
        path
        for folder in FOLDERS
        for kind in ("md", "py")
        for path in sorted((ROOT / folder).rglob(f"*.{kind}"))
    ),
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


def test_nothing_says_to_install_the_other_project_called_minitf():
    """`minitf` on the public package index is not this project: pip would install that one."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        other = re.search(r"pip (install|download)[^\n]*[\s'\"]minitf(\[|['\"\s]|$)", text)
        assert not other, path


def test_the_version_is_stated_once():
    assert _setup()["metadata"]["version"] == "attr: minitf.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", minitf.__version__)
    assert f"## {minitf.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {minitf.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


IMPORT_ALL = """
import importlib, pkgutil, minitf
names = [module.name for module in pkgutil.walk_packages(minitf.__path__, "minitf.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in ("cupy", "cupyx") and name.startswith("minitf.gpu."), (name, error)
print(minitf.__file__, *names, sep="\\n")
"""


LESSON = """
from minitf.course import lesson
lesson.toy_model(), lesson.toy_model("toy-model-early"), lesson.kept("leaks")
print(lesson._found("toy-model"))
from minitf.course.architecture import DRAWN
assert DRAWN.exists()
"""


@pytest.mark.slow
def test_a_wheel_works_away_from_the_repository(tmp_path):
    """The wheel has every module; its commands work, or name in one line what they lack."""
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    _install_wheel(tmp_path, site)
    here = functools.partial(run, cwd=empty, env=os.environ | {"PYTHONPATH": str(site)})

    done = here([sys.executable, "-c", IMPORT_ALL])
    assert done.returncode == 0, done.stderr
    file, *names = done.stdout.split("\n")[:-1]
    assert file == str(site / "minitf" / "__init__.py") and (site / "minitf" / "py.typed").exists()
    for name in ("template.html", "page.css", *PROGRAM):
        assert (site / "minitf" / "page" / name).exists()
    paths = (path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.py"))
    assert {"minitf", *names} == {".".join(path.parts).removesuffix(".__init__") for path in paths}

    model, sentence = (
        ("--model", ROOT / "examples" / "models" / "en-de"),
        "The children are playing in the garden.",
    )
    minitf, alone = site / "bin" / "minitf", site / "bin" / "minitf-translate"
    for words, name in (
        ((alone,), "minitf-translate"),
        ((minitf, "translate"), "minitf translate"),
        (("-m", "minitf", "translate"), "minitf translate"),
    ):
        done = here([sys.executable, *words, *model, sentence])
        assert done.stdout == "Die Kinder spielen im Garten.\n", done.stderr
        done = here([sys.executable, *words, sentence])
        assert done.returncode == 2 and done.stderr.startswith(
            f"{name}: name a trained model with --model DIR: a folder that the trainer wrote"
        )
        assert done.stderr.count("\n") == 1
    for words, usage in (
        ((site / "bin" / "minitf-train",), "usage: minitf-train "),
        ((minitf, "train"), "usage: minitf train "),
        (("-m", "minitf", "train"), "usage: python -m minitf train "),
    ):
        done = here([sys.executable, *words, "--help"])
        assert done.stdout.startswith(usage) and "--corpus" in done.stdout, done.stderr
    assert "minitf translate --model DIR" in here([sys.executable, minitf]).stdout
    # What a notebook of a lesson reads.
    done = here([sys.executable, "-c", LESSON])
    assert done.returncode == 0 and done.stdout.startswith(str(site)), done.stderr


def _install_wheel(folder, site):
    """Build a wheel of the sources, and install it in the folder `site`."""
    pip, source = [sys.executable, "-m", "pip", "--disable-pip-version-check"], folder / "source"
    # Building writes there
    shutil.copytree(PACKAGE, source / "minitf", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lessons", source / "lessons")
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", folder / "wheels", source]
    done = subprocess.run([*pip, *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    install = ["install", "--no-deps", "--target", site, *(folder / "wheels").glob("*.whl")]
    done = subprocess.run([*pip, *install], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
