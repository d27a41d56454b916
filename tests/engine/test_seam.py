"""The seam between equations and forms: who computes, and for how long."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import pytest
import strict
from paths import PACKAGE, ROOT
from seam import forms_on

from minitf import decode, forms, proof
from minitf import functions as F
from minitf.backend import to_device, using
from minitf.config import Config
from minitf.cpu.packed import PackedParameter
from minitf.gpu import fused
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import PRECISIONS, use_precision
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.nn import LayerNorm, Parameter
from minitf.tensor import Tensor, no_grad
from minitf.transformer import Residual, Transformer

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@forms.accelerated
def double(x):
    """Return 2 x, as an equation."""
    return "equation", 2 * x


LOSS = """
from minitf import Config, Transformer
model = Transformer(Config(30, n_layers=1, d_model=16, d_ff=32, n_heads=2))
loss, _ = model.loss([[5, 6, 2]], [[1, 7, 8]], [[7, 8, 2]])
loss.backward()
print(f"{float(loss.numpy()):.4f} {abs(model.embedding.weight.grad).sum():.3f}")
from minitf.decode import beam_search
(best,), = beam_search(model, [[5, 6, 2]], 2, max_extra=4)[:1]
print(best.ids, f"{best.log_probability:.3f}")
"""
EDITS = [  # file, correct text, what somebody writes there, the forms that no longer agree
    ("transformer", "return F.attention(", "return 0.5 * F.attention(", {"multi_head_attention"}),
    slow(
        "transformer", "return norm(x + dropout(added))", "return norm(x - added)", {"add_and_norm"}
    ),
    slow("functions", "math.sqrt(", "0.1 * math.sqrt(", {"attention", "multi_head_attention"}),
    slow(
        "functions",
        "y = xp.maximum(as_array(x), 0)",
        "y = 1 * as_array(x)",
        {"feed_forward_network"},
    ),
    ("functions", "u - mean_u - normal * mean_un)", "u - mean_u)", {"layer_norm"}),
    slow("nn", "self.bias, self.eps)", "self.bias, self.eps) * 2", {"add_and_norm"}),
    slow("nn", "return F.linear(x, ", "return 2 * F.linear(x, ", {"feed_forward_network"}),
    slow("loss", "q[xp.arange(len(ids)), ids] = 1 -", "q[:] = 1 -", {"projected_cross_entropy"}),
]


@pytest.mark.parametrize(("file", "right", "edit", "dropped"), EDITS)
def test_an_edited_equation_is_computed(file, right, edit, dropped, before, tmp_path):
    """In training and in decoding, and a line names each form that no longer agrees."""
    shutil.copytree(PACKAGE, tmp_path / "minitf", ignore=shutil.ignore_patterns("__pycache__"))

    path = tmp_path / "minitf" / f"{file}.py"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, edit), encoding="utf-8")
    found, said = run(tmp_path, "")
    assert found == run(tmp_path, "off")[0] != before
    assert {line.split()[1] for line in said} >= dropped
    assert all("is computed by its equation, not by its faster form" in line for line in said)
    assert len(set(said)) == len(said), "each is said once"


@pytest.fixture(scope="module")
def before():
    return run(ROOT, "off")[0]


def run(folder, setting):
    """Return what LOSS prints with the package in a folder, and its messages."""
    done = subprocess.run(
        [sys.executable, "-c", LOSS],
        check=True,
        cwd=folder,
        env=os.environ | {"MINITF_FORMS": setting, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr.splitlines()


def test_an_edit_that_the_logits_hardly_show_is_decoded_too(monkeypatch):
    """Another eps moves a logit less than rounding may, so comparing logits does not tell."""
    model = Transformer(Config(30, n_layers=1, d_model=16, d_ff=32, n_heads=2)).eval()
    layer_norm = F.layer_norm
    with forms_on(), using("numpy"):
        assert decode.how_to_decode(model) == "fused"
        other = functools.wraps(layer_norm)(lambda *x, eps=3e-6: layer_norm(*x[:3], eps))
        monkeypatch.setattr(F, "layer_norm", other)
        assert decode.how_to_decode(model) == "cached"
        monkeypatch.undo()
        assert decode.how_to_decode(model) == "fused"


def test_equations_and_forms_of_the_cpu_agree():
    with forms_on(), using("numpy"):
        assert forms.check() == []


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "library",
    [slow(strict.with_kernels, id="kernels"), pytest.param("cupy", marks=pytest.mark.gpu)],
)
def test_equations_and_forms_of_a_gpu_agree(library, precision):
    """Also where products round their operands: in no precision is a form dropped for that."""
    with forms_on(), using(library):
        use_precision(precision)
        try:
            assert forms.check() == []
        finally:
            use_precision("float32")
            forms.forget()


def test_a_form_without_an_example_stays_off(form, monkeypatch, nothing_said, capsys):
    """Nothing shows that it computes its equation."""
    monkeypatch.delitem(proof.EXAMPLES, double)
    forms.forget()
    assert double(4)[0] == "equation"
    assert "it has no example in minitf/proof.py" in capsys.readouterr().err


@pytest.fixture
def nothing_said():
    """Forget afterwards which forms were dropped, and let them prove themselves again."""
    yield
    for dropped in forms._dropped.values():
        dropped.clear()
    forms.forget()


def only(monkeypatch, op):
    """Leave the GPU one form: to prove all on the simulator takes seconds."""
    monkeypatch.setitem(forms._forms, "gpu", {op: forms._forms["gpu"][op]})


def test_a_broken_kernel_disables_itself(monkeypatch, capsys, nothing_said):
    """As by a driver that computes wrong: the equation computes, and one line names the form."""

    def broken(x, gain, bias, eps):
        y, backward = own(x, gain, bias, eps)
        return y * 1.01, backward

    own, arrays = fused.layer_norm, [np.ones((2, 3)), np.ones(3), np.ones(3)]
    only(monkeypatch, F.layer_norm)
    with using(strict.with_kernels), forms_on():
        arrays = [Tensor(to_device(array.astype(np.float32) * 3)) for array in arrays]
        expected = F.layer_norm(*arrays).numpy()
        monkeypatch.setattr(fused, "layer_norm", broken)
        assert forms.check() == ["layer_norm"]
        assert np.array_equal(F.layer_norm(*arrays).numpy(), expected)
        said = capsys.readouterr().err
        assert said.startswith("minitf: layer_norm is computed by its equation")
        assert "minitf/gpu: its result differs by" in said and said.count("\n") == 1
        assert forms.check() == ["layer_norm"] and not capsys.readouterr().err, "it is said once"


def test_a_kernel_that_raises_an_error_disables_itself(monkeypatch, capsys, nothing_said):
    def broken(*arguments):
        raise RuntimeError("an illegal\nmemory access")

    only(monkeypatch, F.dropout)
    monkeypatch.setattr(fused, "dropout", broken)
    with using(strict.with_kernels), forms_on():
        assert forms.check() == ["dropout"]
    assert "RuntimeError: an illegal memory access" in capsys.readouterr().err


def test_forms_prove_themselves_again_when_something_is_replaced(monkeypatch, capsys, nothing_said):
    """A function of minitf.functions, or a method of a class; and once more when it is put back."""
    x, norm = Tensor(np.arange(12.0).reshape(1, 3, 4)), LayerNorm(4).astype(float)
    residual = Residual(Config(9, d_model=4, n_heads=1)).astype(float).eval()
    residual.norm = norm
    own = LayerNorm.__call__
    with forms_on():
        expected = residual(x, lambda y: y).numpy()
        monkeypatch.setattr(LayerNorm, "__call__", lambda self, x: own(self, x) * 2.0)
        assert np.allclose(residual(x, lambda y: y).numpy(), 2 * expected)
        monkeypatch.undo()
        assert np.allclose(residual(x, lambda y: y).numpy(), expected)
        monkeypatch.setattr(F, "layer_norm", lambda *arguments: own_function(*arguments) * 3.0)
        assert np.allclose(residual(x, lambda y: y).numpy(), 3 * expected)
    assert "add_and_norm is computed by its equation" in capsys.readouterr().err


def test_what_is_deleted_is_noticed():
    """As a method that hid an inherited one for a while: forms that were dropped are used again."""
    for owner, name in ((LayerNorm, "parameters"), (F, "of_ours")):
        before = forms.changes()
        with mock.patch.object(owner, name, lambda *_: None, create=True):
            assert before < forms.changes()
            before = forms.changes()
        assert before < forms.changes()


own_function = F.layer_norm


@pytest.fixture
def form(monkeypatch):
    """Give `double` a form on the CPU, which takes no odd numbers."""
    seen = []

    def fast(x):
        seen.append(x)
        return NotImplemented if x % 2 else ("form", x + x)

    monkeypatch.setitem(forms._forms["cpu"], double, fast)
    monkeypatch.setitem(proof.EXAMPLES, double, [])  # it is meant to differ
    with forms_on():
        yield seen
    forms.forget()


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
    command, off = [sys.executable, "-c", program], {"MINITF_FORMS": "off"}
    done = subprocess.run(command, check=True, env=off, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_form_is_left_out_by_its_name(form):
    with forms.without("double"):
        assert double(4)[0] == "equation"
        with forms.without("double", "layer_norm"):
            assert double(4)[0] == "equation"
        assert double(4)[0] == "equation", "the outer block is still open"
    assert double(4)[0] == "form"


def test_a_form_stays_left_out_until_the_last_block_ends(form):
    """As when two threads enter their blocks, and the first leaves before the second."""
    first, second = forms.without("double"), forms.without("double")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert double(4)[0] == "equation"
    second.__exit__(None, None, None)
    assert double(4)[0] == "form"


@pytest.mark.parametrize("name", ["layer_nrom", "dropout"])
def test_a_name_that_no_form_of_the_library_has_is_refused(name):
    """A misspelt one, or that of a form for a GPU: else the block would leave out nothing."""
    told = f"no form of minitf.cpu is named {name}: choose "
    with pytest.raises(ValueError, match=told), forms.without("layer_norm", name):
        pass
    assert not forms._left_out


def test_a_function_that_is_replaced_at_once_is_noticed():
    """Before any form was loaded: forms and examples are found by the functions themselves."""
    program = """
