"""Figures for a slide: few, large, and readable when printed in grey. The lessons draw with these.

Like `plot`, it takes plain arrays and writes one file. Curves are told apart by their dashes and
marks, matrices run from white (least) to dark (most), and every font can be read from the back row.
"""

import numpy as np

from minitf.plot import COLOURS, DASHES, new_figure, save_figure

__all__ = ["bars", "lines", "matrices", "tree"]

FONT = 16.0  # points, on a figure 9 inches wide
SMALL = 13.0
MARKS = ("o", "s", "^", "D", "v")
STATES = {  # of a node in a tree: its face, its text, its frame
    "kept": ("#cfe0f3", "black", "-"),
    "dropped": ("white", "#444444", ":"),
    "finished": ("#1f5fa8", "white", "-"),
}


def lines(curves, path, x, y, title="", log="", marks=True, limits=None):
    """Draw curves over one axis.

    curves: {name in the legend: (values on the x axis, values on the y axis)}.
    x, y: what the axes show. log: the axes that are logarithmic, "", "x", "y" or "xy". limits:
    (lowest, highest) y.
    """
    figure, axes = _axes(x, y, title)
    for i, (name, (across, up)) in enumerate(curves.items()):
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i % len(DASHES)],
            "linewidth": 2.5,
        }
        if marks:
            style |= {"marker": MARKS[i % len(MARKS)], "markersize": 8}
        axes.plot(np.asarray(across), np.asarray(up), label=name, **style)
    if "x" in log:
        axes.set_xscale("log", base=2)
        _plain_numbers(axes.xaxis)
    if "y" in log:
        axes.set_yscale("log")
    if limits:
        axes.set_ylim(*limits)
    axes.grid(color="#dddddd", linewidth=0.8)
    if len(curves) > 1:
        axes.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, path)


def bars(values, path, y, title="", digits=1):
    """Draw a bar for each name, with its number on top. values: {name: number}."""
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

    panels: {title: matrix}. rows, columns: what the axes show. row_labels, column_labels: a name
    for each row and column. values: a format such as ".2f" writes the number into each cell.
    limits: (white, dark). bar: what the colours measure; without it there is no colour bar. Raises
    ValueError where the labels do not fit the matrices.
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
    figure = new_figure(max(9.0, 4.2 * len(panels)), 5.2)
    figure.set_layout_engine("constrained", w_pad=0.1)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, matrix) in zip(all_axes, panels.items(), strict=True):
        image = axes.imshow(
            matrix, cmap="Blues", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
        axes.set_title(title, fontsize=FONT)
        axes.set_xlabel(columns, fontsize=FONT)
        axes.set_ylabel(rows if axes is all_axes[0] else "", fontsize=FONT, labelpad=8)
        axes.tick_params(labelsize=SMALL)
        if column_labels is not None:
            turned = 90 if max(map(len, column_labels)) > 2 else 0
            axes.set_xticks(range(len(column_labels)), column_labels, rotation=turned)
        if row_labels is not None:
            axes.set_yticks(
                range(len(row_labels)),
                row_labels if axes is all_axes[0] else [""] * len(row_labels),
            )
        if values:
            for (row, column), value in np.ndenumerate(matrix):
                dark = value > low + 0.55 * (high - low)
                axes.text(
                    column, row, format(value, values), ha="center", va="center",
                    fontsize=SMALL - 1, color="white" if dark else "black",
                )  # fmt: skip
    if bar:
        scale = figure.colorbar(image, ax=list(all_axes), shrink=0.9)
        scale.set_label(bar, fontsize=FONT, labelpad=8)
        scale.ax.tick_params(labelsize=SMALL)
    save_figure(figure, path)


def tree(nodes, path, title=""):
    """Draw a search as a tree, from left to right, one step in each column; no line
    crosses another.

    nodes: (parent, label, score, state) of each; parent is the index of an earlier node, None
    for the root, and state is "kept", "dropped" or "finished". The way to the best finished
    node is thick.
    Raises ValueError for an unknown state and for a parent that does not come earlier.
    """
    columns, steps = [], []  # of each step: its nodes; of each node: its step
    for i, (parent, _, _, state) in enumerate(nodes):
        if state not in STATES or not (parent is None or 0 <= parent < i):
            raise ValueError(
                f"node {i} has the parent {parent} and the state {state!r}: give others"
            )
        steps.append(0 if parent is None else steps[parent] + 1)
        columns += [[]] if steps[i] == len(columns) else []
        columns[steps[i]].append(i)
    heights = {None: 0}
    # Children in the order of their parents, so that no line crosses another.
    for column in columns:
        for row, i in enumerate(sorted(column, key=lambda i: -heights[nodes[i][0]])):
            heights[i] = (len(column) - 1) / 2 - row
    best = max((node[2] for node in nodes if node[3] == "finished"), default=None)
    i = next((i for i, node in enumerate(nodes) if node[2:] == (best, "finished")), None)
    way = set()
    while i is not None:
        way.add(i)
        i = nodes[i][0]

    longest, rows = max(len(node[1]) for node in nodes), max(map(len, columns))
    figure = new_figure(max(9.0, len(columns) * max(1.0, 0.11 * longest + 0.5)), 0.75 * rows + 1.2)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=FONT)
    axes.set_axis_off()
    for i, (parent, label, score, state) in enumerate(nodes):
        face, ink, frame = STATES[state]
        if parent is not None:
            line = (
                {"color": "black", "linewidth": 4}
                if i in way
                else {"color": "#777777", "linewidth": 1.5}
            )
            axes.plot(
                (steps[parent], steps[i]),
                (heights[parent], heights[i]),
                linestyle=frame,
                zorder=1,
                **line,
            )
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
        axes.bar(-9, 0, color=face, edgecolor="black", linestyle=frame, label=state)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-rows / 2, rows / 2))
    axes.legend(
        fontsize=SMALL, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.0)
    )
    save_figure(figure, path)


def _axes(x, y, title):
    figure = new_figure(9, 5.2)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.set_xlabel(x, fontsize=FONT)
    axes.set_ylabel(y, fontsize=FONT)
    axes.set_title(title, fontsize=FONT)
    axes.tick_params(labelsize=SMALL)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _plain_numbers(axis):
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
