"""examples/parse.py: its output, its manners, and what it says about mistakes."""

import functools
import io
import os
import subprocess
import sys
from unittest import mock

import pytest
from paths import EXAMPLES

from minitf import plot
from minitf.commands import input as reading
from minitf.commands import parse as command
from minitf.config import Config
from minitf.files.models import save_model
from minitf.parsing import picture
from minitf.parsing.parser import MAX_EXTRA, Parser
from minitf.text import Subwords
from minitf.text.trees import Leaf, parse, words
from minitf.transformer import Transformer
from minitf.translation.probe import probe

SYMBOLS = ["XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP"]
GRAMMAR = "known.tree"  # in the current folder
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
    code, out, _ = run(capsys, "--model", folder, "The cat sat.", "", "Go (now)!")
    lines = out.split("\n")
    assert (code, len(lines), lines[1], lines[-1]) == (0, 4, "", "")
    assert words(next(parse([lines[0]]))) == ["The", "cat", "sat", "."]
    assert words(next(parse([lines[2]]))) == ["Go", "(", "now", ")", "!"]
    assert "(XX -LRB-)" in lines[2]


def test_the_standard_streams_may_be_named(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"The cat sat.\n")))
    code, out, _ = run(capsys, "--model", folder, "--input", "-", "--output", "-")
    assert (code, out) == (0, run(capsys, "--model", folder, "The cat sat.")[1])


def test_pretty_trees_are_the_same_trees(folder, capsys):
    _, plain, _ = run(capsys, "--model", folder, "The cat sat.", "It slept.")
    _, in_lines, _ = run(capsys, "--model", folder, "--pretty", "The cat sat.", "It slept.")
    assert list(parse(in_lines.split("\n"))) == list(parse(plain.split("\n")))
    assert in_lines.count("\n") > plain.count("\n")


def test_any_bytes_from_a_pipe(folder):
    text = "ü a cat üüüü\n".encode() + b"\xff\xfe \x1b[0m\x00 b\n\n" + "é\u2028x 🐈".encode()
    command = [sys.executable, EXAMPLES / "parse.py", "--model", folder, "--beam", "1"]
    found = subprocess.run(command, input=text, capture_output=True, check=True)
    lines = found.stdout.decode().split("\n")
    assert len(lines) == 5
    assert [len(list(parse([line]))) for line in lines] == [1, 1, 0, 1, 0]
    assert "\x1b" not in found.stdout.decode()
    assert found.stderr == b"parse.py: check line 2: bytes that are not UTF-8 are lost\n"


def test_files(folder, capsys, tmp_path):
    (tmp_path / "in.txt").write_text("The cat sat.\n", encoding="utf-8")
    code, out, _ = run(
        capsys, "--model", folder, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"
    )
    assert (code, out) == (0, "")
    _, expected, _ = run(capsys, "--model", folder, "The cat sat.")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_of_the_first_tree(folder, capsys, tmp_path, suffix):
    path = tmp_path / f"tree.{suffix}"
    code, out, _ = run(capsys, "--model", folder, "--draw", path, "", "The cat sat.")
    assert code == 0
    assert out.count("\n") == 2
    if suffix == "svg":
        text = path.read_text(encoding="utf-8")
        labels = {item[1:] for item in next(parse([out])) if isinstance(item, str)}
        assert all(f"<!-- {word} -->" in text for word in {"The", "cat", "sat", "."} | labels)
    assert path.stat().st_size > 3000


def test_a_picture_whose_name_is_too_long_costs_no_tree(folder, capsys):
    code, out, err = run(capsys, "--model", folder, "--draw", f"{'a' * 300}.png", "The cat sat.")
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert "File name too long" in err


def test_words_are_drawn_as_they_are(folder, capsys, tmp_path):
    path = tmp_path / "tree.svg"
    code, _, _ = run(capsys, "--model", folder, "--draw", path, r"a$\frac$ _x_")
    assert code == 0
    assert r"a$\frac$" in path.read_text(encoding="utf-8")


def test_a_picture_has_a_largest_size(tmp_path):
    size = []
    tree = [*["(NP"] * 900, Leaf("XX", "a"), *[")NP"] * 900]

    def saved(figure, path):
        size.extend(figure.get_size_inches())

    with mock.patch.object(picture, "save_figure", saved):
        picture.draw(tree, tmp_path / "tree.png")
    assert max(size) == 200


