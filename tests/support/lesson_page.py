"""What a beginner can read: the rules of a lesson's page, each as a function of its text or tree.

Each returns what breaks the rule, as "line N: ..." texts.
"""

import ast
import itertools
import re
from collections import Counter

CHECKS = ("same", "grad_check", "claim")
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda
BLOCKS = ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
WIDEST = 88  # characters
MOST_CHECKS = 3  # of a cell
SHORTEST_ALTERNATIVE = 40  # characters
LIST_ITEM = re.compile(r"# (?:\d+[.)]|[-+*>]) ")
LIST_BEGINS = re.compile(r"# (?:1[.)]|[-+*>]) ")  # inside a paragraph, too
IMAGE = re.compile(r"!\[(.*?)\]\(figures/([\w.-]+)\)")


# Cells --------------------------------------------------------------------------------------------


def cells(text):
    """Return (kind, text, number of its first line) of each cell, "markdown" or "code"."""
    found, body = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# %%"):
            body = []
            found.append(("markdown" if "[markdown]" in line else "code", body, number + 1))
        else:
            body.append(line)
    return [(kind, "\n".join(lines), number) for kind, lines, number in found]


def long_lines(text):
    """Lines of more than 88 characters; a picture with its alternative text may be longer."""
    return [
        f"line {number}: {len(line)} characters"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > WIDEST and not line.startswith("# ![")
    ]


def crowded_cells(text):
    """Cells with more than three checks. Those of functions count nowhere."""
    found = []
    for kind, source, start in cells(text):
        calls = _calls(ast.parse(source), CHECKS) if kind == "code" else []
        if len(calls) > MOST_CHECKS:
            found.append(f"line {start}: {len(calls)} checks in one cell")
    return found


def undiscussed_figures(text):
    """Drawn figures that the next cell does not show and discuss, and shown ones never drawn."""
    found, shown = [], []
    parts = [*cells(text), ("end", "", 0)]
    for (kind, source, start), (_, after, _) in itertools.pairwise(parts):
        shown += [name for _, name in IMAGE.findall(source)] if kind == "markdown" else []
        for name in drawn(source) if kind == "code" else ():
            alternatives = [text for text, shown_name in IMAGE.findall(after) if shown_name == name]
            if not alternatives:
                found.append(f"line {start}: the next cell does not show figures/{name}")
            elif len(alternatives[0]) < SHORTEST_ALTERNATIVE:
                found.append(f"line {start}: the alternative text of {name} is too short")
            elif len(re.findall(r"^# \*What to see: \S", after, re.MULTILINE)) == 0:
                found.append(f"line {start}: no *What to see: ...* about {name}")
    unknown = Counter(shown) - Counter(name for part in parts for name in drawn(part[1]))
    return found + [f"figures/{name} is shown and not drawn" for name in unknown]


