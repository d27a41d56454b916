"""Write the exercise sheet of a lesson into the current folder.

    python lessons/exercise.py 04        writes my_04_layers.py

The sheet is the section "Your turn" of the lesson, with the imports that it needs and
a last line that checks the answers.
"""

import ast
import re
import sys
from pathlib import Path

MARK = "# ## Your turn"
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
    """Write the sheet of the lesson with the given number; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    if len(arguments) != 1:
        return refuse("give the number of one lesson, such as 04")
    lessons = sorted(Path(__file__).parent.glob(f"{arguments[0]:0>2}_*.py"))
    lessons = [path for path in lessons if MARK in path.read_text(encoding="utf-8")]
    if not lessons:
        return refuse(f"there is no lesson {arguments[0]}: give a number such as 04")
    path = Path(f"my_{lessons[0].name}")
    if path.exists():
        return refuse(f"{path} already exists: rename it if you want a new sheet")
    try:
        path.write_text(sheet(lessons[0]), encoding="utf-8")
    except OSError as error:
        return refuse(f"{path}: {error.strerror}: run this in a folder of yours")
    print(f"wrote {path}: fill in the bodies, then run  python {path}")
    return 0


def refuse(message):
    """Print a line on a mistake of the user; return the exit code."""
    print(f"exercise.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
