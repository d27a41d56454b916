"""The figures of lesson 01, attention."""

import numpy as np

from minitf.course.figures import (
    FONT,
    SMALL,
    WIDTH,
    line_panels,
    lines,
    matrices,
    new_figure,
)
from minitf.plot import COLOURS, GRID, label_axes, save_figure

__all__ = ["dot_products", "masks", "moved_words", "multiplications", "translation"]


def translation(weights, german, english, looking, looked_at, path):
    """Draw which source word each word of a translation looks at; frame one such look."""
    matrices(
        {f"To write “{looking}”, the model looks back at “{looked_at}”": weights},
        rows="the model writes",
        columns="and looks at",
        row_labels=german,
        column_labels=english,
        bar="attention weight",
        limits=(0, 1),
        mark=[(german.index(looking), english.index(looked_at))],
        path=path,
    )


def moved_words(start, ends, neighbours, path):
    """Draw arrows from where a word was to where each neighbour has moved it.

    start, and the values of ends and neighbours: points (water, money), with their names as keys.
    The first of neighbours stands beside the word in all cases; each other one belongs to an end.
    The triangle of the word and these two is shaded: an average of the three is inside.
    """
    figure = new_figure(WIDTH, 6.4)
    axes = figure.subplots()
    label_axes(axes, "water", "money", "A word moves towards its neighbour", FONT, SMALL)
    axes.grid(**GRID)
    axes.set_aspect("equal")
    (origin,) = start.values()
    always, *others = neighbours.values()
    for (name, end), other, colour in zip(ends.items(), others, COLOURS, strict=False):
        axes.fill(*np.array([origin, always, other]).T, color=colour, alpha=0.13, linewidth=0)
        arrow = {"arrowstyle": "-|>", "linewidth": 3, "color": colour, "mutation_scale": 24}
        axes.annotate("", end, origin, arrowprops=arrow)
        _name(axes, name, end, colour)
    for name, point in {**start, **neighbours}.items():
        axes.plot(*point, "o", color="black", markersize=10)
        _name(axes, name, point, "black")
    axes.set(xlim=(-0.2, 3.75), ylim=(-0.2, 3.35))
    save_figure(figure, path)


def _name(axes, name, point, colour):
    """Write a name to the upper right of its point."""
    axes.annotate(
        name, point, (9, 7), textcoords="offset points", fontsize=FONT, color=colour
    )  # fmt: skip


def dot_products(sizes, undivided, divided, path):
    """Draw what becomes of the softmax as keys grow longer.

    undivided, divided: for each size (the largest weight, the share of queries without a slope).
    """
    panels = ("Undivided: one key takes all, ...", "... many queries hardly learn")
    scores = {
        r"$q \cdot k$, undivided": np.array(undivided),
        r"$q \cdot k \;/\; \sqrt{d_k}$": np.array(divided),
    }
    line_panels(
        {
            panel: {name: (sizes, found[:, column]) for name, found in scores.items()}
            for column, panel in enumerate(panels)
        },
        x="length of a key, $d_k$",
        y=dict(zip(panels, ("largest of 16 weights", "queries with nearly no slope"), strict=True)),
        limits=(-0.03, 1.03),
        log="x",
        path=path,
    )


def masks(no_mask, padded, causal, words, path):
    """Draw the weights without a mask and with each of the two; frame the zeros."""
    padding, future = "padding: nobody looks at it", "causal: no look at the future"
    matrices(
        {"no mask: all look at all": no_mask, padding: padded, future: causal},
        rows="query",
        columns="key",
        row_labels=words,
        column_labels=words,
        values=".2f",
        mark={padding: np.argwhere(padded == 0), future: np.argwhere(causal == 0)},
        title="A mask makes weights exactly 0 (frames)",
        path=path,
    )


def multiplications(lengths, counts, d, path):
    """Draw how many multiplications each kind of layer takes; counts: {name: for each length}."""
    lines(
        {name: (lengths, numbers) for name, numbers in counts.items()},
        x="words in the sentence, n",
        y=f"multiplications (d = {d})",
        title="Scores and averages cost less than recurrence while n < d",
        log="xy",
        notes={"n = d": (d, 2 * d**3)},
        path=path,
    )