def drawn(source):
    """Return the file names of the figures that this code draws."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a markdown cell that is no docstring
        return []
    return [ast.literal_eval(call.args[1]) for call in _calls(tree, ("draw",))]


def unclosed_formulas(text):
    """Paragraphs of markdown in which a $ is missing, or something that a notebook shows as red."""
    found = []
    for kind, source, start in cells(text):
        for paragraph in re.split(r"\n#? *\n", source) if kind == "markdown" else ():
            formulas = re.sub(r"`[^`]*`|\$\$", "", paragraph)
            if formulas.count("$") % 2:
                found.append(f"line {start}: a $ without its partner in {paragraph[:60]!r}")
        inside = [line for line in source.splitlines() if re.search(r"[^# ].*\$\$.*\S", line)]
        inside = [line for line in inside if not re.fullmatch(r"# \$\$[^$]+\$\$", line)]
        if kind == "markdown" and (source.count("$$") % 2 or inside):
            found.append(f"line {start}: $$ is inside a line of text, or without its partner")
    return found


def accidental_lists(text):
    """Lines inside a paragraph that markdown takes for the beginning of a list or a quotation."""
    found = []
    for kind, source, start in cells(text):
        lines = re.sub(r"\$\$[^$]*\$\$", _dots, source).splitlines()
        above = ""  # an item of a list may follow one
        for number, line in enumerate(lines if kind == "markdown" else (), start):
            inside = re.match(r"# [^\s#]", above)  # a title is none
            if inside and LIST_BEGINS.match(line) and not LIST_ITEM.match(above):
                found.append(f"line {number}: {line[2:40]!r} begins a list inside a paragraph")
            if not (LIST_ITEM.match(above) and line.startswith("#  ")):  # else the item goes on
                above = line
    return found


def _dots(formula):
    """Return as many lines as a formula has, which begin no list."""
    return "\n# ".join("." for _ in formula[0].splitlines())


# Statements ---------------------------------------------------------------------------------------


def tuples_to_tuples(tree):
    """Statements that assign a tuple of expressions to a tuple of names."""
    return [
        f"line {node.lineno}: {_short(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple | ast.List)
        and any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
    ]


def many_names(tree):
    """Statements that bind three or more names. The results of one call are the exception."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            targets = node.targets
        elif isinstance(node, ast.For):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [item.optional_vars for item in node.items if item.optional_vars]
        else:
            targets = []
        if sum(map(_leaves, targets)) >= 3:
            found.append(f"line {node.lineno}: {_short(node)}")
    return found


def crowded_statements(tree):
    """Statements with two comprehensions or lambdas; of a compound one, in its head."""
    found = []
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt):
            inner = [node for node in _head(statement) if isinstance(node, COMPREHENSIONS)]
            if len(inner) >= 2:
                found.append(f"line {statement.lineno}: {_short(statement)}")
    return found


def rebound_names(tree):
    """Global names that two statements bind; loop variables, and _, may be bound again."""
    bound = {}
    for statement in _global_statements(tree.body):
        for name in _bound(statement):
            bound.setdefault(name, []).append(statement.lineno)
    return [
        f"line {lines[1]}: {name} is bound in line {lines[0]} already"
        for name, lines in bound.items()
        if len(lines) > 1
    ]


def tricks(tree):
    """Stars outside of calls and signatures, and the indexed constructors of NumPy."""
    found = []
    for node in ast.walk(tree):
        inner = [*getattr(node, "elts", ()), *getattr(node, "targets", ())]
        if any(isinstance(part, ast.Starred) for part in inner):
            found.append(f"line {node.lineno}: {_short(node)}")
        if isinstance(node, ast.Attribute) and node.attr in ("r_", "c_", "s_", "mgrid", "ogrid"):
            found.append(f"line {node.lineno}: {_short(node)}")
    return found


def _calls(tree, names):
    """Return the calls of these functions outside of functions."""
    waiting, found = list(tree.body), []
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, BLOCKS):
            waiting[:0] = ast.iter_child_nodes(node)
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            found += [node] if called and node.func.id in names else []
    return found


def _head(statement):
    """Yield the nodes of a statement without those of the statements inside it."""
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.stmt):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _global_statements(body):
    """Yield the statements of a module, also those in its blocks, but none of functions."""
    for statement in body:
        yield statement
        if not isinstance(statement, BLOCKS):
            inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
            for handler in getattr(statement, "handlers", ()):
                inner += handler.body
            yield from _global_statements(inner)


def _bound(statement):
    """Return the names that a statement binds, each once."""
    if isinstance(statement, BLOCKS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    head = list(_head(statement))
    inner = [node.target for node in head if isinstance(node, ast.comprehension)]
    if isinstance(statement, ast.For):
        inner.append(statement.target)
    variables = {id(node) for target in inner for node in ast.walk(target)}
    stored = [node for node in head if isinstance(getattr(node, "ctx", None), ast.Store)]
    return {
        node.id
        for node in stored
        if isinstance(node, ast.Name) and id(node) not in variables and node.id != "_"
    }


def _leaves(target):
    if isinstance(target, ast.Tuple | ast.List):
        return sum(map(_leaves, target.elts))
    return 1


def _short(node):
    return ast.unparse(node).splitlines()[0][:80]
