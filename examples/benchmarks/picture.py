"""Curves of the rows that differ in one number: time against layers, width, batch, length."""

import itertools
import re

from benchmarks.rows import CONTENDERS
from minitf.plot import COLOURS, DASHES, new_figure, save_figure


def draw(results, path):
    """Draw one panel for each group of rows, such as growth-length-12 and growth-length-24.

    Times of decoding are per step, which writes one token of each sentence; all others are for all
    of the work. The suffix of the file is its format. Raises ValueError if no rows make a group.
    """
    groups = _groups(results)
    if not groups:
        raise ValueError(
            "no two rows that differ in a number were measured: there is nothing to draw"
        )
    across = min(3, len(groups))
    figure = new_figure(4.2 * across, 3.4 * -(-len(groups) // across))
    panels = figure.subplots(-(-len(groups) // across), across, squeeze=False).ravel()
    for axes, (title, points) in itertools.zip_longest(panels, groups.items(), fillvalue=("", {})):
        _panel(axes, title, points)
    figure.tight_layout()
    save_figure(figure, path)


def _groups(results):
    """Return groups of two rows or more: {beginning of the name: {number: row}}."""
    groups = {}
    for result in results:
        found = re.fullmatch(r"(growth-\w+|attention)-(\d+)", result["row"])
        if found and result["contenders"]:
            groups.setdefault(found[1], {})[int(found[2])] = result
    return {title: points for title, points in groups.items() if len(points) > 1}


def _panel(axes, title, points):
    if not points:
        axes.set_axis_off()
        return
    names = [
        name
        for name in CONTENDERS
        if any(name in result["contenders"] for result in points.values())
    ]
    for name, colour, dashes in zip(
        names, itertools.cycle(COLOURS), itertools.cycle(DASHES), strict=False
    ):
        known = {
            number: result
            for number, result in sorted(points.items())
            if name in result["contenders"]
        }
        per = [
            result["task"]["length"] if "beam" in result["task"] else 1 for result in known.values()
        ]
        medians = [result["contenders"][name]["median"] for result in known.values()]
        times = [1000 * seconds / n for seconds, n in zip(medians, per, strict=True)]
        axes.plot(
            list(known),
            times,
            color=colour,
            linestyle=dashes,
            marker=".",
            label=CONTENDERS[name].title,
        )
    what = title.removeprefix("growth-")
    axes.set_xlabel({"decode": "tokens written", "attention": "length"}.get(what, what))
    axes.set_ylabel("ms a step" if what == "decode" else "ms")
    axes.set_ylim(bottom=0)
    axes.set_title(
        "attention alone"
        if what == "attention"
        else "decoding"
        if what == "decode"
        else "a training step"
    )
    axes.legend(fontsize=8)
