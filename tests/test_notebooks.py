"""The teacher's command makes notebooks of the lessons, whose code is that of the lessons, cell by cell."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from lesson_files import LESSONS, ROOT

jupytext = pytest.importorskip("jupytext", reason="pip install -e '.[dev]' brings jupytext")


def command():
    """The command, as it stands in the README."""
    return re.search(r"^jupytext .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[0]


def test_the_command_of_the_readme_makes_a_notebook_of_each_lesson(tmp_path):
    (tmp_path / "lessons").mkdir()
    for lesson in LESSONS:
        shutil.copy(lesson, tmp_path / "lessons")
    line = command().replace("jupytext", f"{shlex.quote(sys.executable)} -m jupytext", 1)
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for lesson in LESSONS:
        notebook = json.loads((tmp_path / "lessons" / f"{lesson.stem}.ipynb").read_text(encoding="utf-8"))
        kinds = [cell["cell_type"] for cell in notebook["cells"]]
        assert kinds[0] == "markdown" and "".join(notebook["cells"][0]["source"]).startswith(
            f"Lesson {lesson.stem[:2]}."
        )
        assert kinds.count("markdown") >= 4
        code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        body = ast.parse(lesson.read_text(encoding="utf-8")).body[1:]  # without the docstring, which is prose
        assert [ast.dump(node) for cell in code for node in ast.parse(cell).body] == [ast.dump(node) for node in body]
