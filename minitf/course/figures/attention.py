"""The figures of lesson 01, attention."""

import numpy as np

from minitf.course.figures import FONT, Panel, line_panels, lines, matrices, new_axes
from minitf.plot import COLOURS, save_figure


def translation(weights, german, english, looking, looked_at, path):
    """Draw which source word each word of a translation looks at; frame one such look."""
    title = f"To write “{looking}”, the model looks back at “{looked_at}”"
    look = german.index(looking), english.index(looked_at)
    matrices(
        {title: Panel(weights, german, english, [look])}, path, "the model writes", "and looks at",
        bar="attention weight", limits=(0, 1),
    )  # fmt: skip


def moved_words(start, ends, neighbours, path):
    """Draw arrows from where a word was to where each neighbour has moved it.

    start, and the values of ends and neighbours: points (water, money), with their names as keys.
    The first of neighbours stands beside the word in all cases; each other one belongs to an end.
    The triangle of the word and these two is shaded: an average of the three is inside.
    """
    title = "A word moves towards its neighbour"
    figure, axes = new_axes("water", "money", title, height=6.4)
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
    axes.annotate(name, point, (9, 7), textcoords="offset points", fontsize=FONT, color=colour)


def dot_products(sizes, undivided, divided, path):
    """Draw what becomes of the softmax as keys grow longer.

    undivided, divided: for each size (the largest weight, the share of queries without a slope).
    """
    panels = {
        "Undivided: one key takes all, ...": "largest of 16 weights",
        "... many queries hardly learn": "queries with nearly no slope",
    }
    scores = {
        r"$q \cdot k$, undivided": np.array(undivided),
        r"$q \cdot k \;/\; \sqrt{d_k}$": np.array(divided),
    }
    looks = {"limits": (-0.03, 1.03), "log": "x"}
    curves = {
        panel: (y, {name: (sizes, found[:, column]) for name, found in scores.items()}, looks)
        for column, (panel, y) in enumerate(panels.items())
    }
    line_panels(curves, path, "length of a key, $d_k$")


def masks(no_mask, padded, causal, words, path):
    """Draw the weights without a mask and with each of the two; frame the zeros."""
    weights = {
        "no mask: all look at all": no_mask,
        "padding: nobody looks at it": padded,
        "causal: no look at the future": causal,
    }
    panels = {title: Panel(w, words, words, np.argwhere(w == 0)) for title, w in weights.items()}
    title = "A mask makes weights exactly 0 (frames)"
    matrices(panels, path, "query", "key", title, values=".2f")


def multiplications(lengths, counts, d, path):
    """Draw how many multiplications each kind of layer takes; counts: {name: for each length}."""
    lines(
        {name: (lengths, numbers) for name, numbers in counts.items()}, path,
        "words in the sentence, n", f"multiplications (d = {d})",
        "Scores and averages cost less than recurrence while n < d",
        log="xy", notes={"n = d": (d, 2 * d**3, 1.45 * d, 8.6 * d**3)},
    )  # fmt: skip
