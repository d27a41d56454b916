"""The checks of lesson 01, attention."""

import math

import numpy as np

from minitf import functions as F
from minitf.check import index_text
from minitf.course.checks.compare import equal, equal_on_paper
from minitf.transformer import causal_mask

__all__ = [
    "check_additive_mask",
    "check_mended_weights",
    "check_predicted_weights",
    "check_softmax_average",
]


def check_predicted_weights(predicted_weights):
    """Check the weights with which "bank" attends, four numbers found on paper."""
    words = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    products = words @ words[0]
    e = np.exp(products / math.sqrt(2))
    equal_on_paper(
        predicted_weights(),
        F.attention_weights(words[:1], words).numpy()[0],
        ["bank", "by", "by", "river"],
        {
            "the scores: their softmax is missing": products / math.sqrt(2),
            "the dot products: the division and the softmax are missing": products,
            "the powers of e, not divided by their sum": e,
            "a softmax without the division by the root of d_k": F.softmax(products).numpy(),
            "a division by d_k in place of its root": F.softmax(products / 2).numpy(),
            "the scores divided by their sum: where are the powers of e?": products / 5,
            "powers of 2 in place of powers of e": _shares(2 ** (products / math.sqrt(2))),
            "the weights of river in place of bank": _shares(
                np.exp(words @ words[3] / math.sqrt(2))
            ),
            "the one by has the weight of two": _shares(e * [1, 2, 0, 1]),
            "numbers in percent: write 0.5 for 50": 100 * np.round(_shares(e), 2),
            "the words in another order: bank stands first": _shares(e)[::-1],
            "three words: there are two by": e / e[[0, 1, 3]].sum(),
            "the other words alone: bank looks at itself, too": _shares(e * [0, 1, 1, 1]),
            "all weight on one word: a softmax shares it": [0, 0, 0, 1],
            "a division by the lengths of the vectors": F.softmax(
                products / np.linalg.norm(words[[0]]) / [math.sqrt(2), 1, 1, 3]
            ).numpy(),
            "a division by the number of words": F.softmax(products / 4).numpy(),
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
        added = additive_mask(mask.copy())
        name = f"softmax(scores + additive_mask), {case}"
        with np.errstate(invalid="ignore"):
            found = F.softmax(scores + np.asarray(added, dtype=np.float64)).numpy()
        if np.isnan(found).any():
            numbers = np.asarray(added, dtype=float)
            cause = "a row is minus infinity at all keys; is the mask the wrong way round?"
            if np.isnan(numbers).any():
                cause = "0 times infinity is NaN"
            elif (numbers == np.inf).any():
                cause = "infinity is added, where minus infinity belongs"
            raise AssertionError(f"{name}: found nan, expected weights: {cause}")
        assert found.shape == mask.shape, (
            f"{name}: found the shape {found.shape}, expected {mask.shape}"
        )
        expected = F.softmax(np.where(mask, scores, -np.inf)).numpy()
        shares = np.where(mask, 0, found)
        if shares.max() > 1e-6:
            index = np.unravel_index(shares.argmax(), mask.shape)
            number = np.broadcast_to(added, mask.shape)[index]
            raise AssertionError(
                f"{name}: a forbidden key still gets a share: found {found[index]:.3g}, expected 0"
                f"{index_text(index)}, where {number:g} is added"
            )
        causal = np.tri(*mask.shape, dtype=bool)
        by_cause = F.softmax(np.where(causal, scores, -np.inf)).numpy()
        equal(name, found, expected, {"a causal mask, whatever the mask is": by_cause})


def check_mended_weights(mended_weights):
    """Check attention weights that were masked after the softmax."""
    rng = np.random.default_rng(6)
    padding = np.arange(6) < np.array([[2], [6], [4]])  # (3, 6)
    for mask in (causal_mask(5)[0, 0], padding):
        scores = rng.standard_normal(mask.shape)
        weights = F.softmax(scores).numpy()
        cut = weights * mask
        expected = F.softmax(np.where(mask, scores, -np.inf)).numpy()
        by_column = cut / np.maximum(cut.sum(axis=0, keepdims=True), 1e-300)
        lost = 1 - cut.sum(axis=-1, keepdims=True)
        mistakes = {
            "the code of the exercise: the rows no longer sum to 1": cut,
            "columns that sum to 1: a row belongs to a query": by_column,
            "all weights divided by one sum": cut / cut.sum(),
            "the lost share handed out in equal parts: the future still matters": cut
            + lost * mask / mask.sum(axis=-1, keepdims=True),
            "the lost share given to all keys": cut + lost / mask.shape[1],
            "scores multiplied by the mask: a score of 0 is no weight of 0": F.softmax(
                scores * mask
            ).numpy(),
            "a second softmax: it gives a weight of 0 a share": F.softmax(cut).numpy(),
            "scores multiplied by the mask, then cut and not divided by their sum": F.softmax(
                scores * mask
            ).numpy()
            * mask,
            "rows divided by their number of keys": cut / mask.sum(axis=-1, keepdims=True),
            "the softmax of all keys": weights,
            "rows divided by their largest weight": cut / cut.max(axis=-1, keepdims=True),
            "rows of length 1: it is their sum that is 1": cut
            / np.linalg.norm(cut, axis=-1, keepdims=True),
            "a softmax of the weights that are left: weights are no scores": F.softmax(
                np.where(mask, cut, -np.inf)
            ).numpy(),
            "rows multiplied by their number of keys": expected * mask.sum(axis=-1, keepdims=True),
            "scores in place of weights, divided by their sum": scores
            * mask
            / (scores * mask).sum(axis=-1, keepdims=True),
            "the lost share given to each word itself": cut + lost * np.eye(*mask.shape),
        }
        if mask.shape[0] == mask.shape[1]:
            mistakes["sums without keepdims: they divide the columns"] = cut / cut.sum(axis=-1)
            flipped = weights * mask.T
            mistakes["the transpose of the mask: a row belongs to a query"] = flipped / flipped.sum(
                axis=-1, keepdims=True
            )
        found = mended_weights(scores.copy(), mask.copy())
        equal(f"weights {mask.shape}", found, expected, mistakes)


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
        with np.errstate(all="ignore"):
            found = softmax_average(scores.copy(), values.copy())
            expected = F.softmax(scores).numpy() @ values
            mistakes = _averages(scores, values)
        if np.isnan(np.asarray(found, dtype=float)).any():
            raise AssertionError(
                f"{name}: found nan, expected numbers: every power of e is to have an exponent of "
                "at most 0, and the first score is the largest so far"
            )
        if not np.any(found):
            mistakes["a largest score that begins at 0: all scores may be below it"] = 0 * expected
        equal(name, found, expected, mistakes)


def _averages(scores, values):
    """Return what typical mistakes give."""
    found = {}
    largest, total, weighted = -np.inf, np.zeros(3), np.zeros((3, values.shape[1]))
    for score, value in zip(scores, values, strict=True):
        before, largest = largest, max(largest, score)
        # Left out, as it should be, and the wrong way round.
        grown = np.exp(largest - before) if np.isfinite(before) else 0.0
        shrink = np.array([1.0, np.exp(before - largest), grown])
        weight = np.exp(score - largest)
        total = total * shrink + weight
        weighted = weighted * shrink[:, None] + weight * value
    found["a factor e^(new - old) in place of e^(old - new)"] = weighted[2] / total[2]
    found["sums that are not shrunk when a larger score comes"] = weighted[0] / total[0]
    found["a weighted sum that is not shrunk when a larger score comes"] = weighted[0] / total[1]
    found["a sum of powers that is not shrunk when a larger score comes"] = weighted[1] / total[0]
    found["a weighted sum that is not divided by the sum of the powers"] = weighted[1]
    found["a weighted sum divided by the number of scores"] = weighted[1] / len(scores)
    rest = F.softmax(scores[1:]).numpy() @ values[1:] if len(scores) > 1 else 0 * values[0]
    found["the first score left out"] = rest
    found["the last score left out"] = _without_the_last(scores, values)
    found["powers of e that stop growing: subtract the largest score so far"] = _limited(
        scores, values
    )
    found["the plain mean of the values"] = values.mean(axis=0)
    found["the values weighted by the scores"] = scores @ values / scores.sum()
    found["the value of the largest score"] = values[scores.argmax()]
    return found


def _without_the_last(scores, values):
    return F.softmax(scores[:-1]).numpy() @ values[:-1] if len(scores) > 1 else 0 * values[0]


def _limited(scores, values):
    powers = np.exp(np.minimum(scores, 700))
    return powers @ values / powers.sum()


def _shares(numbers):
    return numbers / numbers.sum()
