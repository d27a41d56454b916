"""The figures of lesson 09, training on WMT."""

import itertools

import numpy as np

from minitf.course.figures import (
    FONT,
    LEVEL,
    MARKS,
    SMALL,
    WIDTH,
    dots,
    graph,
    line_panels,
    lines,
    new_axes,
    new_figure,
)  # fmt: skip
from minitf.plot import COLOURS, curve_style, plain_numbers, save_figure

CORNERS = [(-1, 0.9), (1, 0.9), (1, -0.9), (-1, -0.9)]  # of the ring
SHADES = ("#e4eef8", "#a9cbe8", "#3f86c0", "#08407f")  # of a sum of 1, 2, 3 and 4 GPUs


def stations(path):
    """Draw the way from a text to a score, with the numbers of the paper's base model."""
    texts = {
        "text": "text\n4.5 million pairs",
        "pieces": "pieces\n37,000",
        "batches": "batches\n25,000 tokens each",
        "GPUs": "8 GPUs\n100,000 updates",
        "checkpoints": "checkpoints\nevery 10 minutes",
        "mean": "mean\nof the last 5",
        "translation": "translation\nof newstest2014",
        "score": "score\n27.3 BLEU",
    }
    places = [(0, 1), (1, 1), (2, 1), (3, 1), (3, 0), (2, 0), (1, 0), (0, 0)]
    nodes = {name: (*place, texts[name]) for name, place in zip(texts, places, strict=True)}
    arrows = [(start, end, "") for start, end in itertools.pairwise(texts)]
    here = [name for name in texts if name != "translation"]
    title = "From a text to a score (dark: this lesson; light: lesson 08)"
    graph(nodes, arrows, path, title, marked=here)


def merges(tokens_per_word, occurrences, path):
    """Draw what merges save. tokens_per_word: after 0, 1, ... merges. occurrences: by piece."""
    steps = np.arange(len(tokens_per_word))
    length, rarity = (steps, tokens_per_word), (steps[1:], occurrences)
    panels = {
        "tokens for each word": ("", {"toy text": length}, {"limits": (0, 5.6)}),
        "how often the new piece occurs": ("", {"toy text": rarity}, {"log": "y"}),
    }
    title = "Each further merge saves less, and its piece is rarer"
    line_panels(panels, path, "merges", title, marks=False)


