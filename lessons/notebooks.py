"""Make a notebook of each lesson: `python lessons/notebooks.py` writes them into the
folder `notebooks`.

    python lessons/notebooks.py [FOLDER]

A notebook is its lesson, cell by cell, with one more cell at the end that checks
the answers to the exercises. One that already exists stays as it is, with what was
written into it.
"""

import ast
import sys
from pathlib import Path

from exercise import SCAFFOLDING

CHECK = """\
# Fill in the functions of the cell above and run it. Then run this cell:
# it says which answers are right.
from minitf.course.lesson import check_exercises

check_exercises(globals())"""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(lesson):
    """Return the notebook of a lesson file."""
    import jupytext
    import nbformat

    cells = [
        cell
        for cell in jupytext.read(lesson).cells
        if not cell.source.startswith(SCAFFOLDING)
    ]
    for cell in cells:
        if cell.cell_type == "code":
            cell.source = without_output(cell.source)
    cells.append(nbformat.v4.new_code_cell(CHECK))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def without_output(source):
    """Return the code with a semicolon after a check in its last line, whose error a
    notebook would print again.
    """
    last = ast.parse(source).body[-1]
    if not ast.unparse(last).startswith(("same(", "grad_check(")):
        return source
    lines = source.splitlines()
    line = lines[last.end_lineno - 1].encode()  # the columns of a tree count bytes
    lines[last.end_lineno - 1] = (
        line[: last.end_col_offset] + b";" + line[last.end_col_offset :]
    ).decode()
    return "\n".join(lines)


def main(arguments):
    """Write the notebooks; returns the exit code."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    try:
        import nbformat

        folder = Path(*arguments or ["notebooks"])
        folder.mkdir(parents=True, exist_ok=True)
        for lesson in sorted(Path(__file__).parent.glob("0*.py")):
            path = folder / f"{lesson.stem}.ipynb"
            if path.exists():
                print(f"{path} already exists: kept as it is")
            else:
                nbformat.write(notebook(lesson), path)
                print(f"wrote {path}")
        print(
            f"open them with:  jupyter lab {folder}   (pip install -e "
            '".[classroom]" brings it)'
        )
    except ImportError as error:
        print(
            f'notebooks.py: {error.name} is missing: pip install -e ".[classroom]"',
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(
            f"notebooks.py: {error.filename}: {error.strerror}: choose another folder",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
