"""Docstrings are run: shape lines against the functions, examples as doctests."""

import ast
import doctest
import importlib.util
import inspect
import re

import numpy as np
import pytest
from gradient_table import table
from paths import PACKAGE, ROOT

from minitf import functions, loss
from minitf.beyond import functions as variations

PATHS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
# The modules that import CuPy: left out where it is not installed.
CUPYS = {
    name
    for name, path in PATHS.items()
    if re.search(r"^import cupyx?\b", path.read_text(encoding="utf-8"), re.MULTILINE)
}
NOT_HERE = set() if importlib.util.find_spec("cupy") else CUPYS
MODULES = [name for name in PATHS if not name.endswith("__init__") and name not in NOT_HERE]
SIZES = {"B": 2, "T": 5, "S": 7, "H": 3, "K": 4, "D": 12, "F": 16, "V": 11}

_ITEM = re.compile(r"(\w+): (?:a sequence of )?(int|bool)? ?(\([^)]*\))")


def shape_lines(function):
    """Return ([(argument, kind, letters)], [result letters]) of the shape line in a docstring."""
    for line in inspect.getdoc(function).splitlines():
        if "->" in line and ":" in line.split("->")[0]:
            inputs, result = line.split("->")
            arguments = [
                (name, kind, _letters(shape)) for name, kind, shape in _ITEM.findall(inputs)
            ]
            results = [_letters(shape) for shape in re.findall(r"\([^)]*\)", result)]
            return arguments, results
    return None


def _letters(shape):
    return [part.strip() for part in shape.strip("()").split(",") if part.strip()]


def fit(letters, shape, sizes):
    """Bind the letters to the lengths of the axes; two lengths of one are an AssertionError."""
    letters, shape = list(letters), list(shape)
    if "..." in letters:
        assert letters[0] == "...", "... stands in front"
        letters = letters[1:]
        shape = shape[len(shape) - len(letters) :] if letters else []
    assert len(letters) == len(shape), f"{letters} does not describe {shape}"
    for letter, length in zip(letters, shape, strict=True):
        assert sizes.setdefault(letter, length) == length or length == 1, (
            f"{letter} is {sizes[letter]} and {length}"
        )


def _shape(x):
    return np.shape(x.data if hasattr(x, "grad") else x)


@pytest.mark.parametrize("row", table(), ids=lambda row: row[0].__name__)
def test_shape_line(row):
    """A letter has one length in all arguments and the result; different letters differ."""
    function, arguments, options = row
    said = shape_lines(function)
    assert said, f"{function.__name__} has no shape line"
    named = inspect.signature(function).bind(*arguments, **options).arguments
    sizes = {}
    front = []
    for name, kind, letters in said[0]:
        value = named.get(name)
        if value is None:
            continue
        for x in value if isinstance(value, list) else [value]:
            if not isinstance(value, list):
                fit(letters, np.shape(x), sizes)
            if kind:
                assert np.asarray(x).dtype.kind == {"int": "i", "bool": "b"}[kind], (
                    f"{name} is not {kind}"
                )
            if letters[:1] == ["..."] and not isinstance(value, list):
                front.append(np.shape(x)[: np.ndim(x) - len(letters) + 1])
    out = function(*arguments, **options)
    outs = out if isinstance(out, tuple) else (out,)
    assert len(outs) == len(said[1]), f"{len(outs)} results, {len(said[1])} described"
    for result, letters in zip(outs, said[1], strict=True):
        if not isinstance(arguments[0], list):
            fit(letters, result.shape, sizes)
        if letters[:1] == ["..."] and front:
            assert result.shape[: result.ndim - len(letters) + 1] == np.broadcast_shapes(*front)
        if letters == []:
            assert result.shape == ()
    lengths = [sizes[letter] for letter in sizes]
    assert len(set(lengths)) == len(lengths), (
        "two letters of one length could be exchanged unnoticed"
    )


@pytest.mark.parametrize("name", sorted({*functions.__all__, *variations.__all__, *loss.__all__}))
def test_a_function_states_its_equation(name):
    home = next(module for module in (functions, variations, loss) if name in module.__all__)
    doc = inspect.getdoc(getattr(home, name))
    assert doc.split("\n\n")[0].endswith((".", "?")), "the first paragraph is a sentence"
    if name not in ("dropout_mask", "dropout_state"):
        assert re.search(r"^ {4}\S.* = ", doc, re.MULTILINE), "no equation"


def test_everything_public_has_a_docstring():
    for module, path in PATHS.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{module} does not say what it is for"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{module}.{node.name} has no docstring"


WITH_EXAMPLES = [name for name in MODULES if ">>> " in PATHS[name].read_text(encoding="utf-8")]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_doctests(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0 and result.attempted
