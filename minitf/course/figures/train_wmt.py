"""The figures of lesson 09, training on WMT."""

import itertools

import numpy as np

from minitf.course.figures import bars, dots, graph, line_panels, lines, matrices

__all__ = ["averages", "estimates", "merges", "padding", "ring", "speed_ups", "stations"]


def stations(path):
    """Draw the way from a text to a score, with the numbers of the paper's base model."""
    texts = {
        "text": "text\n4.5 million pairs",
        "pieces": "pieces\n37,000",
        "batches": "batches\n25,000 tokens each",
        "GPUs": "8 GPUs\n100,000 updates",
        "checkpoints": "checkpoints\none in 10 minutes",
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
    """Draw what merges save. tokens_per_word: after 0, 1, ... merges. occurrences: of each piece.

    The first pieces are far more frequent than the others, and above the picture.
    """
    length, rarity = "tokens for each word", "how often the new piece occurs"
    steps = np.arange(len(tokens_per_word))
    panels = {
        length: {"toy text": (steps, tokens_per_word)},
        rarity: {"toy text": (steps[1:], occurrences)},
    }
    line_panels(
        panels, path, x="merges", y={length: "tokens", rarity: "times in the text"}, marks=False,
        limits={length: (0, 5.6), rarity: (0, 300)},
        title="Each further merge saves less, and its piece is rarer",
    )  # fmt: skip


def padding(percents, path):
    """Draw how much of the batches is padding. percents: {pairs: per cent}."""
    bars(
        {name.replace(", ", " pairs,\n"): percent for name, percent in percents.items()}, path,
        y="padding in a batch, %", title="The more pairs are sorted, the less is padding",
    )  # fmt: skip


def averages(updates, alone, mean_losses, before, path):
    """Draw the loss of single checkpoints and of means of five."""
    curves = {
        "this checkpoint alone": (updates, alone),
        "mean of the last 5, 10 updates apart": (updates, mean_losses),
    }
    lines(
        curves, path, x="update", y="loss, unseen sentences",
        levels={"before these updates": before}, title="At each point the mean of five is better",
        limits=(min(mean_losses) - 0.08, before + 0.03),  # below the curves is room for the legend
    )  # fmt: skip


def ring(after_turns, path):
    """Draw of how many GPUs each slice is the sum. after_turns[turn][GPU][slice]."""
    three = "after 3: one complete on each"
    names = [str(number) for number in range(4)]
    panels = {
        "after 1 turn": after_turns[1],
        "after 2 turns": after_turns[2],
        three: after_turns[3],
        "after 6: all complete": after_turns[6],
    }
    matrices(
        panels, rows="GPU", columns="slice of the gradient", row_labels=names,
        column_labels=names, values=".0f", limits=(0, 4), path=path,
        mark={three: [(0, 1), (1, 2), (2, 3), (3, 0)]},
        title="Of how many GPUs a slice is the sum: first the sums grow, then they go round",
    )  # fmt: skip


def speed_ups(n_gpus, speed_ups_by_link, path):
    """Draw how many times as fast as one some GPUs are. speed_ups_by_link: {link: numbers}."""
    curves = {
        "ideal: n times as fast": (n_gpus, n_gpus),
        "half of ideal": (n_gpus, n_gpus / 2),
        **{name: (n_gpus, numbers) for name, numbers in speed_ups_by_link.items()},
    }
    lines(
        curves, path, x="GPUs, which share 25,000 tokens", y="times as fast as one GPU", log="xy",
        title="The slower the link, the fewer GPUs help",
    )  # fmt: skip


def estimates(like_four, like_ott, like_authors, path):
    """Draw what 27.3 would be in sacreBLEU, by scores that were counted both ways."""
    values = {
        "if it falls like\nthe four outputs": like_four,
        "like the model\nof Ott et al.": like_ott,
        "like the authors' later model,\nwith changed quotes": like_authors,
    }
    dots(
        values, path, x="estimate of the paper's 27.3 in sacreBLEU", digits=1,
        limits=(25.5, 27.5), levels={"as printed: 27.3": 27.3},
        title="sacreBLEU would say less than 27.3",
    )  # fmt: skip
