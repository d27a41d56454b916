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
        lambda path: figures.line_panels({"p": {"a": ([1], [2])}}, path=path, x="x", y="y"),
        lambda path: figures.dots({"a": 1.0, "b": (1, 2, 3)}, path=path, x="x"),
        lambda path: figures.graph({"a": (0, 0, "a")}, [], path=path),
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


def test_a_note_is_near_its_point(saved):
    curves = {"one": ([0, 30], [0, 30])}
    figures.lines(curves, path="a.png", x="x", y="y", notes={"here": (10, 10)})
    axes = saved[0].axes[0]
    note = next(text for text in axes.texts if text.get_text() == "here")
    # In fractions of the axes; the point is at a third of them, and a little more.
    assert all(0.3 < place < 0.6 for place in note.get_position())
    figures.lines(curves, path="a.png", x="x", y="y", notes={"there": (10, 10, 27, 3)})
    axes = saved[1].axes[0]
    (note,) = axes.texts
    places = (axes.transAxes + axes.transData.inverted()).transform(note.get_position())
    assert note.xy == (10, 10) and places == pytest.approx([27, 3])


def test_one_line_needs_no_legend(saved):
    figures.lines({"one": ([1, 2], [3, 4])}, path="a.png", x="x", y="y", marks=False)
    assert not legend(saved[0].axes[0])
    assert saved[0].axes[0].get_lines()[0].get_marker() == "None"


def test_levels_are_named_lines_and_notes_point_at_their_points(saved):
    figures.lines(
        {"one": ([1, 2], [3, 4])},
        "a.png",
        "x",
        "y",
        levels={"the floor": 3.5},
        notes={"end": (2, 4)},
    )
    axes = saved[0].axes[0]
    (level,) = [line for line in axes.get_lines() if list(line.get_ydata()) == [3.5, 3.5]]
    assert level.get_linestyle() == "--" and not legend(axes)
    name, note = axes.texts
    assert (name.get_text(), name.xy) == ("the floor", (1, 3.5))
    assert (note.get_text(), note.xy) == ("end", (2, 4)) and note.arrow_patch is not None


def test_single_runs_look_like_their_curve_and_a_level_may_be_named_on_the_left(saved):
    curves = {"one": ([1, 2], [3, 4]), "two": ([1, 2], [5, 6])}
    figures.lines(
        curves, "a.png", "x", "y",
        levels={"the goal": (2, "left")}, singles={"two": ([1, 2], [[4, 6], [5, 7]])},
    )  # fmt: skip
    axes = saved[0].axes[0]
    curve, *marks = [line for line in axes.get_lines() if line.get_marker() == "s"]
    assert [list(line.get_ydata()) for line in marks] == [[4, 5], [6, 7]]
    assert {line.get_color() for line in marks} == {curve.get_color()}
    assert {line.get_linestyle() for line in marks} == {"None"} and len(legend(axes)) == 2
    (name,) = axes.texts
    assert (name.xy, name.get_ha()) == ((0, 2), "left")


def test_panels_have_their_own_axes_and_share_the_looks_of_a_curve(saved):
    panels = {
        "left": {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])},
        "right": {"b": ([1, 2], [500, 600])},
    }
    figures.line_panels(
        panels, "a.png", "x", {"left": "loss", "right": "BLEU"}, limits={"right": (0, 700)}
    )  # fmt: skip
    left, right = saved[0].axes
    assert [(axes.get_title(), axes.get_ylabel()) for axes in (left, right)] == [
        ("left", "loss"),
        ("right", "BLEU"),
    ]
    assert left.get_ylim()[1] < 10 and right.get_ylim() == (0, 700)
    again, there = left.get_lines()[1], right.get_lines()[0]
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(again, look)() == getattr(there, look)()
    assert [text.get_text() for text in saved[0].legends[0].get_texts()] == ["a", "b"]


def test_a_label_for_a_panel_that_is_not_there_is_refused():
    panels = {"left": {"a": ([1, 2], [3, 4])}}
    for options in ({"y": {"lft": "loss"}}, {"y": "loss", "limits": {"lft": (0, 1)}}):
        with pytest.raises(ValueError, match=r"a\.png: .*lft"):
            figures.line_panels(panels, "a.png", "x", **options)


# Numbers ------------------------------------------------------------------------------------------


