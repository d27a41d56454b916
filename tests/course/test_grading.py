"""Filled sheets and notebooks, graded for a program, for a class, for GitHub and for Gradescope."""

import contextlib
import csv
import inspect
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import types
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from lesson_files import LESSONS, ROOT, load

from minitf.course import answering, calls, gradebook, grading
from minitf.decode import Hypothesis

SCRIPT = ROOT / "lessons" / "exercise.py"
GRADED = LESSONS[3]
QUICK = ("02",)  # a check calls with a Tensor; in 06 with a function, in 07 with a model
FIELDS = ["number", "name", "state", "message", "hint", "points", "max_points", "seconds"]
TOTALS = ["lesson", "exercises", "right", "total", "points", "max_points", "notes"]


exercise = load(SCRIPT)
SHEET = exercise.sheet(GRADED)
NAMES = grading.exercises(SHEET)


def source_of(lesson):
    return (ROOT / "tests" / "support" / "answers" / lesson.name).read_text(encoding="utf-8")


def answered(lesson, wrong=False):
    """Return the sheet with all right answers of a lesson, or with wrong ones."""
    names, source = grading.exercises(exercise.sheet(lesson)), source_of(lesson)
    for name in names if wrong else ():
        own = re.search(rf"^def (wrong_{name}(_\d+)?)\(", source, re.MULTILINE)
        source += f"\n{name} = {own[1]}" if own else f"\n\ndef {name}(*given):\n    return 0\n"
    return sheet_with(source, exercise.sheet(lesson))


def sheet_with(text, sheet=SHEET):
    """Return a sheet to whose answers this text is added."""
    return sheet.replace("\n\nif __name__", f"\n\n{text}\n\nif __name__")


