"""The cells of an executed lesson as HTML.

Of a code cell the page shows the thought. What only prints, draws or imports is folded. A
check stands, as code, behind the tick of the claim that it proved.
"""

import ast
import html
import re

from .markup import code, folded

# What a statement does that only calls one of these.
KINDS = {
    **dict.fromkeys(["claim", "same", "grad_check"], "checks"),
    **dict.fromkeys(["print", "show", "finish"], "prints"),
    "draw": "draws",
    "begin": "imports",
}
FOLDS = {
    "imports": "imports",
    "draws": "code of the figure",
    "prints": "code that prints this",
}
# A comment on what a check prints in a terminal.
OF_THE_TERMINAL = re.compile(r"(?m)^# `(?:claim|same)` .*\n(?:# .*\n)*")
SHORT = 40  # characters of a measured value that stands beside its claim
CLAIM = "application/vnd.minitf.claim+json"
SOURCE = "text/x-python"

# Runs before the lesson. A claim, a source and a figure become outputs of their own kind, so
# that none has to be found in what is printed. All names are inside a function: none is the
# lesson's.
PRELUDE = f"""
def prepare(figures):
    import inspect
    from pathlib import Path
    from IPython.display import display
    from minitf import check
    from minitf.course import figures as drawn, lesson

    # Smaller than for a slide, so that the letters are larger on a telephone.
    drawn.WIDTH, drawn.HEIGHT = 7.2, 4.5

    def report(name, found):
        frame = inspect.currentframe()
        while frame.f_back and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        check.proved.append(name)
        display({{"{CLAIM}": [name, found, frame.f_lineno]}}, raw=True)

    def show(thing):
        display({{"{SOURCE}": lesson.source_of(thing)}}, raw=True)

    def draw(picture, file_name, *arguments, **options):
        lesson._run.drawn += 1
        path = Path(figures, file_name).with_suffix(".svg")
        picture(*arguments, path=path, **options)

    check._report = report
    lesson.show, lesson.draw = show, draw
"""


def parts_of(source):
    """Cut a cell's code into parts: [(kind, code, first line, last line)].

    The kinds are "code", "imports", "prints", "draws" and "checks". A comment belongs to the
    statement below it, and constants to the figure that is drawn with them.
    """
    lines, parts, end = source.splitlines(), [], 0
    for statement in ast.parse(source).body:
        kind, start, end = _kind(statement), end + 1, statement.end_lineno
        while parts and (parts[-1][0] == kind or (parts[-1][0], kind) == ("constants", "draws")):
            start = parts.pop()[1]
        parts.append((kind, start, end))
    return [(kind, "\n".join(lines[start - 1 : end]), start, end) for kind, start, end in parts]


def _kind(statement):
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return "imports"
    kinds = {_kind_of_call(each) for each in _leaves(statement)}
    if kinds <= {"prints", "text"} and "prints" in kinds:
        return "prints"
    return kinds.pop() if len(kinds) == 1 else "code"


def _leaves(statement):
    """Return the statements inside loops, conditions and `with`, else the statement itself."""
    if isinstance(statement, ast.For | ast.If | ast.With):
        inside = [*statement.body, *getattr(statement, "orelse", [])]
        return [leaf for each in inside for leaf in _leaves(each)]
    return [statement]


def _kind_of_call(statement):
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign) and isinstance(value, ast.JoinedStr):
        return "text"
    if isinstance(statement, ast.Assign) and isinstance(value, ast.List | ast.Dict):
        constant = all(isinstance(each, ast.expr_context | ast.List | ast.Dict | ast.Constant)
                       for each in ast.walk(value))  # fmt: skip
        return "constants" if constant else "code"
    kind = KINDS.get(getattr(getattr(value, "func", None), "id", ""), "code")
    # Lesson 09 keeps what `begin` returns; a check whose result is kept is no mere check.
    return kind if isinstance(statement, ast.Expr) or kind == "imports" else "code"


