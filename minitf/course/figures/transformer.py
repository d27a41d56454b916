"""The figures of lesson 06, the Transformer."""

import numpy as np

from minitf.course.figures import bars, lines, matrices

__all__ = ["leaks", "look", "masks", "parameters"]


def look(weights, predicts, source, place, path):
    """Draw the attention of the tokens to predict to those of the source."""
    matrices(
        {"To predict Lehrer, the model looks at teacher": weights}, row_labels=predicts,
        column_labels=source, rows="token to predict", columns="source",
        bar="attention to the memory", mark=[place], path=path,
    )  # fmt: skip


def masks(padding_mask, causal_mask, source, target, path):
    """Draw the three masks of a sentence. padding_mask: (1, S). causal_mask: (T, T)."""
    wide = np.broadcast_to(padding_mask, (len(source), len(source)))
    panels = {
        "encoder, self": (wide, source, source),
        "decoder, self": (causal_mask, target, target),
        "decoder, source": (wide[: len(target)], target, source),
    }
    matrices(
        {title: mask for title, (mask, _, _) in panels.items()}, rows="who asks",
        columns="who answers", row_labels={title: rows for title, (_, rows, _) in panels.items()},
        column_labels={title: columns for title, (_, _, columns) in panels.items()},
        limits=(0, 1.3),  # True is 1, a little paler than the darkest colour
        title="Dark: may look. Padding hides columns, the future hides a triangle", path=path,
    )  # fmt: skip


def leaks(updates, losses, guess, path):
    """Draw the loss of models with and without a leak. losses: {mistake: training losses}."""
    curves = {
        "none (honest)" if name == "none" else name: (updates, values)
        for name, values in losses.items()
    }
    lines(
        curves, path, x="updates", y="training loss", marks=False,
        title="Random text: an honest model can only guess",
        levels={"a guess, ln 16": guess, "": guess / 6},
        notes={"ln 16 / 6": (22, guess / 6)},  # its right end is under the curves
        limits=(-0.1, 4.6),  # above the curves there is room for the legend
    )  # fmt: skip


def parameters(millions, path):
    """Draw the parameters of the base model. millions: {part: its parameters}."""
    bars(
        millions, path, y="millions of parameters", digits=2,
        title="The feed-forward networks are the largest part",
    )  # fmt: skip
