"""Every form has the values and the gradients of its equation, with tiles of any size."""

import contextlib
import sys
import types

import blocks
import form_cases
import numpy as np
import pytest
import strict
from form_cases import call, close, outcome, strided

from minitf import forms
from minitf.backend import using
from minitf.loss import projected_cross_entropy

ROWS, CASES = form_cases.rows(), form_cases.cases()
LIBRARY = {"cpu": "numpy", "gpu": strict.with_kernels}
TOLERANCE = {"cupy": 1e-4}  # cuBLAS adds up in another order, and CUDA has other exponentials
on_cupy = pytest.param("cupy", marks=pytest.mark.gpu, id="cupy")
for folder in LIBRARY:
    form_cases.load(folder)
FORMED = [row for row in ROWS if any(row.function in forms._forms[folder] for folder in LIBRARY)]
FIRST = {row.function: row for row in reversed(FORMED)}  # all rows take minutes on the simulator
each_row = pytest.mark.parametrize("row", FORMED, ids=str)
DTYPES = "float64", "float32"


def simulated(rows, quick):
    """Mark the rows that take long on the simulator: those that are not quick, and this loss.

    What the form leaves to the equation starts no kernel.
    """
    return [
        pytest.param(
            row,
            marks=()
            if (quick(row) and row.function is not projected_cross_entropy) or "gpu" in row.declined
            else pytest.mark.slow,
        )
        for row in rows
    ]


def equation(compute, *arguments):
    """Return what the equations compute on NumPy."""
    with using("numpy"), forms.off():
        return compute(*arguments)


def hold(row, folder, dtype, library=None):
    """Hold the form of a folder to its equation."""
    expected, tolerance = equation(outcome, row, dtype), TOLERANCE.get(library)
    with using(library or LIBRARY[folder]), form_cases.watched(folder) as taken:
        for layout in (np.ascontiguousarray, strided):
            found, name = outcome(row, dtype, layout), f"{row}, {layout.__name__}"
            close(found, expected, dtype, name, tolerance)
        results = outcome(row, dtype, recording=False)
        close(results, expected[: len(results)], dtype, f"{row}, not recorded", tolerance)
    has_form = row.function in forms._forms[folder]
    assert (row.function in taken) == (has_form and folder not in row.declined), (
        f"{row}: who computes it?"
    )


@np.errstate(invalid="ignore")  # some rows have arguments that are not finite
def hold_apart(row, folder, dtype, library=None):
    """Hold two calls of a form that are under way at a time to two calls one after the other."""
    expected, tolerance = equation(outcome, row, dtype), TOLERANCE.get(library)
    with using(library or LIBRARY[folder]):
        one, walk_one = call(row, dtype)
        _, walk_other = call(row, dtype, change=lambda x: 1.5 * x[::-1])
        walk_other()
        name = f"{row}, with another call before its backward"
        close(one + walk_one(), expected, dtype, name, tolerance)


def hold_case(case, folder, dtype, library=None):
    """Hold a program that uses forms to the same one by equations."""
    expected = equation(case.compute, dtype)
    with using(library or LIBRARY[folder]), form_cases.watched(folder) as taken:
        close(case.compute(dtype), expected, dtype, str(case), TOLERANCE.get(library))
    assert taken >= set(case.ops), f"{case}: who computes it?"


@contextlib.contextmanager
def lowered(sizes, dtype):
    """Lower the sizes of the forms; an error says with which, and in which dtype."""
    with pytest.MonkeyPatch.context() as patch:
        form_cases.lower(patch, sizes)
        try:
            yield
        except AssertionError as error:
            error.add_note(f"with {sizes}, in {dtype}")
            raise


@each_row
def test_a_form_on_the_cpu(row):
    """In tiles of all sizes, in both dtypes, and with another call under way."""
    tiled = row.function in form_cases.TILED
    for sizes in form_cases.TILES if tiled else ["sizes as they are"]:
        for dtype in DTYPES:
            with lowered(sizes, dtype):
                hold(row, "cpu", dtype)
    hold_apart(row, "cpu", "float64")