def command(folder, *arguments):
    """Run the command in this process, which is quick; return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = exercise.main(list(arguments))
    return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def grade(text, folder):
    """Run the command on a filled sheet; return (exit code, the object that it prints)."""
    (folder / "filled.py").write_text(text, encoding="utf-8")
    done = command(folder, "--json", "filled.py")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def graded_here(text, **options):
    return grading.grade(GRADED.stem, SHEET, [[answering.SHEET, text, False]], **options)


def states(result):
    return [one["state"] for one in result["exercises"]]


# One sheet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem[:2] in QUICK else pytest.mark.slow)
        for path in LESSONS
    ],
)
def test_an_answer_is_judged_as_the_sheet_itself_judges_it(lesson):
    """Also where a check calls it with a Tensor, a function, or a model that it trains."""
    sheet = exercise.sheet(lesson)
    for wrong in False, True:
        text, names = answered(lesson, wrong), {"__name__": "sheet"}
        exec(compile(text, "sheet.py", "exec"), names)
        result = grading.grade(lesson.stem, sheet, [[answering.SHEET, text, False]])
        for one in result["exercises"]:
            name = one["name"]
            here, said = grading.state_of(names[name], names[f"check_{name}"])
            assert one["state"] == here == ("wrong" if wrong else "right"), one
            # A Tensor is a copy here, so `find_leaks` finds no gradient of its earlier calls in it.
            assert one["message"][-30:] == said[-30:] or name == "find_leaks", (one, said)


def test_json_has_a_state_for_each_exercise(tmp_path):
    _, second, *others = NAMES
    wrong = f"{second} = wrong_{second}_3\n"
    empty = "".join(f"def {name}(x):\n    ...\n" for name in others)
    for text, expected in (
        (source_of(GRADED), ["right"] * len(NAMES)),
        (source_of(GRADED) + wrong + empty, ["right", "wrong", *["to do"] * len(others)]),
    ):
        code, result = grade(sheet_with(text), tmp_path)
        assert code == (0 if set(expected) == {"right"} else 1)
        assert list(result) == TOTALS and states(result) == expected
        assert (result["lesson"], result["total"]) == (GRADED.stem, len(NAMES))
        assert result["right"] == expected.count("right") and result["notes"] == []
        assert [one["name"] for one in result["exercises"]] == NAMES
        for number, one in enumerate(result["exercises"], 1):
            right = one["state"] == "right"
            assert list(one) == FIELDS and one["number"] == number and 0 <= one["seconds"] < 60
            assert (one["message"] == "") == (one["hint"] == "") == right
            assert one["points"] == (one["max_points"] if right else 0)
        assert result["max_points"] == sum(grading.POINTS[name] for name in NAMES)
        assert result["points"] == sum(one["points"] for one in result["exercises"])


def test_one_exercise_can_be_graded_alone(tmp_path):
    (tmp_path / "my.py").write_text(answered(GRADED), encoding="utf-8")
    done = command(tmp_path, "--json", "my.py", NAMES[2])
    (one,) = json.loads(done.stdout)["exercises"]
    assert done.returncode == 0 and (one["number"], one["name"]) == (3, NAMES[2])
    done = command(tmp_path, "--json", "my.py", "nothing")
    assert done.returncode == 2 and "has no exercise nothing" in done.stderr


def test_each_exercise_has_points_also_on_its_sheet():
    sheets = "".join(exercise.sheet(path) for path in LESSONS)
    points = re.findall(r"^# (\d) points?\ndef (\w+)\(", sheets, re.MULTILINE)
    assert {name: int(number) for number, name in points} == grading.POINTS
    assert sorted(grading.exercises(sheets)) == sorted(grading.POINTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def broken(:\n", r"cannot be read \(line \d+\): SyntaxError: invalid syntax"),
        ("import os\nos._exit(3)", r"Python ended \(exit code 3\) while it reads the sheet"),
    ],
)
def test_a_sheet_that_cannot_be_read_says_why_with_each_exercise(text, message):
    result = graded_here(sheet_with(text))
    assert set(states(result)) == {"wrong"}
    assert all(re.search(message, one["message"]) for one in result["exercises"]), result


@pytest.mark.parametrize("text", ["a = 1\nraise KeyError(a)", "import sys\nsys.exit(1)", "1 / 0"])
def test_a_statement_that_fails_is_skipped_with_a_word(text):
    result = graded_here(sheet_with(f"{text}\n{source_of(GRADED)}"))
    assert set(states(result)) == {"right"} and len(result["notes"]) == 1
    assert re.match(r"answers.py, line \d+: skipped `", result["notes"][0])


@pytest.mark.slow
def test_a_check_that_does_not_end_is_stopped():
    first, *_ = NAMES
    text = sheet_with(f"def {first}(*a, **b):\n    while True: pass\n")
    result = graded_here(text, seconds=6, only=[first])
    (one,) = result["exercises"]
    assert (one["state"], result["right"]) == ("wrong", 0) and 6 <= one["seconds"] < 40
    assert one["message"] == "no end after 6 seconds, while Python runs the check"
    result = graded_here(sheet_with("while True: pass"), seconds=6)
    # The others are not tried: each would take its time as well.
    assert sum(one["seconds"] for one in result["exercises"]) < 40
    assert {one["message"] for one in result["exercises"]} == {
        "no end after 6 seconds, while Python reads the sheet"
    }


@pytest.mark.slow
def test_a_gradient_that_does_not_end_spoils_no_other_answer():
    lesson = LESSONS[1]
    sheet = exercise.sheet(lesson)
    names = grading.exercises(sheet)
    text = f"{source_of(lesson)}\ndef logsumexp(x):\n    y = np.logaddexp.reduce(x.data, axis=-1)\n"
    text += "    return record(y, (x,), lambda gy: sum(iter(int, 1)))\n"
    only = names[names.index("logsumexp") :][:2]
    cells = [[answering.SHEET, sheet_with(text, sheet), False]]
    result = grading.grade(lesson.stem, sheet, cells, seconds=6, only=only)
    assert states(result) == ["wrong", "right"], result
    assert "no end after 6 seconds" in result["exercises"][0]["message"]


def test_a_sheet_may_import_what_is_beside_it(tmp_path):
    (tmp_path / "mine.py").write_text("NUMBERS = [-0.58, -0.58, -0.58, 1.73]")
    text = f"import mine\ndef {NAMES[0]}():\n    return mine.NUMBERS\n"
    assert states(grade(sheet_with(text), tmp_path)[1])[0] == "right"


OTHER = exercise.sheet(LESSONS[4])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--json"], "give one filled sheet"),
        (["--jsn", "a.py"], "unknown option --jsn: --help lists them"),
        (["a.py", "--json"], "put --json first"),
        (["--json", "missing.py"], "missing.py: No such file"),
        (["--json", "other.py"], "other.py: neither its title nor an answer names a lesson"),
        (["--json", "."], "Is a directory"),
        (["--json", "empty.ipynb"], "empty.ipynb: this is no notebook"),
        (
            ["--json", "my_04_layers.py"],
            "its name is of lesson 04_layers, its title is of lesson 05_embeddings: which one",
        ),
        (["--class", "missing"], "missing: there is no such folder"),
        (["--class", "x" * 300], "x: cannot be read (File name too long)"),
        (["--class", "nothing"], "nothing: there is no Python file and no notebook in it"),
        (["--class", "nothing", "12"], "there is no lesson 12"),
        (["--gradescope"], "give the number of one lesson"),
    ],
)
def test_what_cannot_be_graded_is_refused_in_one_line(arguments, reason, tmp_path):
    (tmp_path / "other.py").write_text("print('hello')")
    (tmp_path / "empty.ipynb").write_text("")
    (tmp_path / "my_04_layers.py").write_text(OTHER, encoding="utf-8")
    (tmp_path / "nothing").mkdir()
    done = command(tmp_path, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert reason in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, value) for value in (None, True, 3, -2.5, float("inf"), "ä\n", 10**40)],
        *[(value, value) for value in ([1, (2.5, "a")], {"a": [1], 2: (3,)}, {1, 2}, [], {})],
        *[(array, array) for array in (np.eye(3, dtype=np.float32), np.arange(4) > 1, np.ones(()))],
        *[(value, value) for value in (np.float32(0.1), np.int64(3), np.bool_(True))],
        (Fraction(1, 2), 0.5),
        (range(3), [0, 1, 2]),
        ({1: 2}.keys(), [1]),
        (np.array([1, "a"], dtype=object), [1, "a"]),
        (np.arange(6.0).reshape(2, 3).T, np.arange(6.0).reshape(2, 3).T),
        (Hypothesis([1], -0.5, 2.0), Hypothesis([1], -0.5, 2.0)),
    ],
    ids=repr,
)
def test_a_value_arrives_as_it_was(value, expected):
    channel = calls.Channel(None, None)
    found = channel._unpacked(json.loads(json.dumps(channel._packed(value))))
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert np.array_equal(found, expected) and found.dtype == expected.dtype
    else:
        assert found == expected


def test_an_update_may_return_its_model():
    lesson, step = LESSONS[6], "optimizer.step(rate)\n"
    text = source_of(lesson).replace(step, f"{step}    return model\n", 1)
    sheet = exercise.sheet(lesson)
    cells = [[answering.SHEET, sheet_with(text, sheet), False]]
    result = grading.grade(lesson.stem, sheet, cells, only=["update_in_parts"])
    assert states(result) == ["right"], result


# Notebooks ----------------------------------------------------------------------------------------

EMPTY = {  # {name: the source of the cell of an exercise}
    re.search(r"^def (\w+)", cell, re.MULTILINE)[1]: cell.strip()
    for cell in re.split(r"^# %%.*$", SHEET.partition("\nif __name__")[0], flags=re.MULTILINE)
    if "\ndef " in f"\n{cell}"
}
ANSWERS = load(ROOT / "tests" / "support" / "answers" / GRADED.name)
RIGHT = {name: inspect.getsource(getattr(ANSWERS, name)) for name in NAMES}
ALL = list(RIGHT.values())
TITLE = ("markdown", "# Lesson 04. Layers\n\nText.")
LESSON_CELLS = [
    ("code", "import numpy as np\nfrom minitf import functions as F\nx = np.ones(3)\n1 / 0"),
    ("code", "def helper(x):\n    return x\n\nprint(helper(x), unknown)"),
]
TURN = ("markdown", "## Your turn\nFill in the bodies.")
LAST = ("code", "from minitf.course.lesson import check_exercises\n\ncheck_exercises(globals())")
FILLED = [("code", EMPTY[name] + "\n\n" + RIGHT[name]) for name in NAMES]
START = [TITLE, *LESSON_CELLS, TURN]
tent, dropout = RIGHT["tent"], RIGHT["mended_dropout"]


def with_code(*sources):
    """Return a notebook with these cells among its answers."""
    return [*START, FILLED[0], *[("code", source) for source in sources], *FILLED[1:], LAST]


# {habit: (cells, the exercises that are right, a pattern of each note)}
NOTEBOOKS = {
    "as it is made": ([*START, *[("code", cell) for cell in EMPTY.values()], LAST], "", []),
    "filled": ([*START, *FILLED, LAST], "all", []),
    "magic above an answer": (
        [*START, ("code", f"%matplotlib inline\n{EMPTY['tent']}\n{tent}"), LAST],
        "tent",
        ["cell 5, line 1: skipped `%matplotlib inline`, a magic"],
    ),
    "pip and the shell": (
        with_code("!pip install torch \\\n    numpy\nfiles = !ls\n%pip install x", "%%bash\nls"),
        "all",
        ["`!pip install torch", "`files = !ls`, a shell", "`%pip", "cell 7, line 1: .*%%bash"],
    ),
    "help": (with_code("F.layer_norm?", "?np.mean", "np??"), "all", ["a question"] * 3),
    "await": (
        with_code("import asyncio\nawait asyncio.sleep(0)\nasync def f():\n    await f()"),
        "all",
        ["line 2: skipped `await asyncio.sleep.0.`, .*SyntaxError: 'await' outside function"],
    ),
    "scratch that raises": (
        with_code("1 / 0", "y = mended_dropout(1)\nz = y + 1"),
        "all",
        ["ZeroDivisionError", "NameError: name 'mended", "NameError: name 'y'"],
    ),
    "cells in another order": (
        [TITLE, *reversed(FILLED), TURN, *[("code", cell) for cell in EMPTY.values()]], "all", []
    ),
    "an answer twice, the last is wrong": (
        [*START, ("code", tent), ("code", "def tent():\n    return 7")], "", []
    ),
    "without its title": ([*LESSON_CELLS, TURN, *FILLED, LAST], "all", []),
    "without the heading": ([TITLE, *LESSON_CELLS, *FILLED, LAST], "all", []),
    "a function and an import above": (
        [TITLE, ("code", "from math import inf\ndef mine(x):\n    return x\nx = undefined"), TURN,
         ("code", tent.replace("    return", "    mine(inf)\n    return"))], "tent", [],
    ),
    "a cell that was never finished": (
        with_code("def half(x:\n    return", "for i in"),
        "all",
        ["cell 6 was skipped: .*SyntaxError", "cell 7 was skipped: .*SyntaxError"],
    ),
    "other checks": (
        with_code("def check_tent():\n    pass\ndef tent():\n    return 7")[:-5], "normalised", []
    ),
}  # fmt: skip
FEW = ("filled", "magic above an answer", "scratch that raises", "without its title")


def saved(path, cells):
    """Write a notebook; return its path."""
    made = [
        {"cell_type": kind, "source": source.splitlines(keepends=True)} for kind, source in cells
    ]
    path.write_text(json.dumps({"cells": made}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "habit", [pytest.param(n, marks=[] if n in FEW else pytest.mark.slow) for n in NOTEBOOKS]
)
def test_a_notebook_of_a_class_is_graded_right(habit, tmp_path):
    cells, right, notes = NOTEBOOKS[habit]
    result = exercise.graded("anna.ipynb", saved(tmp_path / "anna.ipynb", cells).read_bytes())
    found = [one["name"] for one in result["exercises"] if one["state"] == "right"]
    assert found == [name for name in NAMES if right == "all" or (right and right in name)], result
    assert len(result["notes"]) == len(notes), result["notes"]
    for pattern, note in zip(notes, result["notes"], strict=True):
        assert re.search(pattern, note), (pattern, note)


@pytest.mark.parametrize("magic", ["", "%time\n"])
def test_a_cell_defines_its_functions_and_values_not_what_it_calls(magic):
    cell = "def half(\n    x,\n):\n    return x\ny: int = 3\nrms_norm(x[:, 0], g)\nz == y"
    assert exercise.defined(magic + cell) == {"half", "y"}


def test_an_error_in_a_notebook_names_its_cell(tmp_path):
    cells = [*START, ("code", "def tent():\n    return nobody")]
    result = exercise.graded("a.ipynb", saved(tmp_path / "a.ipynb", cells).read_bytes())
    (one,) = [each for each in result["exercises"] if each["name"] == "tent"]
    assert one["message"] == "(cell 5, line 2): NameError: name 'nobody' is not defined"


def test_a_notebook_of_ours_is_graded_as_a_sheet_is(tmp_path):
    pytest.importorskip("jupytext", reason="pip install -e '.[dev]' brings jupytext")
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        notebooks = load(SCRIPT.with_name("notebooks.py"))
        made = notebooks.notebook(GRADED)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    for cell in made["cells"]:
        if f"def {NAMES[0]}(" in cell["source"]:
            assert "# 1 point\n" in cell["source"]
            cell["source"] = cell["source"].replace(
                "    ...", "    return [-0.58, -0.58, -0.58, 1.73]", 1
            )
    (tmp_path / "04_layers.ipynb").write_text(json.dumps(made), encoding="utf-8")
    done = command(tmp_path, "--json", "04_layers.ipynb")
    assert done.stderr == "" and done.returncode == 1
    result = json.loads(done.stdout)
    assert states(result) == ["right", *["to do"] * (len(NAMES) - 1)] and not result["notes"]


# A class ------------------------------------------------------------------------------------------


REST = [("code", EMPTY[name]) for name in NAMES[3:]]


@pytest.mark.slow
def test_a_class_is_graded_into_a_table_csv_and_json(tmp_path):
    folder = tmp_path / "answers"
    (folder / "bernd").mkdir(parents=True)
    (folder / "anna.py").write_text(answered(GRADED), encoding="utf-8")
    saved(folder / "bernd" / "04_layers.ipynb", [*START, ("code", "1 / 0"), *FILLED[:3], *REST])
    (folder / "=carla with a very long name of a file.py").write_text(SHEET, encoding="utf-8")
    (folder / "dora_04_layers.py").write_text(OTHER, encoding="utf-8")
    (folder / "emil.py").write_text(OTHER, encoding="utf-8")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "x.py").write_text("")
    done = command(tmp_path, "--class", "answers")
    lines = done.stdout.splitlines()
    assert done.returncode == 2  # one was not graded
    assert max(map(len, lines)) <= 80
    rows = {
        line.split()[0]: line.split()[-6:] for line in lines if re.search(r"\.py|ipynb|…", line)
    }
    assert rows["anna.py"] == ["1", "1", "2", "2", "3", "9"]
    assert rows["bernd/04_layers.ipynb"] == ["1", "1", "2", ".", ".", "4"]
    assert "Lesson 05_embeddings, 7 points." in done.stdout
    assert "\ndora_04_layers.py" in done.stdout and re.fullmatch(
        r"not graded: answers.dora_04_layers.py: its name is of lesson 04.*\n", done.stderr
    )
    grades = folder / "grades"
    assert (grades / "04_layers.csv").read_bytes()[:3] == b"\xef\xbb\xbf"  # for Excel
    with open(grades / "04_layers.csv", encoding="utf-8-sig", newline="") as file:
        table = {row["file"]: row for row in csv.DictReader(file)}
    assert len(table) == 3 and table["anna.py"]["points"] == table["anna.py"]["max_points"] == "9"
    assert any(name.startswith("'=carla") for name in table)  # no formula
    bernd = table["bernd/04_layers.ipynb"]
    assert bernd["student"] == "bernd" and bernd["tent"] == "2"
    assert (bernd["rms_norm: state"], bernd["rms_norm: message"]) == ("to do", "")
    assert "ZeroDivisionError" in bernd["notes"]
    one = json.loads((grades / "anna.py.json").read_text(encoding="utf-8"))
    assert list(one) == TOTALS and one["points"] == 9
    (folder / "anna.py").unlink()
    (folder / "fritz_05_embeddings.py").write_text("def (:", encoding="utf-8")  # no Python
    again = command(folder, "--class", ".", "05")
    assert "anna" not in again.stdout and "  emil.py" not in again.stdout
    assert "left out: 2 of other lessons" in again.stdout and "bernd" not in again.stdout
    with open(grades / "05_embeddings.csv", encoding="utf-8-sig", newline="") as file:
        fritz = {row["student"]: row for row in csv.DictReader(file)}["fritz_05_embeddings"]
    assert fritz["points"] == "0" and "SyntaxError" in str(fritz)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="links, pipes and such names need POSIX")
def test_a_file_of_a_class_spoils_no_other(tmp_path):
    folder = tmp_path / "answers"
    (folder / "zoe").mkdir(parents=True)
    for name in "anna.py", "zoe/my.py", "zoe_my.py", "Bob.PY", "_dora.py", "eve\nanna.py":
        (folder / name).write_text(answered(GRADED), encoding="utf-8")
    ends = sheet_with("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    (folder / "mallory.py").write_text(ends, encoding="utf-8")
    (folder / "link.py").symlink_to(folder / "anna.py")
    os.mkfifo(folder / "pipe.py")
    done = command(tmp_path, "--class", "answers")
    said = done.stderr
    assert done.returncode == 2 and "answers/mallory.py: it ended its own grading" in said, done
    assert "answers/link.py: a link" in said and "answers/pipe.py: a link" in said
    with open(folder / "grades" / "04_layers.csv", encoding="utf-8-sig", newline="") as file:
        points = {row["file"]: row["points"] for row in csv.DictReader(file)}
    names = "anna.py", "zoe/my.py", "zoe_my.py", "Bob.PY", "_dora.py", "eve%0Aanna.py"
    assert points == dict.fromkeys(names, "9")
    assert (folder / "grades" / "zoe" / "my.py.json").exists()
    shutil.rmtree(folder / "grades")
    (folder / "grades").write_text("of somebody", encoding="utf-8")
    done = command(tmp_path, "--class", "answers")
    assert done.returncode == 2 and "answers/grades is a file: rename it" in done.stderr
    assert (folder / "grades").read_text(encoding="utf-8") == "of somebody"


def of_gradescope(text):
    """Return a results.json, whose fields are those of Gradescope's specifications."""
    result = json.loads(text)
    fields = {"score", "output", "output_format", "execution_time", "visibility"}
    assert result.keys() <= fields | {"stdout_visibility", "tests"}
    for test in result["tests"]:
        assert test["status"] in ("passed", "failed") and test["visibility"] == "visible"
        assert test["output_format"] == "text" and 0 <= test["score"] <= test["max_score"]
    return result


