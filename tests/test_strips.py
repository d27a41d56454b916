"""Matrices in strips: the same products, and the same translations."""

import numpy as np
import pytest
from models import SWITCHES, random_batch, small_model
from sizes import V

from minitf import strips
from minitf.backend import to_numpy, xp
from minitf.decode import beam_search
from minitf.strips import Strips, for_decoding


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 13, 29, 64, 100])
@pytest.mark.parametrize("shape", [(5, 7), (64, 64), (12, 130), (300, 65)])
def test_products(library, rows, shape, rng, monkeypatch):
    monkeypatch.setattr(strips, "_FEW", 10_000)  # so that there are parts of four rows and more
    x, matrix = rng.normal(size=(rows, shape[0])), rng.normal(size=shape)
    y = Strips(xp.asarray(matrix)).product(xp.asarray(x))
    assert y.shape == (rows, shape[1])
    np.testing.assert_allclose(to_numpy(y), x @ matrix, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES)
def test_the_copy_decodes_as_the_model(changes, rng):
    model, source = small_model(**changes).eval(), random_batch(rng, 5).source
    found, expected = (beam_search(m, source, 3, max_extra=4) for m in (for_decoding(model), model))
    assert [[h.ids for h in row] for row in found] == [[h.ids for h in row] for row in expected]
    scores = [[[h.score for h in row] for row in rows] for rows in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-9)


def test_the_copy_leaves_the_model_alone(rng):
    model = small_model()
    names = [name for name, _ in model.named_parameters()]
    copy = for_decoding(model)
    assert [name for name, _ in model.named_parameters()] == names
    before = copy.logits(copy.decode(np.array([[2]]), *copy.encode(np.array([[5, 3]])))).numpy()
    for parameter in model.parameters():
        if parameter.ndim == 2 and parameter.shape[0] != V:
            parameter.data[...] = 0
    after = copy.logits(copy.decode(np.array([[2]]), *copy.encode(np.array([[5, 3]])))).numpy()
    assert np.array_equal(before, after)
