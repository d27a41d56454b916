"""Translation of many lines on a GPU."""

import pytest
import strict
from tiny_translator import LONGEST, TEXT, make_subwords, save

from minitf.backend import using
from minitf.translation import Translator


@pytest.mark.parametrize("device", ["strict", pytest.param("cupy", marks=pytest.mark.gpu)])
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
    with using(strict.module if device == "strict" else device):
        there = Translator.load(folder).translate(lines, beam=beam, max_extra=5)
    assert sizes == [sum(sizes)], "not cut for the cores of a CPU"
    assert [best[0].text for best in there] == [best[0].text for best in here]
    for mine, other in zip(there, here, strict=True):
        assert mine[0].score == pytest.approx(other[0].score, rel=1e-4)
