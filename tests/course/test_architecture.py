"""Figure 1: every part of the paper's diagram can be marked."""

import pytest

from minitf.course import architecture
from minitf.course.architecture import PARTS, figure_1
from minitf.course.numbers import keep_numbers


@pytest.fixture
def looks(monkeypatch):
    """Return a function that draws figure 1, and gives the looks of all that is in it."""
    drawn = []
    monkeypatch.setattr(architecture, "save_figure", lambda figure, path: drawn.append(figure))

    def draw(here=()):
        figure_1("a.png", here)
        axes = drawn[-1].axes[0]
        return (
            [(patch.get_facecolor(), patch.get_edgecolor()) for patch in axes.patches],
            [(text.get_text(), text.get_color(), text.get_weight()) for text in axes.texts],
            [(line.get_color(), line.get_linewidth()) for line in axes.get_lines()],
        )

    return draw


@pytest.mark.slow
def test_every_part_changes_the_picture_in_its_own_way_when_it_is_marked(looks):
    seen = [looks()]
    for part in PARTS:
        marked = looks([part])
        assert marked not in seen, part
        seen.append(marked)
    assert looks(()) == seen[0]


@pytest.mark.slow
def test_you_are_here_is_said_once(looks):
    def said(here):
        return [text for text, _, _ in looks(here)[1]].count("you are here")

    assert (said(()), said(["encoder"]), said(["encoder", "decoder", "loss"])) == (0, 1, 1)


@pytest.mark.slow
def test_the_insets_are_left_out_where_none_is_marked_and_the_marked_parts_are_named(looks):
    def texts(here):
        return [text for text, _, _ in looks(here)[1]]

    for here, insets in (((), True), (["encoder", "multi-head"], True), (["encoder"], False)):
        assert ("Concat" in texts(here)) == insets, here
        assert not here or "\n".join(here) in texts(here)


@pytest.mark.slow
def test_the_file_is_small(tmp_path):
    figure_1(tmp_path / "a.png", here=["encoder"])
    keep_numbers(tmp_path / "a.png", [])
    assert (tmp_path / "a.png").stat().st_size < 45_000


def test_an_unknown_part_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(
        ValueError, match="no part 'attention': choose from input, output, decoder input, "
    ):
        figure_1(tmp_path / "a.png", here=["attention"])


def test_a_walk_numbers_its_steps_in_place_of_the_insets(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(architecture, "save_figure", lambda figure, path: drawn.append(figure))
    figure_1("a.png", walk={1: "(3, 4)", 8: "scores"})
    axes = drawn[-1].axes[0]
    texts = {text.get_text(): text.get_position()[0] for text in axes.texts}
    steps = {str(step) for step in range(1, 12)}
    assert {*steps, "(3, 4)", "scores", "K", "V", "Q"} <= set(texts) and "Concat" not in texts
    assert texts["(3, 4)"] < architecture.DECODER < texts["scores"]
    left, right = axes.get_xlim()
    assert all(left < x < right for x in texts.values())
    assert max(line.get_linewidth() for line in axes.get_lines()) == 3.0
    with pytest.raises(ValueError, match=r"only the steps 1 to 11, not \{12\}"):
        figure_1(tmp_path / "a.png", walk={12: "too far"})
