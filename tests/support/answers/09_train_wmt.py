"""Answers to the exercises of lesson 09: right ones, and wrong ones that must not pass.

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


def wrong_predicted_cut_4():
    """found '_' beside 's', expected '_s'"""
    return ["_", "s", "l", "ow", "l", "y"]


def wrong_predicted_cut_5():
    """no merge makes 'low'"""
    return ["_s", "low", "l", "y"]


def wrong_predicted_cut_6():
    """found '_s l ow l y', expected a list of pieces"""
    return "_s l ow l y"


def wrong_predicted_cut_7():
    """the pieces make '_slow', expected '_slowly'"""
    return ["_s", "l", "ow"]


def wrong_predicted_cut_8():
    """found 'o' beside 'w'"""
    return list("_slowly")


def wrong_predicted_cut_9():
    """as a piece, expected a text"""
    return [["_s", "l", "ow", "l", "y"]]


def wrong_predicted_cut_10():
    """no merge makes 'ly'"""
    return ["_s", "l", "ow", "ly"]


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


def right_mended_rows_5(lengths, budget):
    fits = [n for n in range(1, len(lengths) + 1) if n * max(lengths[:n]) <= budget]
    return max(fits, default=1)


def wrong_mended_rows(lengths, budget):
    """each row as long as the first"""
    return max(1, min(len(lengths), int(budget // lengths[0])))


def wrong_mended_rows_2(lengths, budget):
    """each row as long as the last"""
    rectangles = np.arange(1, len(lengths) + 1) * lengths
    return max(1, int((rectangles <= budget).sum()))


def wrong_mended_rows_3(lengths, budget):
    """lengths [9, 3], budget 16: found 2 rows, expected 1"""
    n = 1
    while n < len(lengths) and (n + 1) * lengths[n] <= budget:
        n += 1
    return n


def wrong_mended_rows_4(lengths, budget):
    """the sum of the lengths: padding takes memory, too"""
    return max(1, int((np.cumsum(lengths) <= budget).sum()))


def wrong_mended_rows_5(lengths, budget):
    """it is at least 1"""
    rectangles = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(lengths)
    return int((rectangles <= budget).sum())


def wrong_mended_rows_6(lengths, budget):
    """each row as long as the longest of all"""
    return max(1, min(len(lengths), int(budget // lengths.max())))


def wrong_mended_rows_7(lengths, budget):
    """a full one is allowed"""
    rectangles = np.arange(1, len(lengths) + 1) * np.maximum.accumulate(lengths)
    return max(1, int((rectangles < budget).sum()))


def wrong_mended_rows_8(lengths, budget):
    """sentences sorted first"""
    return mended_rows(np.sort(lengths), budget)


def wrong_mended_rows_9(lengths, budget):
    """lengths [3, 4, 9], budget 16: found 3 rows, expected 2"""
    return int(budget // lengths.mean())


def wrong_mended_rows_10(lengths, budget):
    """found 1 row, expected 2: 2 rows of 4 are 8 places, which fit"""
    return int(budget // max(lengths)) or 1


def wrong_mended_rows_11(lengths, budget):
    """found 3 rows, expected 2: 3 rows of 9 are 27 places"""
    n = 1
    while n <= len(lengths) and n * max(lengths[:n]) <= budget:
        n += 1
    return n


def wrong_mended_rows_12(lengths, budget):
    """found 5 rows, expected 2: there are 3 sentences"""
    return max(1, budget // len(lengths))


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


def wrong_combine(gradients, counts):
    """the mean of the means"""
    return sum(gradients) / len(gradients)


def wrong_combine_2(gradients, counts):
    """the sum of the means"""
    return sum(gradients)


def wrong_combine_3(gradients, counts):
    """the sum over all tokens, not divided by their number"""
    return sum(g * c for g, c in zip(gradients, counts, strict=True))


def wrong_combine_4(gradients, counts):
    """divided by the number of GPUs"""
    return sum(g * c for g, c in zip(gradients, counts, strict=True)) / len(counts)


def wrong_combine_5(gradients, counts):
    """the means divided by all tokens"""
    return sum(gradients) / sum(counts)


def wrong_combine_6(gradients, counts):
    """weights that favour few tokens"""
    return np.average(gradients, axis=0, weights=1 / np.array(counts))


def wrong_combine_7(gradients, counts):
    """5 and 2 tokens, the gradient: found the shape (4,), expected (2, 4)"""
    return np.array(counts) @ np.array(gradients).reshape(len(counts), -1)[:, :4] / sum(counts)


def wrong_combine_8(gradients, counts):
    """the squares of the counts"""
    return np.average(gradients, axis=0, weights=np.array(counts) ** 2)


def wrong_combine_9(gradients, counts):
    """gradients[i] belongs to counts[i]"""
    return combine(gradients, counts[::-1])


def wrong_combine_10(gradients, counts):
    """that looks like the opposite sign"""
    return -combine(gradients, counts)


def wrong_combine_11(gradients, counts):
    """that looks like 3 times what is right"""
    return combine(gradients, counts) * len(counts)


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


def wrong_slowest_link(n, tokens, operations_a_second):
    """all tokens on each GPU"""
    return 4 / 3 * (n - 1) / n * operations_a_second / tokens


def wrong_slowest_link_2(n, tokens, operations_a_second):
    """the bytes of many GPUs"""
    return 4 / 3 * n * operations_a_second / tokens


def wrong_slowest_link_3(n, tokens, operations_a_second):
    """half of the bytes"""
    return 2 / 3 * (n - 1) * operations_a_second / tokens


def wrong_slowest_link_4(n, tokens, operations_a_second):
    """a number has 4 bytes"""
    return 1 / 3 * (n - 1) * operations_a_second / tokens


def wrong_slowest_link_5(n, tokens, operations_a_second):
    """2 operations in place of 6"""
    return 4 * (n - 1) * operations_a_second / tokens


def wrong_slowest_link_6(n, tokens, operations_a_second):
    """the seconds of computing over those of sending"""
    return 3 / 4 * tokens / (n - 1) / operations_a_second


def wrong_slowest_link_7(n, tokens, operations_a_second):
    """bytes for 63 million parameters: they stand on both sides"""
    return 4 / 3 * (n - 1) * operations_a_second / tokens * 63e6


def wrong_slowest_link_8(n, tokens, operations_a_second):
    """1 operation in place of 6"""
    return 8 * (n - 1) * operations_a_second / tokens


def wrong_slowest_link_9(n, tokens, operations_a_second):
    """n + 1 steps in place of n - 1"""
    return 4 / 3 * (n + 1) * operations_a_second / tokens


def wrong_slowest_link_10(n, tokens, operations_a_second):
    """the bytes of one parameter alone: divide them by the seconds"""
    return 2 * (n - 1) / n * 4


def wrong_slowest_link_11(n, tokens, operations_a_second):
    """bytes divided by 8"""
    return 4 / 3 * (n - 1) * operations_a_second / tokens / 8
