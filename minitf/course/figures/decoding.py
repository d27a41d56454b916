"""The figures of lesson 08, decoding."""

import numpy as np

from minitf.course.figures import FONT, SMALL, Panel, dots, lines, matrices, new_axes, tree
from minitf.plot import COLOURS, curve_style, save_figure


def search(sentence, candidates, tokens, path):
    """Draw the candidates that a beam keeps as a tree. tokens: the last one of each.

    In the last step only the finished ones are drawn.
    """
    longest = max(len(found.words) for found in candidates)
    nodes = [(None, "(start)", 0.0, "kept")]
    places = {(): 0}
    for found, token in zip(candidates, tokens, strict=True):
        is_last = len(found.words) == longest
        if found.state == "dropped" or (is_last and found.state != "finished"):
            continue
        parent = places[tuple(found.words[:-1])]
        places[tuple(found.words)] = len(nodes)
        nodes.append((parent, token.replace("</s>", "(end)"), found.ln_p, found.state))
    title = (
        f"“{sentence}” At step 4 the right text is second, and a beam of 2 keeps it\n"
        "(below each word: ln P of the text so far)"
    )
    tree(nodes, path, title)


def gains(beam_gains, intervals, path):
    """Draw what a beam gains over greedy with each length penalty.

    intervals: {alpha: (low, high)}.
    """
    names = {0.0: "no length penalty\n(alpha 0)", 0.6: "the paper's penalty\n(alpha 0.6)"}
    values = {
        names.get(alpha, f"a stronger penalty\n(alpha {alpha:g})"): (low, gain, high)
        for gain, (alpha, (low, high)) in zip(beam_gains, intervals.items(), strict=True)
    }
    dots(
        values, path, form="+.2f", levels={"as good as greedy": 0},
        x="BLEU of a beam of 4, minus greedy's\n(bars: 95% of redrawn test sets)",
        title="A beam of 4 beats greedy only with a length penalty, and barely",
    )  # fmt: skip


def triangle(weights, path):
    """Draw the causal triangle of a head at its last step and at the step before."""
    n = len(weights)
    seen = np.where(np.tri(n, dtype=bool), weights, np.nan)
    panels = {}
    for step in (n - 1, n):
        names = [str(i + 1) for i in range(step)]
        last_row = [(step - 1, j) for j in range(step)]
        panels[f"step {step}"] = Panel(seen[:step, :step], names, names, last_row)
    title = "A step adds a row; the rows above it stay as they were"
    matrices(panels, path, "query", "key", title, values=".2f", limits=(0, 1.2))


def cost(without, with_cache, path):
    """Draw the multiplications of each step, without a cache and with it."""
    steps = np.arange(1, len(without) + 1)
    title = "With a cache, a late token costs hardly more than an early one"
    figure, axes = new_axes("token", "million multiplications", title)
    for i, millions in enumerate((without / 1e6, with_cache / 1e6)):
        axes.plot(steps, millions, linewidth=3.5, **curve_style(i))
    texts = {
        "without a cache:\nall is computed again": (33, without[32] / 1e6 + 14, 0, "right"),
        "with a cache: only what is new": (64, with_cache[-1] / 1e6 + 8, 1, "right"),
    }
    for text, (token, height, i, align) in texts.items():
        axes.text(token, height, text, fontsize=FONT, color=COLOURS[i], ha=align, va="bottom")
    axes.annotate(
        "token 1: the keys and values\nof the source, once", (1.45, 15), (5, 10), fontsize=SMALL,
        arrowprops={"arrowstyle": "->", "linewidth": 1.6},
    )  # fmt: skip
    axes.set(xlim=(0, 66), ylim=(-8, 275))
    save_figure(figure, path)


def checkpoints(updates, without, with_penalty, path):
    """Draw the gain of a beam at each checkpoint, without the length penalty and with it."""
    curves = {
        "with the penalty (alpha 1)": (updates, with_penalty),
        "without it (alpha 0)": (updates, without),
    }
    lines(
        curves, path, x="updates of the training", y="BLEU, beam of 4 minus greedy",
        title="With alpha 1, a beam was never worse than greedy", levels={"": 0},
        notes={"greedy": (600, 0, 570, -2)},
    )  # fmt: skip


def alignment(weights, writes, reads, place, path):
    """Draw the attention of the words that are written to those of the source."""
    panel = Panel(weights, writes, reads, [place])
    matrices(
        {"To write “gelesen”, the model looks at “read”": panel}, path, "writes", "looks at",
        limits=(0, 1), bar="weight, mean of the heads",
    )  # fmt: skip
