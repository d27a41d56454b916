"""The engine contains equations: no word of its code is about the processor that computes."""

import ast
import re

import pytest
from paths import ENGINE, ROOT

# backend.py and forms.py are the seam: they may speak of libraries and folders.
EQUATIONS = ("errors", *ENGINE, "__init__")
# `threading` is not among them: what is recorded, and the state of dropout, belong to a thread.
HARDWARE = re.compile(
    "as_operand|blas|blocks?|cache_line|chunks?|cores?|cpu|cuda|cupy|gemm|gpu|kernels?|launch|mp|"
    "multiprocessing|on_gpu|panels|pool|row_dots|row_sums|scratch|threads?|tiles?|warp"
)


def words_of(tree):
    """Return {word: line} of a program's identifiers, imports and strings, but not docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    found = {}
    for node in ast.walk(tree):
        named = [
            value
            for field, value in ast.iter_fields(node)
            if field in ("id", "attr", "arg", "name", "module", "asname")
        ]
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            named.append(node.value)
        for text in (text for text in named if isinstance(text, str)):
            pieces = re.findall(r"[a-z]+", text.lower()) + re.findall(r"\w+", text.lower())
            found.update(dict.fromkeys(pieces, getattr(node, "lineno", 0)))
    return found


def tree_of(name):
    return ast.parse((ROOT / "minitf" / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EQUATIONS)
def test_no_word_of_hardware(name):
    words = words_of(tree_of(name))
    found = {word: line for word, line in words.items() if HARDWARE.fullmatch(word)}
    assert not found, f"minitf/{name}.py, {{word: line}}: {found} belongs to a form"


@pytest.mark.parametrize("name", EQUATIONS)
def test_no_result_is_written_into_an_array_that_is_at_hand(name):
    """`out=` saves memory and time, and no equation has it."""
    lines = [
        node.value.lineno
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.keyword) and node.arg == "out"
    ]
    assert not lines, f"minitf/{name}.py, lines {lines}"
