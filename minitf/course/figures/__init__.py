"""The lessons' figures: large enough for a slide, and readable when printed in greyscale.

Like `plot`, every function takes plain arrays and writes one file. Curves differ in their dashes
and marks, matrices run from white (least) to dark (most), and every font can be read from the back
row.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minitf.plot import COLOURS, GRID, curve_style, label_axes, plain_numbers, save_figure
from minitf.plot import new_figure as figure_of_size

WIDTH, HEIGHT = 9.0, 5.2  # inches
DPI = 120  # dots per inch: a figure is about a thousand dots wide
PADDING = 3 / 72  # inches around a panel
FONT = 16.0  # points; titles and labels
SMALL = 13.0  # points; ticks and legends
LETTER = 0.13  # inches; the width of a letter of SMALL points
MARKS = ("o", "s", "^", "D", "v")
LEVEL = "#444444"
FRAME = "#d1701c"  # of a marked cell
NO_NUMBER = "0.92"  # the grey of a cell that holds nan
HATCH, HATCHED = "///", "0.45"  # its lines and their grey: in grey, some colours look like its own
PLAIN, MARKED = ("#cfe0f3", "black"), ("#1f5fa8", "white")  # a node's face and text


def new_figure(width, height, padding=PADDING):
    """Return an empty figure of this size in inches, with the lessons' resolution."""
    return figure_of_size(width, height, padding, DPI)


def new_axes(x, y, title, height=HEIGHT):
    """Return a figure and its only axes, with labels and a grid."""
    figure = new_figure(WIDTH, height)
    axes = figure.subplots()
    label_axes(axes, x, y, title, FONT, SMALL)
    axes.grid(**GRID)
    return figure, axes


def new_panels(n, width, height, title=""):
    """Return a figure and its n axes, side by side under one title. width: of each, in inches."""
    figure = new_figure(max(WIDTH, width * n), height, 0.1)
    if title:
        figure.suptitle(title, fontsize=FONT)
    return figure, figure.subplots(1, n, squeeze=False)[0]


# Curves -------------------------------------------------------------------------------------------


def lines(curves, path, x, y, title="", marks=True, **looks):
    """Draw curves in one pair of axes.

    curves: {name in the legend: (values on the x axis, values on the y axis)}. x, y: the labels of
    the axes. marks: mark each point. looks: of the axes, as `draw_curves` takes them.
    """
    figure, axes = new_axes(x, y, title)
    draw_curves(axes, curves, marks, **looks)
    if len(curves) > 1:
        axes.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, path)


def line_panels(panels, path, x, title="", marks=True):
    """Draw panels of curves side by side, each with its own y axis.

    panels: {title: (label of the y axis, curves, looks)}, with curves and looks as in `lines`; a
    name has the same colour and dashes in all of them. x: the label of the x axes.
    """
    figure, all_axes = new_panels(len(panels), 5.2, HEIGHT, title)
    names = list(dict.fromkeys(name for _, curves, _ in panels.values() for name in curves))
    handles = {}
    for axes, (heading, (y, curves, looks)) in zip(all_axes, panels.items(), strict=True):
        label_axes(axes, x, y, heading, FONT, SMALL)
        axes.grid(**GRID)
        handles |= draw_curves(axes, curves, marks, names, **looks)
    if len(names) > 1:
        figure.legend(
            [handles[name] for name in names], names, loc="outside lower center",
            ncols=len(names), fontsize=SMALL, frameon=False,
        )  # fmt: skip
    save_figure(figure, path)


def draw_curves(axes, curves, marks, names=(), log="", limits=None, levels=None, notes=None):
    """Draw curves; return {name: line}. names: of all panels' curves, in the order of their styles.

    Of several numbers at a place on the x axis the curve has the mean, and each is a small mark.
    log: the logarithmic axes, "", "x", "y" or "xy"; numbers on the x axis that are not far apart
    double from tick to tick. limits: (lowest, highest) y. levels: {name: y}
    of dashed horizontal lines, each with its name above its right end, or, with (y, "left"), above
    its left end. notes: {text: (x, y, left, bottom)} of arrows from a text at (left, bottom) to the
    point (x, y).
    """
    order, drawn = list(names or curves), {}
    for name, (across, up) in curves.items():
        i = order.index(name)
        style = {"marker": MARKS[i % len(MARKS)], "markersize": 8} if marks else {}
        up, looks = np.asarray(up), style | curve_style(i)
        mean = up.mean(axis=1) if up.ndim == 2 else up
        (drawn[name],) = axes.plot(np.asarray(across), mean, label=name, linewidth=2.5, **looks)
        if up.ndim == 2:
            axes.plot(across, up, **looks | {"linestyle": "", "markersize": 5, "alpha": 0.6})
    if "x" in log:
        near = max(across) / min(across) < 10_000
        axes.set_xscale("log", base=2 if near else 10)
        if near:
            plain_numbers(axes.xaxis)
    if "y" in log:
        axes.set_yscale("log")
    if limits:
        axes.set_ylim(*limits)
    for name, level in (levels or {}).items():
        _draw_level(axes, name, *(level if isinstance(level, tuple) else (level, "right")))
    for text, (across, up, left, bottom) in (notes or {}).items():
        axes.annotate(
            text, (across, up), (left, bottom), textcoords="data", fontsize=SMALL, va="bottom",
            arrowprops={"arrowstyle": "->", "linewidth": 1.6, "shrinkB": 6},
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "#999999"},
        )  # fmt: skip
    return drawn


