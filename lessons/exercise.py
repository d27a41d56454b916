"""Write the exercise sheet of a lesson into the current folder, or grade filled ones.

    python lessons/exercise.py 04                     writes my_04_layers.py
    python lessons/exercise.py --json my_04_layers.py       or a filled notebook
    python lessons/exercise.py --class FOLDER [04]    grades all files in it
    python lessons/exercise.py --github 04            writes a GitHub Classroom starter
    python lessons/exercise.py --gradescope 04        writes a Gradescope autograder

The sheet is the section "Your turn" of the lesson, with the imports that it needs, the
points of each exercise, and a last line that checks the answers.

--json prints one object, and nothing else, for a program that grades:

    {"lesson": "04_layers",
     "exercises": [{"number": 5, "name": "rms_norm", "state": "right", "message": "",
                    "hint": "", "points": 3, "max_points": 3, "seconds": 0.1}, ...],
     "right": 1, "total": 5, "points": 3, "max_points": 9, "notes": []}

"state" is "right", "wrong" or "to do"; "message" says where a wrong answer goes wrong;
"notes" says what was skipped, such as a magic of a notebook. With the name of an
exercise behind the file, only that one is graded.
The checks are those of the lesson, whatever the sheet has. They compare results, not
methods. What a sheet prints is left out; an exercise may take 60 seconds. The exit code
is 0 if all answers are right, 1 if not, and 2, without JSON, if there is no such file
or it belongs to no lesson.
--class prints a table, and writes CSV and JSON into the folder "grades" inside it.
--results 04 FOLDER prints the results.json of one submission, for Gradescope.
The answers run with your rights: grade unknown sheets in a container.
"""

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from minitf.cli import counted, exit_code
from minitf.course import gradebook
from minitf.course.answering import SHEET, limit_memory
from minitf.course.grading import POINTS, exercises, grade
from minitf.errors import UserError
from minitf.files.arrays import exists

MARK = "# ## Your turn"
MINUTES, MEMORY = 10, 12 * 2**30  # of the grading of one file in a class; bytes
# The first line of a lesson's last cell, which is not for its reader.
SCAFFOLDING = "# For the tests:"
LAST = '\n\nif __name__ == "__main__":\n    check_exercises(globals())\n'


def sheet(lesson):
    """Return the text of the exercise sheet of a lesson file."""
    source = lesson.read_text(encoding="utf-8")
    lines = source.splitlines()
    start = lines.index(MARK) - 1  # the line above begins the cell
    end = next(n for n, line in enumerate(lines) if line.startswith(SCAFFOLDING)) - 1
    part = "\n".join(lines[start:end]).rstrip()
    title = ast.get_docstring(ast.parse(source)).splitlines()[0].removeprefix("# ")
    imports = [
        *imports_of(source, set(re.findall(r"\w+", part))),
        "from minitf.course.lesson import check_exercises",
    ]
    text = f'"""Exercises. {title}"""\n\n' + "\n".join(imports) + f"\n\n{part}\n{LAST}"
    return with_points(text)


def with_points(source):
    """Return code with the points of each exercise in a comment above it."""

    def marked(head):
        return f"# {counted(POINTS[head[1]], 'point')}\n{head[0]}"

    names = "|".join(POINTS)
    return re.sub(rf"^def ({names})\(", marked, source, flags=re.MULTILINE)


def imports_of(source, words):
    """Return the imports of a lesson whose names are among these words.

    The words are those of the code and of the text, which may ask for more functions.
    """
    imports = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [
                name for name in node.names if (name.asname or name.name) in words
            ]
            if node.names:
                imports.append(ast.unparse(node))
    return imports


def main(arguments):
    """Run the command line; return the exit code."""
    return exit_code("exercise.py", lambda: run(arguments))


