"""The figures of lesson 01, attention."""

import numpy as np

from minitf.course.figures import (
    FONT,
    HEIGHT,
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
        {"The last word looks back at the fifth": weights},
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
    """
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    title = "Its neighbour pulls a word to its side"
    label_axes(axes, "water", "money", title, FONT, SMALL)
    axes.grid(**GRID)
    (origin,) = start.values()
    for (name, end), colour in zip(ends.items(), COLOURS, strict=False):
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


def dot_products(sizes, largest, slopes, path):
    """Draw what becomes of the softmax as keys grow longer.

    largest, slopes: {name of the scores: a number for each size}.
    """
    one_key, no_slope = "Undivided, the softmax picks one key ...", "... and stops learning"
    line_panels(
        {
            one_key: {name: (sizes, numbers) for name, numbers in largest.items()},
            no_slope: {name: (sizes, numbers) for name, numbers in slopes.items()},
        },
        x="length of a key, $d_k$",
        y={one_key: "largest of 16 weights", no_slope: "slope of a weight"},
        limits={one_key: (0, 1), no_slope: (0, 0.06)},
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
        path=path,
    )


def multiplications(lengths, counts, d, path):
    """Draw how many multiplications each kind of layer takes; counts: {name: for each length}."""
    lines(
        {name: (lengths, numbers) for name, numbers in counts.items()},
        x="words in the sentence, n",
        y=f"multiplications (d = {d})",
        title="Attention is cheaper while n < d",
        log="xy",
        notes={"n = d": (d, 2 * d**3)},
        path=path,
    )
