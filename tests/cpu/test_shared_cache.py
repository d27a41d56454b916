"""The forms of decoding: with caches that beams share, the texts are those of the equations."""

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import each_switch, random_batch, small_model
from seam import forms_on

from minitf import decode, forms
from minitf.backend import to_numpy, xp
from minitf.cpu import decode as cpu_decode
from minitf.cpu.decoder import FusedDecoder
from minitf.decode import beam_search, greedy
from minitf.tensor import no_grad


@each_switch("paper", "all")
def test_forms_find_the_texts_of_the_equations(rng, changes, rel=1e-5):
    model, source = likely_end(small_model("float32", **changes)), random_batch(rng, rows=6).source
    with forms_on():
        texts, beams = greedy(model, source, 6), beam_search(model, source, 4, 0.6, 6, n_best=3)
    with forms.off():
        expected_texts, expected_beams = (
            greedy(model, source, 6),
            beam_search(model, source, 4, 0.6, 6, n_best=3),
        )
    assert_same([[best] for best in texts], [[best] for best in expected_texts], rel)
    assert_same(beams, expected_beams, rel)


@pytest.mark.parametrize("dtype, rel", [("float64", 1e-12), ("float32", 1e-6)])
def test_logsumexp(library, rng, dtype, rel):
    """Of large and of small scores, and beside words that are impossible."""
    logits = np.concatenate([rng.normal(size=(5, 300)), rng.normal(900, 50, (2, 300))]).astype(
        dtype
    )
    logits[3, 7:] = -np.inf
    largest = logits.max(axis=1)
    expected = np.log(np.exp(logits.astype("float64") - largest[:, None]).sum(axis=1)) + largest
    for which in (forms_on, forms.off):
        with which():
            given = xp.asarray(logits)
            found = decode.logsumexp(given)
        assert found.dtype == np.float64 and np.array_equal(to_numpy(given), logits)
        np.testing.assert_allclose(found, expected, rtol=rel)


LIBRARIES = "numpy", "strict", pytest.param("kernels", marks=pytest.mark.slow)


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_a_form_takes_what_can_be_cached(library, rng):
    """The stand-in without kernels has no forms, and kernels take values as wide as keys."""
    model, source = small_model("float32"), random_batch(rng).source
    with forms_on(), no_grad():
        scorer = {
            "numpy": FusedDecoder,
            "kernels": decode.TokenScorer,
            "strict": decode.TokenScorer,
        }
        assert type(decode.token_scorer(model, source, 3, True)) is scorer[library]
        assert decode.token_scorer(model, source, 3, False).caches is None
        model.can_cache = False
        assert decode.token_scorer(model, source, 3, True).caches is None


def test_the_cache_drops_what_no_beam_continues(rng, monkeypatch):
    """Beams have a common beginning: the cache does not grow by one word of each at every step."""
    model, sizes, grow = likely_end(small_model(), by=-50), [], cpu_decode.Layout.grow

    def watch(layout):
        kept = grow(layout)
        sizes.append((layout.length, 8 * layout.width * len(sizes)))  # it grows every 8 steps
        return kept

    monkeypatch.setattr(cpu_decode.Layout, "grow", watch)
    source = random_batch(rng, rows=3).source
    with forms_on():
        found = beam_search(model, source, beam=6, max_extra=40)
    assert_same(found, beam_search(model, source, beam=6, max_extra=40, cached=False), rel=1e-9)
    assert len(found[0][0].ids) > 40 and len(sizes) > 4
    assert all(length < 0.7 * before for length, before in sizes[1:])
