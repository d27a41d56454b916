"""The figures of lesson 05, embeddings and positions."""

from math import pi

import numpy as np

from minitf.course.figures import FONT, SMALL, WIDTH, Panel, lines, matrices, new_figure
from minitf.plot import COLOURS, save_figure


def hands(encodings, positions, chosen, path):
    """Draw dials, a column for each position and a row for each chosen hand.

    encodings: (length, 64). The tip of hand i is at (sine, cosine), so it points up at position 0
    and turns clockwise.
    """
    figure = new_figure(WIDTH, 1.35 * len(chosen) + 1.0)
    figure.suptitle(
        f"At {positions[-1]} the fast hand is where it was at 0, the slow ones are not",
        fontsize=FONT,
    )
    grid = figure.subplots(len(chosen), len(positions), squeeze=False)
    for i, row in zip(chosen, grid, strict=True):
        for position, axes in zip(positions, row, strict=True):
            sine, cosine = encodings[position, 2 * i : 2 * i + 2]
            framed = position in (positions[0], positions[-1])  # the two to compare
            _dial(axes, sine, cosine, framed)
            if i == chosen[0]:
                axes.set_title(f"at {position}", fontsize=SMALL)
        per_round = 2 * pi * 10000 ** (2 * i / encodings.shape[1])
        row[0].set_ylabel(
            f"hand {i}:\na round in\n{per_round:.3g} positions", fontsize=SMALL, rotation=0,
            labelpad=8, ha="right", va="center",
        )  # fmt: skip
    save_figure(figure, path)


def _dial(axes, sine, cosine, framed):
    """Draw one hand on a dial; a framed dial has a thick rim."""
    angle = np.linspace(0, 2 * pi, 100)
    rim = {"color": "black", "linewidth": 2.5} if framed else {"color": "#999999", "linewidth": 1.2}
    axes.plot(np.sin(angle), np.cos(angle), **rim)
    arrow = {"arrowstyle": "-|>", "linewidth": 3, "color": COLOURS[0], "mutation_scale": 18,
             "shrinkA": 0, "shrinkB": 0}  # fmt: skip
    axes.annotate("", (0.92 * sine, 0.92 * cosine), (0, 0), arrowprops=arrow)
    axes.plot(0, 0, "o", color=COLOURS[0], markersize=5)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def distance(dots, path):
    """Draw the dot products of the position in the middle with all others."""
    half = len(dots) // 2
    lines(
        {"": (np.arange(-half, half + 1), dots)}, path, x="the other position minus this one",
        y="dot product", marks=False, limits=(0, 35), title="A position is most like itself",
    )  # fmt: skip


def back(weights, path):
    """Draw the weights of a head that looks at the word before: (positions, positions).

    Position 0 has none before it: its row is hatched.
    """
    numbers = [str(position) for position in range(len(weights))]
    shown = weights.copy()
    shown[0] = np.nan
    title = "One matrix lets every position look at the one before it"
    matrices(
        {title: Panel(shown, numbers, numbers)}, path, "the position that looks",
        "the position it looks at", limits=(0, 1), bar="weight",
    )  # fmt: skip


def bases(curves_by_base, path):
    """Draw the dot product over the distance; an arrow points at the lowest point of each curve.

    curves_by_base: {base: (distances, dot products)}.
    """
    notes = {}
    for distances, dots in curves_by_base.values():
        low = dots.argmin()
        farthest = f"{float(f'{distances[low]:.2g}'):,.0f}"
        notes[farthest] = (distances[low], dots[low], distances[low] / 2, dots[low] - 60)
    lines(
        {f"base {base:,}": curve for base, curve in curves_by_base.items()}, path,
        "distance of two positions", "how alike their sinusoids are\n(dot product)",
        "The larger the base, the farther it tells distances apart", marks=False, log="x",
        limits=(-140, 260), notes=notes,
    )  # fmt: skip


def words(cosines, names, path):
    """Draw how like the rows of some words are. cosines: (words, words)."""
    panels = {"Words that are used alike have similar rows": Panel(cosines, names, names)}
    matrices(panels, path, "", "", limits=(0, 1), bar="cosine of two rows")


def table(encodings, path):
    """Draw the whole table of the sinusoids. encodings: (positions, d_model)."""
    matrices(
        {"Fast hands on the left, slow ones on the right": Panel(encodings)}, path,
        "position", "column, two for each hand", limits=(-1, 1), bar="sine or cosine", signed=True,
    )  # fmt: skip