def one_of_each(named_batches, source_lengths, target_lengths):
    """Return {name: (lengths of the sources, lengths of the targets)} of one batch of each kind.

    named_batches: batches of pairs as they come, sorted, and of many more pairs, sorted. The first
    batch as they come, the middle one of the sorted, and one of the third kind with targets of the
    same length as the longest in that one.
    """
    as_they_come, in_order, of_all = named_batches.values()
    middle = in_order[len(in_order) // 2]
    longest = target_lengths[middle].max()
    alike = next(rows for rows in of_all if target_lengths[rows].max() == longest)
    return {
        name: (source_lengths[rows], target_lengths[rows])
        for name, rows in zip(named_batches, (as_they_come[0], middle, alike), strict=True)
    }


def padding(percents, batches, path):
    """Draw a batch of each kind: its sources and its targets as rectangles, a row a sentence.

    percents: {name: percentage of padding}. batches: as `one_of_each` returns them.
    """
    from matplotlib.patches import Rectangle

    figure = new_figure(WIDTH, 4.8)
    axes = figure.subplots()
    axes.set_title("The more pairs are sorted, the less is padding (hatched)", fontsize=FONT)
    left, tallest = 0, max(len(sources) for sources, _ in batches.values())
    middles, names = [], []
    for name, sides in batches.items():
        start = left
        for side, lengths in zip(("sources", "targets"), sides, strict=True):
            rows, width = np.arange(len(lengths)), max(lengths)
            axes.add_patch(
                Rectangle((left, 0), width, len(rows), facecolor="white", edgecolor="0.6",
                          hatch="///", linewidth=0)
            )  # fmt: skip
            axes.barh(rows + 0.5, lengths, 1.0, left, color=COLOURS[0], linewidth=0)
            axes.add_patch(
                Rectangle((left, 0), width, len(rows), fill=False, edgecolor="black", linewidth=1.5)
            )
            axes.text(
                left + width / 2, len(rows) + 0.01 * tallest, side, fontsize=SMALL, ha="center",
                va="bottom",
            )  # fmt: skip
            left += width + 22
        middles.append((start + left - 22) / 2)
        pairs, order = name.split(", ")
        names.append(f"{pairs} pairs,\n{order}:\n{percents[name]:.1f}% padding")
        left += 40
    axes.set(xlim=(-4, left - 58), ylim=(0, 1.08 * tallest))
    axes.set_xticks(middles, names, fontsize=SMALL)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("sentences of a batch", fontsize=SMALL)
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    save_figure(figure, path)


def averages(updates, alone, mean_losses, before, path):
    """Draw the loss of single checkpoints, and of means of five."""
    curves = {
        "this checkpoint alone": (updates, alone),
        "mean of the last 5": (updates, mean_losses),
    }
    lines(
        curves, path, x="update", y="smoothed loss, unseen sentences",
        levels={"before these updates": before},
        title="The mean of five checkpoints is better than the last of them",
        limits=(min(mean_losses) - 0.1, before + 0.03),  # below the curves is room for the legend
    )  # fmt: skip


def ring(after_turns, path):
    """Draw GPUs in a ring, each with its slices, and of how many GPUs each slice is the sum.

    after_turns[turn][GPU][slice].
    """
    figure = new_figure(10.0, 4.3, 0.05)
    title = "The GPUs add up their gradients in a ring: each sends only to the next"
    figure.suptitle(title, fontsize=FONT)
    panels = {
        "after 1 turn:\none sum of two on each": 1,
        "after 3 turns:\none complete sum on each": 3,
        "after 6 turns:\nall sums on each": 6,
    }
    for axes, (heading, turn) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        axes.set_title(heading, fontsize=FONT)
        axes.set_axis_off()
        for gpu, slices in enumerate(after_turns[turn]):
            _gpu(axes, CORNERS[gpu], f"GPU {gpu}", slices)
        for (x, y), (to_x, to_y) in zip(CORNERS, CORNERS[1:] + CORNERS[:1], strict=True):
            right, up = np.sign([to_x - x, to_y - y])
            leave, arrive = {-1: (-0.28, 0.56), 0: (0, 0), 1: (0.56, -0.28)}[up]  # below, above
            axes.annotate(
                "", (to_x - 0.68 * right, to_y + arrive), (x + 0.68 * right, y + leave),
                arrowprops={"arrowstyle": "-|>", "linewidth": 3, "color": COLOURS[1],
                            "mutation_scale": 24, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip
        axes.set(xlim=(-1.75, 1.75), ylim=(-1.15, 1.45), aspect="equal")
    figure.supxlabel(
        "a row of cells: the gradient in 4 slices;  a number: of so many GPUs it is the sum",
        fontsize=SMALL,
    )  # fmt: skip
    save_figure(figure, path)


def _gpu(axes, middle, name, slices):
    """Draw a GPU: its name, and its slices as a row of cells, the darker the more is added."""
    from matplotlib.patches import Rectangle

    x, y = middle
    axes.text(x, y + 0.2, name, ha="center", va="bottom", fontsize=SMALL)
    for i, number in enumerate(slices):
        left = x - 0.62 + 0.31 * i
        shade = SHADES[int(number) - 1]
        axes.add_patch(Rectangle((left, y - 0.2), 0.31, 0.36, facecolor=shade, edgecolor="black"))
        axes.text(
            left + 0.155, y - 0.03, f"{number:.0f}", ha="center", va="center", fontsize=SMALL,
            color="white" if number > 2 else "black",
        )  # fmt: skip


def speed_ups(n_gpus, speed_ups_by_link, limits, path):
    """Draw how many times as fast as one some GPUs are. speed_ups_by_link: {link: numbers}.

    limits: {link: t*}. A ring marks where a curve crosses half of the ideal.
    """
    x, y = "GPUs, which share 25,000 tokens", "times as fast as one GPU"
    figure, axes = new_axes(x, y, "The slower the link, the fewer GPUs help")
    for i, (name, numbers) in enumerate(speed_ups_by_link.items()):
        axes.plot(
            n_gpus, numbers, label=name, linewidth=2.5, marker=MARKS[i], markersize=8,
            **curve_style(i),
        )  # fmt: skip
        crossing = 25_000 / limits[name] + 1  # where both terms of the time are equal
        if 2 <= crossing <= n_gpus[-1]:
            axes.plot(
                crossing, crossing / 2, "o", markersize=18, markerfacecolor="none",
                markeredgecolor="black", markeredgewidth=2,
            )  # fmt: skip
    for name, part, dashes in (("ideal", 1, "-"), ("half of ideal", 0.5, (0, (6, 3)))):
        axes.plot(n_gpus, part * n_gpus, color=LEVEL, linewidth=1.6, linestyle=dashes, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.legend(fontsize=SMALL, frameon=False)
    save_figure(figure, path)


def estimates(like_four, like_ott, like_authors, path):
    """Draw what 27.3 would be in sacreBLEU, by scores that were counted both ways."""
    values = {
        "4 outputs of other models": like_four[1],
        "a model of Ott et al. (2018)": like_ott,
        "a later model of the authors,\nquotation marks changed too": like_authors,
    }
    dots(
        values, path, x="what 27.3 becomes, if it falls as these did", form=".1f",
        limits=(25.5, 27.6), levels={"printed: 27.3": 27.3}, start=27.3,
        title="In sacreBLEU, the paper's 27.3 BLEU would probably be about 26.7",
    )  # fmt: skip
