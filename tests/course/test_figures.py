"""The lessons' figures: labels are in their positions, and grey tells as much as colour."""

import numpy as np
import pytest

from minitf.course import figures

NODES = [  # a beam of 2: two steps, and the end
    (None, "<s>", 0.0, "kept"),
    (0, "Der", -0.7, "kept"),
    (0, "Das", -0.9, "kept"),
    (0, "$x$", -3.0, "dropped"),
    (2, "Brot", -1.0, "kept"),
    (1, "Brot", -2.9, "dropped"),
    (4, "</s>", -0.5, "finished"),
    (2, "</s>", -2.5, "finished"),
]


@pytest.fixture
def saved(monkeypatch):
    """Return the list of figures that would be saved."""
    kept = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.append(figure))
    return kept


def names(axes, axis):
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: figures.lines({"a": ([1, 2], [3, 4])}, path=path, x="x", y="y"),
        lambda path: figures.bars({"a": 1.0, "b": 2.0}, path=path, y="y"),
        lambda path: figures.matrices({"panel": np.eye(3)}, path=path, values=".1f", bar="weight"),
        lambda path: figures.tree(NODES, path=path, title="a beam"),
    ],
)
def test_each_writes_its_file(draw, tmp_path):
    draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# Lines --------------------------------------------------------------------------------------------


def test_lines_have_their_axes_and_differ_without_colour(saved):
    curves = {"one": ([1, 2], [3, 4]), "two": ([1, 2], [5, 6]), "three": ([1, 2], [7, 8])}
    figures.lines(
        curves, path="a.png", x="steps", y="loss", title="title", log="xy", limits=(1, 10)
    )
    axes = saved[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("steps", "loss", "title")
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "log", (1, 10))
    assert legend(axes) == ["one", "two", "three"]
    drawn = axes.get_lines()
    assert [list(line.get_ydata()) for line in drawn] == [[3, 4], [5, 6], [7, 8]]
    assert len({(line.get_linestyle(), line.get_marker()) for line in drawn}) == 3


def test_one_line_needs_no_legend(saved):
    figures.lines({"one": ([1, 2], [3, 4])}, path="a.png", x="x", y="y", marks=False)
    assert not legend(saved[0].axes[0])
    assert saved[0].axes[0].get_lines()[0].get_marker() == "None"


# Matrices -----------------------------------------------------------------------------------------


def test_each_bar_has_its_name_and_its_number(saved):
    figures.bars(
        {"one": 27.52, "two\nlines": 29.0}, path="a.png", y="BLEU", title="title", digits=2
    )
    axes = saved[0].axes[0]
    assert (axes.get_ylabel(), axes.get_title(), names(axes, "x")) == (
        "BLEU",
        "title",
        ["one", "two\nlines"],
    )
    assert [bar.get_height() for bar in axes.patches] == [27.52, 29.0]
    assert [text.get_text() for text in axes.texts] == ["27.52", "29.00"]
    assert axes.get_ylim()[0] == 0  # half as high is half as much


def test_matrices_share_their_colours_and_name_their_cells(saved):
    panels = {"one": np.array([[0.0, 1.0]]), "two": np.array([[2.0, 4.0]])}
    labels = {
        "rows": "queries",
        "columns": "keys",
        "row_labels": ["r"],
        "column_labels": ["c", "d"],
    }
    figures.matrices(panels, path="a.png", **labels, values=".1f", bar="weight")
    first, second, scale = saved[0].axes
    assert [axes.get_title() for axes in (first, second)] == ["one", "two"]
    assert {axes.images[0].get_clim() for axes in (first, second)} == {(0.0, 4.0)}
    assert (first.get_ylabel(), second.get_ylabel(), second.get_xlabel()) == ("queries", "", "keys")
    assert (
        names(first, "y") == ["r"]
        and names(second, "y") == [""]
        and names(second, "x") == ["c", "d"]
    )
    assert [(text.get_position(), text.get_text()) for text in second.texts] == [
        ((0, 0), "2.0"),
        ((1, 0), "4.0"),
    ]
    assert [text.get_color() for text in second.texts] == ["black", "white"]  # readable on its cell
    assert scale.get_ylabel() == "weight"


# The tree -----------------------------------------------------------------------------------------


def test_a_tree_grows_from_left_to_right_and_children_stand_in_the_order_of_their_parents(saved):
    figures.tree(NODES, path="a.png", title="title")
    axes = saved[0].axes[0]
    assert axes.get_title() == "title"
    assert [text.get_text() for text in axes.texts] == [
        f"{label}\n{score:.2f}" for _, label, score, _ in NODES
    ]
    places = [text.get_position() for text in axes.texts]
    assert [x for x, _ in places] == [0, 1, 1, 1, 2, 2, 3, 2]
    ends = [tuple(zip(*line.get_data(), strict=True)) for line in axes.get_lines()]
    assert ends == [
        (places[node[0]], places[i]) for i, node in enumerate(NODES) if node[0] is not None
    ]
    for (start, end), (other_start, other_end) in (
        (a, b) for a in ends for b in ends if a[0][0] == b[0][0]
    ):
        assert start[1] <= other_start[1] or end[1] > other_end[1]  # no line crosses another


def test_the_states_can_be_told_apart_and_the_way_to_the_best_is_thick(saved):
    figures.tree(NODES, path="a.png")
    axes = saved[0].axes[0]
    assert legend(axes) == ["kept", "dropped", "finished"]
    thick = [line.get_linewidth() > 2 for line in axes.get_lines()]
    assert thick == [i in (2, 4, 6) for i in range(1, len(NODES))]
    boxes = [text.get_bbox_patch() for text in axes.texts]
    for state in figures.STATES:
        looks = {
            (box.get_facecolor(), box.get_linestyle())
            for box, node in zip(boxes, NODES, strict=True)
            if node[3] == state
        }
        assert len(looks) == 1
    assert len({box.get_facecolor() for box in boxes}) == 3


def test_a_search_without_an_end_has_no_thick_way(saved):
    figures.tree(NODES[:4], path="a.png")
    assert {line.get_linewidth() for line in saved[0].axes[0].get_lines()} == {1.5}


@pytest.mark.parametrize(
    "node", [(5, "a", 0.0, "kept"), (1, "a", 0.0, "kept"), (0, "a", 0.0, "won")]
)
def test_a_tree_needs_parents_and_states_that_there_are(node):
    with pytest.raises(ValueError, match="node 1 has the parent"):
        figures.tree([(None, "<s>", 0.0, "kept"), node], path="a.png")


def test_matrices_want_a_name_for_every_row_and_column():
    with pytest.raises(ValueError, match=r"a\.png: 2 row labels do not fit"):
        figures.matrices({"panel": np.eye(3)}, path="a.png", row_labels="ab")
