"""text/trees.py: brackets to trees and back, cleaning, and the line that a decoder writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitf.errors import UserError
from minitf.text import trees
from minitf.text.trees import Leaf, clean, delinearise, linearise, to_line, to_lines

CAT = "(S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))"


def tree_of(text):
    (found,) = trees.parse_trees(text)
    return found


LABELS = st.sampled_from(["NP", "VP", "S", "X", "NML"])
LEAVES = st.builds(
    Leaf,
    st.sampled_from(["NN", "-LRB-", "."]),
    st.sampled_from(["a", "-LRB-", "f-LRB-x-RRB-", "é]", "12"]),
)


@st.composite
def drawn_trees(draw, depth=3):
    label = draw(LABELS)
    inside = []
    for _ in range(draw(st.integers(1, 3))):
        nested = depth and draw(st.booleans())
        inside += draw(drawn_trees(depth - 1)) if nested else [draw(LEAVES)]
    return [f"({label}", *inside, f"){label}"]


@given(drawn_trees())
def test_every_tree_is_read_as_it_is_written(tree):
    assert tree_of(to_line(tree)) == tree
    assert tree_of(to_lines(tree)) == tree
    assert clean(tree) == tree
    assert linearise(delinearise(linearise(tree), trees.words_of(tree))) == linearise(tree)


def test_words_with_several_in_a_bracket_and_signs_for_brackets():
    tree = tree_of("(NML (NN Xpd TTD) (-LRB- -LRB-) (NN a[b) (-RRB- -RRB-))")
    assert trees.words_of(tree) == ["Xpd", "TTD", "(", "a[b", ")"]
    again = delinearise(linearise(tree), trees.words_of(tree))
    assert to_line(again) == "(NML (XX Xpd) (XX TTD) (XX -LRB-) (XX a[b) (XX -RRB-))"
    assert trees.words_of(tree_of(to_line(again))) == trees.words_of(tree)
    assert trees.words_of(tree_of("(NP (NN f-LRB-x-RRB-))")) == ["f(x)"]


def test_nltk_reads_the_same_trees():
    nltk_tree = pytest.importorskip("nltk", reason="pip install nltk").Tree

    def flat(node):
        if isinstance(node[0], str):
            return [Leaf(node.label(), node[0])]
        inside = [item for part in node for item in flat(part)]
        return [f"({node.label()}", *inside, f"){node.label()}"]

    @given(drawn_trees())
    def check(tree):
        assert flat(nltk_tree.fromstring(to_line(tree))) == tree
        assert flat(nltk_tree.fromstring(to_lines(tree))) == tree

    check()


def test_pretty_gives_each_constituent_a_line():
    tree = tree_of("(S (NP (DT The) (NN cat)) (VP (VBD sat) (ADVP (RB down))) (. .))")
    lines = "(S\n  (NP (DT The) (NN cat))\n  (VP\n    (VBD sat)\n    (ADVP (RB down)))\n  (. .))"
    assert to_lines(tree) == lines


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("( (S (NP-SBJ-1 (PRP We)) (VP (VBP go))))", "(S (NP (PRP We)) (VP (VBP go)))"),
        ("(S (NP=2 (NN a)) (ADVP|PRT (RB b)))", "(S (NP (NN a)) (ADVP (RB b)))"),
        ("(S (NP (-NONE- *T*-1)) (VP (VB go) (NP (-NONE- *))))", "(S (VP (VB go)))"),
        ("(S (NP (NP (-NONE- *)) (SBAR (-NONE- 0))) (VP (VB go)))", "(S (VP (VB go)))"),
        ("(-X- (NN a))", "(-X- (NN a))"),
        ("(NP+X (NP^S (NN a)))", "(NP+X (NP^S (NN a)))"),
        ("( (S (NP (-NONE- *))))", ""),
        ("( (S (NN a)) (. .))", "(ROOT (S (NN a)) (. .))"),
        ("( (NN a))", "(ROOT (NN a))"),
        ("(NN a)", "(ROOT (NN a))"),
        ("(S (-LRB- -LRB-) (NN a))", "(S (-LRB- -LRB-) (NN a))"),
    ],
)
def test_cleaning(written, expected):
    assert to_line(clean(tree_of(written))) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(S (NN a))\n\n(S\n(NN a)", "line 3: the bracket that opens here is not closed"),
        ("(S (NN a)))", "line 1: a bracket is closed that was not opened"),
        ("(S (NN a))\nword", "line 2: 'word' is in no bracket of its own, with its tag"),
        ("(S (NP) (NN a))", r"line 1: the bracket \(NP\) has no word"),
        ("(S\n(NP-SBJ the cat) (VB sat))", r"line 2: the bracket \(NP-SBJ has 2 words: give each"),
        (f"(X a) {'N' * 100}", "line 1: 'N{30}' is in no bracket"),
    ],
)
def test_other_text_gets_one_line_with_its_number(tmp_path, text, said):
    path = tmp_path / "bad.tree"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        list(trees.read_trees(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        list(trees.read_trees(tmp_path / "nothing.tree"))
    (tmp_path / "marked.tree").write_text("(NP (NN a))", encoding="utf-8-sig")
    assert list(trees.read_trees(tmp_path / "marked.tree")) == [tree_of("(NP (NN a))")]
    (tmp_path / "latin.tree").write_bytes("(NN é)".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8"):
        list(trees.read_trees(tmp_path / "latin.tree"))


def test_a_tree_may_be_deeper_than_any_recursion():
    depth = 20_000
    tree = tree_of("(NP " * depth + "(NN a)" + ")" * depth)
    assert len(tree) == 2 * depth + 1
    assert clean(tree) == tree
    assert tree_of(to_line(tree)) == tree
    assert len(delinearise(linearise(tree), ["a"])) == 2 * depth + 1
    assert to_lines(tree).count("\n") == depth - 1


def test_only_the_outermost_bracket_may_be_without_a_label():
    assert clean(tree_of("( ( (NN a) (NN b)) (NN c))")) == tree_of("(ROOT (NN a) (NN b) (NN c))")
    assert clean(tree_of("(S ( (NP (NN a)) ( (-NONE- *))) (NN b))")) == tree_of(
        "(S (NP (NN a)) (NN b))"
    )


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ("(S XX )S", "a tree over 1 words, not 2"),
        ("XX XX", "'XX' cannot follow"),
        ("(S XX )S (S XX )S", "ends before its last token"),
        ("(S XX XX )NP", r"'\)NP' cannot follow"),
        ("(S (NP )NP XX XX )S", r"'\)NP' cannot follow"),
        ("(S XX XX", "not complete"),
        ("( XX XX )", r"'\(' cannot follow"),
        ("(S XX XX  )S", "'' cannot follow"),
    ],
)
def test_a_line_that_is_no_tree_is_refused(tokens, said):
    with pytest.raises(ValueError, match=said):
        delinearise(tokens.split(" "), ["a", "b"])