def run(arguments):
    """Do what the arguments ask for; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    option, *rest = arguments or ["sheet"]
    graders = {
        "--json": grade_file,
        "--class": grade_class,
        "--results": grade_for_gradescope,
    }
    if option in graders:
        if sys.flags.optimize:
            raise UserError(
                "-O and PYTHONOPTIMIZE take the checks away: grade without them"
            )
        return graders[option](rest)
    words = rest if option in WRITERS else arguments
    unknown = [word for word in words if word.startswith("-")]
    if {*graders, *WRITERS} & set(unknown):
        raise UserError(f"put {unknown[0]} first")
    if unknown:
        raise UserError(f"unknown option {unknown[0]}: --help lists them")
    if len(words) != 1:
        raise UserError("give the number of one lesson, such as 04")
    return write(option if option in WRITERS else "sheet", lesson_of(words[0]))


# Sheets and starters ----------------------------------------------------------------

WRITERS = {
    "sheet": ("my_{}.py", "fill in the bodies, then run  python {}"),
    "--github": (
        "classroom_{}",
        "push it as a template repository, and make an assignment of it",
    ),
    "--gradescope": (
        "gradescope_{}.zip",
        "upload it as the autograder of a programming assignment",
    ),
}


def write(kind, lesson):
    """Write the sheet of a lesson, or what is made of it; return the exit code."""
    name, use = WRITERS[kind]
    path = Path(name.format(lesson.stem))
    if path.exists():
        raise UserError(f"{path} already exists: rename it if you want a new one")
    try:
        if kind == "--gradescope":
            gradebook.gradescope_zip(path, lesson)
        elif kind == "--github":
            gradebook.github_starter(path, lesson, sheet(lesson))
        else:
            path.write_text(sheet(lesson), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: run this in a folder of yours"
        ) from error
    print(f"wrote {path}: {use.format(path)}")
    return 0


def lesson_of(number):
    """Return the file of the lesson with this number; raise UserError for another."""
    for path in lessons():
        if re.fullmatch(r"\d{1,2}", number) and int(path.stem[:2]) == int(number):
            return path
    raise UserError(f"there is no lesson {number}: give a number such as 04")


def lessons():
    """Return the files of all lessons that have exercises."""
    paths = sorted(Path(__file__).parent.glob("0*_*.py"))
    return [path for path in paths if MARK in path.read_text(encoding="utf-8")]


# Grading ----------------------------------------------------------------------------


def grade_file(arguments):
    """Print what is right in a sheet or notebook, as JSON; return the exit code."""
    if not arguments or len(arguments) > 2:
        raise UserError("give one filled sheet, such as  --json my_04_layers.py")
    path = Path(arguments[0])
    # A sheet may import a file beside it. In a class, that would be another's answers.
    result = graded(path, only=arguments[1:], beside=path.parent)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0 if result["right"] == result["total"] else 1


def grade_class(arguments):
    """Grade the files and notebooks of a folder; return the exit code."""
    if not arguments or len(arguments) > 2:
        raise UserError("give one folder, such as  --class answers")
    folder = Path(arguments[0])
    expected = lesson_of(arguments[1]) if arguments[1:] else None
    files, grades = submitted(folder), folder / "grades"
    if grades.exists() and not grades.is_dir():
        raise UserError(f"{grades} is a file: rename it, the grades go there")
    results, refused, others = {}, [], 0
    for path in files:
        name = printable(path.relative_to(folder))
        try:
            of_lesson(path, expected)
            results[name] = graded_apart(path)
        except OtherLesson:
            others += 1
        except UserError as error:
            refused.append(f"not graded: {printable(error)}")
    try:
        gradebook.write_class(grades, results)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    for lesson in sorted({each["lesson"] for each in results.values()}):
        own = {k: each for k, each in results.items() if each["lesson"] == lesson}
        print(gradebook.table(own), end="\n\n")
    if others:
        print(f"left out: {others} of other lessons")
    for line in refused:
        print("\n".join(textwrap.wrap(line, 80, subsequent_indent="  ")))
    print(f"- wrong, . to do; points, messages and hints: {grades}")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root and "MINITF_GRADE_AS" not in os.environ:
        print("You are root, whose memory answers reach: set MINITF_GRADE_AS=nobody")
    return 2 if refused else 0


def graded_apart(path):
    """Return the grading of a file by a process of its own, with limits.

    So a file that ends its grading, or takes all time or memory, spoils no other. It
    gets a folder of its own: in a class, beside it would be another's answers.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copyfile(path, Path(folder, path.name))
        command = [sys.executable, __file__, "--json", str(copy)]
        # The checks compute with what an answer returns.
        limit = None if os.name == "nt" else functools.partial(limit_memory, MEMORY)
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=60 * MINUTES,
                check=False,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{path}: no end after {MINUTES} minutes: read it"
            ) from None
    if done.returncode == 2:
        said = done.stderr.decode("utf-8", "replace").strip()
        said = said.removeprefix("exercise.py: ")
        raise UserError(said.replace(str(copy), str(path)))
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        code = done.returncode
        said = f"{path}: it ended its own grading (exit code {code}): read it"
        raise UserError(said) from error


def printable(name):
    """Return a name, or a message with names, that any terminal and file can show.

    Other characters become numbers, such as %0A: different names stay different.
    """
    signs = (c if c.isprintable() else f"%{ord(c):02X}" for c in str(name))
    return "".join(signs)


