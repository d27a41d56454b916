"""The figures of lesson 04, layers."""

import numpy as np

from minitf.course.figures import FONT, WIDTH, lines, new_figure
from minitf.plot import COLOURS, save_figure


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
        "With 4 units and more, far below every additive answer", log="x",
        limits=(-0.05, 1.05), levels={"the best f(person) + g(dish)": best_additive},
    )  # fmt: skip


def two_means(n, without_mean, left, path):
    """Draw, for three features, the part of a move along n and what is left without it.

    n: (3,), with mean 0 and deviation 1. without_mean: (3,), the move of x without its mean. left:
    (3,), without its part along n as well. The view is along (1, 1, 1).
    """
    across = np.array([1.0, -1.0, 0.0]) / 2**0.5
    up = np.array([-1.0, -1.0, 2.0]) / 6**0.5
    tip, moves, stays = (
        np.array([vector @ across, vector @ up]) for vector in (n, without_mean, left)
    )
    lost = moves - stays
    figure = new_figure(WIDTH, 4.6)
    axes = figure.subplots()
    axes.set_title("A layer norm takes back what moves x along n", fontsize=FONT)
    axes.set_axis_off()
    angle = np.linspace(0.1, 0.9, 200) * np.pi
    axes.plot(3**0.5 * np.cos(angle), 3**0.5 * np.sin(angle), color="#999999", linewidth=1.5)
    _arrow(axes, 0 * tip, 0.97 * tip, "black")  # a gap: three arrows begin at its tip
    _arrow(axes, tip, tip + moves, COLOURS[4])
    _arrow(axes, tip, tip + lost, COLOURS[1], "--")
    _arrow(axes, tip, tip + stays, COLOURS[0])
    for part in (lost, stays):  # the other sides of the rectangle
        axes.plot(*np.transpose([tip + part, tip + moves]), ":", color="#999999", linewidth=1.5)
    axes.plot(*tip, "o", color="black", markersize=7, zorder=4)
    texts = {
        "n: the vector\nafter the norm": (0.1 * tip, (10, 0), "black"),
        "a move of x,\nwithout its mean": (tip + moves, (9, 0), COLOURS[4]),
        "part along n: lost": (tip + 0.6 * lost, (-10, 0), COLOURS[1]),
        "part along the circle:\nmoves n": (tip + stays, (10, 0), COLOURS[0]),
        "the norm puts\nevery vector\non this circle": ((-1.5, 1.3), (-6, 0), "#666666"),
    }
    for text, (point, right, colour) in texts.items():
        axes.annotate(
            text, point, right, textcoords="offset points", fontsize=FONT, color=colour,
            va="center", ha="left" if right[0] > 0 else "right",
        )  # fmt: skip
    axes.set(xlim=(-3.1, 4.1), ylim=(-0.2, 3.2), aspect="equal")
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


def residual(depths, gradients, path):
    """Draw the gradient that arrives at the input; gradients: {connection: for each depth}."""
    results = {"x + f(x)": ": explodes", "f(x)": ": vanishes"}
    lines(
        {name + results.get(name, ""): (depths, sizes) for name, sizes in gradients.items()}, path,
        "layers in a row", "gradient that arrives at the input",
        "With a norm, the gradient keeps its size through many layers", log="y",
        levels={"1: as large as at the output": 1},
    )  # fmt: skip


def order_of_norm(depths, movement, path):
    """Draw how far a small change of all matrices moves the output; movement: {order: ...}."""
    curves = {name: (depths, moved) for name, moved in movement.items()}
    title = "All matrices change by 2%: post-norm's output moves further"
    lines(curves, path, "layers", "change of the output", title, limits=(0, 0.12))