ROOF = "[[1, -1]], [0, 0], [[-1], [-1]], [1]"  # 1 - |x|, of `tent`


def test_gradescope_reads_points_messages_and_hints(tmp_path):
    folder = tmp_path / "submission"
    folder.mkdir()
    text = sheet_with(f"{source_of(GRADED)}\ndef tent():\n    return {ROOF}\n1 / 0")
    (folder / "my_04_layers.py").write_text(text, encoding="utf-8")
    done = command(tmp_path, "--results", "04", "submission")
    assert (done.returncode, done.stderr) == (0, "")
    result = of_gradescope(done.stdout)
    assert result["score"] == sum(test["score"] for test in result["tests"]) == 7
    assert "ZeroDivisionError" in result["output"]
    wrong = result["tests"][2]
    assert (wrong["name"], wrong["score"], wrong["max_score"]) == ("tent", 0, 2)
    assert wrong["status"] == "failed" and re.match(r"wrong: at x = .*\nhint: ", wrong["output"])


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "no Python file and no notebook"),
        (["a.py", "b.py"], "hand in one file"),
        (["other.py"], "is of lesson 05_embeddings, not of 04_layers"),
    ],
)
def test_gradescope_is_told_why_there_are_no_points(files, reason, tmp_path):
    for name in files:
        (tmp_path / name).write_text(OTHER, encoding="utf-8")
    done = command(tmp_path, "--results", "04", ".")
    result = of_gradescope(done.stdout)
    assert result["score"] == 0 and reason in result["output"] and result["tests"] == []