@pytest.mark.parametrize("library", [pytest.param(None, id="simulated"), on_cupy])
@pytest.mark.parametrize("row", simulated(FIRST.values(), lambda row: True), ids=str)
def test_a_form_on_the_gpu_shares_nothing_between_two_calls(row, library, monkeypatch):
    if row.function in form_cases.TILED_ON_GPU:
        form_cases.lower(monkeypatch, "small tiles", compiled=library == "cupy")
    hold_apart(row, "gpu", "float32", library)


QUICK = ("sizes as they are", "float64"), ("small tiles", "float32")
OTHERS = ("sizes as they are", "float32"), ("small tiles", "float64")


@pytest.mark.parametrize("case", [case for case in CASES if "cpu" in case.folders], ids=str)
@pytest.mark.parametrize("those", [QUICK, pytest.param(OTHERS, marks=pytest.mark.slow)], ids=str)
def test_without_gradients_on_the_cpu(case, those):
    for sizes, dtype in those:
        with lowered(sizes, dtype):
            hold_case(case, "cpu", dtype)


@pytest.mark.parametrize("row", simulated(form_cases.refused(), lambda row: True), ids=str)
def test_a_form_on_the_gpu_refuses_what_its_equation_refuses_in_the_same_words(row):
    refuse_alike(row, "gpu")


def test_a_form_on_the_cpu_refuses_what_its_equation_refuses_in_the_same_words():
    for row in form_cases.refused():
        refuse_alike(row, "cpu")


def refuse_alike(row, folder):
    with using(LIBRARY[folder]):
        said = []
        for state in (forms.off, forms.on):
            with state(), pytest.raises((TypeError, ValueError, IndexError)) as error:
                call(row, "float32")
            said.append((error.type, str(error.value)))
    assert said[0] == said[1], row


@pytest.mark.parametrize("row", simulated(FORMED, lambda row: row is FIRST[row.function]), ids=str)
def test_a_form_on_the_gpu(row, monkeypatch):
    """Thread by thread, on the simulator; in small tiles, because large blocks take minutes."""
    if row.function in form_cases.TILED_ON_GPU:
        form_cases.lower(monkeypatch, "small tiles")
    hold(row, "gpu", "float32")


@pytest.mark.gpu
@each_row
def test_a_form_on_cupy(row, monkeypatch):
    hold(row, "gpu", "float32", "cupy")
    if row.function in form_cases.TILED_ON_GPU:
        form_cases.lower(monkeypatch, "small tiles", compiled=True)
        hold(row, "gpu", "float32", "cupy")


@pytest.mark.parametrize(
    "library", [pytest.param(None, marks=pytest.mark.slow, id="simulated"), on_cupy]
)
@pytest.mark.parametrize("case", [case for case in CASES if "gpu" in case.folders], ids=str)
def test_without_gradients_on_the_gpu(case, library, monkeypatch):
    """In small tiles: with fewer threads, and caches that grow at each step."""
    form_cases.lower(monkeypatch, "small tiles", compiled=library == "cupy")
    hold_case(case, "gpu", "float32", library)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_equation_on_the_stand_in_for_gpu_arrays(row):
    expected = equation(outcome, row, "float64")
    with using(strict.module):
        close(outcome(row, "float64"), expected, "float64", str(row))


def test_an_error_counts_by_its_share_of_the_largest_number():
    """Adam's m and v are tiny, and a wrong one is as wrong as a large one."""
    for size in (1e-30, 1.0, 1e6):
        right = size * np.array([1.0, -2.0])
        close([right * (1 + 1e-12)], [right], "float64")
        with pytest.raises(AssertionError, match="off by"):
            close([right * (1 + 1e-6)], [right], "float64")


@pytest.mark.parametrize("folder", LIBRARY)
def test_the_tables_reach_every_form(folder):
    of_rows = {row.function for row in ROWS if folder not in row.declined}
    of_cases = {op for case in CASES for op in case.ops if folder in case.folders}
    missing = forms._forms[folder].keys() - of_rows - of_cases
    assert not missing, f"no row of form_cases reaches {sorted(op.__name__ for op in missing)}"


