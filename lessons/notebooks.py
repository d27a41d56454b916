"""Write a notebook of each lesson into a folder, `notebooks` if none is given.

    python lessons/notebooks.py [FOLDER] [--install FROM]

A notebook has the cells of its lesson, which draw its pictures, and a last cell that
checks the answers to the exercises. It needs no file beside it: its first cell
installs minitf where it is missing, as on Colab or a JupyterHub, with pip from FROM:
the address of a repository or of a wheel. Without --install, that is the repository
from which this one was cloned. A notebook that already exists is kept, with the answers
in it.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

from exercise import SCAFFOLDING, with_points

from minitf.cli import OptionParser, exit_code
from minitf.errors import UserError

CHECK = """\
# Fill in the functions of the cells above and run them. Then run this cell:
# it says which answers are right.
from minitf.course.lesson import check_exercises

check_exercises(globals())"""
INSTALL = """\
# On Colab, or a JupyterHub without minitf, this installs it. Elsewhere it does nothing.
import importlib.util

if importlib.util.find_spec("minitf") is None:
    get_ipython().run_line_magic("pip", {})"""
FILL_IN = "# (Put the address of its repository in place of ADDRESS.)\n"
ADDRESS = "git+ADDRESS"  # of a clone without a public address
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py"},
}


def notebook(lesson, install=None):
    """Return the notebook of a lesson file. install: from where pip installs minitf."""
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
            cell.source = without_files(cell.source)
    install = install or origin()
    first = INSTALL.format(json.dumps(f"install --quiet {install}"))
    if install == ADDRESS:
        first = first.replace("import ", f"{FILL_IN}import ", 1)
    cells.insert(1, nbformat.v4.new_code_cell(first))  # below the title
    cells.append(nbformat.v4.new_code_cell(CHECK))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def origin():
    """Return what pip installs from: the public address from which this was cloned."""
    command = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ADDRESS
    return public(done.stdout.strip()) or ADDRESS


def public(address):
    """Return an address for pip, without a user's name; "" if only some can use it.

    git@example.org:somebody/minitf.git is git+https://example.org/somebody/minitf.git.
    """
    start = r"(?:https://|ssh://|(?=[^/]*@))(?:[^@/]*@)?"
    found = re.fullmatch(start + r"([\w.-]+\.\w+)[:/](?!\d+/)(.+)", address)
    return f"git+https://{found[1]}/{found[2]}" if found else ""


def without_files(source):
    """Return a text without its pictures, which the cells above it draw again.

    A page that it links to is named instead: a notebook has no file beside it.
    """
    source = re.sub(r"(?m)^!\[.*\]\(figures/.*\)\n+", "", source)
    return re.sub(r"\[([^\]]+)\]\((toy-page\.html[^)]*)\)", r"\1: `lessons/\2`", source)


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
    """Run the command line; return the exit code."""
    return exit_code("notebooks.py", lambda: run(arguments))


def run(arguments):
    """Write the notebooks."""
    parser = OptionParser(usage=__doc__, add_help=False)
    parser.add_argument("folder", nargs="?", default="notebooks", type=Path)
    parser.add_argument("--install")
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    options = parser.parse_args(arguments)
    try:
        write_notebooks(options.folder, options.install)
    except ImportError as error:
        missing = f'{error.name} is missing: pip install -e ".[classroom]"'
        raise UserError(missing) from error
    except OSError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}: choose another folder"
        ) from error
    print(
        f"to open them:  jupyter lab {options.folder}   (if jupyter is missing: "
        'pip install -e ".[classroom]")'
    )


def write_notebooks(folder, install=None):
    """Write the notebooks that do not exist yet."""
    import nbformat

    from minitf.atomic import save_text

    folder.mkdir(parents=True, exist_ok=True)
    for lesson in sorted(Path(__file__).parent.glob("0*.py")):
        path = folder / f"{lesson.stem}.ipynb"
        if path.exists():
            print(f"{path} already exists: kept")
        else:
            save_text(path, nbformat.writes(notebook(lesson, install)))
            print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