@pytest.mark.slow
def test_the_autograder_of_gradescope_has_its_scripts_and_grades_from_its_own_files(tmp_path):
    done = command(tmp_path, "--gradescope", "4")
    assert done.returncode == 0 and done.stdout.startswith("wrote gradescope_04_layers.zip: ")
    with zipfile.ZipFile(tmp_path / "gradescope_04_layers.zip") as archive:
        for name in ("setup.sh", "run_autograder"):  # in the root, and executable
            info = archive.getinfo(name)
            assert info.external_attr >> 16 & 0o111 and archive.read(name).startswith(b"#!/usr/bin")
        archive.extractall(tmp_path / "source")
        script = archive.read("run_autograder").decode()
        names = archive.namelist()
    assert f"{grading.AS_USER}=nobody\n" in script and "exercise.py --results 04" in script
    assert "> /autograder/results/results.json" in script
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    grades_with_the_files_of(tmp_path / "source", tmp_path)
    assert command(tmp_path, "--gradescope", "4").returncode == 2  # it exists


def grades_with_the_files_of(folder, tmp_path):
    """Grade a right sheet with a copy of the project, away from this one."""
    (tmp_path / "my.py").write_text(answered(GRADED), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-S", "-c", COPY, str(folder), "--json", str(tmp_path / "my.py"), "tent"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )  # fmt: skip
    assert json.loads(done.stdout or "{}").get("right") == 1, done.stderr


COPY = """
import runpy, sys
folder = sys.argv.pop(1)
import minitf
assert minitf.__file__.startswith(folder), minitf.__file__
sys.argv[0] = folder + "/lessons/exercise.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_the_starter_for_github_has_a_sheet_and_a_step_for_each_exercise(tmp_path):
    done = command(tmp_path, "--github", "4")
    folder = tmp_path / "classroom_04_layers"
    assert done.returncode == 0 and done.stdout.startswith("wrote classroom_04_layers: ")
    assert (folder / "my_04_layers.py").read_text(encoding="utf-8") == SHEET
    assert "9 points" in (folder / "README.md").read_text(encoding="utf-8")
    workflow = (folder / ".github/workflows/classroom.yml").read_text(encoding="utf-8")
    steps = re.findall(r"id: (\S+)\n.*\n.*\n +test-name: (\w+)\n +command: (.*)\n", workflow)
    assert [name for _, name, _ in steps] == NAMES
    (reported,) = re.findall(r"runners: (\S+)\n", workflow)
    assert reported.split(",") == [step for step, *_ in steps]
    for step, name, line in steps:
        assert f"{step.upper()}_RESULTS: ${{{{ steps.{step}.outputs.result }}}}" in workflow
        assert line.endswith(f"lessons/exercise.py --json my_04_layers.py {name}")
    scores = [int(number) for number in re.findall(r"max-score: (\d)", workflow)]
    assert scores == [grading.POINTS[name] for name in NAMES]
    grades_with_the_files_of(folder / ".github" / "course", tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name is always Unicode")
def test_no_name_of_a_file_hides_another_or_stops_the_class(tmp_path, monkeypatch):
    exercise = runpy.run_path(str(ROOT / "lessons" / "exercise.py"))
    grade_class = exercise["grade_class"]
    names = [b"M\xfcller.py", b"M\xf6ller.py", b"a\x07.py", b"a\x08.py"]
    names += [("ä" * 110 + end + ".py").encode() for end in "xyz"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x = 1")
    result = {"lesson": "04_layers", "exercises": [], "points": 0, "max_points": 1, "notes": []}
    calls = {"graded_apart": lambda *file: result, "of_lesson": lambda *file: None}
    for name, function in calls.items():
        monkeypatch.setitem(grade_class.__globals__, name, function)
    assert grade_class([str(tmp_path)]) == 0
    written = os.listdir(tmp_path / "grades")
    assert len(written) == 2 * len(names) + 3  # two for each, the table, and what was not graded
    assert len((tmp_path / "grades" / "04_layers.csv").read_text().splitlines()) == 1 + len(names)


def test_a_folder_with_the_name_of_a_result_stops_no_class(tmp_path):
    result = dict.fromkeys(TOTALS, 0) | {"exercises": [], "notes": []}
    graded = dict.fromkeys(["a.py", "a.py.json/b.py"], result)
    gradebook.write_class(tmp_path, {"04": graded}, {}, dict.fromkeys(graded, "anna"))
    assert (tmp_path / "a.py.json").is_file() and (tmp_path / "a.py-json" / "b.py.json").is_file()


def test_a_cell_of_a_spreadsheet_is_no_formula():
    one = {"number": 1, "name": "one", "state": "wrong", "message": "=cmd()", "hint": "",
           "points": 0, "max_points": 1, "seconds": 0.0}  # fmt: skip
    result = {"lesson": "04_layers", "exercises": [one], "points": 0, "max_points": 1,
              "notes": ["@x"]}  # fmt: skip
    text = gradebook.as_csv({"-a.py": result}, {"-a.py": "-a"})
    assert text.splitlines()[1] == "'-a,'-a.py,04_layers,0,1,0,wrong,'=cmd(),'@x"
