"""Which folder has the forms of a library, and errors that name their file."""

import sys
import types

import numpy as np
import pytest
import strict
from paths import ROOT

from minitf.backend import copy_into, is_finite, on_gpu, use, using, xp
from minitf.errors import UserError, in_file


@pytest.mark.parametrize(
    ("library", "folder"),
    [
        ("numpy", "cpu"),
        (np, "cpu"),
        (strict.with_kernels, "gpu"),
        (strict.module, None),
        (types.ModuleType("x"), None),
    ],
)
def test_the_folder_of_the_forms_of_a_library(library, folder):
    with using(library):
        assert xp._folder == folder
    assert xp._folder == "cpu"


def test_the_environment_chooses_when_the_library_is_first_used(monkeypatch):
    with using("numpy"):
        xp.__dict__.clear()  # as after the import
        monkeypatch.setenv("MINITF_BACKEND", "abacus")
        for first_use in (on_gpu, lambda: xp.exp(0), lambda: use(None)):
            with pytest.raises(UserError, match=r"^MINITF_BACKEND: unknown backend 'abacus': "):
                first_use()
        use("numpy")
        use(None)  # one was chosen already
        assert xp.exp(0) == 1 and not on_gpu()


def test_without_cupy_the_advice_is_that_of_the_manual(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UserError) as error:
        use("cupy")
    advice = 'pip install -e ".[cuda13]"'
    manual = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert advice in str(error.value) and advice in manual


def test_a_cupy_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cupy.py").write_text('raise ImportError("libnvrtc.so.13:\\nno such file")')
    with pytest.raises(UserError, match=r"cannot be imported \(libnvrtc.so.13: no such file\)"):
        use("cupy")


def test_an_old_cupy_is_named(monkeypatch):
    old = types.SimpleNamespace(__version__="13.6.0")
    monkeypatch.setitem(sys.modules, "cupy", old)
    with pytest.raises(UserError, match=r"^CuPy 13\.6\.0 is too old: .*brings 14$"):
        use("cupy")


def test_an_error_names_its_file_and_others_pass():
    with pytest.raises(UserError, match=r"^words\.txt: one line$"), in_file("words.txt"):
        raise UserError("one line")
    with pytest.raises(ValueError, match=r"^another$"), in_file("words.txt"):
        raise ValueError("another")


def test_every_number_of_float16_is_loaded_as_numpy_converts_it():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.where(np.isfinite(halves), halves, 0)
    for numbers in (halves, finite, finite.T):
        loaded = np.empty((256, 256), np.float32)
        copy_into(loaded, numbers)
        assert np.array_equal(loaded.view(np.uint32), numbers.astype(np.float32).view(np.uint32))
    for numbers in (*halves.ravel()[::7], halves, finite):
        assert is_finite(np.array(numbers)) == np.isfinite(numbers).all()
