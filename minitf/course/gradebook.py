"""The gradings of a class as a table, as CSV and for Gradescope; the two starters for a class."""

import csv
import io
import json
import re
import shutil
import textwrap
import zipfile
import zlib
from pathlib import Path

from minitf.course.grading import POINTS, exercises

WIDTH = 80
NAME = 36  # columns of a file's name in the table
SIGNS = {"wrong": "-", "to do": "."}


def table(graded: dict[str, dict]) -> str:
    """Return the gradings of one lesson as a table of 80 columns.

    graded: {the file's name: what `grade` returned}.
    """
    first = next(iter(graded.values()))
    names = [f"{one['number']} {one['name']} ({one['max_points']})" for one in first["exercises"]]
    heading = f"Lesson {first['lesson']}, {first['max_points']} points. Exercises: "
    lines = textwrap.wrap(heading + ", ".join(names), WIDTH, subsequent_indent="  ")
    width = min(NAME, max(len(name) for name in [*graded, "file"]))
    numbers = "".join(f"{one['number']:>4}" for one in first["exercises"])
    lines.append(f"{'file':{width}} {numbers}  points")
    for name, result in graded.items():
        short = name if len(name) <= width else f"{name[: width - 1]}…"
        signs = [SIGNS.get(one["state"], one["points"]) for one in result["exercises"]]
        cells = "".join(f"{sign:>4}" for sign in signs)
        lines.append(f"{short:{width}} {cells}  {result['points']:6}")
    return "\n".join(lines)


def as_csv(graded: dict[str, dict], students: dict[str, str]) -> str:
    """Return the gradings of one lesson as CSV: a row a file, three columns an exercise.

    students: {the file's name: whose it is}.
    """
    first = next(iter(graded.values()))
    kinds = "", ": state", ": message"
    heads = [tuple(one["name"] + kind for kind in kinds) for one in first["exercises"]]
    rows = [["student", "file", "lesson", "points", "max_points", *sum(heads, ()), "notes"]]
    for name, result in graded.items():
        row = [students[name], name, result["lesson"], result["points"], result["max_points"]]
        for one in result["exercises"]:
            row += [one["points"], one["state"], one["message"] if one["state"] == "wrong" else ""]
        rows.append([*row, "; ".join(result["notes"])])
    return _csv(rows)


def _csv(rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value):
    """Return a value that no spreadsheet computes as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in set("=+-@") else value


def for_gradescope(result: dict) -> dict:
    """Return a grading as Gradescope's results.json has it: points, notes and exercises.

    Source: the section "Output format" of Gradescope's autograder specifications.
    """
    tests = [
        {
            "number": str(one["number"]),
            "name": one["name"],
            "score": one["points"],
            "max_score": one["max_points"],
            "status": "passed" if one["state"] == "right" else "failed",
            "output": _explained(one),
            "output_format": "text",
            "visibility": "visible",
        }
        for one in result["exercises"]
    ]
    return {
        "score": result["points"],
        "output": "\n".join(result["notes"]),
        "output_format": "text",
        "execution_time": round(sum(one["seconds"] for one in result["exercises"])),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def _explained(one):
    lines = [f"{one['state']}: {one['message']}".removesuffix(": ")]
    return "\n".join([*lines, *([f"hint: {one['hint']}"] if one["hint"] else [])])


# Starters -----------------------------------------------------------------------------------------

SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image (choose Ubuntu 24.04 or later).
set -e
apt-get install -y python3 python3-venv
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install /autograder/source
"""
RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for each submission. The answers are another user's processes, who can
# neither write the results nor reach the memory of the grader.
export MINITF_GRADE_AS=nobody
/autograder/venv/bin/python /autograder/source/lessons/exercise.py --results {number} \\
    /autograder/submission > /autograder/results/results.json
"""


def gradescope_zip(path: Path, lesson: Path) -> None:
    """Write the autograder of a lesson as Gradescope takes it: scripts, library, lesson."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (
            ("setup.sh", SETUP),
            ("run_autograder", RUN.format(number=lesson.name[:2])),
        ):
            script = zipfile.ZipInfo(name)
            script.compress_type, script.external_attr = zipfile.ZIP_DEFLATED, 0o100755 << 16
            archive.writestr(script, text)
        for file in course_files(lesson):
            archive.write(file, file.relative_to(lesson.parents[1]))


