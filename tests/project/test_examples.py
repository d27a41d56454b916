"""The small examples, as a reader runs them."""

import runpy

import pytest
from paths import EXAMPLES
from threadpoolctl import threadpool_limits


@pytest.mark.slow
def test_rotary_positions(capsys):
    """The model learns, and decodes alike with the cache and without."""
    with threadpool_limits(1, "blas"):  # on a busy machine two threads would wait for each other
        runpy.run_path(EXAMPLES / "rotary.py", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    greedily, beam, uncached = (
        int(line.split()[-6]) for line in lines if line.endswith("lines are right")
    )
    assert greedily == uncached > 180 and beam > 180


@pytest.mark.slow
def test_the_language_model(capsys):
    """The loss falls to less than half, and nearly all of the output is words of the text."""
    with threadpool_limits(1, "blas"):  # on a busy machine two threads would wait for each other
        names = runpy.run_path(EXAMPLES / "language_model.py", run_name="__main__")
    losses, text = capsys.readouterr().out.split("It writes:\n")
    losses = [float(line.split()[2]) for line in losses.splitlines()]
    assert losses[-1] < losses[0] / 2
    written, known = text.split()[:-1], set(names["TEXT"].split())  # the last word may be cut off
    assert len(written) > 20 and sum(word in known for word in written) > 0.9 * len(written)
    assert len(set(written)) > 10
