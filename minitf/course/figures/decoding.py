"""The figures of lesson 08, decoding."""

import numpy as np

from minitf.course.figures import Panel, dots, graph, lines, matrices


def search(sentence, candidates, tokens, path):
    """Draw the candidates that a beam keeps, the steps side by side, the best of each on top.

    tokens: the last one of each candidate. In the last step only the finished ones are drawn.
    """
    longest = max(len(found.words) for found in candidates)
    columns = {}
    for found, token in zip(candidates, tokens, strict=True):
        is_last = len(found.words) == longest
        if found.state == "finished" or (found.state == "kept" and not is_last):
            columns.setdefault(len(found.words), []).append((found, token))
    nodes, arrows, finished = {(): (0, 0, "(start)")}, [], {}
    for step, column in columns.items():
        ranked = sorted(column, key=lambda each: -each[0].ln_p)
        for row, (found, token) in enumerate(ranked):
            words, text = tuple(found.words), token.replace("</s>", "(end)")
            nodes[words] = (0.55 * step, -0.7 * row, f"{text}\n{found.ln_p:.2f}")
            arrows.append((words[:-1], words, ""))
            if found.state == "finished":
                finished[words] = found.ln_p
    best = max(finished, key=finished.get)
    title = (
        f"“{sentence}” At step 4 the right text is second, and a beam of 2 keeps it\n"
        "(below each word: ln P of the text so far; dark: finished; blue arrows: the best)"
    )
    way = [best[:step] for step in range(len(best) + 1)]
    graph(nodes, arrows, path, title, marked=finished, ways=[way])


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
    curves = {
        "without a cache: all is computed again": (steps, without / 1e6),
        "with a cache: only what is new": (steps, with_cache / 1e6),
    }
    first = "token 1: the keys and values\nof the source, once"
    lines(
        curves, path, "token", "million multiplications",
        "With a cache, a late token costs hardly more than an early one", marks=False,
        limits=(-8, 275), notes={first: (1, with_cache[0] / 1e6, 3, 140)},
    )  # fmt: skip


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