def test_a_constituent_is_drawn_above_its_highest_part():
    (tree,) = parse(["(S (NP (NN cat)) (VP (VB see) (NP (NN dog))))"])
    nodes, lines, _ = picture._layout(tree)
    heights = [(text, y) for _, y, text, _ in nodes]
    assert heights == [
        *(("cat", 0), ("NP", 1), ("see", 0), ("dog", 0), ("NP", 1), ("VP", 2), ("S", 3))
    ]
    assert len(lines) == 6


def test_the_search_is_the_papers_unless_another_is_asked_for(folder, capsys, monkeypatch):
    asked = []

    def parse_nothing(self, sentences, beam, alpha, **options):
        asked.append((beam, alpha))
        return [[] for _ in sentences]

    monkeypatch.setattr(Parser, "parse", parse_nothing)
    assert command.main(["--model", str(folder), "a"]) == 0
    assert command.main(["--model", str(folder), "--beam", "2", "--alpha", "1.5", "a"]) == 0
    assert asked == [(21, 0.3), (2, 1.5)]
    assert MAX_EXTRA == 300


def test_scores(folder, capsys, tmp_path):
    gold, found = tmp_path / "gold.tree", tmp_path / "found.tree"
    _, tree, _ = run(capsys, "--model", folder, "the cat .")
    gold.write_text(
        tree + "(NP " + "(NN a) " * 40 + ")(NP " + "(NN a) " * 41 + ")", encoding="utf-8"
    )
    code, out, _ = run(capsys, "--model", folder, "--score", gold, "--output", found)
    whole, without, medium, short, *by_length, interval = out.splitlines()
    assert code == 0
    assert whole.startswith("all sentences")
    assert whole.endswith("of 3 sentences")
    assert without.startswith("without labels")
    assert medium.startswith("60 words or fewer")
    assert medium.endswith("of 3 sentences")
    assert short.startswith("40 words or fewer")
    assert short.endswith("of 2 sentences")
    assert [line[:14] for line in by_length] == [
        *("1 to 10 words ", "31 to 40 words", "41 to 60 words")
    ]
    assert "F1 100.00" in by_length[0]
    assert by_length[0].endswith("of 1 sentence")
    low, high = map(float, interval.rpartition("interval is ")[2].split(" to "))
    f1 = float(whole.split()[3])
    assert low <= f1 <= high
    lines = found.read_text(encoding="utf-8").splitlines()
    assert lines[0] == tree.rstrip("\n")
    assert lines[2].count("(XX a)") == 41


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
    whole, without, medium, short, first, last = ([float(x) for x in row[1::2]] for row in figures)
    assert whole == medium == [25.0, 50.0, 16.67]  # F1, precision, recall: 1 of 2, of 6 gold ones
    assert without == [50.0, 100.0, 33.33]
    assert short == first == [50.0, 100.0, 33.33]
    assert last == [0, 0, 0]


def test_a_place_for_the_trees_is_looked_for_before_the_parsing(
    folder, capsys, monkeypatch, tmp_path
):
    gold = tmp_path / "gold.tree"
    gold.write_text("(NP (NN a))", encoding="utf-8")
    monkeypatch.setattr(Parser, "parse", None)
    code, _, err = run(
        capsys, "--model", folder, "--score", gold, "--output", tmp_path / "no" / "x"
    )
    assert code == 2 and "its folder does not exist" in err


def test_brackets_in_words_are_those_of_the_trees_that_were_learned(folder, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(Parser, "parse", lambda self, of, **options: [asked.extend(of) or []])
    run(capsys, "--model", folder, "a -LRB- b -RRB- .")
    assert asked == [["a", "(", "b", ")", "."]]


def test_a_grammar_can_be_asked_at_a_prompt(capsys, monkeypatch, tmp_path):
    (tmp_path / GRAMMAR).write_text("(NP (DT the) (NN cat))", encoding="utf-8")
    file = mock.Mock(fileno=lambda: 99)
    monkeypatch.setattr(reading, "_prompted", lambda file: iter([[b"the cat"]]))
    options = command._options(["--grammar", str(tmp_path / GRAMMAR)], "a model")
    assert list(reading._typed(file, options)) == [[b"the cat"]]
    assert capsys.readouterr().err.startswith("a grammar; one sentence per line, ")


def test_scores_of_a_grammar_count_the_trees_that_it_does_not_have(capsys, tmp_path):
    train, gold = tmp_path / "train.tree", tmp_path / "gold.tree"
    train.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat)))", encoding="utf-8")
    gold.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat))) (NP (NN cat))", encoding="utf-8")
    code, out, _ = run(capsys, "--grammar", train, "--score", gold)
    assert code == 0
    assert out.splitlines()[-1].startswith("1 sentence right-branching")
    known = "(X (A a) (X (B b)))"  # this grammar's best tree happens to be right-branching
    train.write_text(known, encoding="utf-8")
    gold.write_text(known, encoding="utf-8")
    _, out, _ = run(capsys, "--grammar", train, "--score", gold)
    assert out.splitlines()[-1].startswith("0 sentences right-branching")


