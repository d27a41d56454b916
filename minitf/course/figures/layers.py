"""The figures of lesson 04, layers."""

import numpy as np

from minitf.course.figures import (
    FONT,
    LEVEL,
    SMALL,
    WIDTH,
    Panel,
    lines,
    matrices,
    name_end,
    new_axes,
    new_figure,
    new_panels,
)  # fmt: skip
from minitf.plot import COLOURS, curve_style, save_figure

RIGHT, WRONG = "#dfe8f2", "#e08a3c"  # of an answer


def alike(apart, path):
    """Draw how far the positions are apart after each layer; apart: {stack: for each layer}."""
    curves = {name: (range(len(shares)), shares) for name, shares in apart.items()}
    title = "Stacked attentions make all words alike"
    lines(curves, path, "layers", "how far words are apart", title, limits=(-0.05, 1.05))


def facts(sizes, errors, best_additive, path):
    """Draw the error of networks of several sizes beside that of the best additive answer."""
    lines(
        {"feed-forward network": (sizes, errors)}, path,
        "units of the network, $d_{ff}$", "mean square error of the answers",
        "From 4 units on, the network beats every additive answer", log="x",
        limits=(-0.05, 1.05), levels={"the best f(person) + g(dish)": best_additive},
    )  # fmt: skip


def two_means(n, without_mean, left, path):
    """Draw, for three features, the part of a gradient along n and what is left without it.

    n: (3,), with mean 0 and deviation 1. without_mean: (3,), the gradient without its mean. left:
    (3,), without its part along n as well. The view is along (1, 1, 1).
    """
    across = np.array([1.0, -1.0, 0.0]) / 2**0.5
    up = np.array([-1.0, -1.0, 2.0]) / 6**0.5
    tip, arrives, stays = (
        np.array([vector @ across, vector @ up]) for vector in (n, without_mean, left)
    )
    lost = arrives - stays
    figure = new_figure(WIDTH, 4.6)
    axes = figure.subplots()
    axes.set_title("Back through a layer norm, the gradient loses its part along n", fontsize=FONT)
    axes.set_axis_off()
    angle = np.linspace(0.1, 0.9, 200) * np.pi
    axes.plot(3**0.5 * np.cos(angle), 3**0.5 * np.sin(angle), color="#999999", linewidth=1.5)
    _arrow(axes, 0 * tip, 0.97 * tip, "black")  # a gap: three arrows begin at its tip
    _arrow(axes, tip, tip + arrives, COLOURS[4])
    _arrow(axes, tip, tip + lost, COLOURS[1], "--")
    _arrow(axes, tip, tip + stays, COLOURS[0])
    for part in (lost, stays):  # the other sides of the rectangle
        axes.plot(*np.transpose([tip + part, tip + arrives]), ":", color="#999999", linewidth=1.5)
    axes.plot(*tip, "o", color="black", markersize=7, zorder=4)
    texts = {
        "n: the vector\nafter the norm": (0.45 * tip, (10, 0), "black"),
        "the gradient u that arrives\nat n, without its mean": (tip + arrives, (10, 0), COLOURS[4]),
        "part along n: lost": (tip + 0.6 * lost, (-10, 0), COLOURS[1]),
        "part along the circle:\npasses back": (tip + stays, (10, 0), COLOURS[0]),
        "the norm puts\nevery vector\non this circle": ((-1.5, 1.3), (-6, 0), "#666666"),
    }
    for text, (point, right, colour) in texts.items():
        axes.annotate(
            text, point, right, textcoords="offset points", fontsize=FONT, color=colour,
            va="center", ha="left" if right[0] > 0 else "right",
        )  # fmt: skip
    axes.set(xlim=(-3.1, 4.1), ylim=(-0.1, 2.95), aspect="equal")
    save_figure(figure, path)


