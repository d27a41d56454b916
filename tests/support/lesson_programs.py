"""Run a lesson as a program, also with a library in which a mistake was planted."""

import os
import runpy
import shutil
import subprocess
import sys

from paths import PACKAGE, ROOT, SUPPORT

__all__ = ["is_noticed", "mutants", "plant", "run"]

OFFLINE = (
    "import socket\ndef refuse(*_): raise OSError('a lesson needs no network')\n"
    "socket.socket.connect = refuse\n"
)


def run(lesson, folder, *options, package=ROOT):
    """Run a lesson in an empty folder, offline, with the minitf package of the folder `package`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(OFFLINE)
    (folder / "empty").mkdir()
    path = os.pathsep.join([str(folder / "site"), str(package)])
    return subprocess.run(
        [sys.executable, "-W", "error", str(lesson), *options],
        cwd=folder / "empty",
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )


def mutants():
    """Return {name: (number of the lesson that must notice, correct text, wrong text)}.

    They are mistakes in equations, because lessons run on equations, or in a folder that a lesson
    teaches. Each correct text occurs once in the package.
    """
    found = {}
    for path in sorted((SUPPORT / "lesson_mutants").glob("0[1-9].py")):
        for name, texts in runpy.run_path(str(path))["MUTANTS"].items():
            assert name not in found, f"two mistakes are called {name!r}"
            found[name] = (path.stem, *texts)
    return found


def plant(mutant, folder):
    """Copy the package to a folder with a mistake in it; return the folder."""
    _, right, wrong = mutant
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "minitf", ignore=ignored)
    for path in (folder / "minitf").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if right in text:
            path.write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


def is_noticed(done):
    """Return whether a check of a lesson has found the mistake."""
    # A line of minitf may come first, about a form that is not used.
    said = any(line.endswith(".py is false:") for line in done.stderr.splitlines())
    return done.returncode == 1 and said
