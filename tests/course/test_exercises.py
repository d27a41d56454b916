"""The exercise sheets: written from the lessons, and hard to pass with a wrong answer.

The typical mistakes are those of the checks, each with its wrong answer. tests/support/answers has
right answers, NAME and right_NAME_2, and further wrong ones, wrong_NAME, whose docstring is a piece
of the message that refuses them.
"""

import ast
import contextlib
import io
import re
import runpy
import subprocess
import sys
import warnings

import pytest
from lesson_files import LESSONS, ROOT, load, prose_of, tree_of

from minitf.course.grading import exercises
from minitf.course.lesson import state_of

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
SCRIPT = ROOT / "lessons" / "exercise.py"
ANSWERS = ROOT / "tests" / "support" / "answers"


@pytest.fixture(autouse=True)
def no_notebook(monkeypatch):
    """Earlier tests may have loaded ipykernel, by which a sheet knows that it is a notebook."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def answers(lesson):
    """Return {name: function} of a right answer to each exercise of a lesson."""
    module = load(ANSWERS / lesson.name)
    return {name: getattr(module, name) for name in exercises(load(SCRIPT).sheet(lesson))}


def answered(lesson, functions):
    """Return the sheet with these functions instead of the empty ones, as a reader saves it."""
    own = (ANSWERS / lesson.name).read_text(encoding="utf-8")
    taken = "".join(f"{name} = {thing.__name__}\n" for name, thing in functions.items())
    return load(SCRIPT).sheet(lesson).replace("\n\nif __name__", f"\n\n{own}\n{taken}\nif __name__")


def run(path, text):
    """Run a sheet in this process, which is quick; return (exit code, lines, messages).

    What it folded to 80 columns is one line again.
    """
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
    lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 or len(line.split()) <= 2 for line in lines), lines
    return code, unfolded(out.getvalue()), err.getvalue()


def unfolded(text):
    return text.replace("\n" + " " * 12, " ").splitlines()


@each_lesson
def test_an_empty_sheet_says_in_a_line_each_what_is_to_do(lesson, tmp_path):
    code, lines, err = run(tmp_path / "sheet.py", load(SCRIPT).sheet(lesson))
    right = answers(lesson)
    assert (code, err) == (1, "")
    assert 3 <= len(lines) == len(right) <= 5
    for number, (line, name) in enumerate(zip(lines, right, strict=True), 1):
        assert re.match(rf"to do  {number}\. {name}: .{{20,}}", line)


@each_lesson
def test_right_answers_pass(lesson, tmp_path):
    right = answers(lesson)
    sheet = answered(lesson, right)
    code, lines, err = run(tmp_path / "sheet.py", sheet)
    assert (code, err) == (0, ""), lines
    assert [line.split()[1:] for line in lines if line.startswith("right")] == [
        [f"{number}.", name] for number, name in enumerate(right, 1)
    ]


@each_lesson
def test_a_sheet_imports_what_its_right_answers_use(lesson):
    """A reader writes no import: what a hint asks for must be there."""
    answers = ast.parse((ANSWERS / lesson.name).read_text(encoding="utf-8"))
    imported = {name: node for node in answers.body for name in names_imported(node)}
    sheet = ast.parse(load(SCRIPT).sheet(lesson))
    there = {name for node in sheet.body for name in names_imported(node)}
    for function in (node for node in answers.body if isinstance(node, ast.FunctionDef)):
        if not function.name.startswith(("wrong_", "right_")):
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert used & imported.keys() <= there, function.name


def names_imported(node):
    """Return the names that a statement imports."""
    is_import = isinstance(node, ast.Import | ast.ImportFrom)
    return [name.asname or name.name for name in node.names] if is_import else []


def test_a_sheet_as_a_program_says_the_same(tmp_path):
    for functions in {}, answers(LESSONS[0]):
        expected = run(tmp_path / "sheet.py", answered(LESSONS[0], functions))
        done = subprocess.run(
            [sys.executable, "sheet.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, unfolded(done.stdout), done.stderr) == expected


@each_lesson
def test_each_exercise_has_a_hint_that_names_a_section_of_its_lesson(lesson):
    tree, headings = tree_of(lesson), {line.lstrip("#★ ") for line in prose_of(lesson)}
    docs = {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    for name in answers(lesson):
        hint = " ".join(docs[name].partition("\n\nHint: ")[2].split())
        assert any(f'"{heading}"' in hint for heading in headings if heading), f"{name}: {hint!r}"


SHEET = """from minitf.course.lesson import check_exercises
{answer}
def check_one():
    one()
    assert one() == 1, "it is not 1"
