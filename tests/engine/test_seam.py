"""The seam between equations and forms: who computes, and for how long."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import strict
from paths import ROOT
from seam import forms_on

from minitf import forms
from minitf import functions as F
from minitf.backend import to_device, using
from minitf.cpu.strips import PackedParameter
from minitf.gpu.launch import has_kernels
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.nn import Parameter
from minitf.tensor import Tensor, no_grad


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
    program = "from minitf import forms; print(forms.are_on())"
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
    """A user sets it because a driver fails: then no lesson may turn the forms on."""
    program = "from minitf import forms\nwith forms.off(), forms.on(): print(forms.are_on())"
    for value in ("on", "off"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, check=True, env={"MINITF_FORMS": value}, capture_output=True, text=True
        )
        assert done.stdout == f"{value == 'on'}\n"


def test_a_form_is_left_out_by_its_name(form):
    with forms.without("double"):
        assert double(4)[0] == "equation"
        with forms.without("double", "decoder"):
            assert forms.is_left_out("decoder")
        assert double(4)[0] == "equation", "the outer block is still open"
    assert double(4)[0] == "form" and not forms.is_left_out("decoder")


PROGRAM = """
import sys; sys.path[:0] = ["tests/support"]
import strict
from models import small_model, sources
from minitf import backend, decode, forms
backend.use({"numpy": "numpy", "gpu": strict.with_kernels}[sys.argv[1]])
model = small_model("float32", d_k=4, d_v=4)
print(type(decode.token_scorer(model, sources(2, 3), 1, cached=True)).__module__)
"""


@pytest.mark.parametrize(
    ("library", "left_out", "found"),
    [
        ("numpy", "decoder,layer_norm", "minitf.cpu.decode"),
        ("gpu", "decoder", "minitf.cpu.decode"),
        ("gpu", "token_scorer", "minitf.decode"),
        ("gpu", "layer_norm", "minitf.gpu.decoder"),
        ("gpu", "layer_norm,attentoin", "MINITF_FORMS_WITHOUT names no form of minitf.gpu: atte"),
    ],
)
def test_a_process_leaves_out_the_forms_that_its_environment_names(library, left_out, found):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library],
        check=False,
        cwd=ROOT,
        env=os.environ | {"MINITF_FORMS": "on", "MINITF_FORMS_WITHOUT": left_out},
        capture_output=True,
        text=True,
    )
    if found.startswith("minitf"):
        assert done.stdout.strip() == found, done.stderr
    else:
        assert done.returncode == 2 and done.stderr.startswith(found)
        assert done.stderr.count("\n") == 1 and "MultiHeadAttention" in done.stderr


@pytest.mark.parametrize("room", ["cpu", "gpu"])
def test_each_form_has_a_name_of_its_own(room):
    found = forms.names(room)
    assert len(set(found)) == len(found)


def test_kernels_are_for_float32_alone():
    single, double = np.zeros(2, np.float32), np.zeros(2)
    with using(strict.with_kernels):
        assert has_kernels() and has_kernels(single, single)
        assert not has_kernels(single, double) and not has_kernels(double, single)
    assert not has_kernels(single)


def test_a_form_belongs_to_a_room():
    with pytest.raises(ValueError, match="minitf/cpu or minitf/gpu"):
        forms.form_of(double)(lambda x: x)


def test_options_may_be_scalars_of_numpy():
    logits, target = Tensor(np.ones((3, 5), np.float32)), [1, 2, 3]
    x, ones = Tensor(np.eye(3, dtype=np.float32)), np.ones(3)
    for state in (forms_on, forms.off):
        with state():
            smoothed = label_smoothed_cross_entropy(logits, target, np.float64(0.1))
            assert smoothed.dtype == np.float32
            assert F.layer_norm(x, ones, ones, np.float64(1e-6)).dtype == np.float32
            both = projected_cross_entropy(x, np.eye(3), [0, 1, 2], np.float64(0.1))
            assert {y.dtype for y in both} == {np.dtype(np.float32)}


def test_a_packed_matrix_refuses_what_a_matrix_refuses():
    packed = PackedParameter(Parameter(np.ones((3, 2), np.float32))).cut()
    for wrong in (np.ones((1, 4), np.float32), np.ones((1, 3))):
        for weight in (packed, Parameter(np.ones((3, 2), np.float32))):
            with no_grad(), pytest.raises((TypeError, ValueError), match=r"linear"):
                F.linear(Tensor(wrong), weight)


def test_dropout_takes_any_shape_on_kernels():
    with using(strict.with_kernels):
        for shape in ((), (3, 0), (0, 3)):
            assert F.dropout(to_device(np.ones(shape, np.float32)), 0.5, seed=1).shape == shape
