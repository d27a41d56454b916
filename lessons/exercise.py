"""Write a lesson's exercise sheet: `python lessons/exercise.py 04` makes
my_04_layers.py in the current folder.

The sheet is the part "Your turn" of the lesson itself, with the imports that it needs
and a last line that checks the answers.
"""

import ast
import re
import sys
from pathlib import Path

MARK = "# ## Your turn"
# Begins the last cell of a lesson, which is not for its reader.
SCAFFOLDING = "# For the tests:"
LAST = '\n\nif __name__ == "__main__":\n    check_exercises(globals())\n'


def sheet(lesson):
    """Give the text of the exercise sheet of a lesson file."""
    source = lesson.read_text(encoding="utf-8")
    lines = source.splitlines()
    start = lines.index(MARK) - 1  # with the cell's own line
    end = next(n for n, line in enumerate(lines) if line.startswith(SCAFFOLDING)) - 1
    part = "\n".join(lines[start:end]).rstrip()
    # Also what only the text asks the reader to use.
    used = set(re.findall(r"\w+", part))
    imports = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [
                name for name in node.names if (name.asname or name.name) in used
            ]
            if node.names:
                imports.append(ast.unparse(node))
    title = ast.get_docstring(ast.parse(source)).splitlines()[0].removeprefix("# ")
    imports.append("from minitf.course.lesson import check_exercises")
    return f'"""Exercises. {title}"""\n\n' + "\n".join(imports) + f"\n\n{part}\n{LAST}"


def main(arguments):
    """Write the sheet of the lesson whose number is given. Returns the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    found = (
        sorted(Path(__file__).parent.glob(f"{arguments[0]:0>2}_*.py"))
        if len(arguments) == 1
        else []
    )
    found = [lesson for lesson in found if MARK in lesson.read_text(encoding="utf-8")]
    if not found:
        print("exercise.py: give the number of a lesson, such as 04", file=sys.stderr)
        return 2
    path = Path(f"my_{found[0].name}")
    if path.exists():
        print(
            f"exercise.py: {path} already exists: rename it first if you "
            "want a new sheet",
            file=sys.stderr,
        )
        return 2
    try:
        path.write_text(sheet(found[0]), encoding="utf-8")
    except OSError as error:
        print(
            f"exercise.py: {path}: {error.strerror}: go to a folder "
            "where you may write",
            file=sys.stderr,
        )
        return 2
    print(f"wrote {path}: fill in the bodies, and run  python {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
