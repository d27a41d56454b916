"""The checks of lesson 09, training on WMT."""

from itertools import pairwise

import numpy as np

from minitf.course.checks.compare import equal, short

__all__ = ["check_combine", "check_mended_rows", "check_predicted_cut", "check_slowest_link"]


def check_predicted_cut(predicted_cut):
    """Check a word cut by three merges."""
    answer = predicted_cut()
    if isinstance(answer, str | dict) or not hasattr(answer, "__len__"):
        raise AssertionError(f"found {short(answer)}, expected a list of pieces")
    # No keyboard has the mark of a word's beginning: _ stands for it.
    for piece in answer:
        assert isinstance(piece, str), f"found {short(piece)} as a piece, expected a text"
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


# What somebody may compare with the budget: lengths, the numbers of rows 1 to N, the budget.
ROWS = {
    "the sum of the lengths: padding takes memory, too": lambda lengths, n, budget: (
        np.cumsum(lengths) <= budget
    ),
    "each row as long as the first": lambda lengths, n, budget: n * lengths[0] <= budget,
    "each row as long as the last": lambda lengths, n, budget: n * lengths <= budget,
    "each row as long as the longest of all": lambda lengths, n, budget: (
        n * lengths.max() <= budget
    ),
    "each row as long as the mean": lambda lengths, n, budget: n * lengths.mean() <= budget,
    "a budget that must not be reached: a full one is allowed": lambda lengths, n, budget: (
        n * np.maximum.accumulate(lengths) < budget
    ),
    "the rectangle of the shortest sentence": lambda lengths, n, budget: (
        n * np.minimum.accumulate(lengths) <= budget
    ),
    "sentences sorted first: they are taken from the first on": lambda lengths, n, budget: (
        n * np.sort(lengths) <= budget
    ),
    "a rectangle with one row more": lambda lengths, n, budget: (
        (n + 1) * np.maximum.accumulate(lengths) <= budget
    ),
    "the length of the longest sentence, not a rectangle": lambda lengths, n, budget: (
        np.maximum.accumulate(lengths) <= budget
    ),
    "all sentences": lambda lengths, n, budget: n > 0,
}


def check_mended_rows(mended_rows):
    """Check the number of sentences that fit a batch."""
    cases = [
        ([3, 4, 9], 16, 2),
        ([3, 4, 9], 27, 3),
        ([9, 3], 16, 1),
        ([3, 9, 4], 16, 1),
        ([5, 5, 5, 5], 15, 3),
        ([30, 2], 16, 1),
        ([2, 7, 1, 1, 1, 7], 30, 4),
        ([1, 1, 1, 1, 9, 1, 1], 40, 4),
        ([4], 8, 1),
    ]
    found, arguments = [], []
    for lengths, budget, _ in cases:
        given = np.array(lengths)
        rows = np.asarray(mended_rows(given.copy(), budget))
        if rows.ndim or rows.dtype.kind not in "iuf":
            raise AssertionError(
                f"lengths {lengths}, budget {budget}: found {short(rows.tolist())}, expected one "
                "number"
            )
        found.append(float(rows))
        arguments.append((given, np.arange(1, 1 + len(given)), budget))

    def counted(rule, least, stops):
        fits = [rule(*each) for each in arguments]
        counts = [each.tolist().index(False) if stops and not each.all() else each.sum()
                  for each in fits]  # fmt: skip
        return [max(least, int(count)) for count in counts]

    for (lengths, budget, right), rows in zip(cases, found, strict=True):
        if rows == right:
            continue
        looks_like = ""
        for text, rule in ROWS.items():
            ways = [counted(rule, least, stops) for least in (1, 0) for stops in (False, True)]
            if found in ways:
                looks_like = f": that looks like {text}"
                break
        if rows == 0:
            looks_like = ": it is at least 1, or a long sentence would never be trained on"
        elif rows == right - 1 and found == [count - 1 for _, _, count in cases]:
            looks_like = ": that looks like an index; a number of rows is one more"
        looks_like = looks_like or _room(lengths, budget, rows)
        raise AssertionError(
            f"lengths {lengths}, budget {budget}: found {rows:g} row{'' if rows == 1 else 's'}, "
            f"expected {right}{looks_like}"
        )


def _room(lengths, budget, rows):
    """Return in words why so many rows are too many, or too few."""
    if not rows.is_integer() or rows < 1:
        return ": a number of rows is 1, 2, 3, ..."
    if rows > len(lengths):
        return f": there are {len(lengths)} sentences"
    rows = int(rows)
    longest = max(lengths[:rows])
    if rows * longest > budget:
        return f": {rows} rows of {longest} are {rows * longest} places"
    longest = max(lengths[: rows + 1])
    return f": {rows + 1} rows of {longest} are {(rows + 1) * longest} places, which fit"


