"""Write the map in minitf/README.md: a table for each folder, made of the first lines of its files.

python tests/support/code_map.py
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "minitf"
PAGE = PACKAGE / "README.md"
BEGIN = "<!-- The map, which python tests/support/code_map.py writes. -->\n"
END = "<!-- The end of the map. -->\n"


def first_line(path):
    """Return the line with which a file says what it is: of its docstring, or a first comment."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    comment = re.match(r"(?:// |/\* |<!DOCTYPE html>\n<!-- )(.*?)(?: \*/| -->)?\n", text)
    return comment[1] if comment else ""


def files_of(folder):
    """Return the files of a folder and of those in it, as paths; each __init__ is its folder."""
    found = [path for kind in ("py", "js", "css", "html") for path in folder.rglob(f"*.{kind}")]
    return sorted(path.parent if path.name == "__init__.py" else path for path in found)


def code_map():
    """Return the map: a table of the folders, then for each folder a table of its files."""
    folders = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    lines = ["| folder | contents |", "|---|---|"]
    for folder in folders:
        name = folder.name
        lines.append(f"| [`{name}/`](#{name}) | {first_line(folder / '__init__.py')} |")
    for folder in folders:
        lines += ["", f"### `{folder.name}/`", "", "| file | contents |", "|---|---|"]
        for path in files_of(folder):
            name, source = path.relative_to(folder).as_posix(), path
            if path == folder:
                continue  # it is in the table of the folders
            if path.is_dir():
                name, source = f"{name}/", path / "__init__.py"
            lines.append(f"| `{name}` | {first_line(source)} |")
    return "\n".join(lines) + "\n"


def with_map(page):
    """Return the text of the page with the map as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{code_map()}\n{END}{after}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_map(text), encoding="utf-8")
