"""The figures of lesson 03, multi-head attention."""

from minitf.course.figures import Panel, lines, matrices

# In "The old teacher sees the new book.": the cells (row, column) by which a head is known.
WORD_BEFORE = [(1, 0), (4, 3), (5, 4), (6, 5)]
NOUN = [(0, 2), (1, 2), (4, 6), (5, 6)]
VERB = [(7, 3), (8, 3)]


def learning(errors, step, path):
    """Draw how training lowers the error with 1, 2 and 3 heads.

    errors: {number of heads: the mean error of each `step` steps}.
    """
    curves = {
        f"h = {h}": ([step * (n + 0.5) for n in range(len(found))], found)
        for h, found in errors.items()
    }
    lines(
        curves, path, "steps of gradient descent", "mean squared error",
        "To fetch from three places takes three heads", marks=False,
        levels={"bound for 1 head: 2/3": 2 / 3, "for 2 heads: 1/3": 1 / 3},
    )  # fmt: skip


def heads_of_a_sentence(weights, words, path):
    """Draw what three heads look at; weights: (heads, words, words)."""
    panels = {
        "head 1: often the word before": Panel(weights[0], words, words, WORD_BEFORE),
        "head 2: its noun": Panel(weights[1], words, words, NOUN),
        "head 3: the verb": Panel(weights[2], words, words, VERB),
    }
    title = "Each head has its own question (frames)"
    matrices(
        panels, path, "this word asks", "and looks at", title, limits=(0, 1), bar="attention weight"
    )


def variances(curves, path):
    """Draw the variance of vectors over the maps that they passed; curves: {size: variances}."""
    counted = {name: (range(len(found)), found) for name, found in curves.items()}
    title = "Only matrices of Glorot's size a keep the variance"
    lines(counted, path, "linear maps passed", "variance of the vectors", title, log="y")