def check_combine(combine):
    """Check the gradient of a batch from those of several GPUs."""
    for counts, shape in (([1, 3, 6], (3,)), ([5, 2], (2, 4)), ([4, 4, 1, 2], ())):
        token_gradients = np.random.default_rng(5).standard_normal((sum(counts), *shape))
        parts = np.split(token_gradients, np.cumsum(counts)[:-1])
        means = [part.mean(axis=0) for part in parts]
        sums = [part.sum(axis=0) for part in parts]
        n, total = len(counts), sum(counts)
        name = f"{', '.join(map(str, counts[:-1]))} and {counts[-1]} tokens"
        weights = np.array(counts).reshape(-1, *[1] * len(shape))
        found = combine([np.array(mean) for mean in means], list(counts))
        equal(
            f"{name}, the gradient",
            found,
            token_gradients.mean(axis=0),
            {
                "the mean of the means: a GPU with more tokens counts more": np.mean(means, axis=0),
                "the sum of the means": np.sum(means, axis=0),
                "the sum over all tokens, not divided by their number": np.sum(sums, axis=0),
                "the sum over all tokens, divided by the number of GPUs": np.sum(sums, axis=0) / n,
                "the means divided by all tokens": np.sum(means, axis=0) / total,
                "the means divided by their tokens again": np.sum(means / weights, axis=0),
                "the means divided by their tokens, and multiplied by all": np.sum(
                    means / weights, axis=0
                )
                * total,
                "gradients that are not summed over the GPUs": np.array(sums) / total,
                "the gradient of the GPU with most tokens": means[int(np.argmax(counts))],
                "the gradient of the first GPU": means[0],
                "the median of the means": np.median(means, axis=0),
                "the counts in another order: gradients[i] belongs to counts[i]": np.sum(
                    np.array(means) * weights[::-1], axis=0
                )
                / total,
                "the squares of the counts": np.sum(np.array(means) * weights**2, axis=0)
                / np.sum(weights**2),
                "the sum of the means times the GPUs over the tokens": np.sum(means, axis=0)
                * n
                / total,
                "one mean over the numbers of the gradient, too": np.mean(means * weights),
                "one sum over the numbers of the gradient, too": np.sum(means * weights) / total,
                "the largest count in place of the sum": np.sum(sums, axis=0) / max(counts),
                "weights that favour few tokens": np.sum(means / weights, axis=0)
                / np.sum(1 / np.array(counts)),
            },
        )


def check_slowest_link(slowest_link):
    """Check the least speed of a link between GPUs."""
    # With 11 GPUs no two of the mistakes give the same.
    for n, tokens, operations in ((11, 25_000, 3e12), (2, 25_000, 3e12), (5, 1_003, 1e14)):
        # Of a million parameters; but how many they are does not matter.
        computing = 6 * 1e6 * tokens / n / operations
        sent = 2 * (n - 1) / n * 4 * 1e6
        right = sent / computing
        link = slowest_link(n, tokens, operations)
        name = f"{n} GPUs, {tokens} tokens, {operations:g} operations a second"
        equal(
            f"{name}: bytes a second",
            link,
            right,
            {
                "all tokens on each GPU, or one GPU's operations shared": right / n,
                "the bytes of many GPUs: a ring of n sends (n - 1) / n of them": right
                * n
                / (n - 1),
                "the bytes of many GPUs, and all tokens on each": right / (n - 1),
                "half of the bytes: a sum takes 2 (n - 1) / n, of 4 bytes each": right / 2,
                "a quarter: a number has 4 bytes": right / 4,
                "2 operations in place of 6: backward takes twice as many as forward": right * 3,
                "4 operations in place of 6": right * 1.5,
                "bits in place of bytes": right * 8,
                "bytes divided by 8: the 4 of a number are bytes": right / 8,
                "the seconds of computing over those of sending": 1 / right,
                "tokens over operations": right * (tokens / operations) ** 2,
                "bytes of 8 for a number": right * 2,
                "an n too many": right * n,
                "tokens multiplied in place of divided": right * tokens**2,
                "the bytes for each parameter, without the tokens": right * tokens,
                "1 operation in place of 6": right * 6,
                "the 4 bytes of a number counted twice": right * 4,
                "n + 1 steps in place of n - 1": right * (n + 1) / (n - 1),
                "tokens that are shared twice": right / n**2,
                "the bytes of one parameter alone: divide them by the seconds": 8 * (n - 1) / n,
                "the seconds of computing alone": 6 * tokens / n / operations,
                "bytes for 63 million parameters: they stand on both sides": right * 63e6,
                "bytes for 65 million parameters: they stand on both sides": right * 65e6,
            },
            atol=0,
        )
