"""The exercise sheets: written from the lessons, and hard to pass with a wrong answer."""

import ast
import contextlib
import importlib.util
import inspect
import io
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from lesson_files import LESSONS, ROOT, prose_of, tree_of

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
SCRIPT = ROOT / "lessons" / "exercise.py"


def load(path):
    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(lesson):
    """Return {name: function} of the right answers of a lesson, and of the wrong ones."""
    module = load(ROOT / "tests" / "support" / "answers" / lesson.name)
    own = {name: thing for name, thing in vars(module).items() if inspect.isfunction(thing)}
    own = {name: thing for name, thing in own.items() if thing.__module__ == module.__name__}
    wrong = {
        name.removeprefix("wrong_"): thing
        for name, thing in own.items()
        if name.startswith("wrong_")
    }
    return {name: own[name] for name in wrong}, wrong


def answered(sheet, functions, source):
    """Return the sheet with these functions instead of the empty ones, as a reader saves it."""
    own = Path(source).read_text(encoding="utf-8")
    taken = "".join(f"{name} = {thing.__name__}\n" for name, thing in functions.items())
    return sheet.replace("\n\nif __name__", f"\n\n{own}\n{taken}\nif __name__")


def run(path, text):
    """Run a sheet in this process, which is quick; return (exit code, lines, messages)."""
    path.write_text(text, encoding="utf-8")
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = end.code
    return code, out.getvalue().splitlines(), err.getvalue()


@each_lesson
def test_an_empty_sheet_says_in_a_line_each_what_is_to_do(lesson, tmp_path):
    code, lines, err = run(tmp_path / "sheet.py", load(SCRIPT).sheet(lesson))
    right, _ = answers(lesson)
    assert (code, err) == (1, "")
    assert 2 <= len(lines) == len(right) <= 4
    for number, (line, name) in enumerate(zip(lines, right, strict=True), 1):
        assert re.match(rf"to do  {number}\. {name}: .{{20,}}", line)


@each_lesson
def test_right_answers_pass(lesson, tmp_path):
    right, _ = answers(lesson)
    sheet = answered(
        load(SCRIPT).sheet(lesson), right, ROOT / "tests" / "support" / "answers" / lesson.name
    )
    code, lines, err = run(tmp_path / "sheet.py", sheet)
    assert (code, err) == (0, ""), lines
    assert [line.split()[1:] for line in lines if line.startswith("right")] == [
        [f"{number}.", name] for number, name in enumerate(right, 1)
    ]


@each_lesson
def test_wrong_answers_do_not(lesson, tmp_path):
    _, wrong = answers(lesson)
    sheet = answered(
        load(SCRIPT).sheet(lesson), wrong, ROOT / "tests" / "support" / "answers" / lesson.name
    )
    code, lines, err = run(tmp_path / "sheet.py", sheet)
    assert (code, err) == (1, "")
    said = [line for line in lines if line.startswith(("wrong", "right"))]
    assert len(said) == len(wrong) and all(
        re.match(r"wrong  \d\. \w+.*: .{10,}", line) for line in said
    ), lines


@pytest.mark.parametrize(
    "lesson",  # one process is enough by default: in all other tests the sheet is run in this one
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if i else [])
        for i, path in enumerate(LESSONS)
    ],
)
def test_a_sheet_as_a_program_says_the_same(lesson, tmp_path):
    for functions in ({}, *answers(lesson)):
        sheet = answered(
            load(SCRIPT).sheet(lesson),
            functions,
            ROOT / "tests" / "support" / "answers" / lesson.name,
        )
        expected = run(tmp_path / "sheet.py", sheet)
        done = subprocess.run(
            [sys.executable, "sheet.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.splitlines(), done.stderr) == expected


@each_lesson
def test_each_exercise_has_a_hint_that_names_a_section_of_its_lesson(lesson):
    tree, headings = tree_of(lesson), {line.removeprefix("## ") for line in prose_of(lesson)}
    docs = {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    for name in answers(lesson)[0]:
        hint = " ".join(docs[name].partition("\n\nHint: ")[2].split())
        assert any(f'"{heading}"' in hint for heading in headings if heading), f"{name}: {hint!r}"


@pytest.mark.parametrize(
    "body", ["...", "pass", '"""Only its docstring."""', '"""More."""\n    pass  # later']
)
def test_what_is_not_written_yet_is_to_do(body, tmp_path):
    code, lines, _ = run(tmp_path / "sheet.py", SHEET.format(body=body))
    assert code == 1 and lines[0].startswith("to do  1. one: ") and len(lines) == 1


@pytest.mark.parametrize(
    "body", ["return 0.0", "return None", '"""Return 1.\n\n    Hint: think.\n    """\n    return 2']
)
def test_what_is_written_is_right_or_wrong_and_wrong_brings_the_hint(body, tmp_path):
    code, lines, _ = run(tmp_path / "sheet.py", SHEET.format(body=body))
    hint = ["          hint: think."] if "Hint" in body else []
    assert code == 1 and lines[0].startswith("wrong  1. one") and lines[1:] == hint


def test_an_answer_may_be_a_lambda_and_a_number_is_none(tmp_path):
    sheet = SHEET.replace("def one():\n    {body}", "one = {body}")
    assert run(tmp_path / "sheet.py", sheet.format(body="lambda: 1"))[:2] == (0, ["right  1. one"])
    assert run(tmp_path / "sheet.py", sheet.format(body="1"))[:2] == (
        1,
        ["wrong  1. one: the function is missing"],
    )


SHEET = """from minitf.course.lesson import check_exercises
def one():
    {body}
def check_one():
    assert one() == 1, "it is not 1"
check_exercises(globals())
"""


def test_an_exercise_that_was_deleted_or_fails_is_told_in_its_line(tmp_path):
    sheet = load(SCRIPT).sheet(LESSONS[0]).replace("def additive_mask", "def renamed")
    broken = "def softmax_average(scores, values):\n    return 1 / 0\n"
    code, lines, err = run(
        tmp_path / "sheet.py", sheet.replace("\n\nif __name__", f"\n\n{broken}\nif __name__")
    )
    assert (code, err) == (1, "")
    assert lines[0] == "wrong  1. additive_mask: the function is missing"
    assert len(lines) == 2  # the answer has no docstring, and so no hint
    assert re.fullmatch(
        r"wrong  2\. softmax_average \(line \d+\): ZeroDivisionError: division by zero", lines[1]
    )


def test_the_command_writes_the_sheet_once(tmp_path):
    command = [sys.executable, str(SCRIPT), "4"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    assert (
        (tmp_path / "my_04_layers.py")
        .read_text(encoding="utf-8")
        .startswith('"""Exercises. Lesson 04.')
    )
    (tmp_path / "my_04_layers.py").write_text("my answers")
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (
        second.returncode == 2
        and "already exists" in second.stderr
        and second.stderr.count("\n") == 1
    )
    assert (tmp_path / "my_04_layers.py").read_text() == "my answers"


def test_help_is_the_docstring(capsys):
    assert (
        load(SCRIPT).main(["--help"]) == 0
        and "python lessons/exercise.py 04" in capsys.readouterr().out
    )


@pytest.mark.parametrize("arguments", [[], ["10"], ["nine"], ["01", "02"], ["../01"]])
def test_anything_else_is_refused(arguments, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())
