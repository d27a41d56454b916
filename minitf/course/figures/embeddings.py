"""The figures of lesson 05, embeddings and positions."""

from math import pi, sqrt

import numpy as np

from minitf.course.figures import bars, line_panels, lines, matrices

__all__ = ["alone", "back", "bases", "distance", "hands", "lengths"]


def hands(encodings, path):
    """Draw the sines of three hands. encodings: (positions, 64)."""
    positions = np.arange(len(encodings))
    panels = {}
    for i in (0, 8, 16):
        per_round = 2 * pi * 10000 ** (2 * i / 64)
        title = f"hand {i}: one round in {per_round:.0f} positions"
        panels[title] = {"": (positions, encodings[:, 2 * i])}
    line_panels(
        panels, path, x="position", y="sine of the angle", marks=False, limits=(-1.1, 1.1),
        title="Fast hands tell neighbours apart, slow ones tell where in the sentence",
    )  # fmt: skip


def alone(all_hands, one_hand, path):
    """Draw the distance of each position from position 0."""
    positions = np.arange(len(one_hand))
    curves = {"32 hands": (positions, all_hands), "one hand": (positions, one_hand)}
    lines(
        curves, path, x="position", y="distance from position 0", marks=False,
        title="With 32 hands, no position looks like 0",
    )  # fmt: skip


def distance(sinusoids, random_rows, path):
    """Draw the dot products of the position in the middle with all others."""
    half = len(sinusoids) // 2
    across = np.arange(-half, half + 1)
    curves = {"sinusoids": (across, sinusoids), "random rows": (across, random_rows)}
    lines(
        curves, path, x="the other position minus this one", y="dot product", marks=False,
        title="With sinusoids, near positions are alike",
    )  # fmt: skip


def back(soft, sharp, path):
    """Draw the weights of a head that looks at the word before: (positions, positions) each."""
    numbers = [str(position) for position in range(len(soft))]
    matrices(
        {"turned one step back": soft, "and 16 times as large": sharp}, rows="position that asks",
        columns="position asked", row_labels=numbers, column_labels=numbers, limits=(0, 1),
        title="One matrix lets each position look at the one before", path=path,
    )  # fmt: skip


def bases(curves_by_base, path):
    """Draw the dot product over the distance. curves_by_base: {base: (distances, dot products)}."""
    curves = {f"base {base}": curve for base, curve in curves_by_base.items()}
    lines(
        curves, path, x="distance of two positions", y="dot product", log="x", marks=False,
        title="Each base tells distances up to one and a half times itself",
    )  # fmt: skip


def lengths(row, position, d_model, path):
    """Draw the lengths of a row of the table, as it is and scaled, and of a position."""
    values = {
        "a row of E": row,
        "a row times sqrt(d_model)": row * sqrt(d_model),
        "PE": position,
    }
    bars(
        values, path, y=f"length (d_model = {d_model})",
        title="Without the factor, a position would drown the word",
    )  # fmt: skip
