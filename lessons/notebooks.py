"""Write a notebook of each lesson into a folder, `notebooks` if none is given.

    python lessons/notebooks.py [FOLDER]

A notebook has the cells of its lesson, with the pictures inside it, and a last cell
that checks the answers to the exercises. A notebook that already exists is kept, with
the answers in it.
"""

import ast
import base64
import re
import sys
from pathlib import Path

from exercise import SCAFFOLDING, with_points

from minitf.errors import UserError

CHECK = """\
# Fill in the functions of the cells above and run them. Then run this cell:
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
            cell.source = with_points(without_output(cell.source))
        else:
            attach_pictures(cell, lesson.parent)
    cells.append(nbformat.v4.new_code_cell(CHECK))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def attach_pictures(cell, folder):
    """Put the pictures of a markdown cell into the notebook, which may be moved.

    What it links to is named instead.
    """
    attached = {}
    cell.source = re.sub(
        r"\[([^\]]+)\]\((toy-page\.html[^)]*)\)", r"\1: `lessons/\2`", cell.source
    )
    for link in re.findall(r"\]\((figures/[^)]+\.png)\)", cell.source):
        picture = folder / link
        if picture.exists():
            data = base64.b64encode(picture.read_bytes()).decode()
            attached[picture.name] = {"image/png": data}
            cell.source = cell.source.replace(
                f"]({link})", f"](attachment:{picture.name})"
            )
    if attached:
        cell.attachments = attached


def without_output(source):
    """Return the code with a semicolon after a check in its last line.

    Without it a notebook would also print the value of the check, its largest error.
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
    """Write the notebooks; return the exit code."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    folder = Path(*arguments or ["notebooks"])
    try:
        write_notebooks(folder)
    except ImportError as error:
        return refuse(f'{error.name} is missing: pip install -e ".[classroom]"')
    except UserError as error:
        return refuse(error)
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}: choose another folder")
    print(
        f"to open them:  jupyter lab {folder}   (if jupyter is missing: "
        'pip install -e ".[classroom]")'
    )
    return 0


def write_notebooks(folder):
    """Write the notebooks that do not exist yet."""
    import nbformat

    from minitf.files.atomic import save_text

    folder.mkdir(parents=True, exist_ok=True)
    for lesson in sorted(Path(__file__).parent.glob("0*.py")):
        path = folder / f"{lesson.stem}.ipynb"
        if path.exists():
            print(f"{path} already exists: kept")
        else:
            save_text(path, nbformat.writes(notebook(lesson)))
            print(f"wrote {path}")


def refuse(message):
    """Print a line on a mistake of the user; return the exit code."""
    print(f"notebooks.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