def _draw_level(axes, name, y, end):
    """Draw a dashed horizontal line with its name above one of its ends."""
    axes.axhline(y, color=LEVEL, linewidth=1.6, linestyle=(0, (6, 3)), zorder=1)
    axes.annotate(
        name, (end == "right", y), xycoords=("axes fraction", "data"),
        xytext=(-2 if end == "right" else 2, 4), textcoords="offset points", ha=end,
        va="bottom", fontsize=SMALL, color=LEVEL,
        bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none",
              "alpha": 0.8},
    )  # fmt: skip


# Numbers ------------------------------------------------------------------------------------------


def dots(values, path, x, title="", form=".2f", limits=None, levels=None):
    """Draw each number as a dot in a row of its own, the first on top, with its interval if any.

    values: {name: number, or (low, middle, high)}. x: the label of the axis. form: the format of
    the number above each dot. limits: (lowest, highest) x. levels: {name: x} of vertical lines.
    """
    figure = new_figure(WIDTH, 0.75 * len(values) + 1.7)
    axes = figure.subplots()
    figure.suptitle(title, fontsize=FONT)
    label_axes(axes, x, "", "", FONT, SMALL)
    axes.grid(axis="x", **GRID)
    for row, value in enumerate(values.values()):
        low, middle, high = value if np.ndim(value) else (value, value, value)
        axes.plot([low, high], [row, row], color=COLOURS[0], linewidth=4, alpha=0.45, zorder=2)
        axes.plot(middle, row, "o", color=COLOURS[0], markersize=11, zorder=3)
        axes.annotate(
            f"{middle:{form}}".replace("-", "\u2212"), (middle, row), (0, 8),
            textcoords="offset points", ha="center", va="bottom", fontsize=FONT, color=COLOURS[0],
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none"},
        )  # fmt: skip
    for name, level in (levels or {}).items():
        axes.axvline(level, color=LEVEL, linewidth=1.6, linestyle=(0, (6, 3)), zorder=1)
        axes.annotate(
            name, (level, 1), (0, 2), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=SMALL, color=LEVEL,
        )  # fmt: skip
    axes.set_yticks(range(len(values)), list(values), fontsize=SMALL)
    axes.set_ylim(len(values) - 0.5, -0.65)
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=7)
    if limits:
        axes.set_xlim(*limits)
    save_figure(figure, path)


# Matrices -----------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """A matrix, with a name for each row and column, and the (row, column) of each framed cell."""

    matrix: np.ndarray
    rows: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    framed: Sequence[tuple[int, int]] = ()


def matrices(panels, path, rows, columns, title="", values="", limits=None, bar="", signed=False):
    """Draw matrices side by side, white for the least and dark for the most of all of them.

    panels: {title: Panel}; a cell that holds nan is hatched, and names of rows that are those of
    the first panel are not repeated. rows, columns: the names of the axes. title: above all panels.
    values: a format such as ".2f", in which the number is written into each cell.
    limits: (white, dark). bar: the quantity that the colours measure; "" draws no colour bar. It
    ends in an arrow if numbers are below the limits.
    signed: draw 0 white, positive numbers blue and negative ones brown.
    """
    drawn = [np.asarray(panel.matrix, dtype=float) for panel in panels.values()]
    least, most = min(map(np.nanmin, drawn)), max(map(np.nanmax, drawn))
    largest = max(most, -least)
    low, high = limits or ((-largest, largest) if signed else (least, most))
    figure, all_axes = new_panels(len(panels), 4.2, HEIGHT, title)
    first = next(iter(panels.values()))
    for axes, matrix, (heading, panel) in zip(all_axes, drawn, panels.items(), strict=True):
        image = axes.imshow(
            matrix, cmap=_two_sided() if signed else "Blues", vmin=low, vmax=high,
            aspect="auto", interpolation="nearest",
        )  # fmt: skip
        if np.isnan(matrix).any():  # the background is seen through the cells that hold nan
            axes.patch.set(facecolor=NO_NUMBER, edgecolor=HATCHED, hatch=HATCH, linewidth=0)
        axes.set_title(heading, fontsize=FONT)
        axes.set_xlabel(columns, fontsize=FONT)
        axes.set_ylabel(rows if panel is first else "", fontsize=FONT, labelpad=8)
        axes.tick_params(labelsize=SMALL)
        if panel.columns is not None:
            wide = figure.get_figwidth() / len(panels) / len(panel.columns)
            turned = 90 if LETTER * max(map(len, panel.columns)) > 0.8 * wide else 0
            axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=turned)
        if panel.rows is not None:
            repeated = panel is not first and panel.rows == first.rows
            names = [""] * len(panel.rows) if repeated else panel.rows
            axes.set_yticks(range(len(panel.rows)), names)
        if values:
            _write_values(axes, matrix, values, image)
        _frame_cells(axes, panel.framed)
    figure.align_xlabels(all_axes)
    if bar:
        beyond = "min" if least < low - 1e-6 * (high - low) else "neither"
        scale = figure.colorbar(image, ax=list(all_axes), shrink=0.9, extend=beyond)
        scale.set_label(bar, fontsize=FONT, labelpad=8)
        scale.ax.tick_params(labelsize=SMALL)
    save_figure(figure, path)


