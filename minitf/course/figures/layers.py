"""The figures of lesson 04, layers."""

import numpy as np

from minitf.course.figures import FONT, HEIGHT, SMALL, lines, matrices, name_end, new_figure
from minitf.plot import COLOURS, GRID, curve_style, label_axes, plain_numbers, save_figure

__all__ = ["alike", "facts", "mixing", "order_of_norm", "residual", "two_means", "units"]


def alike(apart, path):
    """Draw how far the positions are apart after each layer; apart: {stack: for each layer}."""
    lines(
        {name: (range(len(shares)), shares) for name, shares in apart.items()},
        x="layers",
        y="how far words are apart",
        title="Stacked attentions make all words alike",
        limits=(-0.05, 1.05),
        path=path,
    )


def facts(sizes, errors, best_additive, path):
    """Draw the error of networks of several sizes beside that of the best additive answer."""
    lines(
        {"feed-forward network": (sizes, errors)},
        x="units of the network, $d_{ff}$",
        y="mean square error of the answers",
        title="Who likes which dish? 16 units know all 64 facts",
        log="x",
        limits=(-0.05, 1.05),
        levels={"the best additive answer": best_additive},
        notes={"every fact is known": (16, errors[sizes.index(16)], 14, 0.25)},
        path=path,
    )


def two_means(n, without_mean, left, path):
    """Draw, for three features, the part of a gradient along n and what is left without it.

    n: (3,), with mean 0 and deviation 1. without_mean: (3,), the gradient without its mean. left:
    (3,), without its part along n as well. The view is along (1, 1, 1).
    """
    across = np.array([1.0, -1.0, 0.0]) / 2**0.5
    up = np.array([-1.0, -1.0, 2.0]) / 6**0.5
    flat = {
        name: np.array([vector @ across, vector @ up])
        for name, vector in {"n": n, "u": without_mean, "left": left}.items()
    }
    figure = new_figure(9.0, 5.8)
    axes = figure.subplots()
    axes.set_title("The gradient keeps its part along the circle", fontsize=FONT)
    axes.set_axis_off()
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(3**0.5 * np.cos(angle), 3**0.5 * np.sin(angle), color="#999999", linewidth=1.5)
    tip = flat["n"]
    arrows = {
        "$n$": (0 * tip, tip, "black", "-"),
        "$u$": (tip, tip + flat["u"], COLOURS[4], "-"),
        "along $n$: taken out": (tip, tip + flat["u"] - flat["left"], COLOURS[1], "--"),
        "along the circle: stays": (tip, tip + flat["left"], COLOURS[0], "-"),
    }
    for start, end, colour, dashes in arrows.values():
        axes.annotate(
            "", end, start,
            arrowprops={"arrowstyle": "-|>", "mutation_scale": 22, "linewidth": 3, "shrinkA": 0,
                        "shrinkB": 0, "color": colour, "linestyle": dashes},
        )  # fmt: skip
    # Each name stands beside a point of its arrow, at the left or at the right.
    places = {"$n$": (0.5, 10), "$u$": (1, 10), "along $n$: taken out": (0.6, -10),
              "along the circle: stays": (1, 10)}  # fmt: skip
    for name, (share, right) in places.items():
        start, end, colour, _ = arrows[name]
        axes.annotate(
            name, start + share * (end - start), (right, 0), textcoords="offset points",
            fontsize=FONT, color=colour, va="center", ha="left" if right > 0 else "right",
        )  # fmt: skip
    axes.plot(0, 0, "o", color="black", markersize=6)
    axes.set(xlim=(-3.1, 4.6), ylim=(-1.9, 3.1), aspect="equal")
    save_figure(figure, path)


def units(likes, answers, path):
    """Draw the answers if only some units speak, with the wrong ones framed.

    likes: (8, 8), the facts. answers: {number of units: (8, 8)}.
    """
    panels, wrong = {}, {}
    for n_units, answer in answers.items():
        mistakes = np.argwhere(answer * likes < 0)
        title = f"{n_units} of 8 units:\n{len(mistakes)} answers of 64 are wrong"
        if n_units == 1:
            title = title.replace("1 of 8 units", "1 of 8 units alone")
        panels[title] = answer
        wrong[title] = [tuple(cell) for cell in mistakes]
    matrices(
        panels,
        rows="person",
        columns="dish",
        row_labels="12345678",
        column_labels="12345678",
        signed=True,
        limits=(-1.5, 1.5),
        mark=wrong,
        title="Who likes (blue) which dish? No unit knows; eight together do (framed: wrong)",
        path=path,
    )


def mixing(network, attention, path):
    """Draw how far output t moves when position s changes."""
    matrices(
        {"feed-forward: each alone": network, "attention: all mix": attention},
        rows="output t",
        columns="changed position s",
        bar="largest change",
        path=path,
    )


def residual(depths, gradients, path):
    """Draw the gradient that arrives at the input; gradients: {connection: for each depth}."""
    figure = new_figure(10.5, HEIGHT)
    axes = figure.subplots()
    title = "Sub-layers f in a row: with a norm, the gradient keeps its size"
    label_axes(axes, "layers", "gradient that arrives at the input", title, FONT, SMALL)
    axes.grid(**GRID)
    axes.set_yscale("log")
    axes.set_xscale("log", base=2)
    plain_numbers(axes.xaxis)
    lifts = {"norm(f(x))": 9, "norm(x + f(x)), the paper": -9}  # they end side by side
    for i, (name, arriving) in enumerate(gradients.items()):
        style = curve_style(i)
        axes.plot(depths, arriving, linewidth=2.5, marker="o", markersize=7, **style)
        name_end(axes, name, depths, arriving[-1], style["color"], lifts.get(name, 0))
    axes.axhline(1, color="#444444", linewidth=1.0, zorder=1)
    axes.set_xlim(depths[0] / 1.1, depths[-1])
    save_figure(figure, path)


def order_of_norm(depths, movement, path):
    """Draw how far a small change of all matrices moves the output; movement: {order: ...}."""
    lines(
        {name: (depths, moved) for name, moved in movement.items()},
        x="layers",
        y="change of the output",
        title="All matrices change by 2%: post-norm's output moves further",
        limits=(0, 0.12),
        path=path,
    )
