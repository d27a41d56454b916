"""The lessons' figures: large enough for a slide, and readable in a grey print.

Like `plot`, every function takes plain arrays and writes one file. Curves differ in their dashes
and marks, matrices run from white (least) to dark (most), and every font can be read from the back
row.
"""

import numpy as np

from minitf.plot import (
    COLOURS,
    GRID,
    curve_style,
    label_axes,
    new_figure,
    plain_numbers,
    save_figure,
)

__all__ = ["bars", "lines", "matrices", "tree"]

WIDTH, HEIGHT = 9.0, 5.2  # inches
PADDING = 3 / 72  # inches around a panel
FONT = 16.0  # points; titles and labels
SMALL = 13.0  # points; ticks and legends
MARKS = ("o", "s", "^", "D", "v")
STATES = {  # of a node in a tree: its face, its text, its frame
    "kept": ("#cfe0f3", "black", "-"),
    "dropped": ("white", "#444444", ":"),
    "finished": ("#1f5fa8", "white", "-"),
}


def lines(curves, path, x, y, title="", log="", marks=True, limits=None):
    """Draw curves in one pair of axes.

    curves: {name in the legend: (values on the x axis, values on the y axis)}. x, y: the labels of
    the axes. log: the logarithmic axes, "", "x", "y" or "xy". marks: mark each point. limits:
    (lowest, highest) y.
    """
    figure, axes = _axes(x, y, title)
    axes.grid(**GRID)
    for i, (name, (across, up)) in enumerate(curves.items()):
        style = {"marker": MARKS[i % len(MARKS)], "markersize": 8} if marks else {}
        axes.plot(
            np.asarray(across), np.asarray(up), label=name, linewidth=2.5, **curve_style(i), **style
        )
    if "x" in log:
        axes.set_xscale("log", base=2)
        plain_numbers(axes.xaxis)
    if "y" in log:
        axes.set_yscale("log")
    if limits:
        axes.set_ylim(*limits)
    if len(curves) > 1:
        axes.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, path)


def bars(values, path, y, title="", digits=1):
    """Draw {name: number} as bars, with the numbers on top."""
    figure, axes = _axes("", y, title)
    drawn = axes.bar(
        range(len(values)), list(values.values()), 0.7, color=COLOURS[0], edgecolor="black"
    )
    axes.bar_label(drawn, fmt=f"%.{digits}f", fontsize=FONT)
    axes.set_xticks(range(len(values)), list(values), fontsize=SMALL)
    axes.margins(y=0.12)
    save_figure(figure, path)


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
):
    """Draw matrices side by side, white for the least and dark for the most of all of them.

    panels: {title: matrix}. rows, columns: the names of the axes. row_labels, column_labels: a name
    for each row and column. values: a format such as ".2f", in which the number is written into
    each cell. limits: (white, dark). bar: the quantity that the colours measure; "" draws no colour
    bar.
    Raises ValueError if the labels do not fit the matrices.
    """
    panels = {title: np.asarray(matrix, dtype=float) for title, matrix in panels.items()}
    for axis, labels in ((0, row_labels), (1, column_labels)):
        if labels is not None and any(
            matrix.shape[axis] != len(labels) for matrix in panels.values()
        ):
            raise ValueError(
                f"{path}: {len(labels)} {('row', 'column')[axis]} labels do not fit the matrices"
            )
    low, high = limits or (
        min(m.min() for m in panels.values()),
        max(m.max() for m in panels.values()),
    )
    figure = new_figure(max(WIDTH, 4.2 * len(panels)), HEIGHT, padding=0.1)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, matrix) in zip(all_axes, panels.items(), strict=True):
        first = axes is all_axes[0]
        image = axes.imshow(
            matrix, cmap="Blues", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
        axes.set_title(title, fontsize=FONT)
        axes.set_xlabel(columns, fontsize=FONT)
        axes.set_ylabel(rows if first else "", fontsize=FONT, labelpad=8)
        axes.tick_params(labelsize=SMALL)
        if column_labels is not None:
            turned = 90 if max(map(len, column_labels)) > 2 else 0
            axes.set_xticks(range(len(column_labels)), column_labels, rotation=turned)
        if row_labels is not None:
            names = row_labels if first else [""] * len(row_labels)
            axes.set_yticks(range(len(row_labels)), names)
        if values:
            _write_values(axes, matrix, values, low + 0.55 * (high - low))
    if bar:
        scale = figure.colorbar(image, ax=list(all_axes), shrink=0.9)
        scale.set_label(bar, fontsize=FONT, labelpad=8)
        scale.ax.tick_params(labelsize=SMALL)
    save_figure(figure, path)


def _write_values(axes, matrix, form, dark):
    """Write each number into its cell: white on cells that are darker than `dark`, else black."""
    for (row, column), value in np.ndenumerate(matrix):
        axes.text(
            column, row, format(value, form), ha="center", va="center",
            fontsize=SMALL - 1, color="white" if value > dark else "black",
        )  # fmt: skip


def tree(nodes, path, title=""):
    """Draw a search as a tree from left to right, one step in each column, without crossing lines.

    nodes: (parent, label, score, state) of each; parent is the index of an earlier node, None
    for the root, and state is "kept", "dropped" or "finished". The path to the best finished
    node is thick.
    Raises ValueError for an unknown state, and for a parent that is not an earlier node.
    """
    steps, columns = _columns(nodes)
    heights = {None: 0}
    for column in columns:
        # Children in the order of their parents, so that no line crosses another.
        for row, i in enumerate(sorted(column, key=lambda i: -heights[nodes[i][0]])):
            heights[i] = (len(column) - 1) / 2 - row
    longest, rows = max(len(node[1]) for node in nodes), max(map(len, columns))
    wide = max(WIDTH, len(columns) * max(1.0, 0.11 * longest + 0.5))
    figure = new_figure(wide, 0.75 * rows + 1.2, PADDING)
    axes = figure.subplots()
    axes.set_title(title, fontsize=FONT)
    axes.set_axis_off()
    thick = _path_to_best(nodes)
    for i, (parent, label, score, state) in enumerate(nodes):
        face, ink, frame = STATES[state]
        if parent is not None:
            across, up = (steps[parent], steps[i]), (heights[parent], heights[i])
            colour, width = ("black", 4) if i in thick else ("#777777", 1.5)
            axes.plot(across, up, color=colour, linewidth=width, linestyle=frame, zorder=1)
        box = {
            "boxstyle": "round,pad=0.25",
            "facecolor": face,
            "edgecolor": "black",
            "linestyle": frame,
        }
        axes.text(
            steps[i], heights[i], f"{label}\n{score:.2f}", ha="center", va="center",
            fontsize=SMALL, color=ink, bbox=box, parse_math=False,
        )  # fmt: skip
    for state, (face, _, frame) in STATES.items():
        # Outside of the limits: for the legend only.
        axes.bar(-9, 0, color=face, edgecolor="black", linestyle=frame, label=state)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-rows / 2, rows / 2))
    axes.legend(
        fontsize=SMALL, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.0)
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
    i = max(finished, key=lambda i: nodes[i][2], default=None)
    path = set()
    while i is not None:
        path.add(i)
        i = nodes[i][0]
    return path


def _axes(x, y, title):
    figure = new_figure(WIDTH, HEIGHT, PADDING)
    axes = figure.subplots()
    label_axes(axes, x, y, title, FONT, SMALL)
    return figure, axes
