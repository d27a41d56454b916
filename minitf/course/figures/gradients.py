"""The figures of lesson 02, gradients."""

import numpy as np

from minitf.course.figures import graph, lines, matrices

__all__ = ["jacobian", "learned", "order", "steps", "two_paths"]


def learned(updates, words, weights, path):
    """Draw the weights of a query after so many updates, a row each; frame the last success."""
    matrices(
        {"The query learns to look at “river”": weights},
        values=".2f",
        row_labels=[f"{n} updates" for n in updates],
        column_labels=words,
        limits=(0, 1),
        mark=[(len(updates) - 1, words.index("river"))],
        path=path,
    )


def two_paths(path):
    """Draw the program u = p + q, L = u p at p = 3, q = 4, with its gradients."""
    graph(
        {
            "p": (0, 1, "p = 3\ngradient 7 + 3 = 10"),
            "q": (0, 0, "q = 4\ngradient 3"),
            "u": (1.4, 0, "u = p + q = 7\ngradient 3"),
            "L": (2.8, 0.8, "L = u p = 21\ngradient 1"),
        },
        [
            ("p", "L", "slope u = 7"),
            ("p", "u", "slope 1"),
            ("q", "u", "slope 1"),
            ("u", "L", "slope p = 3"),
        ],
        title="Two ways lead from p to L, and both count",
        marked=["p"],
        path=path,
    )


def order(path):
    """Draw the program b = 2a, c = 3b, d = b + c, with its gradients."""
    graph(
        {
            "a": (0, 0, "a\ngradient 2 x 4 = 8"),
            "b": (1.6, 0, "b = 2a\ngradient 1 + 3 = 4"),
            "c": (2.6, 1, "c = 3b\ngradient 1"),
            "d": (3.6, 0, "d = b + c\ngradient 1"),
        },
        [
            ("a", "b", "slope 2"),
            ("b", "c", "slope 3"),
            ("b", "d", "slope 1"),
            ("c", "d", "slope 1"),
        ],
        title="b must wait for both of its gradients",
        marked=["b"],
        path=path,
    )


def jacobian(slopes, scores, weights, path):
    """Draw the slope of each weight of a softmax for each score."""
    matrices(
        {"What one weight gains, the others lose": slopes},
        values="+.2f",
        rows="weight",
        columns="score",
        row_labels=[f"weight {n}: {y:.2f}" for n, y in enumerate(weights, 1)],
        column_labels=[f"score {n}: {x:.0f}" for n, x in enumerate(scores, 1)],
        signed=True,
        path=path,
    )


def steps(sizes, errors, path):
    """Draw the error of a measured gradient over the size of its step.

    errors: {precision: the error for each size}.
    """
    lines(
        {name: (np.log10(sizes), found) for name, found in errors.items()},
        x="step h, as a power of ten",
        y="error of the measured gradient",
        title="A step can be too large, and too small",
        log="y",
        path=path,
    )