def code_cell(source, outputs, guessed=False):
    """Return the HTML of a code cell and of what it printed and proved.

    guessed: the reader was asked to guess that, so it opens with a click.
    """
    claimed = {content[2] for kind, content in outputs if kind == "claim"}
    shown, run = [], []

    def close():
        if run:
            program = "\n".join(run).strip("\n")
            shown.append(code(program.replace("\n\n\n", "\n\n")))
            run.clear()

    for kind, text, start, end in parts_of(source):
        if kind == "checks" and claimed & set(range(start, end + 1)):
            continue  # it stands behind its tick
        if kind in FOLDS and not (kind == "prints" and text.strip().count("\n") < 2):
            close()
            shown.append(folded(FOLDS[kind], code(text.strip("\n")), "fold"))
        else:
            run.append(OF_THE_TERMINAL.sub("", text))
    close()
    found = _outputs(outputs, source)
    found = folded("The answer", found) if guessed else found
    return f'<div class="cell">{"".join(shown)}{found}</div>\n'


def _outputs(outputs, source):
    written, claims = [], []

    def close():
        if claims:
            written.append(f'<ul class="claims">{"".join(claims)}</ul>')
            claims.clear()

    for kind, content in outputs:
        if kind == "claim":
            claims.append(_claim(*content, source))
            continue
        close()
        if kind == "source":
            written.append(f'<div class="source">{code(content)}</div>')
        else:
            written.append(f'<pre class="out">{html.escape(content)}</pre>')
    close()
    return "".join(written)


def _claim(name, found, line, source):
    """Return a claim: a tick and its text, which opens to the check and the measured value."""
    check = next(
        (
            ast.get_source_segment(source, each)
            for each in ast.parse(source).body
            if each.lineno <= line <= each.end_lineno
        ),
        "",
    )
    beside = f' <span class="value">{html.escape(found)}</span>' if len(found) <= SHORT else ""
    below = "" if beside else f"<p>{html.escape(found)}</p>"
    text = f'<span class="tick">✓</span> {html.escape(name.strip())}{beside}'
    return f"<li>{folded(text, below + code(check))}</li>"


def outputs_of(cell):
    """Return what an executed cell wrote: [("text" or "source", text), ("claim", [...])]."""
    found = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            text = re.sub(r"(?m)^.*\r(?!\n)", "", output.text)  # a progress bar
            if output.name == "stdout" and found and found[-1][0] == "text":
                found[-1] = ("text", found[-1][1] + text)
            elif output.name == "stdout":
                found.append(("text", text))
        elif output.output_type == "display_data":
            if CLAIM in output.data:
                found.append(("claim", output.data[CLAIM]))
            elif SOURCE in output.data:
                found.append(("source", output.data[SOURCE]))
    stripped = [(kind, each.strip("\n") if kind == "text" else each) for kind, each in found]
    return [(kind, each) for kind, each in stripped if each]


def exercises(source, text, link_titles):
    """Return the HTML of exercises: the task of each, its hint behind a click, and its check.

    source: functions to fill in, each with its function check_NAME, in any order. text: the
    converter of markdown. link_titles: turns the titles of sections in a hint into links.
    """
    functions, checks, above, end = [], {}, [], 0
    lines = source.splitlines()
    for each in ast.parse(source).body:
        program = "\n".join(lines[end : each.end_lineno]).strip("\n")
        name, end = getattr(each, "name", ""), each.end_lineno
        if f"def check_{name}(" in source:
            functions.append(each)
        elif name.startswith("check_"):
            checks[name.removeprefix("check_")] = "\n\n\n".join([*above, program])
            above = []
        else:
            above.append(program)  # what the next check needs
    return "".join(
        _exercise(number, function, lines, checks[function.name], text, link_titles)
        for number, function in enumerate(functions, 1)
    )


def _exercise(number, function, lines, check, text, link_titles):
    task, _, hint = (ast.get_docstring(function) or "").partition("Hint: ")
    documented = function.body[0]
    head = lines[function.lineno - 1 : documented.lineno - 1]
    rest = lines[documented.end_lineno : function.end_lineno]
    hinted = folded("Hint", link_titles(text.html(hint)), "hint") if hint else ""
    return (
        f'<article class="exercise"><h3 id="exercise-{number}">Exercise {number}: '
        f"<code>{function.name}</code></h3>{text.html(task)}{code(chr(10).join(head + rest))}"
        f"{hinted}{folded('how it is checked', code(check), 'fold')}</article>\n"
    )
