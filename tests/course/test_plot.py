"""Pictures: every token and every head is drawn, and matplotlib's settings do not change."""

import subprocess
import sys
import warnings
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
    return [axes for axes in figure.axes if axes.get_title()]


def tick_labels(axes, axis):
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


def size_of_png(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


# Attention ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads, across", [(4, 2), (8, 4), (3, 3), (1, 1)])
def test_every_head_has_a_panel_with_its_weights(figures, heads, across):
    weights = attention(heads, 6, 9)
    plot.attention_maps(weights, TARGET, SOURCE, "a.png", title="layer 1")
    drawn = panels(figures[0])
    assert [axes.get_title() for axes in drawn] == [f"head {i + 1}" for i in range(heads)]
    for axes, expected in zip(drawn, weights, strict=True):
        image = axes.images[0]
        assert np.array_equal(image.get_array(), expected)
        assert image.get_clim() == (0, weights.max())
    assert len({axes.get_position().x0 for axes in drawn}) == across


def test_tokens_stand_at_the_outer_panels_and_no_others(figures):
    plot.attention_maps(attention(8, 6, 9), TARGET, SOURCE, "a.png")
    drawn = panels(figures[0])
    rows, columns = ([token.replace("▁", "_") for token in tokens] for tokens in (TARGET, SOURCE))
    left = min(axes.get_position().x0 for axes in drawn)
    lowest = min(axes.get_position().y0 for axes in drawn)
    for axes in drawn:
        assert tick_labels(axes, "y") == (rows if axes.get_position().x0 == left else [])
        assert tick_labels(axes, "x") == (columns if axes.get_position().y0 == lowest else [])
    labels = drawn[-1].get_xticklabels()
    assert {label.get_rotation() for label in labels} == {90}


@pytest.mark.parametrize("n_target, n_source", [(1, 25), (5, 1), (20, 15)])
def test_labels_do_not_overlap_and_the_picture_holds_them(figures, n_target, n_source):
    targets = [f"▁Ziel{i}" for i in range(n_target)]
    sources = ["▁Donaudampfschifffahrtsgesellschaft", *(f"▁source{i}" for i in range(1, n_source))]
    plot.attention_maps(attention(1, n_target, n_source), targets, sources, "a.png")
    figure = figures[0]
    whole = figure.get_tightbbox()
    axes = panels(figure)[0]
    to_inches = figure.dpi_scale_trans.inverted()
    for labels, low, high in (
        (axes.get_xticklabels(), "x0", "x1"),
        (axes.get_yticklabels()[::-1], "y0", "y1"),
    ):
        boxes = [label.get_window_extent().transformed(to_inches) for label in labels]
        assert min(box.x0 for box in boxes) >= whole.x0 and max(box.x1 for box in boxes) <= whole.x1
        assert min(box.y0 for box in boxes) >= whole.y0 and max(box.y1 for box in boxes) <= whole.y1
        assert all(
            getattr(left, high) <= getattr(right, low) + 0.03 for left, right in pairwise(boxes)
        )


def test_the_saved_picture_grows_around_long_labels(tmp_path):
    sizes = []
    for token in ("a", "a" * 40):
        plot.attention_maps(attention(1, 2, 2), [token, "b"], [token, "b"], tmp_path / "a.png")
        sizes.append(size_of_png(tmp_path / "a.png"))
    (wide, high), (wider, higher) = sizes
    assert wider - wide > 400 and higher - high > 400


@pytest.mark.slow
def test_the_picture_of_a_very_long_sentence_stays_of_bearable_size(figures):
    tokens = [f"w{i}" for i in range(400)]
    plot.attention_maps(attention(1, 400, 400), tokens, tokens, "a.png")
    assert max(figures[0].get_size_inches()) < 30
    labels = panels(figures[0])[0].get_yticklabels()
    assert 100 < len(labels) < 400 and labels[0].get_fontsize() >= 4


def test_any_token_can_be_drawn(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.attention_maps(attention(1, 14, 14), ODD, ODD, tmp_path / "a.png", title="$5 \\n 日本")
    assert min(size_of_png(tmp_path / "a.png")) > 500


def test_what_cannot_be_drawn_is_replaced_or_shortened(figures):
    plot.attention_maps(attention(1, 14, 1), ODD, ["a"], "a.png")
    labels = tick_labels(panels(figures[0])[0], "y")
    assert labels[0] == "$x$" and labels[6] == "a\ufffdb" and labels[7] == labels[8] == "\ufffd"
    assert len(labels[10]) == 40 and labels[10].endswith("…")


def test_nothing_is_printed(tmp_path, capfd):
    plot.attention_maps(attention(1, 2, 2), ["日", "b"], ["c", "d"], tmp_path / "a.png")
    assert capfd.readouterr() == ("", "")


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
    for character in "👋👨👩😀你好éд🇩🇪❤\u200d\ufe0f"
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
        (["▁", *BYTES["👨"], *BYTES["\u200d"], *BYTES["👩"], "."], ["👨\u200d👩", "."]),
        (
            ["▁", *BYTES["❤"], *BYTES["\ufe0f"], *BYTES["🇩"], *BYTES["🇪"], *BYTES["🇩"]],
            ["❤\ufe0f", "🇩🇪", "🇩"],
        ),
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


def test_any_pieces_can_be_joined(rng):
    pool = [*ODD, *SOURCE, "▁", *BYTES["👋"], "'", "@@"]
    for words in (False, True):
        for _ in range(100):
            n_target, n_source = rng.integers(1, 12, 2)
            targets, sources = (
                [pool[i] for i in rng.integers(0, len(pool), n)] for n in (n_target, n_source)
            )
            weights, rows, columns = plot.join_pieces(
                attention(2, n_target, n_source), targets, sources, words
            )
            assert weights.shape == (2, len(rows), len(columns))
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-9)


def test_bytes_of_a_character_have_one_label(figures):
    weights = attention(2, 2, 6)
    plot.attention_maps(weights, ["▁Hi", "</s>"], ["▁Hi", "▁", *BYTES["é"], "!", "</s>"], "a.png")
    axes = panels(figures[0])[0]
    assert tick_labels(axes, "x") == ["_Hi", "_", "é", "!", "</s>"]
    np.testing.assert_allclose(axes.images[0].get_array()[:, 2], weights[0, :, 2:4].sum(-1))


def heads_of(figure):
    """The title and the caption."""
    return figure.get_suptitle(), " ".join(
        text.get_text().replace("\n", " ") for text in figure.texts[2:-1]
    )


def test_caption_explains_the_tokens(figures, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans"])
    for tokens, words, hints in (
        (["▁a", "b"], True, ["Look. " + plot.JOINED]),
        (["▁a", "b"], False, ["Look. " + plot.MARKED]),
        (["▁a", "▁b"], True, ["Look."]),
        (["▁a", "▁東"], True, ["Look. " + plot.BOXES]),
    ):
        plot.attention_maps(
            attention(1, 2, 2), tokens, tokens, "a.png", "Title", "Look.", words=words
        )
        assert [heads_of(figures[-1])[1]] == hints
    plot.attention_maps(attention(1, 2, 2), ["▁a", "b"], ["▁a", "b"], "a.png", "Title")
    assert heads_of(figures[-1]) == ("Title", "")


@pytest.mark.slow
def test_a_long_title_is_shortened_and_a_caption_wrapped(figures):
    for n in (2, 60):
        tokens = [f"w{i}" for i in range(n)]
        plot.attention_maps(
            attention(4, n, n), tokens, tokens, "a.png", "long " * 99, "small print " * 30
        )
        figure = figures[-1]
        title, caption = figure._suptitle, figure.texts[2]
        wide = max(figure.get_size_inches()[0], plot.NARROWEST) * figure.dpi * 1.05
        boxes = [text.get_window_extent() for text in (title, caption)]
        assert title.get_text().endswith("…") and max(box.width for box in boxes) < wide
        assert (
            boxes[0].y0 >= boxes[1].y1
            and boxes[1].y0 >= panels(figure)[0].title.get_window_extent().y1
        )


def test_the_lines_of_a_title_and_a_caption_are_about_equally_long(figures):
    title = "When I was a child, I wanted to become an astronaut and fly to the moon."
    plot.attention_maps(attention(1, 5, 9), TARGET[1:], SOURCE, "a.png", title, "Look. " * 16)
    for text, most in ((figures[0]._suptitle, 2), (figures[0].texts[2], 3)):
        lengths = list(map(len, text.get_text().splitlines()))
        assert 1 < len(lengths) <= most and max(lengths) - min(lengths) < 12
    assert figures[0]._suptitle.get_text().replace("\n", " ") == title


def test_names_of_rows_and_columns_do_not_overlap(figures):
    for n_target, n_source in ((2, 3), (9, 20)):
        rows, columns = (["x"] * n for n in (n_target, n_source))
        plot.attention_maps(
            attention(8, n_target, n_source),
            rows,
            columns,
            "a.png",
            names=("German output", "input"),
        )
        figure = figures[-1]
        labels = [figure._supylabel, figure._supxlabel]
        others = [label for axes in panels(figure) for label in axes.get_yticklabels()]
        others += [label for axes in panels(figure) for label in axes.get_xticklabels()]
        assert {label.get_text() for label in labels} == {"German output", "input"}
        boxes = [label.get_window_extent() for label in labels]
        taken = [label.get_window_extent() for label in others]
        assert not any(one.overlaps(other) for one in boxes for other in taken)
        assert not boxes[0].overlaps(boxes[1])


def test_a_sign_without_a_font_is_named(figures, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans"])
    tokens = ["👋", "😀", "🇩🇪", "👨\u200d👩", "❤\ufe0f", "東"]
    plot.attention_maps(attention(1, 6, 1), tokens, ["a"], "a.png", "Hi 👋")
    expected = ["[waving hand sign]", "😀", "[d][e]", "[man][woman]", "❤\ufe0f", "東"]
    assert tick_labels(panels(figures[0])[0], "y") == expected
    assert heads_of(figures[0])[0] == "Hi [waving hand sign]"


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


@pytest.mark.parametrize("values", [[88, 90, 91], [3, 40, 20], [30, 25, 10], [7, 7, 7], [5]])
def test_no_legend_covers_the_curve_of_bleu(figures, values):
    history = [record(100 * n, valid_bleu=value) for n, value in enumerate(values, 1)]
    plot.curves(history, "curves.png")
    figures[0].canvas.draw()
    (axes,) = (axes for axes in panels(figures[0]) if "BLEU" in axes.get_title())
    legend = axes.get_legend().get_window_extent()
    assert legend.y0 > axes.transData.transform((0, max(values)))[1]


@pytest.mark.parametrize("values", [[2.4, 0.9, 0.55], [9.0, 0.8], [0.07, 0.03], [2.1, 0.9]])
def test_small_gradients_can_be_read(figures, values):
    history = [record(100 * n, gradient_norm=value) for n, value in enumerate(values, 1)]
    plot.curves(history, "curves.png")
    figures[0].canvas.draw()
    (axes,) = (axes for axes in panels(figures[0]) if "gradient" in axes.get_title())
    low, high = axes.get_ylim()
    labelled = [float(label) for label in tick_labels(axes, "y") if label]
    labelled = [value for value in labelled if low * 0.99 <= value <= high * 1.01]
    assert len(labelled) >= 2 and min(labelled) <= min(values)


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


def test_a_resumed_run_replaces_what_it_repeats(figures):
    history = [record(1), record(2, loss=5.0), record(3), record(2, loss=4.0), record(3, loss=3.0)]
    plot.curves(history, "curves.png")
    assert lines_of(figures[0])["loss (nats per target token)"]["training"] == (
        [1, 2, 3],
        [8.99, 4.0, 3.0],
    )


def test_one_record_is_enough_and_none_is_too_few(tmp_path):
    plot.curves([{"step": 0, "loss": 3.0}], tmp_path / "curves.png")
    assert size_of_png(tmp_path / "curves.png")[0] > 1000
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


@pytest.mark.parametrize("pieces", [(["a"], ["b"]), (["a", "b"], []), ([], [])])
def test_pieces_that_do_not_fit_the_weights_are_refused(pieces):
    with pytest.raises(ValueError, match=r"weights of shape \(1, 2, 2\) do not fit"):
        plot.join_pieces(np.ones((1, 2, 2)), *pieces)
