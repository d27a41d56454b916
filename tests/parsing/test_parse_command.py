"""examples/parse.py: its output, its manners, and what it says about mistakes."""

import functools
import subprocess
import sys

import pytest
from paths import EXAMPLES

from minitf.config import Config
from minitf.files.models import save_model
from minitf.parsing import commandline
from minitf.text import Subwords
from minitf.text.trees import parse, words
from minitf.transformer import Transformer
from minitf.translation.probe import probe

SYMBOLS = ["XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP"]
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
    code = commandline.main(["--beam", "2", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_one_line_for_each_line(folder, capsys):
    code, out, _ = run(capsys, "--model", folder, "The cat sat.", "", "Go (now)!")
    lines = out.split("\n")
    assert (code, len(lines), lines[1], lines[-1]) == (0, 4, "", "")
    assert words(next(parse([lines[0]]))) == ["The", "cat", "sat", "."]
    assert words(next(parse([lines[2]]))) == ["Go", "(", "now", ")", "!"]
    assert "(XX -LRB-)" in lines[2]


def test_pretty_trees_are_the_same_trees(folder, capsys):
    _, plain, _ = run(capsys, "--model", folder, "The cat sat.", "It slept.")
    _, in_lines, _ = run(capsys, "--model", folder, "--pretty", "The cat sat.", "It slept.")
    assert list(parse(in_lines.split("\n"))) == list(parse(plain.split("\n")))
    assert in_lines.count("\n") > plain.count("\n")


def test_any_bytes_from_a_pipe(folder):
    text = b"a cat\n\xff\xfe \x1b[0m\x00 b\n\n" + "é\u2028x 🐈".encode()
    command = [sys.executable, EXAMPLES / "parse.py", "--model", folder, "--beam", "1"]
    found = subprocess.run(command, input=text, capture_output=True, check=True)
    lines = found.stdout.decode().split("\n")
    assert len(lines) == 5
    assert [len(list(parse([line]))) for line in lines] == [1, 1, 0, 1, 0]
    assert "\x1b" not in found.stdout.decode()
    assert found.stderr == b""


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


def test_scores(folder, capsys, tmp_path):
    gold, found = tmp_path / "gold.tree", tmp_path / "found.tree"
    _, tree, _ = run(capsys, "--model", folder, "the cat .")
    gold.write_text(tree + "(NP " + "(NN a) " * 41 + ")", encoding="utf-8")
    code, out, _ = run(capsys, "--model", folder, "--score", gold, "--output", found)
    whole, without, short, *by_length = out.splitlines()
    assert code == 0
    assert whole.startswith("all sentences")
    assert "of 2 sentences" in whole
    assert without.startswith("without labels")
    assert short.startswith("40 words or fewer")
    assert "F1 100.00" in short
    assert short.endswith("of 1 sentence")
    assert [line[:14] for line in by_length] == ["1 to 10 words ", "41 to 60 words"]
    lines = found.read_text(encoding="utf-8").splitlines()
    assert lines[0] == tree.rstrip("\n")
    assert lines[1].count("(XX a)") == 41


def test_scores_of_a_grammar_count_the_trees_that_it_does_not_have(capsys, tmp_path):
    train, gold = tmp_path / "train.tree", tmp_path / "gold.tree"
    train.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat)))", encoding="utf-8")
    gold.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat))) (NP (NN cat))", encoding="utf-8")
    code, out, _ = run(capsys, "--grammar", train, "--score", gold)
    assert code == 0
    assert out.splitlines()[-1].startswith("1 sentence right-branching")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "name a trained parser"),
        (["--model", "nowhere", "a"], "nowhere: no such folder"),
        (["--model", EXAMPLES / "models" / "en-de", "a"], "does not write trees"),
        (["--model", "HERE", "--draw", "x.gif2", "a"], "unknown picture format"),
        (["--model", "HERE", "--draw", "x.png", ""], "there is no text"),
        (["--model", "HERE", "--input", "nothing.txt"], "nothing.txt: cannot be read"),
        (["--model", "HERE", "--input", "x.txt", "a"], "choose one of them"),
        (["--model", "HERE", "--score", "nothing.tree"], "nothing.tree: No such file"),
        (["--model", "HERE", "--score", "x.tree", "--pretty"], "leave the other text out"),
        (["--model", "HERE", "--score", "x.tree", "--output", "x.tree"], "name a new file"),
        (["--model", "HERE", "--beam", "0", "a"], "--beam"),
    ],
)
def test_mistakes_get_one_line(folder, capsys, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [folder if argument == "HERE" else argument for argument in arguments]
    try:
        code, out, err = run(capsys, *arguments)
    except SystemExit as stop:
        printed = capsys.readouterr()
        code, out, err = stop.code, printed.out, printed.err
    assert code == 2
    assert out.strip() == ""
    assert len(err.splitlines()) == 1
    assert said in err
