"""The lessons as the tests read them: their trees, their prose, what they introduce and use
of the engine.
"""

import ast
import functools
import importlib.util
import re

from paths import ROOT

import minitf

LESSONS = sorted((ROOT / "lessons").glob("0[1-9]_*.py"))
ENGINE = ("tensor", "functions", "loss", "nn", "transformer", "optim", "decode", "config", "forms")
PUBLIC = {
    f"{module}.{name}"
    for module in ENGINE
    for name in importlib.import_module(f"minitf.{module}").__all__
}
# For who writes a form.
PUBLIC -= {"forms.accelerated", "forms.verified", "forms.form_of", "forms.in_threads", "forms.off"}
# What lesson 09 proves.
TRAINING = {"text.Subwords", "text.plan_batches", "update.Updater", "arrays.average"}
CHECKS = ("same", "grad_check", "claim")


def load(path):
    """Run a file, and return it as a module."""
    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def prose_of(path):
    """The text of the markdown cells and of the first docstring, as lines."""
    lines, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# %%"):
            inside = "[markdown]" in line
        elif inside:
            lines.append(line.removeprefix("#").strip())
    return lines


def introduced(tree):
    """The names that the lesson says it introduces."""
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_named(node.targets[0])
    ]
    return list(eval(ast.unparse(values[0]), {"__builtins__": {}}))


def _is_named(target):
    return isinstance(target, ast.Name) and target.id == "INTRODUCES"


def engine_names(tree, modules=ENGINE):
    """{name in the lesson: "module.name" or, for a whole module, "module"} of all that is imported
    from the modules.
    """
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "minitf":
            for alias in node.names:
                here = alias.asname or alias.name
                if alias.name in modules:
                    names[here] = alias.name
                elif home := getattr(
                    getattr(minitf, alias.name, None), "__module__", ""
                ).removeprefix("minitf."):
                    names[here] = f"{home}.{alias.name}"
        elif (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[-1] in modules
        ):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module.split('.')[-1]}.{alias.name}"
    return {here: name for here, name in names.items() if name.split(".")[0] in modules}


def mentioned(node, names):
    """Every "module.name" of the engine that stands in this piece of code, and every plain name."""
    found = set()
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and names.get(part.value.id) in ENGINE
        ):
            found.add(f"{names[part.value.id]}.{part.attr}")
        elif isinstance(part, ast.Name):
            found.add(names.get(part.id, part.id))
    return found


def checked(tree, names):
    """What stands in the arguments of the checks at the top level: (function, its text,
    names) of each call.

    A variable that was computed from something stands for that as well, and so does a
    function that uses it.
    """
    made_of, calls = {}, []

    def everything(node):
        found, waiting = set(), list(mentioned(node, names))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(made_of.get(name, ()))
        return found

    def visit(body):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                made_of[node.name] = mentioned(node, names)
                continue
            bound = [
                n
                for n in ast.walk(node)
                if isinstance(n, ast.Assign | ast.AugAssign | ast.For | ast.withitem)
            ]
            for binding in bound:
                _bind(binding, made_of, names)
            inside = _mentioned_by_with(node, names)
            for call in (
                n
                for n in ast.walk(node)
                if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            ):
                if call.func.id in CHECKS:
                    calls.append(
                        (
                            call.func.id,
                            ast.unparse(call),
                            everything(call) | inside.get(call, set()),
                        )
                    )

    visit(tree.body)
    return calls


def _mentioned_by_with(tree, names):
    """{call: what the `with` statements around it mention}."""
    inside = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            here = set().union(*(mentioned(item.context_expr, names) for item in node.items))
            for call in (
                n for statement in node.body for n in ast.walk(statement) if isinstance(n, ast.Call)
            ):
                inside[call] = inside.get(call, set()) | here
    return inside


def _bind(node, made_of, names):
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets, value = getattr(node, "targets", [getattr(node, "target", None)]), node.value
    elif isinstance(node, ast.For):
        targets, value = [node.target], node.iter
    else:
        targets, value = [node.optional_vars] if node.optional_vars else [], node.context_expr
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                made_of.setdefault(part.id, set()).update(mentioned(value, names) - {part.id})


def windows(function, size=3):
    """Each row of `size` statements of a function's body, with its names replaced by their order
    of appearance.
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for start in range(len(body) - size + 1):
        order = {}
        text = "\n".join(ast.unparse(node) for node in body[start : start + size])
        yield re.sub(
            r"\b[A-Za-z_]\w*",
            lambda name, order=order: order.setdefault(name[0], f"n{len(order)}"),
            text,
        )