def test_dots_are_rows_from_the_top_with_their_intervals(saved):
    values = {"first": 27.5, "second": (26.3, 27.3, 28.1)}
    figures.dots(values, "a.png", "BLEU", levels={"the paper": 27.3}, limits=(26, 29))
    axes = saved[0].axes[0]
    assert (axes.get_xlabel(), names(axes, "y"), axes.get_xlim()) == (
        "BLEU",
        ["first", "second"],
        (26, 29),
    )
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top
    _, _, interval, dot, level = axes.get_lines()
    assert list(interval.get_xdata()) == [26.3, 28.1] and list(dot.get_xdata()) == [27.3]
    assert list(level.get_xdata()) == [27.3, 27.3]
    assert [text.get_text() for text in axes.texts] == ["27.50", "27.30", "the paper"]


def test_dots_have_signs_that_are_no_hyphens_and_arrows_from_a_common_start(saved):
    figures.dots({"less": -0.5, "more": 0.25}, "a.png", "x", form="+.1f", start=1)
    texts = saved[0].axes[0].texts
    assert [text.get_text() for text in texts if text.get_text()] == ["\u22120.5", "+0.2"]
    arrows = [text for text in texts if text.arrow_patch]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [
        ((1, 0), (-0.5, 0)),
        ((1, 1), (0.25, 1)),
    ]


def test_bars_may_have_limits(saved):
    figures.bars({"one": 27.52}, path="a.png", y="BLEU", limits=(0, 40))
    assert saved[0].axes[0].get_ylim() == (0, 40)


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


def test_signs_are_told_apart_by_colour_and_without_it(saved):
    panel = np.array([[-2.0, 0.0, 1.0]])
    figures.matrices({"panel": panel}, path="a.png", signed=True)
    axes = saved[0].axes[0]
    image = axes.images[0]
    assert image.get_clim() == (-2, 2)
    brown, white, blue = image.cmap(image.norm(panel[0]))[:, :3]
    assert brown[0] > brown[2] and blue[2] > blue[0] and white.min() == 1
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [((0, 0), "\u2212")]
    figures.matrices({"panel": panel}, path="a.png", signed=True, values="+.1f")
    written = saved[1].axes[0].texts
    assert [text.get_text() for text in written] == ["-2.0", "+0.0", "+1.0"]
    assert [text.get_color() for text in written] == ["white", "black", "black"]


def test_marked_cells_have_frames(saved):
    panels = {"one": np.eye(2), "two": np.eye(2)}
    figures.matrices(panels, path="a.png", mark=[(0, 1)])
    figures.matrices(panels, path="a.png", mark={"two": [(1, 0), (1, 1)]})
    frames = [
        [patch.get_xy() for patch in axes.patches] for figure in saved for axes in figure.axes
    ]
    assert frames == [[(0.5, -0.5)], [(0.5, -0.5)], [], [(-0.5, 0.5), (0.5, 0.5)]]
    with pytest.raises(ValueError, match=r"a\.png: the marked cell \(?2, 0\)? is not"):
        figures.matrices(panels, path="a.png", mark=[(2, 0)])


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


def test_a_ranked_tree_has_the_best_of_each_step_on_top(saved):
    figures.tree(NODES, path="a.png", ranked=True)
    axes = saved[0].axes[0]
    *boxes, first, second, third = axes.texts
    assert [text.get_text() for text in (first, second, third)] == ["step 1", "step 2", "step 3"]
    places = [text.get_position() for text in boxes]
    for step in (1, 2, 3):
        scores = {y: NODES[i][2] for i, (x, y) in enumerate(places) if x == step}
        assert [scores[y] for y in sorted(scores)] == sorted(scores.values())
        assert max(scores) == places[0][1]  # the best are in one row


def test_the_states_can_be_told_apart_and_the_way_to_the_best_is_thick(saved):
    figures.tree(NODES, path="a.png")
    axes = saved[0].axes[0]
    assert sorted(legend(axes)) == ["dropped", "finished", "kept", "way to the best"]
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


def test_a_score_may_say_what_it_measures(saved):
    nodes = [(*node[:2], f"ln P {node[2]:.2f}", node[3]) for node in NODES]
    figures.tree(nodes, path="a.png")
    axes = saved[0].axes[0]
    assert axes.texts[4].get_text() == "Brot\nln P -1.00"
    thick = [line.get_linewidth() > 2 for line in axes.get_lines()]
    assert thick == [i in (2, 4, 6) for i in range(1, len(NODES))]


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


