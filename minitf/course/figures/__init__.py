"""The lessons' figures: large enough for a slide, and readable when printed in greyscale.

Like `plot`, every function takes plain arrays and writes one file. Curves differ in their dashes
and marks, matrices run from white (least) to dark (most), and every font can be read from the back
row.
"""

import itertools

import numpy as np

from minitf.plot import (
    COLOURS,
    GRID,
    curve_style,
    label_axes,
    plain_numbers,
    save_figure,
)
from minitf.plot import new_figure as figure_of_size

__all__ = ["bars", "dots", "graph", "line_panels", "lines", "matrices", "name_end", "tree"]

WIDTH, HEIGHT = 9.0, 5.2  # inches
DPI = 120  # dots per inch: a figure is about a thousand dots wide
PADDING = 3 / 72  # inches around a panel
FONT = 16.0  # points; titles and labels
SMALL = 13.0  # points; ticks and legends
LETTER = 0.13  # inches; the width of a letter of SMALL points
MARKS = ("o", "s", "^", "D", "v")
LEVEL = "#444444"
FRAME = {False: "#d1701c", True: "black"}  # of a marked cell, by whether the values are signed
NO_NUMBER = "0.92"  # the grey of a cell that holds nan
HATCH, HATCHED = "///", "0.45"  # its lines and their grey: in grey, some colours look like its own
MOST_SIGNS = 600  # cells of a panel; in a larger one a minus sign could not be read
SHORTEST_ARROW = 0.16  # of the axes
STATES = {  # of a node in a tree: its face, its text, its frame
    "kept": ("#cfe0f3", "black", "-"),
    "dropped": ("white", "#444444", ":"),
    "finished": ("#1f5fa8", "white", "-"),
}


def new_figure(width, height, padding=PADDING):
    """Return an empty figure of this size in inches, with the lessons' resolution."""
    return figure_of_size(width, height, padding, DPI)


# Curves -------------------------------------------------------------------------------------------


def lines(
    curves, path, x, y, title="", log="", marks=True, limits=None, levels=None, notes=None,
    singles=None,
):  # fmt: skip
    """Draw curves in one pair of axes.

    curves: {name in the legend: (values on the x axis, values on the y axis)}. x, y: the labels of
    the axes. log: the logarithmic axes, "", "x", "y" or "xy". marks: mark each point. limits:
    (lowest, highest) y. levels: {name: y} of dashed horizontal lines, each with its name above its
    right end, or, with (y, "left"), above its left end.
    notes: {text: (x, y)} of arrows, each from its text to this point. The text stands where the
    axes have more room, or, with (x, y, left, bottom), at this place.
    singles: {name of a curve: (x values, several y values for each)} of small marks, such as the
    runs of which the curve is the mean.
    """
    figure, axes = _axes(x, y, title)
    drawn = _draw_curves(axes, curves, log, marks, limits)
    by_name = dict(zip(curves, drawn, strict=True))
    for name, (across, up) in (singles or {}).items():
        curve = by_name[name]
        axes.plot(
            np.asarray(across), np.asarray(up), linestyle="", marker=curve.get_marker(),
            markersize=5, color=curve.get_color(), alpha=0.6,
        )  # fmt: skip
    _draw_levels(axes, levels or {})
    _draw_notes(axes, notes or {})
    if len(curves) > 1:
        axes.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, path)


