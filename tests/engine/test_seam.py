"""The seam between equations and forms: who computes, for how long, and what is compared."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import strict
from models import random_batch, small_config
from paths import PACKAGE, ROOT

from minitf import forms
from minitf import functions as F
from minitf.backend import using
from minitf.errors import UserError
from minitf.gpu.launch import has_kernels
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.optim import Adam
from minitf.tensor import Tensor
from minitf.training.update import Updater
from minitf.transformer import Transformer
from minitf.translation.loading import verified_decoding

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@forms.accelerated
def double(x):
    """Return 2 x, as an equation."""
    return "equation", 2 * x


@pytest.fixture
def form(monkeypatch):
    """Give `double` a form for positive numbers, on the CPU."""
    forms.all_forms()
    monkeypatch.setitem(forms._forms, "cpu", {})

    @forms.form_of(double, "cpu")
    def fast(x):
        return ("form", 2 * x) if x > 0 else NotImplemented

    return fast


# Who computes -------------------------------------------------------------------------------------


def test_forms_compute_in_a_block_alone(form):
    assert double(4) == ("equation", 8)
    with forms.on():
        assert double(4) == ("form", 8) and double(-4) == ("equation", -8)
        with forms.off():
            assert double(4)[0] == "equation"
        with forms.on([F.linear]):
            assert double(4)[0] == "equation"
        with forms.on([double]):
            assert double(4)[0] == "form"
    assert double(4)[0] == "equation"


def test_a_block_is_one_threads_alone(form):
    """So Translators that are made in two threads do not spoil each other's comparison."""
    with ThreadPoolExecutor(1) as pool:
        with forms.on():
            assert pool.submit(double, 4).result()[0] == "equation"
            assert pool.submit(forms.in_threads(double), 4).result()[0] == "form"
        both_open = threading.Barrier(2)

        def computed(block):
            with block:
                both_open.wait(10)
                return double(4)[0]

        other = pool.submit(computed, forms.off())
        assert (computed(forms.on()), other.result()) == ("form", "equation")


def test_a_block_has_the_forms_of_the_library_in_use_when_it_opens(form):
    with forms.on(), using(strict.module):
        assert double(4)[0] == "form"


def test_another_library_has_its_own_forms(form):
    with using(strict.with_kernels), forms.on():
        assert double(4)[0] == "equation"
    with using(strict.module), forms.on():  # which has no folder
        assert double(4)[0] == "equation"


def test_an_environment_keeps_forms_off(form, monkeypatch):
    monkeypatch.setenv("MINITF_FORMS", "off")
    with forms.on():
        assert double(4)[0] == "equation"
    assert forms.verified(lambda: 1 / 0) == []


def test_a_wrong_setting_is_an_error_when_forms_are_asked_for():
    """And not when minitf is imported, as in a notebook."""
    program = """
import minitf
from minitf import forms
try:
    forms.on().__enter__()
except minitf.UserError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"MINITF_FORMS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "MINITF_FORMS is '1': choose on or off\n"


# What is compared ---------------------------------------------------------------------------------

COMPARE = """
from minitf import Config, Transformer
from minitf.optim import Adam
from minitf.training.update import Updater
from minitf.translation.loading import verified_decoding
model = Transformer(Config(30, n_layers=2, d_model=16, d_ff=32, n_heads=2))
Updater(model, Adam(model.named_parameters())).verified_forms()
verified_decoding(model)
"""
EDITS = [  # file, correct text, what somebody writes there, the forms that no longer agree
    (
        *("transformer", "return F.attention(", "return 0.5 * F.attention("),
        {"fast_decoding"},
    ),
    slow(
        *("transformer", "return norm(x + dropout(added))", "return norm(x - added)"),
        {"fast_decoding"},
    ),
    slow(
        *("functions", "* scale, mask)  # (..., T, S)", "* 2 * scale, mask)"),
        {"attention", "fast_decoding"},
    ),
    slow(
        *("functions", "y = xp.maximum(as_array(x), 0)", "y = 1 * as_array(x)"),
        {"fast_decoding"},
    ),
    ("functions", "u - mean_u - normal * mean_un)", "u - mean_u)", {"layer_norm"}),
    slow("loss", "q[xp.arange(len(ids)), ids] = 1 -", "q[:] = 1 -", {"projected_cross_entropy"}),
    slow("optim", "(1 - beta_2) * g**2", "(1 - beta_2) * g**2 * 3", {"adam_update"}),
    slow("decode", "np.argsort(-sums", "np.argsort(sums", {"continuations"}),
]


@pytest.mark.parametrize(("file", "right", "edit", "named"), EDITS)
def test_an_edited_equation_is_named(file, right, edit, named, tmp_path):
    """By the trainer and the Translator, each form once."""
    shutil.copytree(PACKAGE, tmp_path / "minitf", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "minitf" / f"{file}.py"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, edit), encoding="utf-8")
    said = compared_in(tmp_path)
    assert all("computes other numbers" in x and "minitf: " in x for x in said)
    names = [line.split()[1] for line in said]
    assert set(names) >= named and len(set(names)) == len(names)


def test_of_an_unchanged_library_nothing_is_said():
    assert not compared_in(ROOT)


def compared_in(folder):
    """Return what is said when a package in a folder begins to train and to translate."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE],
        check=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    return done.stderr.splitlines()


