"""Model answers to the exercises of lesson 09, and typical wrong ones."""

import numpy as np


def predicted_cut():
    return ["▁s", "l", "ow", "l", "y"]


def wrong_predicted_cut():  # cuts the known word off, as no merge does
    return ["▁", "slow", "l", "y"]


def mended_rows(lengths, budget):
    rectangles = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(lengths)
    return max(1, int((rectangles <= budget).sum()))


def wrong_mended_rows(lengths, budget):  # every row as long as the first
    return max(1, int(budget // lengths[0]))


def wrong_mended_rows_2(lengths, budget):  # every row as long as the last
    rectangles = np.arange(1, len(lengths) + 1) * lengths
    return max(1, int((rectangles <= budget).sum()))


def wrong_mended_rows_3(lengths, budget):  # the same, up to the first that is too large
    n = 1
    while n < len(lengths) and (n + 1) * lengths[n] <= budget:
        n += 1
    return n


def combine(gradients, counts):
    return sum(gradient * count for gradient, count in zip(gradients, counts, strict=True)) / sum(
        counts
    )


def wrong_combine(gradients, counts):  # the mean of the means
    return sum(gradients) / len(gradients)


def slowest_link(n, tokens, operations_a_second):
    return 4 / 3 * (n - 1) * operations_a_second / tokens


def wrong_slowest_link(n, tokens, operations_a_second):  # all tokens on one GPU
    return 4 / 3 * (n - 1) / n * operations_a_second / tokens