def line_panels(panels, path, x, y, title="", log="", marks=True, limits=None):
    """Draw panels of curves side by side, each with its own y axis.

    panels: {title: curves}, with curves as in `lines`; a name has the same colour and dashes in all
    of them. x: the label of the x axes. y: the label of the y axes, or {title: label}. limits:
    (lowest, highest) y of all panels, or {title: limits}. log: as in `lines`, or {title: axes}.
    Raises ValueError if labels, limits or axes name no panel.
    """
    for chosen in (y, limits, log):
        if isinstance(chosen, dict) and not chosen.keys() <= panels.keys():
            raise ValueError(f"{path}: {set(chosen) - set(panels)} are no titles of panels")
    figure = new_figure(max(WIDTH, 5.2 * len(panels)), HEIGHT, 0.1)
    if title:
        figure.suptitle(title, fontsize=FONT)
    names = list(dict.fromkeys(itertools.chain(*panels.values())))
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    handles = {}
    for axes, (heading, curves) in zip(all_axes, panels.items(), strict=True):
        label = y.get(heading, "") if isinstance(y, dict) else y
        label_axes(axes, x, label, heading, FONT, SMALL)
        inside = limits.get(heading) if isinstance(limits, dict) else limits
        scales = log.get(heading, "") if isinstance(log, dict) else log
        drawn = _draw_curves(axes, curves, scales, marks, inside, names)
        handles |= dict(zip(curves, drawn, strict=True))
    if len(names) > 1:
        figure.legend(
            [handles[name] for name in names], names, loc="outside lower center",
            ncols=len(names), fontsize=SMALL, frameon=False,
        )  # fmt: skip
    save_figure(figure, path)


def _draw_curves(axes, curves, log, marks, limits, names=()):
    """Draw curves; return them. names: of all figures' curves, in the order of their styles."""
    axes.grid(**GRID)
    order, drawn = list(names or curves), []
    for name, (across, up) in curves.items():
        i = order.index(name)
        style = {"marker": MARKS[i % len(MARKS)], "markersize": 8} if marks else {}
        drawn += axes.plot(
            np.asarray(across), np.asarray(up), label=name, linewidth=2.5, **curve_style(i), **style
        )
    if "x" in log:
        axes.set_xscale("log", base=2)
        plain_numbers(axes.xaxis)
    if "y" in log:
        axes.set_yscale("log")
    if limits:
        axes.set_ylim(*limits)
    return drawn


def name_end(axes, name, across, height, colour, lift=0):
    """Write the name of a curve to the right of its end, `lift` points higher."""
    axes.annotate(
        name, (across[-1], height), (8, lift), textcoords="offset points", fontsize=SMALL,
        color=colour, va="center", annotation_clip=False,
    )  # fmt: skip


def _draw_levels(axes, levels):
    """Draw dashed horizontal lines, each with its name above one of its ends."""
    for name, level in levels.items():
        y, end = level if isinstance(level, tuple) else (level, "right")
        axes.axhline(y, color=LEVEL, linewidth=1.6, linestyle=(0, (6, 3)), zorder=1)
        axes.annotate(
            name, (end == "right", y), xycoords=("axes fraction", "data"),
            xytext=(-2 if end == "right" else 2, 4), textcoords="offset points", ha=end,
            va="bottom", fontsize=SMALL, color=LEVEL,
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none",
                  "alpha": 0.8},
        )  # fmt: skip


def _draw_notes(axes, notes):
    """Write texts with an arrow to their points, on the side where the axes have more room."""
    axes.autoscale_view()  # else the axes still range from 0 to 1
    for text, (x, y, *place) in notes.items():
        point = (x, y)
        to_axes = axes.transData + axes.transAxes.inverted()
        across, up = to_axes.transform(point)
        left, low = across < 0.5, up < 0.5
        beside = (
            across + SHORTEST_ARROW * (0.5 if left else -0.5),
            up + SHORTEST_ARROW * (1 if low else -1),
        )
        if place:
            left, low = True, True
            beside = to_axes.transform(place)
        axes.annotate(
            text, point, beside, textcoords="axes fraction", fontsize=SMALL,
            ha="left" if left else "right", va="bottom" if low else "top",
            arrowprops={"arrowstyle": "->", "linewidth": 1.6, "shrinkB": 6},
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "#999999"},
        )  # fmt: skip


# Numbers ------------------------------------------------------------------------------------------


def bars(values, path, y, title="", digits=1, limits=None):
    """Draw {name: number} as bars, with the numbers on top.

    limits: (lowest, highest) y. Bars are compared by their lengths, so they begin at 0: use `dots`
    for numbers that differ by a small part of themselves.
    """
    figure, axes = _axes("", y, title)
    drawn = axes.bar(
        range(len(values)), list(values.values()), 0.7, color=COLOURS[0], edgecolor="black"
    )
    axes.bar_label(drawn, fmt=f"%.{digits}f", fontsize=FONT)
    axes.set_xticks(range(len(values)), list(values), fontsize=SMALL)
    axes.margins(y=0.12)
    if limits:
        axes.set_ylim(*limits)
    save_figure(figure, path)


