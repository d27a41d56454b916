"""The lessons' figures: labels are in their positions, and grey tells as much as colour."""

from xml.etree import ElementTree

import numpy as np
import pytest

from minitf.course import figures
from minitf.course.architecture import DRAWN, figure_1
from minitf.course.figures import Panel


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


# Curves and numbers -------------------------------------------------------------------------------


def test_lines_have_their_axes_and_differ_without_colour(saved):
    curves = {"one": ([1, 2], [3, 4]), "two": ([1, 2], [5, 6]), "three": ([1, 2], [7, 8])}
    figures.lines(curves, "a.png", "steps", "loss", "title", log="xy", limits=(1, 10))
    axes = saved[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("steps", "loss", "title")
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "log", (1, 10))
    assert legend(axes) == ["one", "two", "three"]
    drawn = axes.get_lines()
    assert [list(line.get_ydata()) for line in drawn] == [[3, 4], [5, 6], [7, 8]]
    assert len({(line.get_linestyle(), line.get_marker()) for line in drawn}) == 3


def test_of_several_numbers_the_mean_is_a_curve_and_each_is_a_mark(saved):
    figures.lines({"one": ([1, 2], [[3, 5], [4, 8]])}, "a.png", "x", "y")
    mean, *seeds = saved[0].axes[0].get_lines()
    assert list(mean.get_ydata()) == [4, 6] and mean.get_linestyle() != "None"
    assert [list(seed.get_ydata()) for seed in seeds] == [[3, 4], [5, 8]]
    assert {seed.get_linestyle() for seed in seeds} == {"None"} and not legend(saved[0].axes[0])


def test_levels_are_named_lines_and_notes_point_at_their_points(saved):
    figures.lines(
        {"one": ([1, 2], [3, 4])}, "a.png", "x", "y",
        levels={"the floor": 3.5, "the goal": (2, "left")}, notes={"end": (2, 4, 1.2, 3.1)},
    )  # fmt: skip
    axes = saved[0].axes[0]
    levels = {tuple(line.get_ydata()) for line in axes.get_lines()[1:]}
    assert levels == {(3.5, 3.5), (2, 2)} and not legend(axes)
    floor, goal, note = axes.texts
    assert (floor.get_text(), floor.xy, floor.get_ha()) == ("the floor", (1, 3.5), "right")
    assert (goal.get_text(), goal.xy, goal.get_ha()) == ("the goal", (0, 2), "left")
    assert (note.get_text(), note.xy, note.xyann) == ("end", (2, 4), (1.2, 3.1))
    assert note.arrow_patch is not None


def test_panels_have_their_own_axes_and_share_the_looks_of_a_curve(saved):
    panels = {
        "left": ("loss", {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])}, {}),
        "right": ("BLEU", {"b": ([1, 2], [500, 600])}, {"limits": (0, 700)}),
    }
    figures.line_panels(panels, "a.png", "x")
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


def test_dots_are_rows_from_the_top_with_their_intervals(saved):
    values = {"first": 27.5, "second": (-26.3, -25.3, -24.1)}
    figures.dots(values, "a.png", "BLEU", levels={"the paper": 27.3}, limits=(-29, 29))
    axes = saved[0].axes[0]
    assert (axes.get_xlabel(), names(axes, "y")) == ("BLEU", ["first", "second"])
    assert axes.get_xlim() == (-29, 29) and axes.get_ylim()[0] > axes.get_ylim()[1]
    _, _, interval, dot, level = axes.get_lines()
    assert list(interval.get_xdata()) == [-26.3, -24.1] and list(dot.get_xdata()) == [-25.3]
    assert list(level.get_xdata()) == [27.3, 27.3]
    written = [text.get_text() for text in axes.texts if text.get_text()]
    assert written == ["27.50", "\u221225.30", "the paper"]  # a minus sign is no hyphen


# Matrices -----------------------------------------------------------------------------------------


def test_matrices_share_their_colours_and_name_their_cells(saved):
    panels = {
        "one": Panel(np.array([[0.0, 1.0]]), ["r"], ["c", "d"]),
        "two": Panel(np.array([[2.0, 4.0]]), ["r"], ["c", "d"], [(0, 1)]),
        "three": Panel(np.array([[2.0], [3.0]]), ["s", "t"], ["c"]),
    }
    figures.matrices(panels, "a.png", "queries", "keys", values=".1f", bar="weight")
    first, second, third, scale = saved[0].axes
    assert [axes.get_title() for axes in (first, second)] == ["one", "two"]
    assert {axes.images[0].get_clim() for axes in (first, second)} == {(0.0, 4.0)}
    assert (first.get_ylabel(), second.get_ylabel(), second.get_xlabel()) == ("queries", "", "keys")
    assert [names(axes, "y") for axes in (first, second, third)] == [["r"], [""], ["s", "t"]]
    assert names(second, "x") == ["c", "d"] and scale.get_ylabel() == "weight"
    written = [(text.get_position(), text.get_text(), text.get_color()) for text in second.texts]
    assert written == [((0, 0), "2.0", "black"), ((1, 0), "4.0", "white")]  # readable on its cell
    frames = [[patch.get_xy() for patch in axes.patches] for axes in (first, second)]
    assert frames == [[], [(0.5, -0.5)]]


