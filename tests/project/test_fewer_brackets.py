"""examples/models/fewer_brackets.py: trees over the same words, with fewer brackets."""

import sys

import numpy as np
import pytest
from paths import EXAMPLES

from minitf.text.trees import from_linear

sys.path.insert(0, str(EXAMPLES / "models"))

import fewer_brackets

TREE = "(S (NP (NP XX XX )NP (PP XX (NP XX )NP )PP )NP (VP XX (ADVP XX )ADVP )VP XX )S"


def test_fewer_brackets_over_the_same_words():
    words = ["the", "cat", "on", "mats", "sleeps", "soundly", "."]
    n = 200
    sources, targets = fewer_brackets.fewer_brackets(
        [" ".join(words)] * n, [TREE] * n, np.random.default_rng(0)
    )
    assert set(sources) == {" ".join(words)} and n < len(targets) <= 2 * n
    found = {target: from_linear(target.split(), words) for target in targets}  # each is a tree
    assert len(found) > 20
    before = TREE.split()
    for target in found:
        rest = iter(before)
        assert all(token in rest for token in target.split()), "in the same order, nothing new"
        assert len(target.split()) < len(before)
        assert target.startswith("(S ") and target.endswith(" )S")


def test_a_label_is_kept_everywhere_or_nowhere():
    _, targets = fewer_brackets.fewer_brackets(["a b"] * 50, [TREE] * 50, np.random.default_rng(1))
    of_labels = [target.split().count("(NP") for target in targets]
    assert set(of_labels) >= {0, 3}


def test_files_and_mistakes(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "craft" / "train"
    folder.mkdir(parents=True)
    (tmp_path / "craft" / "dev").mkdir()
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    written = [tmp_path / name for name in ("fewer.en", "fewer.trees")]
    out = list(map(str, written))
    assert fewer_brackets.main(["--output", *out]) == 2
    assert capsys.readouterr().err.startswith("fewer_brackets.py: ")
    tree = "(S (NP (DT the) (NN cat)) (VP (VBD sat)))\n"
    for path in (folder / "a.tree", folder / "b.tree", tmp_path / "craft" / "dev" / "c.tree"):
        path.write_text(tree * 600, encoding="utf-8")
    assert fewer_brackets.main(["--output", *out]) == 0
    first = [path.read_text(encoding="utf-8") for path in written]
    assert first[0].count("\n") == first[1].count("\n") > 300
    assert fewer_brackets.main(["--output", *out]) == 0
    assert first == [path.read_text(encoding="utf-8") for path in written], "repeatable"
    for wrong in ([*out, "--seed", "-1"], [out[0], out[0]]):
        with pytest.raises(SystemExit):
            fewer_brackets.main(["--output", *wrong])
    assert first == [path.read_text(encoding="utf-8") for path in written], "nothing is lost"
