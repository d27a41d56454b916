"""A picture of a tree, drawn by matplotlib into a file."""

import unicodedata
from pathlib import Path

from minitf.plot import new_figure, save_figure, text_style, to_drawable, without_font
from minitf.text.trees import Leaf, Tree

_CHARACTER, _LEVEL = 0.105, 0.48  # inches
_GAP = 2  # characters between two words
_MOST_CHARACTERS = 40
_DPI = 150


def draw(tree: Tree, path: str | Path) -> str:
    """Draw a tree, the words in a row at the bottom, and write it to a file.

    Return the characters that no installed font has, which are boxes in the picture.

    Raises ValueError for an unknown format, and for a file that cannot be written.
    """
    nodes, lines, width = _layout(tree)
    height = max(y for _, y, _, _ in nodes) + 1
    wide, high = max(2.0, width * _CHARACTER), max(1.5, height * _LEVEL)
    figure = new_figure(wide, high, dpi=_DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(-0.5, height - 0.5))
    for (x, y), (below_x, below_y) in lines:
        # With a corner: slanted lines of different constituents would cross each other.
        corner = y - 0.5
        heights = [y - 0.25, corner, corner, below_y + 0.25]
        axes.plot([x, x, below_x, below_x], heights, color="#888888", linewidth=1)
    style = text_style()
    for x, y, text, is_word in nodes:
        axes.text(
            x, y, text, ha="center", va="center", fontsize=11, **style,
            color="black" if is_word else "#1f5fa8", weight="normal" if is_word else "bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    save_figure(figure, path)
    return without_font("".join(text for _, _, text, _ in nodes))


def _layout(tree):
    """Return nodes (x, y, text, whether it is a word), lines between them, and the width.

    A constituent is one level above its highest part, and in the middle between its first part and
    its last.
    """
    nodes, lines, stack, x = [], [], [], 0.0
    for item in tree:
        if isinstance(item, str) and item[0] == "(":
            stack.append([])
            continue
        if isinstance(item, Leaf):
            word = to_drawable(item.word)
            if len(word) > _MOST_CHARACTERS:
                word = f"{word[:_MOST_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
            room = _width(word) + _GAP
            point = x + room / 2, 0
            x += room
            nodes.append((*point, word, True))
        else:
            parts = stack.pop()
            point = (parts[0][0] + parts[-1][0]) / 2, 1 + max(y for _, y in parts)
            lines += [(point, part) for part in parts]
            nodes.append((*point, to_drawable(item[1:]), False))
        if stack:
            stack[-1].append(point)
    return nodes, lines, x


def _width(word):
    """Return the width of a word in characters; a Chinese one is as wide as two others."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in word)
