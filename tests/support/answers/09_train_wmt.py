"""Model answers to the exercises of lesson 09, and a typical wrong one for each."""

from collections import Counter
from itertools import pairwise


def best_pair(words):
    pairs = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            pairs[pair] += times
    return min(pairs, key=lambda pair: (-pairs[pair], len("".join(pair)), "".join(pair)))


def wrong_best_pair(words):  # counts each word once, however often it stands in the text
    return Counter(pair for word in words for pair in pairwise(word)).most_common(1)[0][0]


def combine(gradients, counts):
    return sum(gradient * count for gradient, count in zip(gradients, counts, strict=True)) / sum(
        counts
    )


def wrong_combine(gradients, counts):  # the mean of the means
    return sum(gradients) / len(gradients)
