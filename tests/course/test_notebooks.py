"""The notebooks: the code of the lessons, cell by cell, and exercises that are checked."""

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import types

import pytest
from lesson_files import LESSONS, ROOT

# Only looked for: to import it takes half a second.
if importlib.util.find_spec("jupytext") is None:
    pytest.skip("pip install -e '.[dev]' brings jupytext", allow_module_level=True)

COMMAND = "python lessons/notebooks.py"
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def make(folder, *arguments):
    """Run the command in a folder that contains only the lessons."""
    if not (folder / "lessons").exists():
        (folder / "lessons").mkdir()
        for script in (ROOT / "lessons").glob("*.py"):
            shutil.copy(script, folder / "lessons")
    command = [sys.executable, *COMMAND.split()[1:], *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """Return the folder of the notebooks, which are written once."""
    folder = tmp_path_factory.mktemp("classroom")
    done = make(folder)
    assert done.returncode == 0, done.stderr
    return folder / "notebooks"


def cells_of(path, kind):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def trees(body):
    """Return the statements as text, without those for the tests."""
    return [ast.dump(node) for node in body if not ast.unparse(node).startswith("INTRODUCES = ")]


@each_lesson
def test_a_notebook_has_the_code_of_its_lesson_and_checks_the_exercises(notebooks, lesson):
    _, *code, last = cells_of(notebooks / f"{lesson.stem}.ipynb", "code")
    # Without the docstring, which is prose.
    body = ast.parse(lesson.read_text(encoding="utf-8")).body[1:]
    assert trees(node for cell in code for node in ast.parse(cell).body) == trees(body)
    assert last.endswith("\n\ncheck_exercises(globals())")


@each_lesson
def test_a_notebook_has_a_title_a_kernel_and_no_scaffolding(notebooks, lesson):
    path = notebooks / f"{lesson.stem}.ipynb"
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["language_info"]["file_extension"] == ".py"  # nbconvert --to script asks
    prose, code = cells_of(path, "markdown"), cells_of(path, "code")
    assert re.match(rf"# Lesson {lesson.stem[:2]}\. .+\n\n", prose[0]) and len(prose) >= 4
    assert not any("INTRODUCES" in cell for cell in code)
    begins = r"^(QUICK = )?begin\(.*\)  # |^# .+\n(QUICK = )?begin\("
    assert re.search(begins, code[1], re.MULTILINE), "a word on what begin does"


def test_a_notebook_installs_minitf_where_it_is_missing(tmp_path, monkeypatch):
    assert make(tmp_path, "--install", "https://example.org/minitf.whl").returncode == 0
    first = cells_of(tmp_path / "notebooks" / "04_layers.ipynb", "code")[0]
    ran = []
    shell = types.SimpleNamespace(run_line_magic=lambda *words: ran.append(words))
    for missing in (True, False):
        found = None if missing else "minitf"
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, found=found: found)
        exec(first, {"get_ipython": lambda: shell})
    assert ran == [("pip", "install --quiet https://example.org/minitf.whl")]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://example.org/somebody/minitf.git", "git+https://example.org/somebody/minitf.git"),
        ("https://me:secret@example.org/minitf", "git+https://example.org/minitf"),
        ("git@example.org:somebody/minitf.git", "git+https://example.org/somebody/minitf.git"),
        ("ssh://git@example.org/somebody/minitf", "git+https://example.org/somebody/minitf"),
        ("/home/me/minitf", "git+ADDRESS"),
        ("C:/minitf", "git+ADDRESS"),
        ("../minitf.git", "git+ADDRESS"),
        ("", "git+ADDRESS"),
    ],
)
def test_a_notebook_installs_from_where_this_was_cloned(origin, expected, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "lessons")
    notebooks = importlib.import_module("notebooks")
    done = types.SimpleNamespace(stdout=f"{origin}\n")
    monkeypatch.setattr(notebooks.subprocess, "run", lambda *_, **__: done)
    assert notebooks.origin() == expected


@each_lesson
def test_a_notebook_needs_no_file_beside_it(notebooks, lesson):
    for text in cells_of(notebooks / f"{lesson.stem}.ipynb", "markdown"):
        # Jupyter also shows no SVG that is attached to a text.
        assert not re.search(r"\]\((figures/|toy-page|attachment:)|<img", text)
    code = "\n".join(cells_of(notebooks / f"{lesson.stem}.ipynb", "code"))
    pictures = re.findall(r"\]\(figures/(.+?)\)", lesson.read_text(encoding="utf-8"))
    assert pictures and not [name for name in pictures if f'"{name}"' not in code]


@pytest.mark.slow
def test_a_notebook_that_exists_is_kept(tmp_path):
    assert make(tmp_path, "mine").returncode == 0
    answers = tmp_path / "mine" / "04_layers.ipynb"
    answers.write_text("answers")
    again = make(tmp_path, "mine")
    assert again.returncode == 0 and "04_layers.ipynb already exists: kept" in again.stdout
    assert answers.read_text() == "answers"


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = make(tmp_path, "file")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("notebooks.py: file: ")
    assert make(tmp_path, "--folder").returncode == 2 and make(tmp_path, "--help").returncode == 0


@pytest.mark.slow
@each_lesson
def test_a_notebook_runs_and_shows_no_stray_value(notebooks, lesson, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="pip install -e '.[dev]' brings nbclient")
    import nbformat

    book = nbformat.read(notebooks / f"{lesson.stem}.ipynb", as_version=4)
    answers = (ROOT / "tests" / "support" / "answers" / lesson.name).read_text(encoding="utf-8")
    book.cells += [nbformat.v4.new_code_cell(source) for source in (answers, book.cells[-1].source)]
    nbclient.NotebookClient(
        book, timeout=560, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type in ("execute_result", "error")]
    shown = [output.data for output in outputs if output.output_type == "display_data"]
    drawn = re.findall(r"^draw\(", lesson.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) == len(drawn) and all({"image/png", "text/html"} & set(d) for d in shown)
    before, after = ("".join(output.text for output in book.cells[n].outputs) for n in (-3, -1))
    before = before.replace("\n            ", " ")  # a line, as it was before it was folded
    assert re.fullmatch(r"(to do  \d\. .+\n)+", before)
    assert len(re.findall(r"^right  ", after, re.MULTILINE)) == before.count("\n"), after
