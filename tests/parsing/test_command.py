"""parse.py: one tree for each line, its scores and pictures, and what it says about mistakes."""

import functools
import io
import itertools
import os
import subprocess
import sys
from unittest import mock

import pytest
from paths import EXAMPLES

from minitf import plot
from minitf.commands import input as reading
from minitf.config import Config
from minitf.files.models import save_model
from minitf.parsing import command, picture
from minitf.parsing.parser import MAX_EXTRA, Parser
from minitf.parsing.picture import draw
from minitf.text import Subwords
from minitf.text.trees import Leaf, parse_trees, words_of
from minitf.transformer import Transformer
from minitf.translation.loading import probe

SYMBOLS = ["XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP"]
GOLD = "gold.tree"  # in the current folder
TEXT = ["the cat sat on the mat .", "(S (NP XX XX )NP (VP XX )VP )S"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A parser that has learned nothing."""
    path = tmp_path_factory.mktemp("parser")
    subwords = Subwords.train(TEXT * 3, 310, symbols=SYMBOLS, log=lambda notice: None)
    model = Transformer(Config(len(subwords), n_layers=1, d_model=16, d_ff=16, n_heads=2), seed=1)
    save_model(
        path, model.state(), model.config.to_dict(), subwords, probe=functools.partial(probe, model)
    )
    return path


def run(capsys, *arguments):
    code = command.main(["--beam", "2", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_one_line_for_each_line(folder, capsys):
    code, out, _ = run(
        capsys, "--model", folder, "The cat sat.", "", "Go (now)!", "--", "-h", "--x"
    )
    lines = out.split("\n")
    assert (code, len(lines), lines[1], lines[-1]) == (0, 6, "", "")
    assert words_of(next(parse_trees(lines[0]))) == ["The", "cat", "sat", "."]
    assert words_of(next(parse_trees(lines[2]))) == ["Go", "(", "now", ")", "!"]
    assert "(XX -LRB-)" in lines[2]
    assert [words_of(next(parse_trees(line))) for line in lines[3:5]] == [["-h"], ["--x"]]


def test_files_and_the_standard_streams(folder, capsys, tmp_path, monkeypatch):
    _, expected, _ = run(capsys, "--model", folder, "The cat sat.")
    (tmp_path / "in.txt").write_text("The cat sat.\n", encoding="utf-8")
    files = ["--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"]
    assert run(capsys, "--model", folder, *files)[:2] == (0, "")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"The cat sat.\n")))
    assert run(capsys, "--model", folder, "--input", "-", "--output", "-")[:2] == (0, expected)


def test_pretty_trees_are_the_same_trees(folder, capsys):
    _, plain, _ = run(capsys, "--model", folder, "The cat sat.", "It slept.")
    _, in_lines, _ = run(capsys, "--model", folder, "--pretty", "The cat sat.", "It slept.")
    assert list(parse_trees(in_lines)) == list(parse_trees(plain))
    assert in_lines.count("\n") > plain.count("\n")


def test_any_bytes_from_a_pipe(folder):
    text = "ü a cat üüüü\n".encode() + b"\xff\xfe \x1b[0m\x00 b\n\n" + "é\u2028x 🐈".encode()
    line = [sys.executable, EXAMPLES / "parse.py", "--model", folder, "--beam", "1"]
    found = subprocess.run(line, input=text, capture_output=True, check=True)
    lines = found.stdout.decode().split("\n")
    assert [len(list(parse_trees(line))) for line in lines] == [1, 1, 0, 1, 0]
    assert "\x1b" not in found.stdout.decode()
    assert found.stderr == b"parse.py: check line 2: bytes that are not UTF-8 are lost\n"


def test_what_the_parser_is_asked_for(folder, capsys, monkeypatch):
    """The search is the paper's unless another is given; -LRB- is the bracket that was learned."""
    asked = []

    def parse_nothing(self, sentences, beam, alpha, progress):
        asked.append((sentences, beam, alpha))
        return [[] for _ in sentences]

    monkeypatch.setattr(Parser, "parse", parse_nothing)
    assert command.main(["--model", str(folder), "a -LRB- b ."]) == 0
    assert command.main(["--model", str(folder), "--beam", "2", "--alpha", "1.5", "a"]) == 0
    assert asked == [([["a", "(", "b", "."]], 21, 0.3), ([["a"]], 2, 1.5)]
    assert MAX_EXTRA == 300


def test_scores(folder, capsys, tmp_path):
    gold, found = tmp_path / "gold.tree", tmp_path / "found.tree"
    _, tree, _ = run(capsys, "--model", folder, "the cat .")
    gold.write_text(
        tree + "(NP " + "(NN a) " * 40 + ")(NP " + "(NN a) " * 41 + ")", encoding="utf-8"
    )
    code, out, _ = run(capsys, "--model", folder, "--score", gold, "--output", found)
    assert code == 0
    *rows, interval = out.splitlines()
    assert [(row[:22].partition("  ")[0], row.rpartition("of ")[2]) for row in rows] == [
        ("all sentences", "3 sentences"),
        ("without labels", "3 sentences"),
        ("60 words or fewer", "3 sentences"),
        ("40 words or fewer", "2 sentences"),
    ]
    low, high = map(float, interval.rpartition("interval is ")[2].split(" to "))
    assert low <= float(rows[0].split()[3]) <= high
    lines = found.read_text(encoding="utf-8").splitlines()
    assert lines[0] == tree.rstrip("\n") and lines[2].count("(XX a)") == 41


def test_the_scores_are_of_the_right_sentences_and_the_right_way_round(
    folder, capsys, monkeypatch, tmp_path
):
    """Flat trees: every bracket is right, and most are missing. The long sentence comes first."""
    gold = tmp_path / "gold.tree"
    cat = "(S (NP (DT the) (NN cat)) (VP (VBD sat)))"
    gold.write_text(f"(S (NP {'(NN a) ' * 40})(VP (VBD sat))){cat}", encoding="utf-8")

    def parse_flat(self, sentences, **options):
        label = {41: "(X", 3: "(S"}
        return [
            [label[len(of)], *(Leaf("XX", word) for word in of), ")" + label[len(of)][1:]]
            for of in sentences
        ]

    monkeypatch.setattr(Parser, "parse", parse_flat)
    _, out, _ = run(capsys, "--model", folder, "--score", gold)
    figures = [line.split("exact")[0].split()[-6:] for line in out.splitlines()[:-1]]
    whole, without, medium, short = ([float(x) for x in row[1::2]] for row in figures)
    assert whole == medium == [25.0, 50.0, 16.67]  # F1, precision, recall: 1 of 2, of 6 gold ones
    assert without == [50.0, 100.0, 33.33]
    assert short == [50.0, 100.0, 33.33]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "no model: name the folder of a parser with --model DIR"),
        (["--model", "", "a"], ". is not the folder of a trained model"),
        (["--model", EXAMPLES / "models" / "en-de", "a"], "does not write trees"),
        (["--model", "HERE", "--input", "x.txt", "a"], "choose one of them"),
        (["--model", "HERE", "--score", "no.tree"], "no.tree: cannot be read (No such file"),
        (["--model", "HERE", "--score", "empty.tree"], "there are no trees with words in empty"),
        (["--model", "HERE", "--score", "x.tree", "--pretty"], "leave out --draw and --pretty"),
        (["a", "--model", "HERE", "--score", "x.tree"], "leave the other text out"),
        (["--model", "HERE", "--score", GOLD, "--output", "no/x"], "its folder does not exist"),
        (["--model", "HERE", "--score", GOLD, "--output", GOLD], "would replace another file"),
        (["a", "--model", "HERE", "--draw", "x.svg", "--output", "./x.svg"], "would replace"),
        (["--model", "HERE", "--draw", "x.svg", "--input", "./x.svg"], "--draw would replace"),
        (["--model", "HERE", "--draw", "x.gif2", "a"], "unknown picture format 'x.gif2'"),
        (["--model", "HERE", "--draw", "x.png", ""], "there is no text"),
    ],
)
def test_mistakes_get_one_line(folder, capsys, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Parser, "parse", lambda self, sentences, **options: [[] for _ in sentences])
    (tmp_path / GOLD).write_text("(NP (DT the) (NN cat))", encoding="utf-8")
    (tmp_path / "empty.tree").write_text("( (-NONE- *) )", encoding="utf-8")
    arguments = [folder if argument == "HERE" else argument for argument in arguments]
    code, out, err = run(capsys, *arguments)
    assert (code, out.strip(), len(err.splitlines())) == (2, "", 1)
    assert (tmp_path / GOLD).read_text(encoding="utf-8") == "(NP (DT the) (NN cat))"
    assert said in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_scores_that_cannot_be_printed_cost_no_trees(folder, tmp_path):
    (tmp_path / GOLD).write_text("(NP (DT the) (NN cat))", encoding="utf-8")
    line = [sys.executable, EXAMPLES / "parse.py", "--model", folder, "--score", GOLD]
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            [*line, "--output", "trees.txt"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    said = found.stderr.decode()
    assert found.returncode == 2 and said.count("\n") == 1
    assert "standard output: cannot be written" in said
    assert (tmp_path / "trees.txt").read_text().count("\n") == 1


def test_the_bar_counts_sentences_and_not_their_parts(folder, capsys, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(command.Progress, "update_to", lambda self, done: shown.append(done))
    (tmp_path / GOLD).write_text("(NP (DT the) (NN cat))" * 2, encoding="utf-8")

    def parse_in_parts(self, sentences, progress, **options):
        for done in (2, 4):
            progress(done, 4)
        return [["(S", *(Leaf("XX", word) for word in of), ")S"] for of in sentences]

    monkeypatch.setattr(Parser, "parse", parse_in_parts)
    code, _, _ = run(capsys, "--model", folder, "--score", tmp_path / GOLD)
    assert (code, shown) == (0, [1, 2])
    shown.clear()
    monkeypatch.setattr(reading, "BATCH_LINES", 2)
    code, _, _ = run(capsys, "--model", folder, "a", "b", "c", "d")
    assert (code, shown) == (0, [1, 2, 3, 4])


# Pictures -----------------------------------------------------------------------------------------


def test_a_picture_of_the_first_tree(folder, capsys, tmp_path):
    path = tmp_path / "tree.svg"
    code, out, _ = run(capsys, "--model", folder, "--draw", path, "", r"The a$\frac$ _x_.")
    assert code == 0 and out.count("\n") == 2
    labels = {item[1:] for item in next(parse_trees(out)) if isinstance(item, str)}
    text = path.read_text(encoding="utf-8")
    assert all(word in text for word in {"The", r"a$\frac$", "_x_", "."} | labels)


def test_a_picture_that_cannot_be_drawn_costs_no_tree(folder, capsys, monkeypatch, tmp_path):
    code, out, err = run(capsys, "--model", folder, "--draw", f"{'a' * 300}.png", "The cat sat.")
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert "File name too long" in err
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans"])
    code, out, err = run(capsys, "--model", folder, "the \u732b", "--draw", tmp_path / "tree.svg")
    assert code == 0 and "\u732b" in out
    assert err.endswith("tree.svg has boxes: no installed font has \u732b\n")


def crosses(level, upright):
    """Return whether a level line and an upright one, each two points, cross; ends may meet."""
    (left, y), (right, _) = sorted(level)
    (x, low), (_, high) = sorted(upright)
    return left < x < right and low < y < high


def test_no_line_crosses_another_or_a_label(tmp_path):
    """Slanted lines would: from S to A, over the first B, which has seven levels."""
    deep = "(B (B (B (B (B (B (B (NN b) (NN b)) (NN b)) (NN b)) (NN b)) (NN b)) (NN b)) (NN b))"
    (tree,) = parse_trees(f"(S (A (NN a)) {deep} (C (NN c) {deep}) (A (NN a)))")
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


def test_a_wide_word_gets_room_and_a_constituent_is_above_its_highest_part(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans", "DejaVu Serif"])
    (tree,) = parse_trees("(NP (NN \u732b\u732b\u732b) (VP (VB see) (NP (NN \U0001f408))))")
    with mock.patch.object(picture, "save_figure") as saved:
        assert draw(tree, tmp_path / "tree.png") == "\u732b\U0001f408"
    (axes,) = saved.call_args[0][0].axes
    assert axes.get_xlim() == (0, (6 + 2) + (3 + 2) + (2 + 2))
    heights = [(text.get_text(), text.get_position()[1]) for text in axes.texts]
    assert heights == [
        *(("\u732b" * 3, 0), ("see", 0), ("\U0001f408", 0), ("NP", 1), ("VP", 2), ("NP", 3))
    ]
    assert all(text.get_family() == ["DejaVu Sans", "DejaVu Serif"] for text in axes.texts)
