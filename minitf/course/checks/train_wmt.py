"""The checks of lesson 09, training on WMT."""

from itertools import pairwise

import numpy as np

from minitf.course.checks.compare import as_array, check, texts_of


def check_predicted_cut(predicted_cut):
    """Check a word cut by three merges."""
    answer = texts_of(predicted_cut(), "a list of pieces")
    # No keyboard has the mark of a word's beginning: _ stands for it.
    pieces = ["".join(piece.split()).replace("▁", "_") for piece in answer]
    word = "".join(pieces)
    if word != "_slowly":
        hint = ": the mark _ in front is missing" if word == "slowly" else ""
        raise AssertionError(f"the pieces make {word!r}, expected '_slowly'{hint}")
    for piece in pieces:
        if len(piece) == 1 or piece in ("ow", "_s", "now"):
            continue
        raise AssertionError(f"no merge makes {piece!r}: expected single letters and the merges")
    for left, right in [("o", "w"), ("_", "s")]:
        if (left, right) in pairwise(pieces):
            raise AssertionError(
                f"found {left!r} beside {right!r}, expected {left + right!r}: they should be merged"
            )


def _rows(rectangles):
    """Return an answer that counts the sentences with rectangles(lengths, 1 to N) <= budget."""

    def mended_rows(lengths, budget):
        return max(1, int((rectangles(lengths, np.arange(1, 1 + len(lengths))) <= budget).sum()))

    return mended_rows


@check(
    right=_rows(lambda lengths, n: n * np.maximum.accumulate(lengths)),
    wrong={
        "the sum of the lengths: padding takes memory, too": _rows(
            lambda lengths, n: np.cumsum(lengths)
        ),
        "each row as long as the first": _rows(lambda lengths, n: n * lengths[0]),
        "each row as long as the last": _rows(lambda lengths, n: n * lengths),
        "each row as long as the longest of all": _rows(lambda lengths, n: n * lengths.max()),
        "a budget that must not be reached: a full one is allowed": _rows(
            lambda lengths, n: 1 + n * np.maximum.accumulate(lengths)
        ),
    },
)
def check_mended_rows(mended_rows):
    """Check the number of sentences that fit a batch."""
    for lengths, budget in (
        ([3, 4, 9], 16),
        ([3, 4, 9], 27),
        ([9, 3], 16),
        ([3, 9, 4], 16),
        ([5, 5, 5, 5], 15),
        ([30, 2], 16),
        ([2, 7, 1, 1, 1, 7], 30),
        ([1, 1, 1, 1, 9, 1, 1], 40),
        ([4], 8),
    ):
        name = f"lengths {lengths}, budget {budget}"
        rows = as_array(name, mended_rows(np.array(lengths), budget))
        assert rows.any(), (
            f"{name}: found 0 rows: it is at least 1, or a long sentence would never be trained on"
        )
        yield f"{name}, the number of rows", rows


def _mean(gradients, weights):
    return np.average(gradients, axis=0, weights=weights)


@check(
    right=_mean,
    wrong={
        "the mean of the means: a GPU with more tokens counts more": lambda gradients, counts: (
            np.mean(gradients, axis=0)
        ),
        "the means divided by all tokens": lambda gradients, counts: (
            np.sum(gradients, axis=0) / sum(counts)
        ),
        "the counts in another order: gradients[i] belongs to counts[i]": (
            lambda gradients, counts: _mean(gradients, counts[::-1])
        ),
    },
)
def check_combine(combine):
    """Check the gradient of a batch from those of several GPUs."""
    for counts, shape in (([1, 3, 6], (3,)), ([5, 2], (2, 4)), ([4, 4, 1, 2], ())):
        rng = np.random.default_rng(5)
        means = [rng.standard_normal((n, *shape)).mean(axis=0) for n in counts]
        name = f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} tokens"
        yield f"{name}, the gradient", combine([np.array(each) for each in means], counts)


def _link(n, tokens, operations_a_second):
    """Return bytes a second, of one parameter: the bytes of a ring over the seconds to compute."""
    computing = 6 * tokens / n / operations_a_second
    return 2 * (n - 1) / n * 4 / computing


def _times(factor):
    """Return an answer that is wrong by this factor of n."""
    return lambda n, tokens, operations: factor(n) * _link(n, tokens, operations)


@check(
    right=_link,
    wrong={
        "all tokens on each GPU, or one GPU's operations shared": _times(lambda n: 1 / n),
        "the bytes of many GPUs: a ring of n sends (n - 1) / n of them": _times(
            lambda n: n / (n - 1)
        ),
        "half of the bytes: a sum takes 2 (n - 1) / n, of 4 bytes each": _times(lambda n: 0.5),
        "2 operations in place of 6: backward takes twice as many as forward": _times(lambda n: 3),
        "the seconds of computing over those of sending": lambda *given: 1 / _link(*given),
    },
    atol=0,
)
def check_slowest_link(slowest_link):
    """Check the least speed of a link between GPUs."""
    for n, tokens, operations in ((11, 25_000, 3e12), (2, 25_000, 3e12), (5, 1_003, 1e14)):
        name = f"{n} GPUs, {tokens} tokens, {operations:g} operations a second: bytes a second"
        yield name, slowest_link(n, tokens, operations)
