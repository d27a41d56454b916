"""The figures of lesson 08, decoding."""

import numpy as np

from minitf.course.figures import dots, lines, matrices, tree

__all__ = ["alignment", "checkpoints", "cost", "gains", "search"]


def search(sentence, candidates, tokens, path):
    """Draw all candidates of a beam as a tree. tokens: the last one of each."""
    nodes = [(None, "<s>", "0.00", "kept")]
    places = {(): 0}
    for found, token in zip(candidates, tokens, strict=True):
        parent = places[tuple(found.words[:-1])]
        number = found.score if found.state == "finished" else found.ln_p
        places[tuple(found.words)] = len(nodes)
        nodes.append((parent, token, f"{number:.2f}", found.state))
    title = f"{sentence} The beam keeps what greedy would drop\n(numbers: ln P; dark: the score)"
    tree(nodes, path, title=title)


def gains(beam_gains, intervals, path):
    """Draw the gain of each beam over greedy. intervals: {alpha: (low, high)}."""
    values = {
        f"beam of 4, alpha {alpha}": (low, gain, high)
        for gain, (alpha, (low, high)) in zip(beam_gains, intervals.items(), strict=True)
    }
    dots(
        values, path, x="BLEU of the beam minus BLEU of greedy", levels={"greedy": 0},
        title="The penalty helps a beam; the gain over greedy is small\n",
    )  # fmt: skip


def cost(without, with_cache, path):
    """Draw the multiplications of each step, without a cache and with it."""
    steps = np.arange(1, len(without) + 1)
    curves = {"no cache": (steps, without / 1e6), "cache": (steps, with_cache / 1e6)}
    lines(
        curves, path, x="step t", y="million multiplications", marks=False,
        title="With a cache, late tokens cost no more",
    )  # fmt: skip


def checkpoints(updates, without, with_penalty, path):
    """Draw the gain of a beam at each checkpoint, without the length penalty and with it."""
    curves = {
        "with the penalty (alpha 1)": (updates, with_penalty),
        "without it (alpha 0)": (updates, without),
    }
    lines(
        curves, path, x="updates of the training", y="BLEU of beam 4 minus BLEU of greedy",
        title="With alpha 1, a beam was never worse than greedy", levels={"": 0},
    )  # fmt: skip


def alignment(weights, writes, reads, place, path):
    """Draw the attention of the words that are written to those of the source."""
    matrices(
        {"To write gelesen, the model looks at read": weights}, rows="writes", columns="looks at",
        row_labels=writes, column_labels=reads, bar="weight, mean of the heads", mark=[place],
        path=path,
    )  # fmt: skip
