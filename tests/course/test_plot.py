"""Pictures: every token and every head is drawn, and matplotlib's settings do not change."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from paths import ROOT

from minitf import plot

SOURCE = ["▁Hello", "▁Tom", ",", "▁how", "▁are", "▁you", "?", "😀", "</s>"]
TARGET = ["▁Grüß", "▁dich", "▁Tom", "!", "😀", "</s>"]


ODD = [
    "$x$",
    "$\\frac",
    "日本語",
    "क्या",
    "مرحبا",
    "👍🏽",
    "a\nb",
    "\x00",
    "\ud800",
    "",
    "x" * 500,
    "_",
    "100%",
    "\\n",
]


@pytest.fixture
def figures(monkeypatch):
    """Return the list of figures that would be saved: looking at them is quicker than saving."""
    kept = []
    monkeypatch.setattr(plot, "save_figure", lambda figure, path: kept.append(figure))
    return kept


def attention(heads, n_target, n_source):
    weights = np.random.default_rng(0).random((heads, n_target, n_source)) ** 4
    return weights / weights.sum(-1, keepdims=True)


def panels(figure):
    return [axes for axes in figure.axes if axes.images or axes.get_title()]


def tick_labels(axes, axis):
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


def size_of_png(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


# Attention ----------------------------------------------------------------------------------------


def test_what_cannot_be_drawn_is_replaced_or_shortened(figures):
    plot.attention_maps(attention(1, 14, 1), ODD, ["a"], "a.png")
    labels = tick_labels(panels(figures[0])[0], "y")
    assert labels[0] == "$x$" and labels[6] == "a\ufffdb" and labels[7] == labels[8] == "\ufffd"
    assert len(labels[10]) == 40 and labels[10].endswith("…")


@pytest.mark.parametrize("heads, across", [(4, 4), (8, 4), (3, 3), (1, 1)])
def test_every_head_has_a_panel_with_its_weights_and_outer_ones_name_the_tokens(
    figures, heads, across
):
    weights = attention(heads, 6, 9)
    plot.attention_maps(weights, TARGET, SOURCE, "a.png", title="layer 1")
    drawn = panels(figures[0])
    rows, columns = ([token.replace("▁", "_") for token in tokens] for tokens in (TARGET, SOURCE))
    titles = [f"head {i + 1}" for i in range(heads)] if heads > 1 else [""]
    assert [axes.get_title() for axes in drawn] == titles
    for head, (axes, expected) in enumerate(zip(drawn, weights, strict=True)):
        image = axes.images[0]
        assert np.array_equal(image.get_array(), expected)
        assert image.get_clim() == (0, weights.max())
        assert tick_labels(axes, "y") == ([] if head % across else rows)
        assert tick_labels(axes, "x") == ([] if head + across < heads else columns)


@pytest.mark.parametrize("n_target, n_source", [(1, 25), (5, 1), (20, 15)])
def test_labels_do_not_overlap(figures, n_target, n_source):
    targets = [f"▁Ziel{i}" for i in range(n_target)]
    sources = ["▁Donaudampfschifffahrtsgesellschaft", *(f"▁source{i}" for i in range(1, n_source))]
    plot.attention_maps(
        attention(2, n_target, n_source), targets, sources, "a.png", "Title", "Look."
    )
    figures[0].draw_without_rendering()
    axes = panels(figures[0])[0]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()[::-1]):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(one.padded(-3).overlaps(other) for one, other in pairwise(boxes))


@pytest.mark.parametrize("shape", [(2, 6, 8), (2, 9, 6), (6, 9), (0, 6, 9), (1, 2, 6, 9)])
def test_sizes_must_agree(tmp_path, shape):
    with pytest.raises(ValueError, match=r"6 target and 9 source tokens"):
        plot.attention_maps(np.ones(shape), TARGET, SOURCE, tmp_path / "a.png")


# Words, titles and names --------------------------------------------------------------------------


def joined_by_loops(weights, row_words, column_words):
    """Sum over the columns of a word, mean over its rows."""
    return [
        [
            [np.mean([sum(head[t][s] for s in columns) for t in rows]) for columns in column_words]
            for rows in row_words
        ]
        for head in weights
    ]


def test_weights_of_a_word_are_summed_over_columns_and_averaged_over_rows():
    weights = attention(3, 5, 7)
    rows, columns = ["▁Gr", "ü", "ße", "!", "</s>"], ["▁", "He", "llo", "▁Tom", "'", "s", "</s>"]
    found, row_words, column_words = plot.join_pieces(weights, rows, columns, words=True)
    assert row_words == ["Grüße", "!", "(end)"] and column_words == ["Hello", "Tom's", "(end)"]
    expected = joined_by_loops(weights, [[0, 1, 2], [3], [4]], [[0, 1, 2], [3, 4, 5], [6]])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)


BYTES = {
    character: [f"<0x{byte:02X}>" for byte in character.encode()]
    for character in "👋👩😀你好éд❤\ufe0f"
}


@pytest.mark.parametrize(
    "pieces, words",
    [
        (
            ["▁don", "'", "t", "▁'", "tis", "▁well", "-", "k", "nown"],
            ["don't", "'", "tis", "well-known"],
        ),
        (["▁", "3", ".", "5", "▁years", ".", "</s>"], ["3.5", "years", ".", "(end)"]),
        (['▁"', "Yes", "!", '"', "▁-", "▁no", "…"], ['"', "Yes", "!", '"', "-", "no", "…"]),
        (["<s>", "▁a", "<unk>", "b"], ["(start)", "a", "<unk>", "b"]),
        (["▁n", "a", *BYTES["é"], "f", "▁", *BYTES["д"], *BYTES["д"]], ["naéf", "дд"]),
        (["▁Hi", "▁", *BYTES["👋"], *BYTES["😀"], "▁"], ["Hi", "👋", "😀", "▁"]),
        (["▁", *BYTES["❤"], *BYTES["\ufe0f"], *BYTES["👩"], "."], ["❤\ufe0f", "👩", "."]),
        (["▁", *BYTES["你"], *BYTES["好"], "▁ok"], ["你", "好", "ok"]),
        (["▁中国", "人"], ["中国", "人"]),
        (
            ["▁a", "<0xF0>", "<0x9F>", "b", "<0xFF>", "<0xC3>"],
            ["a", "<0xF0>", "<0x9F>", "b", "<0xFF>", "<0xC3>"],
        ),
        (["ein", "klei@@", "nes", "haus", "</s>"], ["ein", "kleines", "haus", "(end)"]),
        (["a", "", "b", "▁", "▁▁", "c", "▁▁"], ["ab", "c", "▁▁"]),
    ],
)
def test_pieces_make_words(pieces, words):
    weights = np.ones((1, 1, len(pieces)))
    found, _, columns = plot.join_pieces(weights, ["x"], pieces, words=True)
    assert columns == words and found.sum() == len(pieces)


def title_and_caption(figure):
    return figure.get_suptitle(), " ".join(figure.get_supxlabel().split())


def test_caption_explains_the_tokens(figures, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans"])
    for tokens, words, hints in (
        (["▁a", "b"], True, plot.JOINED),
        (["▁a", "b"], False, plot.MARKED),
        (["▁a", "▁b"], True, ""),
        (["▁a", "▁東"], True, plot.BOXES),
    ):
        given = attention(1, 2, 2), tokens, tokens, "a.png", "Title", "Look."
        plot.attention_maps(*given, words=words)
        assert title_and_caption(figures[-1]) == ("Title", f"Look. {hints}".strip())


# Curves -------------------------------------------------------------------------------------------


def record(step, **more):
    return {
        "step": step,
        "loss": 9 - step / 100,
        "perplexity": 900.0 - step,
        "learning_rate": step / 1e5,
    } | more


def lines_of(figure):
    """{panel title: {label: (steps, values)}} of the curves; the rings around the
    best are left out.
    """
    return {
        axes.get_title(): {
            line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in axes.get_lines()
            if not line.get_label().startswith("_")
        }
        for axes in panels(figure)
    }


def test_curves_show_what_the_history_holds(figures):
    history = [record(step, gradient_norm=0.5) for step in range(100, 600, 100)]
    history += [
        {"step": step, "valid_perplexity": 40 + abs(step - 400), "valid_bleu": step / 50}
        for step in (200, 400, 500)
    ]
    plot.curves(history, "curves.png")
    lines = lines_of(figures[0])
    assert list(lines) == [
        "loss (nats per target token)",
        "perplexity",
        "validation BLEU",
        "learning rate",
        "gradient norm",
    ]
    assert lines["loss (nats per target token)"] == {
        "training": ([100, 200, 300, 400, 500], [8, 7, 6, 5, 4])
    }
    assert lines["perplexity"]["validation, best 40.00 at step 400"] == (
        [200, 400, 500],
        [240, 40, 140],
    )
    assert lines["validation BLEU"] == {
        "validation, best 10.00 at step 500": ([200, 400, 500], [4, 8, 10])
    }


def test_curves_leave_out_what_is_missing_or_no_number(figures):
    history = [
        record(1, valid_bleu=None),
        record(2, loss=float("nan")),
        record(3, perplexity=float("inf")),
    ]
    plot.curves(history, "curves.png")
    lines = lines_of(figures[0])
    assert list(lines) == ["loss (nats per target token)", "perplexity", "learning rate"]
    assert lines["loss (nats per target token)"]["training"][0] == [1, 3]
    assert lines["perplexity"]["training"][0] == [1, 2]


def test_one_record_is_enough_and_none_is_too_few(tmp_path):
    plot.curves([{"step": 0, "loss": 3.0}], tmp_path / "curves.png")
    assert size_of_png(tmp_path / "curves.png")[0] > 500
    for history in ([], [{"step": 1}], [{"step": 1, "loss": float("nan")}]):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot.curves(history, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


# Files and settings -------------------------------------------------------------------------------


LOSS = [{"step": 1, "loss": 2.0}]


@pytest.mark.parametrize("name, start", [("a.PDF", b"%PDF"), ("a.svg", b"<?xml")])
def test_the_suffix_chooses_the_format(tmp_path, name, start):
    plot.curves(LOSS, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.xyz", "a", "a.", "a.txt"])
def test_an_unknown_format_is_one_line(tmp_path, name):
    with pytest.raises(ValueError, match=r"^.*use \.png, \.pdf or \.svg$") as caught:
        plot.curves(LOSS, tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "none" / "a.png", tmp_path / "folder.png"):
        with pytest.raises(ValueError, match="cannot be written") as caught:
            plot.curves(LOSS, path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_readers_settings_stay_and_pyplot_is_not_loaded(tmp_path):
    program = """
import sys
import minitf.plot
assert "matplotlib" not in sys.modules
import matplotlib
names = set(matplotlib.rcParams) - {"backend"}  # to ask for it would choose one
before = {name: matplotlib.rcParams[name] for name in names}
minitf.plot.attention_maps([[[1]]], ["a"], ["b"], sys.argv[1])
assert {name: matplotlib.rcParams[name] for name in names} == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.png")], cwd=ROOT, check=True)