def test_every_size_at_which_a_form_takes_another_branch_is_lowered():
    lowered = {
        (f"minitf.{module}", name)
        for tiles in form_cases.TILES.values()
        for module in tiles
        for name in tiles[module]
    }
    for module in {form.__module__ for form in forms._forms["cpu"].values()} | HELPERS["cpu"]:
        sizes = [
            name
            for name, value in vars(sys.modules[module]).items()
            if name.isupper() and isinstance(value, int)
        ]
        assert not {(module, name) for name in sizes} - lowered


@pytest.mark.slow
@pytest.mark.parametrize("folder", LIBRARY)
def test_the_tables_run_every_line_of_the_forms(folder, monkeypatch):
    """So no tile, no shortcut and no border of a form is left unchecked by the tests above."""
    # A GPU has one form of the other folder, which the tests of the CPU run.
    own = {form.__module__ for form in forms._forms[folder].values()}
    names = {name for name in own if name.startswith(f"minitf.{folder}.")} | HELPERS[folder]
    modules = {sys.modules[name].__file__: sys.modules[name] for name in names}
    missing = {(file, line) for file, module in modules.items() for line in lines_of(module)}

    def in_function(frame, event, _):
        missing.discard((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def trace(frame, event, _):
        return in_function(frame, event, _) if frame.f_code.co_filename in modules else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for sizes in form_cases.TILES if folder == "cpu" else ["small tiles"]:
            with monkeypatch.context() as patch:
                form_cases.lower(patch, sizes)
                run_tables(folder, patch)
    finally:
        sys.settrace(before)
    assert not missing, " ".join(
        sorted(f"{file.rpartition('minitf/')[2]}:{line}" for file, line in missing)
    )


ELSEWHERE = {
    "slice_bounds",  # serves the replicas, and no form
    "_arrived",  # is called once in a process
    # tests/cpu/test_attention_tiles.py, test_decoder.py and test_threads.py hold these.
    *("_has_fast_exp2", "_pack"),
    *("each", "kernels", "without_signals", "one_blas_thread", "spare", "spare_lent", "_pool_of"),
}
HELPERS = {
    "cpu": {f"minitf.cpu.{name}" for name in ("decoder", "layers", "packed", "sums", "threads")},
    "gpu": {f"minitf.gpu.{name}" for name in ("dropout", "fused")},
}


def untraced(function):
    """Return a function without a trace of its calls: the simulator's would take minutes."""

    def run(*arguments):
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            function(*arguments)
        finally:
            sys.settrace(trace)

    return run


def run_tables(folder, monkeypatch):
    """Run every case with the forms of a folder, and every row without running the kernels."""
    monkeypatch.setattr(blocks, "launch", untraced(blocks.launch))
    with using(LIBRARY[folder]), np.errstate(all="ignore"):
        for case in CASES:
            if folder in case.folders:
                case.compute("float32")
        monkeypatch.setattr(blocks, "launch", lambda *_: None)
        for row in form_cases.refused():
            with pytest.raises((TypeError, ValueError, IndexError)):
                call(row, "float32")
        for row in ROWS:
            outcome(row, "float32")
            outcome(row, "float32", recording=False)
            # Which the forms of a GPU leave to the equations.
            outcome(row, "float64", recording=False)


def lines_of(module):
    """Return the numbers of the lines in the functions of a module."""
    with open(module.__file__, encoding="utf-8") as file:
        code = compile(file.read(), module.__file__, "exec")
    waiting, lines = [code], set()
    while waiting:
        block = waiting.pop()
        waiting += [
            constant
            for constant in block.co_consts
            if isinstance(constant, types.CodeType)
            # A comprehension of the module ran when it was imported.
            and not (block is code and constant.co_name.endswith("comp>"))
        ]
        # Of a function, not of the module or a class.
        if block.co_flags & 3 == 3 and block.co_name not in ELSEWHERE:
            lines |= {
                line for _, _, line in block.co_lines() if line and line > block.co_firstlineno
            }
    return lines
