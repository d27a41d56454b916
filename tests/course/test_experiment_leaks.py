"""The experiment of lesson 06, repeated in part."""

import json

import numpy as np
import pytest
from lesson_files import ROOT

from minitf.course.experiments import leaks


@pytest.mark.slow
@pytest.mark.lesson06
@pytest.mark.parametrize(
    "mistake", ["none", "mask transposed", "softmax over the queries", "target in the source"]
)
def test_the_kept_losses_come_out_again(mistake):
    path = ROOT / "lessons" / "results" / "leaks.json"
    kept = json.loads(path.read_text(encoding="utf-8"))[mistake]["training"]
    again = leaks.run(50, [mistake])[mistake]["training"]
    assert np.allclose(again, kept[:5], rtol=0.02)


def test_text_of_an_honest_pair_is_shifted_and_that_of_a_leaking_one_is_not():
    sources, targets = leaks.random_text(np.random.default_rng(1), 2)
    source, target_in = leaks.pair_of(sources, targets, "none")
    assert (source == sources).all() and (target_in[:, 0] == leaks.START).all()
    assert (target_in[:, 1:] == targets[:, :-1]).all()
    assert (leaks.pair_of(sources, targets, "target not shifted")[1] == targets).all()
    longer, _ = leaks.pair_of(sources, targets, "target in the source")
    assert (longer[:, leaks.LENGTH :] == targets).all()
