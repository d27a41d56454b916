"""The figures of lesson 09, training on WMT."""

import itertools

import numpy as np

from minitf.course.figures import Panel, dots, graph, line_panels, lines, matrices


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
    """Draw a batch of each kind: a row is a pair, its source and its target; padding is hatched.

    percents: {name: percentage of padding}. batches: as `one_of_each` returns them.
    """
    panels = {}
    for name, sides in batches.items():
        tokens = [
            np.where(np.arange(max(lengths)) < lengths[:, None], shade, np.nan)
            for lengths, shade in zip(sides, (1.0, 0.6), strict=True)
        ]
        pairs, order = name.split(", ")
        heading = f"{pairs} pairs,\n{order}:\n{percents[name]:.1f}% padding"
        panels[heading] = Panel(np.hstack(tokens))
    title = "The more pairs are sorted, the less is padding (hatched)"
    columns = "source (dark), target (pale)"
    matrices(panels, path, "pairs of a batch", columns, title, limits=(0, 1.2))


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
    """Draw of how many GPUs each slice of each GPU in a ring is the sum.

    after_turns[turn][GPU][slice].
    """
    panels = {
        "after 1 turn:\none sum of two on each": 1,
        "after 3 turns:\none complete sum on each": 3,
        "after 6 turns:\nall sums on each": 6,
    }
    gpus, slices = ([f"{name}{i}" for i in range(4)] for name in ("GPU ", ""))
    matrices(
        {heading: Panel(after_turns[turn], gpus, slices) for heading, turn in panels.items()}, path,
        "", "slice of the gradient",
        "The GPUs add up their gradients in a ring: each sends only to the next\n"
        "(a number: of so many GPUs it is the sum)", values=".0f", limits=(0, 5),
    )  # fmt: skip


def speed_ups(n_gpus, speed_ups_by_link, limits, path):
    """Draw how many times as fast as one some GPUs are. speed_ups_by_link: {link: numbers}.

    limits: {link: t*}. An arrow points at where a curve crosses half of the ideal.
    """
    notes = {}
    for limit in limits.values():
        crossing = 25_000 / limit + 1  # where both terms of the time are equal
        if 2 <= crossing <= n_gpus[-1]:
            text = f"half of ideal\nwith {crossing:.0f} GPUs"
            notes[text] = (crossing, crossing / 2, crossing / 6, 1.2 * crossing)
    curves = speed_ups_by_link | {"ideal": n_gpus, "half of ideal": n_gpus / 2}
    lines(
        {name: (n_gpus, numbers) for name, numbers in curves.items()}, path,
        "GPUs, which share 25,000 tokens", "times as fast as one GPU",
        "The slower the link, the fewer GPUs help", marks=False, log="xy", limits=(0.4, 300),
        notes=notes,
    )  # fmt: skip


def estimates(like_four, like_ott, like_authors, path):
    """Draw what 27.3 would be in sacreBLEU, by scores that were counted both ways."""
    values = {
        "4 outputs of other models": like_four[1],
        "a model of Ott et al. (2018)": like_ott,
        "a later model of the authors,\nquotation marks changed too": like_authors,
    }
    dots(
        values, path, x="what 27.3 becomes, if it falls as these did", form=".1f",
        limits=(25.5, 27.6), levels={"printed: 27.3": 27.3},
        title="In sacreBLEU, the paper's 27.3 BLEU would probably be about 26.7",
    )  # fmt: skip
