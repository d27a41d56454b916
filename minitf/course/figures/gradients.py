"""The figures of lesson 02, gradients."""

import numpy as np

from minitf.course.figures import FONT, SMALL, Panel, graph, lines, matrices, new_axes
from minitf.plot import COLOURS, save_figure


def learned(queries, weights, keys, wanted, path):
    """Draw the way of a query of two numbers over the loss: one point before each update.

    queries: (n, 2). weights: (n,), of the key that is wanted; some are written at their points.
    keys: (words, 2), also the values. wanted: (1, 2), the answer whose loss is 0.
    """
    title = "The query walks downhill, and “river” gains weight"
    figure, axes = new_axes("water in the query", "money in the query", title)
    axes.grid(False)
    axes.set_aspect("equal")
    across, up = np.meshgrid(np.linspace(-0.5, 2.0, 151), np.linspace(-0.5, 1.2, 103))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    powers = np.exp(grid @ keys.T / np.sqrt(2))
    answers = powers / powers.sum(axis=1, keepdims=True) @ keys
    loss = ((answers - wanted) ** 2).sum(axis=1).reshape(across.shape)
    levels = np.arange(0, 19, 1.5)
    shades = axes.contourf(across, up, loss, levels, cmap="Blues", alpha=0.75)
    axes.contour(across, up, loss, levels, colors="white", linewidths=0.8)
    scale = figure.colorbar(shades, ax=axes, shrink=0.9)
    scale.set_label("loss L", fontsize=FONT, labelpad=8)
    scale.ax.tick_params(labelsize=SMALL)
    axes.plot(*queries.T, "o-", color="black", markersize=5, linewidth=2)
    for update in (0, 2, 5, len(queries) - 1):
        axes.plot(*queries[update], "o", color=COLOURS[1], markersize=11, markeredgecolor="black")
        last = update == len(queries) - 1  # its text stands below, where there is room
        axes.annotate(
            f"{update} updates: weight {weights[update]:.2f}", queries[update],
            (-8, -10) if last else (12, 8), textcoords="offset points", fontsize=SMALL,
            ha="right" if last else "left", va="top" if last else "bottom",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none",
                  "alpha": 0.75},
        )  # fmt: skip
    save_figure(figure, path)


def two_paths(path):
    """Draw the program u = p + q, L = u p at p = 3, q = 4, with its gradients."""
    nodes = {
        "p": (0, 1.3, "p = 3\ngradient\n7 + 1 \u00b7 3 = 10"),
        "q": (0, 0, "q = 4\ngradient 3"),
        "u": (1.5, 0, "u = p + q = 7\ngradient 3"),
        "L": (2.9, 1.3, "L = u \u00b7 p = 21\ngradient 1"),
    }
    arrows = [
        ("p", "L", "slope u = 7"),
        ("p", "u", "slope 1"),
        ("q", "u", "slope 1"),
        ("u", "L", "slope p = 3"),
    ]
    title = "Two ways lead from p to L, and both count: 7, and 1 \u00b7 3"
    graph(nodes, arrows, path, title, ways=[["p", "L"], ["p", "u", "L"]])


def order(path):
    """Draw the way back through the program b = 2a, c = 3b, d = b + c, with its gradients."""
    nodes = {
        "a": (0, 0, "a\ngradient 2 \u00b7 4 = 8"),
        "b": (1.6, 0, "b = 2a\ngradient 1 + 3 = 4"),
        "c": (2.6, 1, "c = 3b\ngradient 1"),
        "d": (3.6, 0, "d = b + c\ngradient 1"),
    }
    arrows = [
        ("b", "a", "2 \u00b7 4"),
        ("c", "b", "3 \u00b7 1"),
        ("d", "b", "1 \u00b7 1"),
        ("d", "c", "1 \u00b7 1"),
    ]
    title = "On the way back, b must wait until both gradients, 1 and 3, have come"
    graph(nodes, arrows, path, title, ways=[["d", "b"], ["d", "c", "b"]])


def attention(path):
    """Draw the way back through the four steps of attention: what each arrow hands on."""
    nodes = {
        "Q": (0, 1.2, "Q\ngQ = gS K"),
        "K": (0, 0, "K\ngK = gS\u1d40 Q"),
        "S": (1.1, 0.6, "S = Q K\u1d40"),
        "Z": (2.2, 1.2, "Z = S / \u221ad$_k$"),
        "P": (3.3, 1.2, "P = softmax(Z)"),
        "V": (3.3, 0, "V\ngV = P\u1d40 gY"),
        "Y": (4.4, 0.6, "Y = P V\ngY arrives"),
    }
    arrows = [
        ("Y", "P", "gY V\u1d40"),
        ("Y", "V", "P\u1d40 gY"),
        ("P", "Z", "gZ"),
        ("Z", "S", "gS"),
        ("S", "Q", "gS K"),
        ("S", "K", "gS\u1d40 Q"),
    ]
    title = "One gradient comes in, at Y, and three go out, at Q, K and V"
    graph(nodes, arrows, path, title, marked=("Q", "K", "V"))


def jacobian(slopes, scores, weights, path):
    """Draw the slope of each weight of a softmax for each score."""
    rows = [f"weight {n}: {y:.2f}" for n, y in enumerate(weights, 1)]
    columns = [f"score {n}: {x:.0f}" for n, x in enumerate(scores, 1)]
    panels = {"What one weight gains, the others lose": Panel(slopes, rows, columns)}
    matrices(panels, path, "weight", "score", values="+.2f", bar="slope", signed=True)


def steps(sizes, errors, path):
    """Draw the error of a measured slope over its step h, and mark the best step of each.

    errors: {precision: the error for each size}.
    """
    notes = {}
    for (name, found), height in zip(errors.items(), (1e-13, 1e-2), strict=True):
        best = int(np.argmin(found))
        text = f"{name}: best h is {sizes[best]:.0e}"
        notes[text] = (sizes[best], found[best], sizes[best] / 30, height)
    lines(
        {name: (sizes, found) for name, found in errors.items()}, path,
        "step h", "error of the measured gradient",
        "The step h of a measured slope can be too large, and too small",
        marks=False, log="xy", notes=notes, limits=(1e-14, 10),
    )  # fmt: skip