def test_a_grammar_says_for_how_many_sentences_it_has_no_tree(capsys, tmp_path):
    (tmp_path / GRAMMAR).write_text("(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))")
    code, out, err = run(capsys, "the cat sleeps", "--grammar", tmp_path / GRAMMAR)
    assert (code, err) == (0, "") and out.startswith("(S (NP (DT the)")
    code, out, err = run(capsys, "sleeps the", "a " * 61, "--grammar", tmp_path / GRAMMAR)
    assert code == 0 and len(out.splitlines()) == 2
    assert err.count("\n") == 1
    assert ": 2 sentences right-branching: more than 60 words, or no tree by the grammar" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "name the folder of a parser"),
        (["--model", "nowhere", "a"], "nowhere: no such folder"),
        (["--model", EXAMPLES / "models" / "en-de", "a"], "does not write trees"),
        (["--model", "HERE", "--draw", "x.gif2", "a"], "unknown picture format"),
        (["--model", "HERE", "--draw", "x.png", ""], "there is no text"),
        (["--model", "HERE", "--input", "nothing.txt"], "nothing.txt: cannot be read"),
        (["--model", "HERE", "--input", "x.txt", "a"], "choose one of them"),
        (
            ["--model", "HERE", "--score", "nothing.tree"],
            "nothing.tree: cannot be read (No such file",
        ),
        (["--grammar", GRAMMAR, "the cat ."], "no such file: the cat .; put sentences before all"),
        (["--grammar", "no.tree", "the cat ."], "no such file: no.tree, the cat .; put sentences"),
        (["--grammar", "no.tree"], "no.tree: cannot be read (No such file"),
        (["--grammar", GRAMMAR, "2 * 3 ?"], "no such file: 2 * 3 ?; put sentences before all"),
        (["--grammar", "no/*.tree"], "no file matches no/*.tree: is the folder right?"),
        (["a", "--modle", "HERE"], "unknown option --modle: did you mean --model?"),
        (["a", "--nonsense"], "unknown option --nonsense: put -- before text"),
        (["-hello"], "unknown option -hello: put -- before text"),
        (["a", "--grammar", GRAMMAR, "--output", GRAMMAR], "would replace"),
        (["--model", "HERE", "--draw", "x.bmp", "a"], "unknown picture format"),
        (["--model", "HERE", "--score", "x.tree", "--pretty"], "leave out --draw and --pretty"),
        (["a", "--model", "HERE", "--score", "x.tree"], "leave the other text out"),
        (["--model", "HERE", "--score", "x.tree", "--output", "x.tree"], "would replace x.tree"),
        (["--model", "HERE", "--beam", "0", "a"], "--beam"),
        (["a", "--model", "HERE", "--output", "x", "--output", "y"], "--output is given twice"),
        (["a", "--model", "HERE", "--draw", "x.svg", "--draw", "y.svg"], "--draw is given twice"),
        (["a", "--model", "HERE", "--grammar", GRAMMAR], "--model and --grammar are both given"),
        (["--model", "HERE", "--draw", "no/x.png", "a"], "the folder of no/x.png does not exist"),
        (["a", "--model", "HERE", "--draw", "x.svg", "--output", "./x.svg"], "name the same file"),
        (["--model", "HERE", "--draw", "x.svg", "--input", "./x.svg"], "--draw would replace"),
        (["--model", "HERE", "--draw", "", "a"], "unknown picture format ''"),
        (["--model", "HERE", "--draw", "folder.png", "a"], "folder.png is a folder: name a file"),
        (["--model", "HERE", "--draw", f"{'a' * 300}/a.png", "a"], "the folder of aaa"),
        (["--model", "", "a"], ". is not the folder of a trained model"),
        (
            ["--model", "HERE", "--score", GRAMMAR, "--output", ""],
            "--output needs the name of a file",
        ),
        (["--model", "HERE", "--score", GRAMMAR, "--input", ""], "leave the other text out"),
    ],
)
def test_mistakes_get_one_line(folder, capsys, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / GRAMMAR).write_text("(NP (DT the) (NN cat))", encoding="utf-8")
    (tmp_path / "folder.png").mkdir()
    arguments = [folder if argument == "HERE" else argument for argument in arguments]
    try:
        code, out, err = run(capsys, *arguments)
    except SystemExit as stop:
        printed = capsys.readouterr()
        code, out, err = stop.code, printed.out, printed.err
    assert code == 2
    assert out.strip() == ""
    assert len(err.splitlines()) == 1
    assert (tmp_path / GRAMMAR).read_text(encoding="utf-8") == "(NP (DT the) (NN cat))"
    assert said in err


