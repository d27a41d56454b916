"""An exercise sheet as a page for paper, with room to write: `exercise.py --print`."""

import ast
import html
import re

__all__ = ["page"]

POINTS = r"^# (\d+ points?)\ndef (\w+)"  # of an exercise, in a sheet

STYLE = """
@page { size: A4; margin: 18mm 20mm; }
body { font: 11.5pt/1.45 Georgia, "Times New Roman", serif; color: #111; background: white;
       max-width: 46em; margin: 0 auto; padding: 1em; }
h1 { font-size: 17pt; margin: 0 0 .2em; }
h2 { font-size: 13pt; margin: 0 0 .4em; }
.name { display: flex; gap: 2em; margin: 1em 0 1.4em; }
.name span { flex: 1; border-bottom: 1px solid #444; padding-bottom: .2em; }
section { break-inside: avoid; margin: 1.6em 0 0; }
pre, code { font: 10pt/1.4 "DejaVu Sans Mono", Consolas, monospace; }
pre { background: #f4f4f4; border-left: 3px solid #888; padding: .5em .8em; margin: .6em 0;
      white-space: pre-wrap; }
.room { height: 74mm; border: 1px solid #999;
        background: repeating-linear-gradient(white 0 7.8mm, #bbb 7.8mm 8.2mm); }
.hints { break-before: page; }
@media print { body { padding: 0; } .room, pre { print-color-adjust: exact; } }
"""


def page(sheet: str) -> str:
    """Return the text of an exercise sheet as an HTML page that needs no other file.

    Each exercise has its signature, its text and lines to write on. The hints have the
    last page for themselves.
    """
    tree = ast.parse(sheet)
    title = ast.get_docstring(tree).splitlines()[0]
    checked = {name for name in _functions(tree) if f"check_{name}" in _functions(tree)}
    points = {name: text for text, name in re.findall(POINTS, sheet, re.MULTILINE)}
    parts, imports, hints = [_introduction(sheet)], [], []
    for node in tree.body[1:]:
        name = getattr(node, "name", "")
        if name in checked:
            text, _, hint = (ast.get_docstring(node) or "").partition("Hint: ")
            hints.append((name, hint))
            parts.append(_exercise(len(hints), node, text, points.get(name, "")))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(ast.unparse(node))
        elif not name.startswith("check_") and not isinstance(node, ast.If):
            parts.append(_code(ast.get_source_segment(sheet, node)))
    # Without the last one, which only the file needs.
    given = [line for line in imports if "check_exercises" not in line]
    parts.insert(1, _code("\n".join(given)) if given else "")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n"
        '<p class="name"><span>Name:</span><span>Date:</span></p>\n'
        + "\n".join(filter(None, parts))
        + f"\n{_hints(hints)}</body>\n</html>\n"
    )


def _functions(tree):
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _introduction(sheet):
    """Return the text of the sheet's first markdown cell, without its heading."""
    cell = re.search(r"^# ## Your turn\n((?:#.*\n?)*)", sheet, re.MULTILINE)
    return _paragraphs(re.sub(r"^# ?", "", cell[1], flags=re.MULTILINE))


def _paragraphs(text):
    """Return text as paragraphs; one with indented lines, such as a formula, as it is."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        indented = any(line.startswith(" ") for line in paragraph.splitlines())
        found.append(_code(paragraph) if indented else f"<p>{_marked(paragraph)}</p>")
    return "\n".join(found)


def _code(text):
    return f"<pre>{html.escape(text)}</pre>"


def _exercise(number, node, text, points):
    signature = f"def {node.name}({ast.unparse(node.args)}):"
    given = [each for each in node.body[1:] if not _is_dots(each)]
    code = "\n".join([signature, *_indented(given)])
    return (
        f"<section>\n<h2>{number}. {node.name.replace('_', ' ')} <small>{points}</small></h2>\n"
        f'{_code(code)}\n{_paragraphs(text)}\n<div class="room"></div>\n</section>'
    )


def _is_dots(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _indented(statements):
    lines = "\n".join(ast.unparse(each) for each in statements).splitlines()
    return [f"    {line}" for line in lines]


def _hints(hints):
    items = [
        f"<p><b>{number}. {name.replace('_', ' ')}:</b> {_marked(' '.join(hint.split()))}</p>"
        for number, (name, hint) in enumerate(hints, 1)
        if hint
    ]
    if not items:
        return ""
    return '<div class="hints">\n<h2>Hints</h2>\n' + "\n".join(items) + "\n</div>\n"


def _marked(text):
    """Return text as HTML, with `code` and **bold** as a notebook shows them."""
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