from minitf import forms
from minitf import functions as F
F.layer_norm = lambda x, gain, bias, eps=1e-6: x
print(forms.check())
"""
    command, on = [sys.executable, "-c", program], os.environ | {"MINITF_FORMS": "on"}
    done = subprocess.run(command, check=True, env=on, capture_output=True, text=True)
    assert (
        done.stdout == "['add_and_norm']\n"
        and "add_and_norm is computed by its equation" in done.stderr
    )


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
        ("numpy", "fused_decoder,layer_norm", "minitf.decode"),
        slow("gpu", "fused_decoder", "minitf.decode"),
        slow("gpu", "layer_norm", "minitf.gpu.decoder_steps"),
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
        assert done.stderr.count("\n") == 1 and "multi_head_attention" in done.stderr


@pytest.mark.parametrize("folder", ["cpu", "gpu"])
def test_each_form_has_a_name_of_its_own(folder):
    found = forms.names(folder)
    assert len(set(found)) == len(found)


def test_kernels_are_for_float32_alone():
    single, double = np.zeros(2, np.float32), np.zeros(2)
    with using(strict.with_kernels):
        assert has_kernels() and has_kernels(single, single)
        assert not has_kernels(single, double) and not has_kernels(double, single)
    assert not has_kernels(single)


def test_a_form_belongs_to_a_folder():
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


def test_a_form_with_another_default_or_almost_the_same_result_disagrees():
    """Also where the example gives the argument."""
    forms._load("cpu")
    form = forms._forms["cpu"][F.layer_norm]

    def other(x, gain, bias, eps=1e-5):
        return form(x, gain, bias, eps)

    def almost(x, gain, bias, eps=1e-6):
        return form(x, gain, bias, eps) * (1 + 1e-6)

    assert proof.disagreement(F.layer_norm, form) is None
    assert "defaults" in proof.disagreement(F.layer_norm, other)
    assert "differs by" in proof.disagreement(F.layer_norm, almost)