@pytest.fixture
def grammar(tmp_path, monkeypatch):
    """The options of a grammar in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / GRAMMAR).write_text("(NP (DT the) (NN cat))", encoding="utf-8")
    return "--grammar", GRAMMAR


def test_a_tree_too_large_for_a_picture_is_written_all_the_same(capsys, grammar):
    given = ["a " * 1200, "the cat", *grammar, "--draw", "tree.png"]
    code, out, err = run(capsys, *given)
    assert (code, out.count("\n"), out.splitlines()[1]) == (2, 2, "(NP (DT the) (NN cat))")
    assert err.count("\n") == 2 and "is too large for a .png that can be read" in err
    assert "1 sentence right-branching" in err
    code, out, err = run(capsys, *given, "--output", "out.txt")
    assert (code, out) == (2, "")
    with open("out.txt", encoding="utf-8") as file:
        assert len(file.readlines()) == 2


def test_characters_without_a_font_are_named(capsys, grammar, monkeypatch):
    monkeypatch.setattr(plot, "_fonts", lambda: ["DejaVu Sans"])
    code, out, err = run(capsys, "the \u732b", *grammar, "--draw", "tree.svg")
    assert (code, out) == (0, "(NP (DT the) (NN \u732b))\n")
    assert err.endswith("tree.svg has boxes: no installed font has \u732b\n")
    assert run(capsys, "the \u03b1", *grammar, "--draw", "tree.svg")[2] == ""


def test_text_that_starts_with_a_dash(capsys, grammar):
    code, out, _ = run(capsys, *grammar, "--", "--the", "-h", "--draw")
    assert code == 0
    assert [words(next(parse([line]))) for line in out.splitlines()] == [
        ["--the"],
        ["-h"],
        ["--draw"],
    ]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_scores_that_cannot_be_printed(tmp_path, grammar):
    command = [sys.executable, EXAMPLES / "parse.py", *grammar, "--score", GRAMMAR]
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            [*command, "--output", "trees.txt"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    said = found.stderr.decode()
    assert found.returncode == 2 and said.count("\n") == 1
    assert "standard output: cannot be written" in said
    assert (tmp_path / "trees.txt").read_text() == "(NP (DT the) (NN cat))\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt, 130, "stopped: nothing was written to "),
        (MemoryError, 2, "out of memory: give less text"),
    ],
)
def test_what_ends_the_parsing_is_told(capsys, grammar, monkeypatch, error, code, said):
    monkeypatch.setattr(command.Grammar, "parse", mock.Mock(side_effect=error))
    found, out, err = run(capsys, *grammar, "--output", "out.txt", "the cat")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err
    assert not os.path.exists("out.txt")


def test_the_bar_counts_sentences_and_not_their_parts(folder, capsys, grammar, monkeypatch):
    shown = []
    monkeypatch.setattr(command.Progress, "update_to", lambda self, done: shown.append(done))

    def parse_in_parts(self, sentences, progress, **options):
        for done in (2, 4):
            progress(done, 4)
        return [None] * len(sentences)

    monkeypatch.setattr(Parser, "parse", parse_in_parts)
    code, _, _ = run(capsys, "--model", folder, "--score", GRAMMAR, GRAMMAR)
    assert (code, shown) == (0, [1, 2])
    shown.clear()
    monkeypatch.setattr(reading, "LINES", 2)
    code, _, _ = run(capsys, "--model", folder, "a", "b", "c", "d")
    assert (code, shown) == (0, [1, 2, 3, 4])
