"""The figures of lesson 03, multi-head attention."""

from minitf.course.figures import lines, matrices

__all__ = ["heads_of_a_sentence", "learning", "variances"]

# In "The old teacher sees the new book.": the cells (row, column) by which a head is known.
WORD_BEFORE = [(1, 0), (4, 3), (5, 4), (6, 5)]
NOUN = [(0, 2), (1, 2), (4, 6), (5, 6)]
VERB = [(7, 3), (8, 3)]


def learning(errors, step, path):
    """Draw how training lowers the error with 1, 2 and 3 heads.

    errors: {number of heads: the mean error of each `step` steps}.
    """
    lines(
        {
            f"h = {h}": ([step * (n + 0.5) for n in range(len(found))], found)
            for h, found in errors.items()
        },
        x="steps of gradient descent",
        y="mean squared error",
        title="To fetch from three places takes three heads",
        marks=False,
        levels={"bound for 1 head: 2/3": 2 / 3, "for 2 heads: 1/3": 1 / 3},
        path=path,
    )


def heads_of_a_sentence(weights, words, path):
    """Draw what three heads look at; weights: (heads, words, words)."""
    panels = ["head 1: the word before", "head 2: its noun", "head 3: the verb"]
    matrices(
        dict(zip(panels, weights[:3], strict=True)),
        rows="this word asks",
        columns="and looks at",
        row_labels=words,
        column_labels=words,
        limits=(0, 1),
        mark=dict(zip(panels, (WORD_BEFORE, NOUN, VERB), strict=True)),
        bar="attention weight",
        title="Each head has its own question (frames)",
        path=path,
    )


def variances(curves, path):
    """Draw the variance of vectors over the maps that they passed; curves: {size: variances}."""
    lines(
        {name: (range(len(found)), found) for name, found in curves.items()},
        x="linear maps passed",
        y="variance of the vectors",
        title="Only matrices of Glorot's size a keep the variance",
        log="y",
        path=path,
    )