def _arrow(axes, start, end, colour, dashes="-"):
    """Draw an arrow whose head is solid, also if its line is dashed."""
    neck = end - 0.1 * (end - start) / np.linalg.norm(end - start)
    axes.plot(*np.transpose([start, neck]), dashes, color=colour, linewidth=3)
    axes.annotate(
        "", end, neck,
        arrowprops={"arrowstyle": "-|>", "mutation_scale": 24, "linewidth": 0, "shrinkA": 0,
                    "shrinkB": 0, "color": colour},
    )  # fmt: skip


def units(likes, answers, path):
    """Draw which answers are wrong if only some units speak.

    likes: (8, 8), the facts. answers: {number of units: (8, 8)}.
    """
    from matplotlib.colors import ListedColormap

    title = "No unit alone knows the facts; all 8 together do"
    figure, all_axes = new_panels(len(answers), 0, 4.4, title)
    right_or_wrong = ListedColormap((RIGHT, WRONG))
    for axes, (n_units, answer) in zip(all_axes, answers.items(), strict=True):
        wrong = answer * likes < 0
        axes.pcolormesh(
            wrong, cmap=right_or_wrong, vmin=0, vmax=1, edgecolors="white", linewidth=1.5
        )
        for row, column in np.argwhere(wrong):
            axes.text(column + 0.5, row + 0.54, "\u00d7", ha="center", va="center", fontsize=FONT)
        who = "1 unit alone" if n_units == 1 else f"{n_units} units"
        who = f"all {n_units} units" if n_units == max(answers) else who
        axes.set_title(f"{who}:\n{wrong.sum()} of 64 wrong", fontsize=FONT)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        axes.set_xlabel("8 dishes", fontsize=SMALL)
        axes.set_ylabel("8 people" if n_units == 1 else "", fontsize=SMALL)
    figure.supxlabel(
        "a cell: “does this person like this dish?”   \u00d7: the answer is wrong", fontsize=SMALL
    )
    save_figure(figure, path)


def mixing(network, attention, path):
    """Draw how far output t moves when position s changes."""
    panels = {
        "feed-forward: each alone": Panel(network),
        "attention: all mix": Panel(attention),
    }
    matrices(panels, path, "output t", "changed position s", bar="largest change")


def residual(depths, gradients, path):
    """Draw the gradient that arrives at the input; gradients: {connection: for each depth}."""
    title = "With a norm, the gradient keeps its size through many layers"
    y = "gradient that arrives at the input"
    figure, axes = new_axes("layers in a row", y, title, width=10.5)
    axes.set_yscale("log")
    axes.set_xticks(depths)
    results = {"x + f(x)": ": explodes", "f(x)": ": vanishes", "norm(x + f(x))": ", the paper"}
    lifts = {"norm(f(x))": -9, "norm(x + f(x))": 9}  # they end side by side
    for i, (name, arriving) in enumerate(gradients.items()):
        style = curve_style(i)
        layer = name.removesuffix(", the paper")
        axes.plot(depths, arriving, linewidth=2.5, marker="o", markersize=7, **style)
        text = layer + results.get(layer, "")
        name_end(axes, text, depths, arriving[-1], style["color"], lifts.get(layer, 0))
    axes.axhline(1, color=LEVEL, linewidth=1.0, zorder=1)
    axes.annotate(
        "1: as large as at the output", (12, 1), (0, 8), textcoords="offset points", ha="center",
        va="bottom", fontsize=SMALL, color=LEVEL,
    )  # fmt: skip
    axes.set_xlim(depths[0] / 1.1, depths[-1] * 1.06)
    save_figure(figure, path)


def order_of_norm(depths, movement, path):
    """Draw how far a small change of all matrices moves the output; movement: {order: ...}."""
    curves = {name: (depths, moved) for name, moved in movement.items()}
    title = "All matrices change by 2%: post-norm's output moves further"
    lines(curves, path, "layers", "change of the output", title, limits=(0, 0.12))