def grade_for_gradescope(arguments):
    """Print the results.json of a submission; return the exit code."""
    if len(arguments) != 2:
        raise UserError("give a lesson and a folder, such as  --results 04 submission")
    expected, folder = lesson_of(arguments[0]), Path(arguments[1])
    try:
        files = submitted(folder)
        if len(files) > 1:
            raise UserError("hand in one file: there are " + ", ".join(map(str, files)))
        result = graded(files[0], expected)
    except UserError as error:
        result = {"points": 0, "exercises": [], "notes": [str(error)]}
    result = gradebook.for_gradescope(result)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0


def submitted(folder):
    """Return the Python files and notebooks of a folder and the folders in it."""
    if not (exists(folder) and folder.is_dir()):
        raise UserError(f"{folder}: there is no such folder")
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in (".py", ".ipynb")
        # No link, which may lead to another's answers, and nothing of a tool's.
        and path.is_file()
        and not path.is_symlink()
        and not re.search(r"(^|/)(\.|__)", path.relative_to(folder).as_posix())
    ]
    if not found:
        raise UserError(f"{folder}: there is no Python file and no notebook in it")
    return found


class OtherLesson(UserError):
    """A sheet of another lesson than the one that is graded."""


def of_lesson(path, expected=None):
    """Return the text of a file, its cells, and its lesson.

    Raises OtherLesson if it is not of the lesson expected, UserError if it is of none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    is_notebook = path.suffix.lower() == ".ipynb"
    cells = cells_of(path, text) if is_notebook else [("code", text)]
    lesson = lesson_in(path, cells)
    if expected and lesson != expected:
        raise OtherLesson(f"{path} is of lesson {lesson.stem}, not of {expected.stem}")
    return text, cells, lesson


def graded(path, expected=None, only=(), beside=None):
    """Return the grading of a file; raise UserError if it belongs to no lesson."""
    text, cells, lesson = of_lesson(path, expected)
    empty = sheet(lesson)
    names = exercises(empty)
    for name in only:
        if name not in names:
            raise UserError(f"lesson {lesson.stem} has no exercise {name}")
    given = [[SHEET, text, False]]
    if path.suffix.lower() == ".ipynb":
        given = run_of(cells, lesson, names)
    return grade(lesson.stem, empty, given, only=only, beside=beside)


def cells_of(path, text):
    """Return [(kind, source)] of the cells of a notebook."""
    try:
        cells = json.loads(text)["cells"]
        return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: this is no notebook") from error


def run_of(cells, lesson, names):
    """Return what is run of a notebook: [name, source, only definitions] for each cell.

    The lesson itself is not run again. Of its cells only imports, functions and classes
    count, which an answer may use; of the cells from "Your turn" on, and of those with
    an answer, everything.
    """
    title = MARK.removeprefix("# ")
    words = set(re.findall(r"\w+", "\n".join(source for _, source in cells)))
    imports = imports_of(lesson.read_text(encoding="utf-8"), words)
    found, turn = [["imports", "\n".join(imports), True]], False
    for number, (kind, source) in enumerate(cells, 1):
        turn = turn or (kind == "markdown" and source.startswith(title))
        if kind == "code":
            whole = turn or not defined(source).isdisjoint(names)
            found.append([f"cell {number}", source, not whole])
    return found


def defined(source):
    """Return the names that a source defines in its first column."""
    return set(re.findall(r"^(?:def +)?(\w+) *(?:\(.*:|=[^=])", source, re.MULTILINE))


def lesson_in(path, cells):
    """Return the lesson of a sheet or notebook, by its title, name and answers."""
    text = "\n".join(source for _, source in cells)
    title = re.search(r'^(?:"""Exercises\. |# )Lesson (\d\d)\.', text, re.MULTILINE)
    names, all_lessons = defined(text), lessons()
    by_title = [one for one in all_lessons if title and one.stem[:2] == title[1]]
    by_name = [one for one in all_lessons if one.stem in path.stem]
    by_answers = []
    for one in all_lessons:
        own = exercises(one.read_text(encoding="utf-8"))
        if 2 * len(names.intersection(own)) > len(own):
            by_answers.append(one)
    if not by_title + by_answers + by_name:
        raise UserError(f"{path}: neither its title nor an answer names a lesson")
    found = {
        "name is": by_name,
        "title is": by_title,
        "exercises are": [] if set(by_title) & set(by_answers) else by_answers,
    }
    found = {what: paths[0] for what, paths in found.items() if paths}
    if len(set(found.values())) > 1:
        what = [f"its {what} of lesson {one.stem}" for what, one in found.items()]
        raise UserError(f"{path}: {', '.join(what)}: which one is it?")
    return next(iter(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
