"""The figures of lesson 06, the Transformer."""

import numpy as np

from minitf.course.figures import FONT, SMALL, Panel, lines, matrices, new_axes, new_panels
from minitf.plot import COLOURS, save_figure

FADED = "#c8c8c8"  # of what does not reach the output


def arrows(panels, output, reads, predicts, path):
    """Draw which positions read which, layer by layer, and all that reaches one output.

    panels: {title: the mask of each layer, bool (T, T)}. output: its position. reads, predicts: the
    token below and above each position.
    """
    title = "One layer without its mask, and the word to be predicted leaks in"
    figure, all_axes = new_panels(len(panels), 5.6, 6.6, title)
    for axes, (title, masks) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(title, fontsize=FONT)
        axes.set_axis_off()
        top, wide = len(masks), len(reads)
        reaching = [np.arange(wide) == output]  # from the top to the bottom
        for mask in reversed(masks):
            reaching.append(reaching[-1] @ mask)
        reaching.reverse()
        for up, mask in enumerate(masks):
            for to, start in zip(*np.nonzero(mask), strict=True):
                _arrow(axes, (start, up), (to, up + 1), reaching[up + 1][to], start > output)
        for up, row in enumerate(reaching):
            for across, reaches in enumerate(row):
                face, edge = (COLOURS[0], "black") if reaches else ("white", FADED)
                axes.plot(across, up, "o", markersize=19, color=face, markeredgecolor=edge)
        for across, (below, above) in enumerate(zip(reads, predicts, strict=True)):
            weight = "bold" if across == output else "normal"
            axes.text(across, -0.3, below, ha="center", va="top", fontsize=SMALL)
            axes.text(
                across, top + 0.28, above, ha="center", va="bottom", fontsize=SMALL,
                fontweight=weight,
            )  # fmt: skip
        for up in range(1, top + 1):
            axes.text(-0.4, up, f"layer {up}", ha="right", va="center", fontsize=SMALL)
        axes.text(-0.4, 0, "input", ha="right", va="center", fontsize=SMALL)
        axes.text(-0.4, -0.3, "reads", ha="right", va="top", fontsize=SMALL)
        axes.text(-0.4, top + 0.28, "predicts", ha="right", va="bottom", fontsize=SMALL)
        axes.set(xlim=(-1.5, wide - 0.6), ylim=(-0.6, top + 0.6))
    legend = {
        f"reaches the output that must predict \u201c{predicts[output]}\u201d": (COLOURS[0], "-"),
        f"brings \u201c{reads[output + 1]}\u201d itself there": (COLOURS[1], "--"),
        "does not reach it": (FADED, "-"),
    }
    handles = [
        axes.plot([], [], color=colour, linestyle=dashes, linewidth=3)[0]
        for colour, dashes in legend.values()
    ]
    figure.legend(
        handles, list(legend), loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False
    )
    save_figure(figure, path)


def _arrow(axes, start, end, reaches, from_later):
    """Draw an arrow: blue if it is on a way to the output, orange and dashed if from a later word.

    An arrow to the left that brings nothing new is left out.
    """
    if end[0] < start[0] and not (reaches and from_later):
        return
    style = {"color": FADED, "linewidth": 1.2}
    if reaches:
        style = {"color": COLOURS[0], "linewidth": 2.0}
    if reaches and from_later and end[0] < start[0]:
        style = {"color": COLOURS[1], "linewidth": 3.2, "linestyle": "--"}
    axes.annotate(
        "", end, start, zorder=2 if reaches else 1,
        arrowprops={"arrowstyle": "-|>", "mutation_scale": 16, "shrinkA": 10, "shrinkB": 11,
                    **style},
    )  # fmt: skip


def look(weights, predicts, source, places, path):
    """Draw the attention of the tokens to predict to those of the source."""
    panel = Panel(weights, predicts, source, places)
    matrices(
        {"To predict “das”, it looks at “the” and at “book”": panel}, path,
        "token to predict", "source", limits=(0, 1), bar="weight",
    )  # fmt: skip


def masks(padding_mask, causal_mask, source, target, path):
    """Draw the three masks of a sentence. padding_mask: (1, S). causal_mask: (T, T)."""
    wide = np.broadcast_to(padding_mask, (len(source), len(source)))
    panels = {
        "encoder, self:\nthe padding is hidden": Panel(wide, source, source),
        "decoder, self:\nthe future is hidden": Panel(causal_mask, target, target),
        "decoder, source:\nthe padding is hidden": Panel(wide[: len(target)], target, source),
    }
    title = "Each attention has its own mask (dark: may look)"
    # True is 1, a little paler than the darkest colour.
    matrices(panels, path, "who asks", "who answers", title, limits=(0, 1.3))


def leaks(updates, losses, guess, path):
    """Draw the loss of models with and without a leak. losses: {mistake: training losses}."""
    honest = {"none": "no mistake: a guess"}
    lines(
        {honest.get(name, name): (updates, values) for name, values in losses.items()}, path,
        "updates", "training loss", "On random text, a loss below the guess is a leak",
        marks=False, limits=(-0.1, 4.3),
        levels={
            f"ln 16 = {guess:.2f}": guess,
            f"(ln 16) / 6 = {guess / 6:.2f}": (guess / 6, "left"),
        },
    )  # fmt: skip


def parameters(millions, path):
    """Draw the parameters of the base model. millions: {part: its parameters}."""
    title = "The base model: feed-forward networks are its largest part"
    figure, axes = new_axes("", "millions of parameters", title)
    axes.grid(False)
    places = range(len(millions))
    drawn = axes.bar(places, list(millions.values()), 0.7, color=COLOURS[0], edgecolor="black")
    axes.bar_label(drawn, fmt="%.2f", fontsize=FONT)
    axes.set_xticks(places, list(millions), fontsize=SMALL)
    axes.margins(y=0.12)
    save_figure(figure, path)
