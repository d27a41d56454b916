"""The engine contains equations: no word of it is about the processor that computes."""

import ast
import re

import pytest
from paths import ENGINE, ROOT

# backend.py and forms.py are the seam: they may speak of libraries and folders.
EQUATIONS = ("errors", *ENGINE, "__init__")
# Neither a thread nor a block is among them: what is recorded, and the state of dropout, belong to
# a thread, and a block is one of `with`.
HARDWARE = re.compile(
    "(?<![a-z])(as_operand|blas|cache_line|chunks?|cores?|cpus?|cuda|cupy|(?<!to_)devices?|fused|gemm|"
    "gpus?|kernels?|launch|mp|multiprocessing|panels|pool|processors?|row_dots|row_sums|tiles?|warps?)"
    "(?![a-z])",
    re.IGNORECASE,
)


def tree_of(name):
    return ast.parse((ROOT / "minitf" / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ENGINE)
def test_no_word_of_hardware(name):
    """Neither in the code nor in what is said about it: a reader needs what is always true."""
    lines = (ROOT / "minitf" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    found = {number: line for number, line in enumerate(lines, 1) if HARDWARE.search(line)}
    assert not found, f"minitf/{name}.py, {{line: its text}}: {found} belongs to a form"


@pytest.mark.parametrize("name", EQUATIONS)
def test_no_result_is_written_into_an_array_that_is_at_hand(name):
    """`out=` saves memory and time, and no equation has it."""
    lines = [
        node.value.lineno
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.keyword) and node.arg == "out"
    ]
    assert not lines, f"minitf/{name}.py, lines {lines}"
