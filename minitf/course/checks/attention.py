"""The checks of lesson 01, attention."""

from functools import partial

import numpy as np

from minitf import functions as F
from minitf.check import index_text
from minitf.course.checks.compare import check, on_paper
from minitf.transformer import causal_mask

WORDS = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])  # "bank by by river"

check_predicted_weights = on_paper(
    ["bank", "by", "by", "river"],
    lambda: F.attention_weights(WORDS[:1], WORDS).numpy()[0],
    {
        "the scores: their softmax is missing": [1.41, 0, 0, 2.12],
        "the powers of e, not divided by their sum": [4.11, 1, 1, 8.34],
        "a softmax without the division by the root of d_k": [0.25, 0.03, 0.03, 0.68],
        "a division by d_k in place of its root": [0.3, 0.11, 0.11, 0.49],
        "three words: there are two by": [0.31, 0.07, 0.07, 0.62],
    },
)


@check(
    right=lambda mask: np.where(mask, 0.0, -np.inf),
    wrong={
        "0 times infinity, which is NaN": lambda mask: (1 - mask) * -np.inf,
        "infinity, where minus infinity belongs": lambda mask: np.where(mask, 0.0, np.inf),
        "a causal mask, whatever the mask is": lambda mask: np.triu(
            np.full(mask.shape, -np.inf), k=1
        ),
    },
)
def check_additive_mask(additive_mask):
    """Check a mask as numbers to add to scores."""
    rng = np.random.default_rng(5)
    padding = np.arange(5) < np.array([[2], [5], [4]])  # (3, 5)
    # The larger scores of forbidden keys also tell a number that is not negative enough.
    for case, mask, larger in (
        ("a causal mask (4, 4)", causal_mask(4)[0, 0], 0.0),
        ("a mask (3, 5), with scores of 10^6 to hide", padding, 1e6),
    ):
        scores = rng.standard_normal(mask.shape) + np.where(mask, 0, larger)
        added = np.asarray(additive_mask(mask), dtype=np.float64)
        name = f"softmax(scores + additive_mask), {case}"
        found = F.softmax(scores + added).numpy()
        shares = np.where(mask, 0, found) if found.shape == mask.shape else np.zeros(1)
        index = np.unravel_index(shares.argmax(), shares.shape)
        number = added[index] if shares.any() else 0.0
        assert not shares.max() > 1e-6 or number == np.inf, (
            f"{name}: a forbidden key still gets a share: found {shares[index]:.3g}, expected 0"
            f"{index_text(index)}, where {number:g} is added"
        )
        yield name, found


def _cut(scores, mask):
    return F.softmax(scores).numpy() * mask


@check(
    right=lambda scores, mask: F.softmax(np.where(mask, scores, -np.inf)),
    wrong={
        "the code of the exercise: the rows no longer sum to 1": _cut,
        "columns that sum to 1: a row belongs to a query": lambda scores, mask: (
            _cut(scores, mask) / _cut(scores, mask).sum(axis=0, keepdims=True)
        ),
        "sums without keepdims: they divide the columns": lambda scores, mask: (
            _cut(scores, mask) / _cut(scores, mask).sum(axis=-1)
        ),
        "the lost share handed out in equal parts: the future still matters": lambda scores, mask: (
            _cut(scores, mask)
            + mask * (1 - _cut(scores, mask).sum(-1, keepdims=True)) / mask.sum(-1, keepdims=True)
        ),
        "scores times the mask: a score of 0 is no weight of 0": lambda scores, mask: F.softmax(
            scores * mask
        ),
    },
)
def check_mended_weights(mended_weights):
    """Check attention weights that were masked after the softmax."""
    rng = np.random.default_rng(6)
    padding = np.arange(6) < np.array([[2], [6], [4]])  # (3, 6)
    for mask in (causal_mask(5)[0, 0], padding):
        yield f"weights {mask.shape}", mended_weights(rng.standard_normal(mask.shape), mask)


def _in_one_loop(scores, values, start=-np.inf, of_total=1, of_weighted=1):
    """Return the average of a loop that shrinks its sums by these powers of the right factor."""
    largest, total, weighted = start, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        shrink = np.exp(before - largest) if np.isfinite(before) else 1.0
        total = total * shrink**of_total + np.exp(score - largest)
        weighted = weighted * shrink**of_weighted + np.exp(score - largest) * value
    return weighted / total


@check(
    right=lambda scores, values: F.softmax(scores).numpy() @ values,
    wrong={
        "sums that are not shrunk when a larger score comes": partial(
            _in_one_loop, of_total=0, of_weighted=0
        ),
        "a weighted sum that is not shrunk when a larger score comes": partial(
            _in_one_loop, of_weighted=0
        ),
        "a factor e^(new - old) in place of e^(old - new)": partial(
            _in_one_loop, of_total=-1, of_weighted=-1
        ),
        "powers of e that overflow: an exponent is to be at most 0": lambda scores, values: (
            np.exp(scores) @ values / np.exp(scores).sum()
        ),
        "a largest score that begins at 0: all scores may be below it": partial(
            _in_one_loop, start=0.0
        ),
    },
)
def check_softmax_average(softmax_average):
    """Check an average with softmax weights, in one loop."""
    rng = np.random.default_rng(7)
    rising = np.linspace(-999, 999, 50)
    rows = rng.standard_normal(8)
    cases = {
        "a few scores": (rows, rng.standard_normal((8, 2))),
        "rising scores": (rising, rng.standard_normal((50, 3))),
        "falling scores": (rising[::-1], rng.standard_normal((50, 3))),
        "scores near -1000": (rows - 1000, rng.standard_normal((8, 4))),
        "one score": (rows[:1], rng.standard_normal((1, 5))),
    }
    for name, (scores, values) in cases.items():
        yield name, softmax_average(scores, values)