def test_a_cell_without_a_number_does_not_take_the_colour_of_the_others():
    assert figures._limits([np.array([[np.nan, 1.0, -3.0]])], signed=False) == (-3.0, 1.0)
    assert figures._limits([np.array([[np.nan, 1.0, -3.0]])], signed=True) == (-3.0, 3.0)


def test_a_cell_without_a_number_is_hatched(saved):
    holes = {"panel": np.array([[np.nan, 1.0]])}
    figures.matrices(holes, path="a.png", signed=True, limits=(-1, 1), bar="b")
    axes = saved[0].axes[0]
    red, green, blue, opaque = axes.get_facecolor()
    assert red == green == blue < 1 and opaque == 1
    # In grey, its colour is that of some number: so it is hatched, too.
    assert axes.patch.get_hatch() and axes.patch.get_edgecolor()[0] < red - 0.3
    assert axes.images[0].to_rgba(axes.images[0].get_array())[0, 0, 3] == 0, "seen through"


@pytest.mark.parametrize(
    ("numbers", "arrows"),
    [
        ([-1, 1 + 1e-9], "neither"),
        ([-1, 2], "max"),
        ([-2, 0], "min"),
        ([-2, np.nan, 2], "both"),
    ],
)
def test_a_colour_bar_has_an_arrow_where_numbers_are_beyond_its_end(numbers, arrows, saved):
    panels = {"one": np.zeros((1, 1)), "two": np.array([numbers])}
    figures.matrices(panels, path="a.png", signed=True, limits=(-1, 1), bar="b")
    assert saved[0].axes[2]._colorbar.extend == arrows


def test_matrices_may_each_have_names_of_their_own(saved):
    panels = {"one": np.eye(2), "two": np.ones((2, 3))}
    figures.matrices(
        panels,
        path="a.png",
        row_labels={"one": "ab", "two": "cd"},
        column_labels={"one": "ef", "two": "ghi"},
    )
    first, second = saved[0].axes
    assert (names(first, "y"), names(first, "x")) == (["a", "b"], ["e", "f"])
    assert (names(second, "y"), names(second, "x")) == (["c", "d"], ["g", "h", "i"])
    with pytest.raises(ValueError, match=r"a\.png: 2 column labels do not fit"):
        figures.matrices(panels, path="a.png", column_labels={"one": "ef", "two": "gh"})


# Graphs -------------------------------------------------------------------------------------------

COMPUTATION = {"p": (0, 1, "p = 3"), "q": (0, 0, "q = 4"), "u": (1, 0, "u = 7")}


def test_a_graph_has_a_box_for_each_node_and_an_arrow_for_each_use(saved):
    figures.graph(
        COMPUTATION,
        [("p", "u", "slope 1"), ("q", "u", "slope 2")],
        path="a.png",
        title="title",
        marked=["u"],
    )
    axes = saved[0].axes[0]
    written = {text.get_text(): text for text in axes.texts}
    assert {"p = 3", "q = 4", "u = 7", "slope 1", "slope 2"} <= written.keys()
    assert written["slope 1"].get_position() == (0.5, 0.5)
    filled = {name: box.get_bbox_patch().get_facecolor() for name, box in written.items() if name}
    assert filled["p = 3"] == filled["q = 4"] != filled["u = 7"]
    heads = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    assert [head.xy for head in heads] == [(1, 0), (1, 0)]


def test_the_head_of_a_dashed_arrow_is_solid(saved):
    steps = [("p", "u", ""), ("q", "u", "")]
    figures.graph(COMPUTATION, steps, path="a.png", ways=[["q", "u"], ["p", "u"]])
    texts = saved[0].axes[0].texts
    arrows = [text.arrow_patch for text in texts if getattr(text, "arrow_patch", None)]
    solid = [arrow for arrow in arrows if arrow.get_linestyle() in ("-", "solid")]
    heads = [arrow for arrow in arrows if "|>" in type(arrow.get_arrowstyle()).arrow]
    assert len(heads) == 2 and heads == solid and len(arrows) == 3


@pytest.mark.parametrize("wrong", [{"marked": ["v"]}, {"arrows": [("p", "v", "")]}])
def test_a_graph_of_unknown_nodes_is_refused(wrong):
    options = {"arrows": [], "path": "a.png"} | wrong
    with pytest.raises(ValueError, match="unknown nodes: v"):
        figures.graph(COMPUTATION, **options)