check_exercises(globals())
"""
HINT = '"""Return 1.\n\n    Hint: think.\n    """'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("def one():\n    ...", "to do  1. one: write its body"),
        ("def one():\n    pass  # later", "to do  1. one: write its body"),
        (f"def one():\n    {HINT}", "to do  1. one: Return 1."),
        ('def one():\n    """Return y =\n    2 x."""\n    ...', "to do  1. one: Return y = 2 x."),
        (
            f"def one():\n    {HINT}\n    return 2",
            "wrong  1. one: it is not 1\n          hint: think.",
        ),
        ("def one():\n    return", "wrong  1. one: it returns nothing: is `return` missing?"),
        ("def one():\n    1 / 0", "wrong  1. one (line 3): ZeroDivisionError: division by zero"),
        ("one = lambda: 1", "right  1. one"),
        ("one = 1", "wrong  1. one: the function is missing"),
        (
            "def made():\n    def one():\n        return 1\n    return one\none = made()",
            "right  1. one",
        ),
    ],
)
def test_what_is_said_of_an_answer(answer, expected, tmp_path):
    code, lines, err = run(tmp_path / "sheet.py", SHEET.format(answer=answer))
    assert ("\n".join(lines), err) == (expected, "") and code == (not expected.startswith("right"))


RETURNS_NOTHING = "update_in_parts"


@each_lesson
def test_an_answer_without_return_is_told_so(lesson, tmp_path):
    names = list(answers(lesson))
    added = "".join(f"def {name}(*arguments):\n    answer = 0\n" for name in names)
    text = load(SCRIPT).sheet(lesson).replace("\n\nif __name__", f"\n\n{added}\nif __name__")
    _, lines, _ = run(tmp_path / "sheet.py", text)
    wrong = [line for line in lines if line.startswith("wrong") and RETURNS_NOTHING not in line]
    assert wrong == [
        f"wrong  {number}. {name}: it returns nothing: is `return` missing?"
        for number, name in enumerate(names, 1)
        if name != RETURNS_NOTHING
    ]


def test_an_answer_that_is_to_return_nothing_is_told_what_is_wrong(tmp_path):
    text = SHEET.replace("one()", f"{RETURNS_NOTHING}()").replace(
        "check_one", "check_update_in_parts"
    )
    _, lines, _ = run(
        tmp_path / "sheet.py", text.format(answer="def update_in_parts():\n    return")
    )
    assert lines == [f"wrong  1. {RETURNS_NOTHING}: it is not 1"]


def test_the_command_writes_the_sheet_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_04_layers.py"
    assert load(SCRIPT).main(["4"]) == 0
    assert path.read_text(encoding="utf-8").startswith('"""Exercises. Lesson 04.')
    path.write_text("my answers")
    assert load(SCRIPT).main(["4"]) == 2 and path.read_text() == "my answers"
    said = capsys.readouterr().err
    assert "already exists" in said and said.count("\n") == 1


def test_help_is_the_docstring(capsys):
    assert load(SCRIPT).main(["--help"]) == 0
    assert "python lessons/exercise.py 04" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["10"], ["nine"], ["01", "02"], ["../01"], ["--github"], ["--github", "10"]]
)
def test_anything_else_is_refused(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert load(SCRIPT).main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not list(tmp_path.iterdir())


# The answers to the exercises ---------------------------------------------------------------------

WRONG, RIGHT = 5, 2  # so many of each exercise at least, and no more than so many named mistakes


def answers_to(lesson, folder):
    """Yield (its check in the sheet, right answers, {answer: what its refusal says}) of each."""
    sheet = load(SCRIPT).sheet(lesson)
    (folder / "sheet.py").write_text(sheet, encoding="utf-8")
    checks = runpy.run_path(str(folder / "sheet.py"), run_name="sheet")
    answers = vars(load(ANSWERS / lesson.name))
    for name in exercises(sheet):
        named = [(wrong, text) for text, wrong in mistakes_of(checks, name).items()]
        assert len(named) <= WRONG
        right = [answers[own] for own in answers if re.fullmatch(rf"(right_)?{name}(_\d+)?", own)]
        for own, answer in answers.items():
            if re.fullmatch(rf"wrong_{name}(_\d+)?", own):
                named.append((answer, " ".join(answer.__doc__.split())))
        yield checks[f"check_{name}"], right, named


def mistakes_of(checks, name):
    """Return {a typical mistake: an answer that makes it} of an exercise."""
    return getattr(getattr(checks["checks"], f"check_{name}"), "wrong", {})


@each_lesson
def test_no_wrong_answer_is_right_and_no_right_one_wrong(lesson, tmp_path):
    failures = []
    for check, right, wrong in answers_to(lesson, tmp_path):
        assert len(right) >= RIGHT and len(wrong) >= WRONG, check
        for answer, said in [*[(each, None) for each in right], *wrong]:

            def called(*arguments, answer=answer):
                return answer(*arguments)

            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                state, message = state_of(called, check)
            told = said is None or (said in message and "RecursionError" not in message)
            if state != ("right" if said is None else "wrong") or not told:
                failures.append(f"{check.__name__}: {said}: {state}: {message}")
    assert not failures, "\n".join(failures)
