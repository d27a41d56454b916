"""Every form is held to its equation: the same values and the same gradients, with tiles of any size."""

import form_cases
import numpy as np
import pytest
import strict
from form_cases import call, close, outcome, strided

from minitf import forms
from minitf.backend import using

pytestmark = pytest.mark.skipif(not forms._switch["on"], reason="MINITF_FORMS=off: there is nothing to compare")
ROWS, CASES = form_cases.rows(), form_cases.cases()
LIBRARY = {"cpu": "numpy", "gpu": strict.with_kernels}
each_row = pytest.mark.parametrize("row", ROWS, ids=str)
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(params=form_cases.TILES)
def tiles(request, monkeypatch):
    """Lower the sizes at which forms take another branch."""
    form_cases.lower(monkeypatch, request.param)


def equation(compute, *arguments):
    """Return what the equations compute on NumPy."""
    with using("numpy"), forms.off():
        return compute(*arguments)


def hold(row, room, dtype):
    """Hold the form of a room to its equation."""
    expected = equation(outcome, row, dtype)
    with using(LIBRARY[room]), form_cases.watched(room) as taken:
        for layout in (np.ascontiguousarray, strided):
            close(outcome(row, dtype, layout), expected, dtype, f"{row}, {layout.__name__}")
        results = outcome(row, dtype, recording=False)
        close(results, expected[: len(results)], dtype, f"{row}, not recorded")
    has_form = row.function in forms._forms[room]
    assert (row.function in taken) == (has_form and room not in row.declined), f"{row}: who computes it?"


def hold_apart(row, dtype):
    """Hold two calls of a form that are under way at a time to two calls one after the other."""
    expected = equation(outcome, row, dtype)
    one, walk_one = call(row, dtype)
    _, walk_other = call(row, dtype, change=lambda x: 0.5 - x[::-1])
    walk_other()
    close(one + walk_one(), expected, dtype, f"{row}, with another call before its backward")


def hold_case(case, room, dtype):
    """Hold a program that uses forms to the same one by equations."""
    expected = equation(case.compute, dtype)
    with using(LIBRARY[room]), form_cases.watched(room) as taken:
        close(case.compute(dtype), expected, dtype, str(case))
    assert taken >= set(case.ops), f"{case}: who computes it?"


@each_row
@each_dtype
def test_a_form_on_the_cpu(row, dtype, tiles):
    hold(row, "cpu", dtype)


@each_row
def test_a_form_shares_nothing_between_two_calls(row):
    hold_apart(row, "float64")


@pytest.mark.parametrize("case", [case for case in CASES if "cpu" in case.rooms], ids=str)
@each_dtype
def test_without_gradients_on_the_cpu(case, dtype, tiles):
    hold_case(case, "cpu", dtype)


@each_row
def test_a_form_on_the_gpu(row):
    """Thread by thread, on the simulator."""
    hold(row, "gpu", "float32")


@pytest.mark.parametrize("case", [case for case in CASES if "gpu" in case.rooms], ids=str)
def test_without_gradients_on_the_gpu(case):
    hold_case(case, "gpu", "float32")


@each_row
def test_an_equation_on_the_stand_in_for_gpu_arrays(row):
    expected = equation(outcome, row, "float64")
    with using(strict.module):
        close(outcome(row, "float64"), expected, "float64", str(row))
