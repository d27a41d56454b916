"""Write the exercise sheet of a lesson into the current folder, or grade a filled one.

    python lessons/exercise.py 04                     writes my_04_layers.py
    python lessons/exercise.py --print 04             writes 04_layers.html, for paper
    python lessons/exercise.py --json my_04_layers.py       or a filled notebook

The sheet is the section "Your turn" of the lesson, with the imports that it needs and
a last line that checks the answers.

--json prints one object, and nothing else, for a program that grades:

    {"lesson": "04_layers",
     "exercises": [{"number": 1, "name": "rms_norm", "state": "right",
                    "message": "", "seconds": 0.61}, ...],
     "right": 1, "total": 3}

"state" is "right", "wrong" or "to do"; "message" says where a wrong answer goes wrong.
The checks are those of the lesson, whatever the sheet has. They compare results, not
methods. What a sheet prints is left out; an exercise may take 60 seconds. The exit code
is 0 if all answers are right, 1 if not, and 2, without JSON, if there is no such file
or it belongs to no lesson.
The answers run with your rights: grade unknown sheets in a container.
"""

import ast
import json
import re
import sys
import tempfile
from pathlib import Path

MARK = "# ## Your turn"
# The first line of a lesson's last cell, which is not for its reader.
SCAFFOLDING = "# For the tests:"
LINE = re.compile(r"^\(line \d+\): | \(line \d+\)")  # in a message
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
    return f'"""Exercises. {title}"""\n\n' + "\n".join(imports) + f"\n\n{part}\n{LAST}"


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
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    if arguments[:1] == ["--json"]:
        return grade_file(arguments[1:])
    if arguments[:1] == ["--print"]:
        return write(arguments[1:], on_paper=True)
    return write(arguments, on_paper=False)


def write(numbers, on_paper):
    """Write the sheet of one lesson; return the exit code."""
    unknown = [word for word in numbers if word.startswith("-")]
    if {"--json", "--print"} & set(unknown):
        return refuse(f"put {unknown[0]} first")
    if unknown:
        return refuse(f"unknown option {unknown[0]}: --help lists them")
    if len(numbers) != 1:
        return refuse("give the number of one lesson, such as 04")
    lesson = lesson_of(numbers[0])
    if lesson is None:
        return refuse(f"there is no lesson {numbers[0]}: give a number such as 04")
    path, text = Path(f"my_{lesson.name}"), sheet(lesson)
    use = f"fill in the bodies, then run  python {path}"
    if on_paper:
        from minitf.course.printable import page

        path, text = Path(f"{lesson.stem}.html"), page(text)
        use = "open it in a browser, and print it"
    if path.exists():
        return refuse(f"{path} already exists: rename it if you want a new sheet")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return refuse(f"{path}: {error.strerror}: run this in a folder of yours")
    print(f"wrote {path}: {use}")
    return 0


def lesson_of(number):
    """Return the file of the lesson with this number, or None."""
    if not re.fullmatch(r"\d{1,2}", number):
        return None
    lessons = sorted(Path(__file__).parent.glob(f"{number:0>2}_*.py"))
    lessons = [path for path in lessons if MARK in path.read_text(encoding="utf-8")]
    return lessons[0] if lessons else None


def grade_file(files):
    """Print what is right in a filled sheet, as JSON; return the exit code."""
    from minitf.course.grading import grade

    if len(files) != 1:
        return refuse("give one filled sheet, such as  --json my_04_layers.py")
    path = Path(files[0])
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return refuse(f"{path}: {error.strerror}")
    if path.suffix == ".ipynb":
        return grade_notebook(path, text)
    named = re.search(r'"""Exercises\. Lesson (\d\d)\.', text)
    lesson = lesson_of(named[1]) if named else None
    if lesson is None:
        return refuse(
            f"{path}: its first line names no lesson: keep that line of a sheet"
        )
    return report(grade(lesson.stem, sheet(lesson), path))


def grade_notebook(path, text):
    """Print what is right in a notebook, as JSON; return the exit code.

    Its exercises are graded as a sheet: the lesson above them is not run.
    """
    from minitf.course.grading import grade

    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells]
        lesson = lesson_of(re.match(r"# Lesson (\d\d)\.", sources[0])[1])
        title = MARK.removeprefix("# ")
        start = next(n for n, each in enumerate(sources) if each.startswith(title))
        code = "\n\n".join(
            source
            for cell, source in zip(cells[start:], sources[start:], strict=True)
            if cell["cell_type"] == "code"
        ).replace("check_exercises(globals())", "")
        source = lesson.read_text(encoding="utf-8")
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return refuse(
            f"{path}: this is no notebook of a lesson: notebooks.py makes one"
        )
    imports = imports_of(source, set(re.findall(r"\w+", code)))
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "answers.py")
        answers.write_text("\n".join([*imports, code]), encoding="utf-8")
        result = grade(lesson.stem, sheet(lesson), answers)
    for exercise in result["exercises"]:  # the lines are not those of a cell
        exercise["message"] = LINE.sub("", exercise["message"])
    return report(result)


def report(result):
    """Print a grading as JSON; return the exit code."""
    from minitf.terminal import piped

    with piped():
        print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0 if result["right"] == result["total"] else 1


def refuse(message):
    """Print a line on a mistake of the user; return the exit code."""
    print(f"exercise.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
