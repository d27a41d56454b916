"""The figures of lesson 07, training."""

import numpy as np

from minitf.course.figures import line_panels, lines

SCHEDULES = {
    "warm-up": "warm-up",
    "at once": "at once (no warm-up, then falling)",
    "fixed": "fixed (no warm-up, never falling)",
}
PLAIN, SMOOTH = "no smoothing", "label smoothing 0.1"


def smoothing(leads, curves, best_lead, entropy, path):
    """Draw the loss over the lead of the true word. curves: without smoothing, and with it."""
    plain, smoothed = curves
    lowest = f"{entropy:.3f}, at a lead of {best_lead:.2f}"
    lines(
        {PLAIN: (leads, plain), SMOOTH: (leads, smoothed)}, path,
        x="lead of the true word's logit", y="loss (14 words)", marks=False,
        title="The smoothed loss has a lowest point",
        notes={lowest: (best_lead, entropy, best_lead + 1, entropy + 0.9)},
    )  # fmt: skip


def rare(left, untrained, path):
    """Draw how far each word's loss is above its goal. left: {rule: one number for each word}."""
    words = np.arange(1, 1 + len(next(iter(left.values()))))
    lines(
        {name: (words, values) for name, values in left.items()}, path,
        x="word, each half as frequent as the one before (the last two equal)",
        y="loss above the goal",
        title="Only Adam learns the frequent and the rare words", limits=(-0.15, 3.3),
        levels={"before the training": untrained},
    )  # fmt: skip


def schedule(updates, rates, path):
    """Draw the learning rate of each update. rates: {warmup_steps: rates}."""
    curves = {
        f"warm-up of {steps:,} updates" + ", the paper's" * (steps == 4000): (updates, values)
        for steps, values in rates.items()
    }
    peak = max(rates[4000])
    lines(
        curves, path, x="update", y="learning rate ($d_{model}$ = 512)", marks=False,
        title="The rate goes up in a straight line, then slowly down",
        notes={f"update 4,000: {peak:.4f}": (4000, peak, 5800, 1.35 * peak)},
    )  # fmt: skip


def loss(plain, smoothed, goal, answers, path):
    """Draw the loss of two trainings, each number the mean of ten updates.

    answers: {update: what the smoothed model wrote then}.
    """
    updates = np.arange(10, 10 * len(plain) + 1, 10)
    notes = {f"the goal, the\nentropy of q: {goal:.3f}": (60, goal, 0, -0.05)}
    for update, answer in answers.items():
        height = smoothed[update // 10 - 1]
        notes[f"after {update} it writes  {answer}"] = (update, height, update + 30, height + 0.35)
    lines(
        {PLAIN: (updates, plain), SMOOTH: (updates, smoothed)}, path, x="update", y="loss",
        marks=False, title="A smoothed loss ends at its goal, not at 0", levels={"": goal},
        notes=notes,
    )  # fmt: skip


def collapse(warm, cold, path):
    """Draw how far apart the positions are before the first update and after each."""
    updates = np.arange(len(warm))
    lines(
        {"warm-up": (updates, warm), "no warm-up": (updates, cold)}, path,
        x="update", y="distance from their mean", limits=(-0.05, 1.05),
        title="Without a warm-up, two updates make the positions nearly alike",
    )  # fmt: skip


def wishes(watched, path):
    """Draw the first updates of trainings. watched: {training: the notes of `shared_gradient`}."""
    wish, move = {}, {}
    for name, notes in watched.items():
        updates = np.arange(1, 1 + len(notes["common"]))
        wish[name] = (updates, notes["common"] / notes["common"][0])
        move[name] = (updates, notes["typical"])
    looks = {"limits": (-0.05, 1.15)}
    panels = {
        "length of the common wish": ("share of the first update's", wish, looks),
        "typical move": ("share of the rate", move, looks),
    }
    title = "Moves answer the common wish, small ones too; waiting does not"
    line_panels(panels, path, "update", title, marks=False)


def warmup(peaks, of_seeds, levels, path):
    """Draw the loss at the end over the peak rate.

    of_seeds: {schedule: losses[peak, seed]}. levels: {name: loss} of lines to compare with.
    """
    thousandths = 1000 * np.array(peaks)
    lines(
        {SCHEDULES[name]: (thousandths, losses) for name, losses in of_seeds.items()}, path,
        "peak rate, in thousandths (each tick doubles it)", "loss after 600 updates",
        "A warm-up makes higher rates usable (small marks: single seeds)", log="x",
        limits=(0.4, 3.15), levels={name: (level, "left") for name, level in levels.items()},
    )  # fmt: skip


def bleu(updates, perplexities, bleus, path):
    """Draw perplexity and BLEU during a training; of each, without smoothing and with it."""
    panels = {}
    for name, better, values in (("perplexity", "less", perplexities), ("BLEU", "more", bleus)):
        curves = {PLAIN: (updates, values[0]), SMOOTH: (updates, values[1])}
        panels[f"{name}: {better} is better"] = (name, curves, {})
    line_panels(panels, path, "update", "Smoothing: worse perplexity, better BLEU")