def test_signs_are_told_apart_by_colour_and_without_it(saved):
    panel = np.array([[-2.0, 0.0, 1.0]])
    figures.matrices({"panel": Panel(panel)}, "a.png", "", "", values="+.1f", signed=True)
    axes = saved[0].axes[0]
    image = axes.images[0]
    assert image.get_clim() == (-2, 2)
    brown, white, blue = image.cmap(image.norm(panel[0]))[:, :3]
    assert brown[0] > brown[2] and blue[2] > blue[0] and white.min() == 1
    assert [text.get_text() for text in axes.texts] == ["-2.0", "+0.0", "+1.0"]


def test_a_cell_without_a_number_is_hatched(saved):
    holes = {"panel": Panel(np.array([[np.nan, 1.0]]))}
    figures.matrices(holes, "a.png", "", "", values=".1f", limits=(-1, 1))
    axes = saved[0].axes[0]
    red, green, blue, opaque = axes.get_facecolor()
    assert red == green == blue < 1 and opaque == 1 and len(axes.texts) == 1
    # In grey, its colour is that of some number: so it is hatched, too.
    assert axes.patch.get_hatch() and axes.patch.get_edgecolor()[0] < red - 0.3
    assert axes.images[0].to_rgba(axes.images[0].get_array())[0, 0, 3] == 0, "seen through"


@pytest.mark.parametrize(("numbers", "arrow"), [([-1, 1], "neither"), ([np.nan, -2], "min")])
def test_a_colour_bar_has_an_arrow_where_numbers_are_below_its_end(numbers, arrow, saved):
    panels = {"one": Panel(np.array([numbers]))}
    figures.matrices(panels, "a.png", "", "", limits=(-1, 1), bar="b")
    assert saved[0].axes[1]._colorbar.extend == arrow


# Graphs -------------------------------------------------------------------------------------------


def test_a_graph_has_a_box_for_each_node_and_an_arrow_for_each_use(saved):
    nodes = {"p": (0, 1, "p = 3"), "q": (0, 0, "q = 4"), "u": (1, 0, "u = 7")}
    arrows = [("p", "u", "slope 1"), ("q", "u", "slope 2")]
    figures.graph(nodes, arrows, "a.png", marked=["u"], ways=[["q", "u"], ["p", "u"]])
    axes = saved[0].axes[0]
    written = {text.get_text(): text for text in axes.texts}
    assert {"p = 3", "q = 4", "u = 7", "slope 1", "slope 2"} <= written.keys()
    assert written["slope 1"].get_position() == (0.5, 0.5)
    filled = {name: box.get_bbox_patch().get_facecolor() for name, box in written.items() if name}
    assert filled["p = 3"] == filled["q = 4"] != filled["u = 7"]
    drawn = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
    heads = [arrow for arrow in drawn if "|>" in type(arrow.get_arrowstyle()).arrow]
    solid = [arrow for arrow in drawn if arrow.get_linestyle() in ("-", "solid")]
    assert len(heads) == 2 and heads == solid and len(drawn) == 3  # a dashed arrow's head is solid


# Figure 1 -----------------------------------------------------------------------------------------


def looks(path, here=(), walk=None):
    """Return what is seen of figure 1: of each element that is shown, its text and its classes."""
    figure_1(path, here, walk)
    root = ElementTree.parse(path).getroot()
    hidden = {inner for each in root.iter() if each.get("display") for inner in each.iter()}
    shown = [each for each in root.iter() if each not in hidden]
    return [(each.text, each.get("class")) for each in shown], root


def test_every_part_changes_figure_1_in_its_own_way_when_it_is_marked(tmp_path):
    parts = {
        part
        for each in ElementTree.parse(DRAWN).iter()
        for part in f"{each.get('data-part')}|{each.get('data-only')}".split("|")
    } - {"None", "", "walk", "whole"}
    assert len(parts) == 19
    seen = [looks(tmp_path / "a.svg")[0]]
    assert ("Concat", None) in seen[0] and ("you are here", "large") not in seen[0]
    for part in sorted(parts):
        marked, _ = looks(tmp_path / "a.svg", [part])
        assert marked not in seen, part
        assert {(part, None), ("you are here", "large")} <= set(marked)
        assert (("Concat", None) in marked) == (part in ("multi-head", "attention inside a head"))
        seen.append(marked)
    with pytest.raises(ValueError, match=r"no part 'attention': choose from .*'add & norm', "):
        figure_1(tmp_path / "a.svg", ["attention"])


def test_a_walk_numbers_its_steps_in_place_of_the_insets(tmp_path):
    shown, root = looks(tmp_path / "a.svg", walk={1: "(3, 4)", 8: "scores\n(4, 5)"})
    texts = {text for text, _ in shown}
    steps = {str(step) for step in range(1, 12)}
    assert {*steps, "(3, 4)", "scores", "(4, 5)", "K", "V", "Q"} <= texts and "Concat" not in texts
    assert root.get("class") == "walk" and root.get("width") == "504pt"
