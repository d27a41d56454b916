"""Write my_transformer.py: the whole Transformer, without the bodies of its pieces.

    python lessons/build.py                           writes my_transformer.py
    python lessons/build.py --notebook                writes my_transformer.ipynb
    python lessons/build.py --json my_transformer.py  or a notebook: checks it

The file lists its pieces in the order of the lessons, each with its equation, its
shapes and the section that derives it. Run it: it says of each piece whether it is
right, wrong or to do. A file that exists is never overwritten.

--json prints one object, and nothing else, for a program that grades; its form is that
of exercise.py. The exit code is 0 if all pieces are right, 1 if not, and 2, without
JSON, if the file cannot be read. The pieces run with your rights: check unknown files
in a container.
"""

import ast
import sys
from pathlib import Path

from exercise import cells_of, text_of

from minitf.cli import exit_code
from minitf.course import building
from minitf.errors import UserError


def main(arguments):
    """Run the command line; return the exit code."""
    return exit_code("build.py", lambda: run(arguments))


def run(arguments):
    """Write the file or the notebook, or check one; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    if arguments[:1] == ["--json"]:
        if len(arguments) != 2:
            raise UserError("give one file, such as  --json my_transformer.py")
        path = Path(arguments[1])
        return building.grade(code_of(path), str(path))
    if arguments not in ([], ["--notebook"]):
        raise UserError(f"unknown argument {arguments[-1]}: --help lists all")
    path = Path("my_transformer.ipynb" if arguments else "my_transformer.py")
    if path.exists():
        raise UserError(f"{path} already exists: rename it if you want a new one")
    try:
        text = building.notebook() if arguments else building.skeleton(path.name)
        path.write_text(text, encoding="utf-8")
    except ImportError as error:
        missing = f'{error.name} is missing: pip install -e ".[classroom]"'
        raise UserError(missing) from error
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: run this in a folder of yours"
        ) from error
    use = "open it in Jupyter" if arguments else f"fill in pieces, run  python {path}"
    print(f"wrote {path}: {use}")
    return 0


def code_of(path):
    """Return the code of a file or a notebook. Raises UserError if there is none."""
    try:
        text = text_of(path.read_bytes())
        if (cells := cells_of(text)) is not None:
            code = [source for kind, source in cells if kind == "code"]
            text = "\n\n".join(map(building.python_of, code))
        elif path.suffix == ".ipynb":
            raise ValueError("this is no notebook")
        ast.parse(text, path.name)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: it cannot be read ({reason})") from error
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