def course_files(lesson: Path) -> list[Path]:
    """Return the files of the project that grade a lesson: the library, the lesson, the grader."""
    root = lesson.parents[1]
    library = [path for path in (root / "minitf").rglob("*") if path.is_file()]
    others = ("pyproject.toml", "setup.cfg", "README.md", "LICENSE", "lessons/exercise.py")
    found = [*library, *(root / name for name in others), lesson]
    return sorted(path for path in found if "__pycache__" not in path.parts)


WORKFLOW = """\
# GitHub runs this at each push, and GitHub Classroom reads the points.
name: Autograding Tests
on: [push, workflow_dispatch, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests:
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install ./.github/course
{steps}      - uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}        with:
          runners: {runners}
"""
STEP = """\
      - id: {name}
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: {name}
          command: python .github/course/lessons/exercise.py --json {sheet} {name}
          timeout: 3
          max-score: {points}
"""
ABOUT = """\
# {title}

Fill in the functions of `{sheet}` and run `python {sheet}`: it says what is right,
and where an answer goes wrong. `pip install ./.github/course` brings what it imports.
Each push is graded; the result is under "Actions". There are {points} points.
"""


def github_starter(folder: Path, lesson: Path, sheet: str) -> None:
    """Write the template repository of an assignment in GitHub Classroom.

    sheet: the text of the lesson's empty sheet.
    """
    names, file = exercises(sheet), f"my_{lesson.name}"
    results = "".join(
        f"          {name.upper()}_RESULTS: ${{{{ steps.{name}.outputs.result }}}}\n"
        for name in names
    )
    steps = "".join(STEP.format(name=name, sheet=file, points=POINTS[name]) for name in names)
    title = re.search(r'"""(.*)"""', sheet)[1]
    folder.mkdir()
    (folder / file).write_text(sheet, encoding="utf-8")
    about = ABOUT.format(title=title, sheet=file, points=sum(POINTS[name] for name in names))
    (folder / "README.md").write_text(about, encoding="utf-8")
    workflow = folder / ".github" / "workflows" / "classroom.yml"
    workflow.parent.mkdir(parents=True)
    text = WORKFLOW.format(steps=steps, results=results, runners=",".join(names))
    workflow.write_text(text, encoding="utf-8")
    for path in course_files(lesson):
        copy = folder / ".github" / "course" / path.relative_to(lesson.parents[1])
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def write_class(folder: Path, lessons: dict, reasons: dict, students: dict[str, str]) -> None:
    """Write CSV and JSON of a class: by lesson, by file, and of what was not graded.

    lessons: {lesson: {the file's name: what `grade` returned}}. reasons: {the file's name: why it
    was not graded}. students: {the file's name: whose it is}.
    """
    rows = [(students[name], name, reason) for name, reason in reasons.items()]
    found = {"not-graded.json": reasons}
    found["not-graded.csv"] = _csv([("student", "file", "reason"), *rows])
    for lesson, graded in lessons.items():
        found[f"{lesson}.csv"] = as_csv(graded, students)
        for name, result in graded.items():
            *folders, file = map(_short, name.split("/"))
            # A folder whose name is that of a file here would stop the class.
            path = "/".join([*(each.replace(".json", "-json") for each in folders), file])
            found |= {f"{path}.json": result, f"{path}.results.json": for_gradescope(result)}
    for name, thing in found.items():
        is_text = isinstance(thing, str)
        text = thing if is_text else json.dumps(thing, indent=2, ensure_ascii=False) + "\n"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Excel takes CSV without this mark for another encoding: Korean names would be garbled.
        path.write_text(text, encoding="utf-8-sig" if path.suffix == ".csv" else "utf-8")


def _short(name):
    """Return a file's name to which an ending can be added: at most 200 bytes, still its own."""
    encoded = name.encode()
    if len(encoded) <= 200:
        return name
    return f"{encoded[:190].decode(errors='ignore')}-{zlib.crc32(encoded):08x}"
