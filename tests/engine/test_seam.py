"""The seam between equations and forms: who computes, and for how long."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import strict
from seam import forms_on

from minitf import forms
from minitf.backend import using
from minitf.gpu.launch import has_kernels


@forms.accelerated
def double(x):
    """Return 2 x, as an equation."""
    return "equation", 2 * x


@pytest.fixture
def form(monkeypatch):
    """Give `double` a form on the CPU, which takes no odd numbers."""
    seen = []

    def fast(x):
        seen.append(x)
        return NotImplemented if x % 2 else ("form", x + x)

    monkeypatch.setitem(forms._forms["cpu"], double, fast)
    with forms_on():
        yield seen


def test_a_form_computes_what_it_takes_and_the_equation_the_rest(form):
    assert double(4) == ("form", 8) and double(3) == ("equation", 6)
    assert form == [4, 3]


def test_another_library_has_its_own_forms(form):
    for library in (strict.module, strict.with_kernels):
        with using(library):
            assert double(4) == ("equation", 8)
    assert not form


def test_off_and_on_hold_inside_their_blocks_also_after_an_error(form):
    with pytest.raises(ZeroDivisionError), forms.off():
        assert double(4)[0] == "equation"
        with forms_on():
            assert double(4)[0] == "form"
        assert double(4)[0] == "equation"
        raise ZeroDivisionError
    assert double(4)[0] == "form"


def test_threads_may_leave_their_blocks_in_any_order(form):
    first, second = forms.off(), forms.off()
    first.__enter__()
    other = threading.Thread(target=second.__enter__)
    other.start()
    other.join()
    first.__exit__(None, None, None)
    assert double(4)[0] == "equation", "the other block is still open"
    second.__exit__(None, None, None)
    assert double(4)[0] == "form"


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [("on", 0, ""), ("", 0, ""), ("off", 0, ""), ("no", 2, "choose on or off")],
)
def test_the_environment_variable(value, code, said):
    program = "from minitf import forms; print(forms._switch['on'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env={"MINITF_FORMS": value},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code and said in done.stderr and done.stderr.count("\n") == bool(code)
    assert done.stdout == ("" if code else f"{value != 'off'}\n")


def test_a_block_does_not_overrule_the_environment():
    """A user sets it because a driver fails: then a lesson may not turn the forms on
    for its training.
    """
    program = "from minitf import forms\nwith forms.off(), forms.on(): print(forms.are_on())"
    for value in ("on", "off"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, check=True, env={"MINITF_FORMS": value}, capture_output=True, text=True
        )
        assert done.stdout == f"{value == 'on'}\n"


def test_kernels_are_for_float32_alone():
    single, double = np.zeros(2, np.float32), np.zeros(2)
    with using(strict.with_kernels):
        assert has_kernels() and has_kernels(single, single)
        assert not has_kernels(single, double) and not has_kernels(double, single)
    assert not has_kernels(single)
