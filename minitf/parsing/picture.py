"""A picture of a tree."""

from minitf.plot import new_figure, save_figure
from minitf.text.trees import Leaf, Tree

__all__ = ["draw"]

_CHARACTER, _LEVEL = 0.105, 0.48  # inches
_GAP = 2  # characters between two words
_LARGEST = 200  # inches, of a side
_MOST_CHARACTERS = 40


def draw(tree: Tree, path: str) -> None:
    """Draw a tree, the words in a row at the bottom, and write it to a file.

    Raises ValueError for an unknown format, and for a file that cannot be written.
    """
    nodes, lines, width = _layout(tree)
    height = max(y for _, y, _, _ in nodes) + 1
    size = (
        min(_LARGEST, max(2.0, width * _CHARACTER)),
        min(_LARGEST, max(1.5, height * _LEVEL)),
    )
    figure = new_figure(*size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(-0.5, height - 0.5))
    for (x, y), (below_x, below_y) in lines:
        axes.plot([x, below_x], [y - 0.25, below_y + 0.25], color="#888888", linewidth=1)
    for x, y, text, is_word in nodes:
        axes.text(
            x, y, text, parse_math=False, ha="center", va="center", fontsize=11,
            color="black" if is_word else "#1f5fa8", weight="normal" if is_word else "bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    save_figure(figure, path)


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
            word = item.word
            if len(word) > _MOST_CHARACTERS:
                word = f"{word[:_MOST_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
            room = len(word) + _GAP
            point = x + room / 2, 0
            x += room
            nodes.append((*point, word, True))
        else:
            parts = stack.pop()
            point = (parts[0][0] + parts[-1][0]) / 2, 1 + max(y for _, y in parts)
            lines += [(point, part) for part in parts]
            nodes.append((*point, item[1:], False))
        if stack:
            stack[-1].append(point)
    return nodes, lines, x