SWITCHES = [
    {},
    {"norm": "pre", "attention_dropout": 0.1, "feed_forward_dropout": 0.1},
    {"positions": "learned", "max_length": 9, "tie": False},
    {"attention_bias": True, "output_bias": True, "activation": "swish"},
    {"decoder": "ssru"},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_all_forms_agree(switches, rng, capsys):
    """The comparison changes neither the weights nor what is trained afterwards."""
    model, batch = Transformer(small_config(**switches)), random_batch(rng)
    adam = Adam(model.named_parameters())
    updater, before = Updater(model, adam, seed=3), adam.data.copy()
    assert updater.verified_forms() == verified_decoding(model)[0] == list(forms.all_forms())
    assert not adam.gradients.any() or all(p.grad is None for p in model.parameters())
    assert np.array_equal(adam.data, before) and adam.step_count == 0 and model.training
    assert not capsys.readouterr().err
    adam.zero_grad()
    with forms.on():
        updater.backward(batch, batch.n_tokens, 1)
    assert np.isfinite(adam.gather_gradients()).all()


def test_a_kernel_that_fails_or_computes_wrong_is_left_out(monkeypatch, capsys):
    """As after a change of the driver. With the others, the model is still computed fast."""
    forms.all_forms()
    good = dict(forms._forms["cpu"])
    forms.say_once.cache_clear()

    def failing(*_):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setitem(forms._forms["cpu"], F.embedding, failing)
    monkeypatch.setitem(
        forms._forms["cpu"], F.linear, lambda x, *more: good[F.linear](x, *more) * 1.01
    )
    left, _ = verified_decoding(Transformer(small_config()))
    assert set(good) - set(left) == {F.embedding, F.linear}
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert sorted(said) == ["embedding", "linear"]


@pytest.mark.filterwarnings("ignore")
def test_a_model_whose_numbers_are_not_finite_has_nothing_to_compare():
    """The Translator refuses it; the trainer's own check says what is wrong."""
    model = Transformer(small_config()).astype("float32")
    model.embedding.weight.data[...] = np.nan
    with pytest.raises(UserError, match="outputs NaN"):
        verified_decoding(model)
    assert Updater(model, Adam(model.named_parameters())).verified_forms()


# What forms take ----------------------------------------------------------------------------------


def test_kernels_are_for_float32_alone():
    single, double = np.zeros(2, np.float32), np.zeros(2)
    with using(strict.with_kernels):
        assert has_kernels() and has_kernels(single, single)
        assert not has_kernels(single, double) and not has_kernels(double, single)
    assert not has_kernels(single)


def test_options_may_be_scalars_of_numpy():
    logits, target = Tensor(np.ones((3, 5), np.float32)), [1, 2, 3]
    x, ones = Tensor(np.eye(3, dtype=np.float32)), np.ones(3)
    for state in (forms.on, forms.off):
        with state():
            smoothed = label_smoothed_cross_entropy(logits, target, np.float64(0.1))
            assert smoothed.dtype == np.float32
            assert F.layer_norm(x, ones, ones, np.float64(1e-6)).dtype == np.float32
            both = projected_cross_entropy(x, np.eye(3), [0, 1, 2], np.float64(0.1))
            assert {y.dtype for y in both} == {np.dtype(np.float32)}