def dots(values, path, x, title="", form=".2f", limits=None, levels=None, start=None):
    """Draw each number as a dot in a row of its own, the first on top, with its interval if any.

    values: {name: number, or (low, middle, high)}. x: the label of the axis. form: the format of
    the number above each dot. limits: (lowest, highest) x. levels: {name: x} of vertical lines.
    start: where an arrow to each dot begins; None draws no arrows.
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
        if start is not None:
            axes.annotate(
                "", (middle, row), (start, row), zorder=2,
                arrowprops={"arrowstyle": "-|>", "linewidth": 2, "color": LEVEL, "shrinkA": 0,
                            "shrinkB": 6, "mutation_scale": 18},
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


def matrices(
    panels,
    rows="",
    columns="",
    row_labels=None,
    column_labels=None,
    values=None,
    limits=None,
    bar="",
    *,
    path,
    signed=False,
    mark=None,
    title="",
):
    """Draw matrices side by side, white for the least and dark for the most of all of them.

    panels: {title: matrix}; a cell that holds nan is hatched. rows, columns: the names of the axes.
    row_labels, column_labels: a name for each row and column, or {title: names} if they differ from
    panel to panel. values: a format such as ".2f", in which the number is written into each cell.
    limits: (white, dark). bar: the quantity that the colours measure; "" draws no colour bar. It
    ends in an arrow where numbers are beyond the limits.
    signed: draw 0 white, positive numbers blue and negative ones brown, with a minus sign in each
    cell that no number fills; the limits are then (-most, most). mark: the (row, column) of the
    cells with a thick frame in every panel, or {title: such cells}. title: above all panels.
    Raises ValueError if the labels do not fit the matrices, or a marked cell is not there.
    """
    panels = {title: np.asarray(matrix, dtype=float) for title, matrix in panels.items()}
    own_rows = isinstance(row_labels, dict)
    row_labels = _labels_of(panels, row_labels, 0, path)
    column_labels = _labels_of(panels, column_labels, 1, path)
    marked = mark if isinstance(mark, dict) else dict.fromkeys(panels, mark or ())
    low, high = limits or _limits(panels.values(), signed)
    figure = new_figure(max(WIDTH, 4.2 * len(panels)), HEIGHT, 0.1)
    if title:
        figure.suptitle(title, fontsize=FONT)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (heading, matrix) in zip(all_axes, panels.items(), strict=True):
        first = axes is all_axes[0]
        image = axes.imshow(
            matrix, cmap=_two_sided() if signed else "Blues", vmin=low, vmax=high,
            aspect="auto", interpolation="nearest",
        )  # fmt: skip
        if np.isnan(matrix).any():  # the background is seen through the cells that hold nan
            axes.patch.set(facecolor=NO_NUMBER, edgecolor=HATCHED, hatch=HATCH, linewidth=0)
        axes.set_title(heading, fontsize=FONT)
        axes.set_xlabel(columns, fontsize=FONT)
        axes.set_ylabel(rows if first else "", fontsize=FONT, labelpad=8)
        axes.tick_params(labelsize=SMALL)
        across, down = column_labels[heading], row_labels[heading]
        if across is not None:
            wide = figure.get_figwidth() / len(panels) / len(across)
            turned = 90 if LETTER * max(map(len, across)) > 0.8 * wide else 0
            axes.set_xticks(range(len(across)), across, rotation=turned)
        if down is not None:
            names = down if first or own_rows else [""] * len(down)
            axes.set_yticks(range(len(down)), names)
        if values:
            _write_values(axes, matrix, values, low, high, signed)
        elif signed and matrix.size <= MOST_SIGNS:
            _write_signs(axes, matrix, low, high)
        _frame_cells(axes, matrix, marked.get(heading, ()), FRAME[signed], path)
    figure.align_xlabels(all_axes)
    if bar:
        beyond = _beyond(panels.values(), low, high)
        scale = figure.colorbar(image, ax=list(all_axes), shrink=0.9, extend=beyond)
        scale.set_label(bar, fontsize=FONT, labelpad=8)
        scale.ax.tick_params(labelsize=SMALL)
    save_figure(figure, path)


def _labels_of(panels, labels, axis, path):
    """Return {title: labels of the panel's rows or columns}, from labels of one panel or of all."""
    labels = labels if isinstance(labels, dict) else dict.fromkeys(panels, labels)
    for title, matrix in panels.items():
        if labels[title] is not None and matrix.shape[axis] != len(labels[title]):
            raise ValueError(
                f"{path}: {len(labels[title])} {('row', 'column')[axis]} labels do not fit the "
                "matrices"
            )
    return labels


def _limits(drawn, signed):
    """Return the numbers that are drawn white (or brown) and dark blue."""
    most = max(np.nanmax(matrix) for matrix in drawn)
    least = min(np.nanmin(matrix) for matrix in drawn)
    if not signed:
        return least, most
    largest = max(most, -least)
    return -largest, largest


def _beyond(drawn, low, high):
    """Return the ends beyond which there are numbers: "neither", "min", "max" or "both"."""
    least, most = _limits(drawn, signed=False)
    rounding = 1e-6 * (high - low)
    names = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    return names.get((least < low - rounding, most > high + rounding), "both")


def _two_sided():
    """Return the colours from brown over white to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "signed", ["#8c4306", "#e08a3c", "#ffffff", "#5f9bd1", "#08407f"], N=257
    )


def _write_values(axes, matrix, form, low, high, signed):
    """Write each number into its cell: white on a dark cell, else black."""
    for (row, column), value in np.ndenumerate(matrix):
        if np.isnan(value):
            continue
        axes.text(
            column, row, format(value, form), ha="center", va="center",
            fontsize=SMALL - 1, color="white" if _is_dark(value, low, high, signed) else "black",
        )  # fmt: skip


def _write_signs(axes, matrix, low, high):
    """Write a minus sign into each negative cell: in grey, its colour is that of a positive one."""
    for (row, column), value in np.ndenumerate(matrix):
        if value < 0.02 * low:
            axes.text(
                column, row, "\u2212", ha="center", va="center", fontsize=SMALL,
                color="white" if _is_dark(value, low, high, True) else "black",
            )  # fmt: skip


def _is_dark(value, low, high, signed):
    """Return whether the colour of a value needs white ink."""
    if signed:
        return abs(value - (low + high) / 2) > 0.35 * (high - low)
    return value > low + 0.55 * (high - low)


def _frame_cells(axes, matrix, cells, colour, path):
    from matplotlib.patches import Rectangle

    for row, column in cells:
        if not (0 <= row < matrix.shape[0] and 0 <= column < matrix.shape[1]):
            raise ValueError(f"{path}: the marked cell {row, column} is not in the matrix")
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, edgecolor=colour, linewidth=3.5, clip_on=False)
        )


# Trees --------------------------------------------------------------------------------------------


def tree(nodes, path, title="", ranked=False):
    """Draw a search as a tree from left to right, one step in each column, and no lines cross.

    nodes: (parent, label, score, state) of each; parent is the index of an earlier node, None
    for the root, and state is "kept", "dropped" or "finished". The score is a number, or a text
    that ends with it and says what it measures, such as "ln P -5.05". The path to the best
    finished node is thick.
    ranked: sort each column by its scores, numbers, the largest on top, and name the steps; lines
    may cross then.
    Raises ValueError for an unknown state, and for a parent that is not an earlier node.
    """
    steps, columns = _columns(nodes)
    heights = {None: 0}
    for column in columns:
        # Children in the order of their parents, so that no line crosses another.
        order = sorted(column, key=lambda i: -heights[nodes[i][0]])
        if ranked:
            order = sorted(column, key=lambda i: -nodes[i][2])
        middle = max(map(len, columns)) if ranked else len(column)
        for row, i in enumerate(order):
            heights[i] = (middle - 1) / 2 - row
    texts = [
        f"{label}\n{score if isinstance(score, str) else format(score, '.2f')}"
        for _, label, score, _ in nodes
    ]
    longest = max(len(line) for text in texts for line in text.splitlines())
    rows = max(map(len, columns))
    wide = max(WIDTH, len(columns) * max(1.0, 0.11 * longest + 0.5))
    figure = new_figure(wide, 0.75 * rows + 1.2)
    axes = figure.subplots()
    axes.set_title(title, fontsize=FONT)
    axes.set_axis_off()
    thick = _path_to_best(nodes)
    for i, (parent, _, _, state) in enumerate(nodes):
        face, ink, frame = STATES[state]
        if parent is not None:
            across, up = (steps[parent], steps[i]), (heights[parent], heights[i])
            colour, width = ("black", 4) if i in thick else ("#777777", 1.5)
            label = "way to the best" if i == max(thick, default=None) else None
            axes.plot(
                across, up, color=colour, linewidth=width, linestyle=frame, zorder=1, label=label
            )
        box = {
            "boxstyle": "round,pad=0.25",
            "facecolor": face,
            "edgecolor": "black",
            "linestyle": frame,
        }
        axes.text(
            steps[i], heights[i], texts[i], ha="center", va="center",
            fontsize=SMALL, color=ink, bbox=box, parse_math=False,
        )  # fmt: skip
    for step in range(1, len(columns) * ranked):
        axes.text(step, rows / 2 + 0.1, f"step {step}", ha="center", fontsize=SMALL)
    for state in dict.fromkeys(node[3] for node in nodes):
        face, _, frame = STATES[state]
        # Outside of the limits: for the legend only.
        axes.bar(-9, 0, color=face, edgecolor="black", linestyle=frame, label=state)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-rows / 2, rows / 2 + 0.4 * ranked))
    axes.legend(
        fontsize=SMALL, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 0.0)
    )
    save_figure(figure, path)


def _columns(nodes):
    """Return (the step of each node, the nodes of each step)."""
    steps, columns = [], []
    for i, (parent, _, _, state) in enumerate(nodes):
        if state not in STATES or not (parent is None or 0 <= parent < i):
            raise ValueError(
                f"node {i} has the parent {parent} and the state {state!r}: the parent must be an "
                f"earlier node, and the state one of {', '.join(STATES)}"
            )
        steps.append(0 if parent is None else steps[parent] + 1)
        if steps[i] == len(columns):
            columns.append([])
        columns[steps[i]].append(i)
    return steps, columns


def _path_to_best(nodes):
    """Return the nodes from the root to the best finished node; none if no node is finished."""
    finished = [i for i, node in enumerate(nodes) if node[3] == "finished"]
    i = max(finished, key=lambda i: float(str(nodes[i][2]).split()[-1]), default=None)
    path = set()
    while i is not None:
        path.add(i)
        i = nodes[i][0]
    return path


def graph(nodes, arrows, path, title="", marked=(), ways=()):
    """Draw a computation: a box for each node, an arrow from each input to each result.

    nodes: {name: (across, up, text)}, with positions in boxes; the text is written into the box.
    arrows: (from, to, text) of each; the text is written beside the arrow. marked: the names of
    nodes that are filled. ways: lists of nodes, each a way along the arrows that has a colour and
    dashes of its own.
    Raises ValueError for an arrow or a mark of an unknown node.
    """
    looks = {
        step: (COLOURS[i], curve_style(i)["linestyle"], 3.5)
        for i, way in enumerate(ways)
        for step in itertools.pairwise(way)
    }
    named = [name for arrow in arrows for name in arrow[:2]]
    if unknown := sorted({*named, *marked} - nodes.keys()):
        raise ValueError(f"{path}: unknown nodes: {', '.join(unknown)}")
    across = [node[0] for node in nodes.values()]
    up = [node[1] for node in nodes.values()]
    wide, high = max(across) - min(across) + 1, max(up) - min(up) + 1
    figure = new_figure(max(WIDTH, 2.6 * wide), 1.5 * high + 0.8, PADDING)
    axes = figure.subplots()
    axes.set_title(title, fontsize=FONT)
    axes.set_axis_off()
    boxes = {}
    for name, (x, y, text) in nodes.items():
        face, ink, _ = STATES["finished" if name in marked else "kept"]
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


def _axes(x, y, title):
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    label_axes(axes, x, y, title, FONT, SMALL)
    return figure, axes
