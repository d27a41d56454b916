"""Answers to the exercises of lesson 09: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

# predicted_cut ------------------------------------------------------------------------------------


def predicted_cut():
    return ["_s", "l", "ow", "l", "y"]


def right_predicted_cut_2():
    return ("▁s", "l ", "ow", "l", "y")


def right_predicted_cut_3():
    return np.array(["_s", "l", "ow", "l", "y"])


def right_predicted_cut_4():
    return ["_ s", "l", "ow ", "l", "y"]


def wrong_predicted_cut():
    """no merge makes 'slow'"""  # a word that is known, cut off
    return ["_", "slow", "l", "y"]


def wrong_predicted_cut_2():
    """found 'o' beside 'w', expected 'ow'"""
    return ["_s", "l", "o", "w", "l", "y"]


def wrong_predicted_cut_3():
    """the mark _ in front is missing"""
    return ["s", "l", "ow", "l", "y"]


def wrong_predicted_cut_6():
    """found '_s l ow l y', expected a list of pieces"""
    return "_s l ow l y"


def wrong_predicted_cut_7():
    """the pieces make '_slow', expected '_slowly'"""
    return ["_s", "l", "ow"]


def wrong_predicted_cut_9():
    """in a list, expected texts"""
    return [["_s", "l", "ow", "l", "y"]]


# mended_rows --------------------------------------------------------------------------------------


def mended_rows(lengths, budget):
    rectangles = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(lengths)
    return max(1, int((rectangles <= budget).sum()))


def right_mended_rows_2(lengths, budget):
    rows, longest = 0, 0
    for length in lengths:
        longest = max(longest, length)
        if (rows + 1) * longest > budget:
            break
        rows += 1
    return rows or 1


def right_mended_rows_3(lengths, budget):
    for n in range(len(lengths), 1, -1):
        if n * np.max(lengths[:n]) <= budget:
            return np.int32(n)
    return 1.0


def right_mended_rows_4(lengths, budget):
    lengths = list(lengths)
    return max([1] + [n for n in range(1, len(lengths) + 1) if n * max(lengths[:n]) <= budget])


def wrong_mended_rows_3(lengths, budget):
    """lengths [9, 3], budget 16, the number of rows: found"""
    n = 1
    while n < len(lengths) and (n + 1) * lengths[n] <= budget:
        n += 1
    return n


def wrong_mended_rows_5(lengths, budget):
    """it is at least 1"""
    rectangles = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(lengths)
    return int((rectangles <= budget).sum())


def wrong_mended_rows_8(lengths, budget):
    """lengths [3, 9, 4], budget 16, the number of rows: found"""  # sentences sorted first
    return mended_rows(np.sort(lengths), budget)


def wrong_mended_rows_11(lengths, budget):
    """lengths [3, 4, 9], budget 16, the number of rows: found"""
    n = 1
    while n <= len(lengths) and n * max(lengths[:n]) <= budget:
        n += 1
    return n


# combine ------------------------------------------------------------------------------------------


def combine(gradients, counts):
    return sum(gradient * count for gradient, count in zip(gradients, counts, strict=True)) / sum(
        counts
    )


def right_combine_2(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)


def right_combine_3(gradients, counts):
    share = np.array(counts, dtype=np.float32) / np.sum(counts)
    return np.einsum("g,g...->...", share, np.array(gradients, dtype=np.float32))


def right_combine_4(means, n):
    total = np.zeros_like(means[0])
    for mean, tokens in zip(means, n, strict=True):
        mean *= tokens / float(sum(n))
        total += mean
    return total.tolist()


def wrong_combine_10(gradients, counts):
    """that looks like the opposite sign"""
    return -combine(gradients, counts)


def wrong_combine_11(gradients, counts):
    """that looks like 10 times what is right"""  # the sum over all tokens
    return sum(g * c for g, c in zip(gradients, counts, strict=True))


# slowest_link -------------------------------------------------------------------------------------


def slowest_link(n, tokens, operations_a_second):
    return 4 / 3 * (n - 1) * operations_a_second / tokens


def right_slowest_link_2(n, tokens, speed):
    parameters = 63_000_000
    seconds = 6 * parameters * (tokens / n) / speed
    return np.float32(2 * (n - 1) / n * 4 * parameters / seconds)


def right_slowest_link_3(n, tokens, operations_a_second):
    sent = sum(2 * 4 / n for _ in range(n - 1))
    return np.array(sent * n * operations_a_second / (6 * tokens))
