"""The figures of lesson 07, training."""

import numpy as np

from minitf.course.figures import line_panels, lines

__all__ = [
    "alike", "bleu", "collapse", "loss", "rare", "schedule", "smoothing", "warmup", "wishes",
]  # fmt: skip

SCHEDULES = {
    "warm-up": "warm-up",
    "at once": "at once (no warm-up, then falling)",
    "fixed": "fixed (no warm-up, never falling)",
}
PLAIN, SMOOTH = "no smoothing", "label smoothing 0.1"


def smoothing(leads, curves, best_lead, entropy, path):
    """Draw the loss over the lead of the true word. curves: without smoothing, and with it."""
    plain, smoothed = curves
    lines(
        {PLAIN: (leads, plain), SMOOTH: (leads, smoothed)}, path,
        x="lead of the true word's logit", y="loss (14 words)", marks=False,
        title="The smoothed loss has a lowest point",
        notes={f"{entropy:.3f}, at a lead of {best_lead:.2f}": (best_lead, entropy)},
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
        notes={f"update 4,000: {peak:.4f}": (4000, peak)},
    )  # fmt: skip


def loss(plain, smoothed, goal, answers, path):
    """Draw the loss of two trainings, each number the mean of ten updates.

    answers: {update: what the smoothed model wrote then}.
    """
    updates = np.arange(10, 10 * len(plain) + 1, 10)
    notes = {f"the goal, the entropy of q: {goal:.3f}": (60, goal, 5, 0.1)}
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
        title="Without a warm-up, two updates make all positions alike",
    )  # fmt: skip


def wishes(watched, path):
    """Draw the first updates of trainings. watched: {training: the notes of `common_wish`}."""
    left, right = "length of the common wish", "typical move"
    curves = {left: {}, right: {}}
    for name, notes in watched.items():
        updates = np.arange(1, 1 + len(notes["common"]))
        curves[left][name] = (updates, notes["common"] / notes["common"][0])
        curves[right][name] = (updates, notes["typical"])
    line_panels(
        curves, path, x="update", limits=(-0.05, 1.15), marks=False,
        y={left: "share of the first update's", right: "share of the rate"},
        title="Moves answer the common wish, small ones too; waiting does not",
    )  # fmt: skip


def alike(shares, apart, path):
    """Draw why the positions stay alike.

    shares: {name: one number for each update}. apart: a row for each update, with the distance of
    the positions at the input and after each layer.
    """
    updates = np.arange(1, len(apart) + 1)
    left, right = "shares of the first update's", "distance from their mean"
    line_panels(
        {
            left: {name: (updates, values) for name, values in shares.items()},
            right: {f"after layer {n}": (updates, apart[:, n]) for n in (1, 3, 6)},
        },
        path, x="update", y="", log={left: "y"}, limits={right: (-0.05, 1.05)}, marks=False,
        title="Alike, they get hardly any gradient; the layers below part them again",
    )  # fmt: skip


def warmup(peaks, losses_by_schedule, of_seeds, levels, path):
    """Draw the loss at the end over the peak rate.

    losses_by_schedule: {schedule: mean losses}. of_seeds: {schedule: losses[peak, seed]}, drawn as
    single marks. levels: {name: loss} of lines to compare with.
    """
    thousandths = 1000 * np.array(peaks)
    curves = {SCHEDULES[name]: (thousandths, losses) for name, losses in losses_by_schedule.items()}
    lines(
        curves, path, x="peak rate, in thousandths (each tick doubles it)",
        y="loss after 600 updates", log="x", limits=(0.4, 3.15),
        title="A warm-up makes higher rates usable (small marks: single seeds)",
        levels={name: (level, "left") for name, level in levels.items()},
        singles={SCHEDULES[name]: (thousandths, losses) for name, losses in of_seeds.items()},
    )  # fmt: skip


def bleu(updates, perplexities, bleus, path):
    """Draw perplexity and BLEU during a training; of each, without smoothing and with it."""
    panels = {
        "perplexity: less is better": perplexities,
        "BLEU: more is better": bleus,
    }
    curves = {
        title: {PLAIN: (updates, plain), SMOOTH: (updates, smoothed)}
        for title, (plain, smoothed) in panels.items()
    }
    line_panels(
        curves, path, x="update", y=dict(zip(panels, ("perplexity", "BLEU"), strict=True)),
        title="Smoothing: worse perplexity, better BLEU",
    )  # fmt: skip
