"""parsing/picture.py: the size of a picture, and what is too large to be read."""

import itertools
import struct
from unittest import mock

import pytest

from minitf import plot
from minitf.parsing import picture
from minitf.parsing.picture import _MOST_PIXELS, draw
from minitf.text.trees import Leaf, parse


def branching(n, levels):
    """Return a tree of some levels over n words, each level around all later words."""
    tree = []
    for i in range(n):
        tree += ["(NP"] * (i < levels) + [Leaf("XX", "protein")]
    return tree + [")NP"] * levels


def pixels(path):
    """Return the width and the height that the header of a PNG file names."""
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def test_an_ordinary_picture_has_150_pixels_per_inch(tmp_path):
    (tree,) = parse(["(S (NP (DT The) (NN cat)) (VP (VBD sat)))"])
    draw(tree, tmp_path / "tree.png")
    wide, high = pixels(tmp_path / "tree.png")
    assert 200 < wide < 2 * 150 + 100 and 200 < high < 3 * 0.48 * 150 + 100


@pytest.mark.slow
def test_a_large_picture_has_fewer_pixels_per_inch(tmp_path):
    """120 levels over 200 words, 189 by 58 inches, have 245 million pixels at 150 per inch."""
    draw(branching(200, 120), tmp_path / "tree.png")
    wide, high = pixels(tmp_path / "tree.png")
    assert 0.9 * _MOST_PIXELS < wide * high < 1.1 * _MOST_PIXELS


@pytest.mark.parametrize(
    ("n", "levels", "suffix"),
    [
        (220, 1, "png"),  # 208 inches wide
        (220, 1, "pdf"),
        (200, 200, "png"),  # 189 by 96 inches
        (1, 1000, "png"),  # 200.2 inches high, even if the levels are low
        (1, 1000, "pdf"),
    ],
)
def test_a_tree_that_could_not_be_read_is_refused(tmp_path, n, levels, suffix):
    path = tmp_path / f"tree.{suffix}"
    tree = [*["(NP"] * levels, Leaf("XX", "a"), *[")NP"] * levels] if n == 1 else None
    message = rf"levels over [0-9,]+ characters is too large for a \.{suffix} .*: use \.svg, or a "
    with pytest.raises(ValueError, match=message):
        draw(tree or branching(n, levels), path)
    assert not path.exists()


@pytest.mark.slow
def test_a_picture_in_vectors_may_be_larger(tmp_path):
    draw(branching(220, 2), tmp_path / "tree.svg")
    text = (tmp_path / "tree.svg").read_text(encoding="utf-8")
    assert text.count("<!-- protein -->") == 220
    width = float(text.split('width="')[1].split("pt")[0])
    assert width == pytest.approx(220 * 9 * 0.105 * 72, rel=0.02)  # points


def crosses(level, upright):
    """Return whether a level line and an upright one, each two points, cross; ends may meet."""
    (left, y), (right, _) = sorted(level)
    (x, low), (_, high) = sorted(upright)
    return left < x < right and low < y < high


def test_no_line_crosses_another_or_a_label(tmp_path):
    """Slanted lines would: from S to A, over the first B, which has seven levels."""
    deep = "(B (B (B (B (B (B (B (NN b) (NN b)) (NN b)) (NN b)) (NN b)) (NN b)) (NN b)) (NN b))"
    (tree,) = parse([f"(S (A (NN a)) {deep} (C (NN c) {deep}) (A (NN a)))"])
    with mock.patch.object(picture, "save_figure") as saved:
        draw(tree, tmp_path / "tree.png")
    (axes,) = saved.call_args[0][0].axes
    points = [[tuple(point) for point in line.get_xydata()] for line in axes.lines]
    segments = [pair for line in points for pair in itertools.pairwise(line)]
    level = [pair for pair in segments if pair[0][1] == pair[1][1]]
    upright = [pair for pair in segments if pair[0][0] == pair[1][0]]
    assert all(pair in level or pair in upright for pair in segments)
    assert not any(itertools.starmap(crosses, itertools.product(level, upright)))
    for text in axes.texts:
        x, y = text.get_position()
        assert not any(min(a[1], b[1]) < y < max(a[1], b[1]) and a[0] == x for a, b in upright)
        assert all(a[1] != y for a, _ in level)


def test_a_wide_word_gets_room_and_the_fonts_of_all_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans", "DejaVu Serif"])
    (tree,) = parse(["(NP (NN \u732b\u732b\u732b) (NN cat) (NN \U0001f408))"])
    with mock.patch.object(picture, "save_figure") as saved:
        assert draw(tree, tmp_path / "tree.png") == "\u732b"
    (axes,) = saved.call_args[0][0].axes
    assert axes.get_xlim() == (0, (6 + 2) + (3 + 2) + (5 + 2))
    assert [text.get_text() for text in axes.texts] == ["\u732b" * 3, "cat", "[cat]", "NP"]
    assert all(text.get_family() == ["DejaVu Sans", "DejaVu Serif"] for text in axes.texts)
