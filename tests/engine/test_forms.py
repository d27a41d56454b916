"""Every form has the values and the gradients of its equation, with tiles of any size."""

import contextlib
import importlib
import inspect
import sys

import form_cases
import numpy as np
import pytest
import strict
from form_cases import call, close, outcome, strided

from minitf import Tensor, forms
from minitf.backend import using
from minitf.functions import attention
from minitf.loss import projected_cross_entropy
from minitf.transformer import causal_mask

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
    assert taken >= set(case.ops) & forms._forms[folder].keys(), f"{case}: who computes it?"


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


@pytest.mark.parametrize("folder", ["cpu", "gpu"])
def test_a_form_takes_its_arguments_by_the_names_of_its_equation(folder):
    importlib.import_module(f"minitf.{folder}")
    for op, form in forms._forms[folder].items():
        names, expected = (list(inspect.signature(f).parameters) for f in (form, op))
        assert names == expected, op.__name__


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


@pytest.mark.parametrize("length", [24, 600])  # with weights that are kept, and computed again
@pytest.mark.parametrize("largest", [1, 4])
@pytest.mark.parametrize("hidden", ["later positions", "padding", "another sentence"])
def test_what_a_query_may_not_see_changes_no_bit_of_its_result(length, largest, hidden, rng):
    """With scores that are small, or as of a trained model; what is hidden gets far larger ones."""
    middle, positions = length // 2, np.arange(length)
    mask, seen = {
        "later positions": (causal_mask(length), np.s_[:, :, :middle]),
        "padding": ((positions < middle)[None, None, None], np.s_[:, :, :middle]),
        "another sentence": (None, np.s_[:1]),
    }[hidden]
    scale = np.linspace(0.5, largest, length)[:, None]
    arrays = [(scale * rng.normal(size=(2, 2, length, 8))).astype(np.float32) for _ in range(3)]
    others = [30 * array for array in arrays]
    gy = np.zeros_like(arrays[0])
    gy[seen] = rng.normal(size=gy[seen].shape)
    for array, other in zip(arrays, others, strict=True):
        other[seen] = array[seen]
    results = []
    with forms.on():
        for inputs in (arrays, others):
            tensors = [Tensor(array) for array in inputs]
            y = attention(*tensors, mask)
            y.backward(gy)
            results.append([y.data[seen], *(tensor.grad[seen] for tensor in tensors)])
    for name, one, other in zip(("y", "gquery", "gkey", "gvalue"), *results, strict=True):
        assert np.array_equal(one, other), name


def test_impossible_ids_of_a_row_change_no_bit_of_another_gradient(rng):
    x, weight = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 4), (28, 4)))
    x[:, 0], weight[:, 0], weight[3, 0] = 0, 0, 1e38
    gradients = []
    with forms.on(), np.errstate(over="ignore"):
        for first in (0, -100):  # the product with 1e38 is -infinity
            x[0, 0] = first
            rows = Tensor(x)
            projected_cross_entropy(rows, weight, np.arange(4, 9))[0].backward()
            gradients.append(rows.grad[1:])
    assert np.array_equal(*gradients)


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
    names = "common.decoder", "common.layers", "cpu.packed", "cpu.sums", "cpu.threads"
    helpers = {f"minitf.{name}" for name in names}
    for module in {form.__module__ for form in forms._forms["cpu"].values()} | helpers:
        sizes = [
            name
            for name, value in vars(sys.modules[module]).items()
            if name.isupper() and isinstance(value, int)
        ]
        assert not {(module, name) for name in sizes} - lowered