def _two_sided():
    """Return the colours from brown over white to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "signed", ["#8c4306", "#e08a3c", "#ffffff", "#5f9bd1", "#08407f"], N=257
    )


def _write_values(axes, matrix, form, image):
    """Write each number into its cell: white on a dark cell, else black."""
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            red, green, blue, _ = image.to_rgba(value)
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
            axes.text(
                column, row, format(value, form), ha="center", va="center",
                fontsize=SMALL - 1, color="white" if dark else "black",
            )  # fmt: skip


def _frame_cells(axes, cells):
    from matplotlib.patches import Rectangle

    for row, column in cells:
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, edgecolor=FRAME, linewidth=3.5, clip_on=False)
        )


# Graphs ------------------------------------------------------------------------------------------


def graph(nodes, arrows, path, title="", marked=(), ways=()):
    """Draw a computation: a box for each node, an arrow from each input to each result.

    nodes: {name: (across, up, text)}, with positions in boxes; the text is written into the box.
    arrows: (from, to, text) of each; the text is written beside the arrow. marked: the names of
    nodes that are filled. ways: lists of nodes, each a way along the arrows that has a colour and
    dashes of its own.
    """
    looks = {
        step: (COLOURS[i], curve_style(i)["linestyle"], 3.5)
        for i, way in enumerate(ways)
        for step in itertools.pairwise(way)
    }
    across = [node[0] for node in nodes.values()]
    up = [node[1] for node in nodes.values()]
    wide, high = max(across) - min(across) + 1, max(up) - min(up) + 1
    figure = new_figure(max(WIDTH, 2.6 * wide), 1.5 * high + 0.8, PADDING)
    axes = figure.subplots()
    axes.set_title(title, fontsize=FONT)
    axes.set_axis_off()
    boxes = {}
    for name, (x, y, text) in nodes.items():
        face, ink = MARKED if name in marked else PLAIN
        box = {"boxstyle": "round,pad=0.4", "facecolor": face, "edgecolor": "black"}
        boxes[name] = axes.text(
            x, y, text, ha="center", va="center", fontsize=FONT, color=ink, bbox=box, zorder=1
        ).get_bbox_patch()
    for start, end, text in arrows:
        (x, y, _), (to_x, to_y, _) = nodes[start], nodes[end]
        colour, dashes, width = looks.get((start, end), ("black", "-", 2))
        strokes = [("-|>", width, 2, 24)]
        if dashes != "-":  # the dashed line ends inside its head, which is solid
            strokes = [("-", width, 14, 24), ("-|>", 0, 2, 36)]
        for style, stroke, gap, head in strokes:
            axes.annotate(
                "", (to_x, to_y), (x, y), zorder=2,  # after the boxes, whose edges it looks for
                arrowprops={"arrowstyle": style, "linewidth": stroke, "color": colour,
                            "linestyle": dashes if style == "-" else "-", "patchA": boxes[start],
                            "patchB": boxes[end], "shrinkB": gap, "mutation_scale": head},
            )  # fmt: skip
        axes.text(
            (x + to_x) / 2, (y + to_y) / 2, text, ha="center", va="center", fontsize=FONT,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, zorder=3,
        )  # fmt: skip
    axes.set(xlim=(min(across) - 0.5, max(across) + 0.5), ylim=(min(up) - 0.5, max(up) + 0.5))
    save_figure(figure, path)
