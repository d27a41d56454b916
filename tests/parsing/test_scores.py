"""parsing/scores.py: brackets counted by hand, and as another program counts them."""

import random

import numpy as np
import pytest

from minitf.parsing.scores import Scores, interval, score
from minitf.text.trees import Leaf, parse_trees, to_line


def tree_of(text):
    (found,) = parse_trees(text)
    return found


def counts(gold, found, **options):
    (result,) = score([tree_of(gold)], [tree_of(found)], **options)
    return result


GOLD = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))"


def test_brackets_by_hand():
    # S and the first NP are right; VP ends too early; PP is outside of it; NP (it) is right.
    found = "(S (NP (XX the) (XX cat)) (VP (XX sat)) (PP (XX on) (NP (XX it))) (XX .))"
    result = counts(GOLD, found)
    assert result == Scores(1, 0, 5, 5, 4)
    assert (result.precision, result.recall, result.f1) == pytest.approx((80, 80, 80))
    assert result.exact == 0


def test_labels_count_unless_they_are_not_asked_for():
    found = GOLD.replace("(VP", "(NP").replace("(S", "(X")
    assert counts(GOLD, found) == Scores(1, 0, 5, 5, 3)
    assert counts(GOLD, found, labelled=False) == Scores(1, 1, 5, 5, 5)


@pytest.mark.parametrize("tag", [",", ":", "``", "''", "."])
def test_punctuation_is_left_out_by_the_gold_tag(tag):
    gold = f"(S (NP (NN a) (NN b)) ({tag} ,))"
    inside = "(S (NP (XX a) (XX b) (XX ,)))"
    assert counts(gold, inside) == Scores(1, 1, 2, 2, 2)
    for word in ("-LRB-", "HYPH", "NN"):
        assert counts(gold.replace(f"({tag} ,)", f"({word} ,)"), inside).both == 1


def test_a_constituent_that_is_labelled_as_punctuation_is_none():
    """COLLINS.prm deletes these labels, wherever they are."""
    assert counts("(S (: (NN a) (NN b)) (NN c))", "(S (XX a) (XX b) (XX c))") == Scores(
        1, 1, 1, 1, 1
    )


def test_a_constituent_of_punctuation_only_is_none():
    assert counts("(S (NN a) (PRN (, ,)))", "(S (XX a) (XX ,))") == Scores(1, 1, 1, 1, 1)


def test_prt_is_advp():
    assert counts("(VP (VB go) (PRT (RP up)))", "(VP (XX go) (ADVP (XX up)))").exact == 1


@pytest.mark.parametrize("root", ["TOP", "S1", "ROOT", ""])
def test_the_outermost_bracket_without_a_label_is_not_counted(root):
    assert counts(f"({root} (S (NN a)))", "(S (XX a))") == Scores(1, 1, 1, 1, 1)
    inside = counts(f"(S ({root} (NN a)))", "(S (XX a))")
    assert inside.gold == (1 if root == "TOP" else 2), "the others only around a whole tree"


def test_a_bracket_that_occurs_twice_counts_twice():
    assert counts("(NP (NP (NN a)))", "(NP (XX a))") == Scores(1, 0, 2, 1, 1)
    assert counts("(NP (NN a))", "(NP (NP (XX a)))") == Scores(1, 0, 1, 2, 1)


def test_sums_are_of_brackets_not_of_percentages():
    total = sum([Scores(1, 1, 2, 2, 2), Scores(1, 0, 8, 4, 1)], Scores())
    assert total == Scores(2, 1, 10, 6, 3)
    assert (total.precision, total.recall, total.exact / total.sentences) == (50, 30, 0.5)
    assert "F1 37.50" in str(total)
    assert Scores().f1 == 0


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="different words"):
        score([tree_of("(S (NN a) (NN b))")], [tree_of("(S (XX a))")])
    with pytest.raises(ValueError, match="different words"):
        score([tree_of("(S (NN a) (NN b))")], [tree_of("(S (XX b) (XX a))")])


def draw_tree(draw, n_words):
    """Return a random tree without a constituent that contains a single other one."""

    def go(start, end):
        inside, places = [], sorted(draw.sample(range(start, end + 1), min(3, end - start)))
        for a, b in zip([start, *places], [*places, end], strict=True):
            if b - a > 1 and (a, b) != (start, end) and draw.random() < 0.7:
                inside += go(a, b)
            else:
                inside += [Leaf("XX", f"w{i}") for i in range(a, b)]
        label = draw.choice(["NP", "VP"])
        return [f"({label}", *inside, f"){label}"]

    return go(0, n_words)


def test_as_pyevalb_counts_them():
    """It has no parameters: no punctuation, and no constituent twice."""
    scorer = pytest.importorskip("PYEVALB.scorer", reason="pip install PYEVALB").Scorer()
    parser = pytest.importorskip("PYEVALB.parser")
    draw = random.Random(0)
    agreed = []
    for _ in range(300):
        n_words = draw.randint(2, 12)
        gold, found = draw_tree(draw, n_words), draw_tree(draw, n_words)
        (ours,) = score([gold], [found])
        trees = (parser.create_from_bracket_string(to_line(tree)) for tree in (gold, found))
        theirs = scorer.score_trees(*trees)
        assert (ours.gold, ours.found) == (theirs.gold_brackets, theirs.test_brackets)
        assert ours.both == theirs.matched_brackets
        agreed.append(ours.both)
    assert max(agreed) > 1
    assert min(agreed) == 0


def test_the_interval_of_f1_is_that_of_the_normal_approximation():
    """Many alike sentences of one bracket: F1 / 100 is a mean of zeros and ones."""
    right = np.random.default_rng(3).random(1_000) < 0.7
    low, high = interval([Scores(1, int(one), 1, 1, int(one)) for one in right], draws=4_000)
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / len(right))
    assert np.allclose([low, high], 100 * (share + np.array([-half, half])), atol=0.2)
    assert interval([Scores(1, 1, 3, 3, 3)]) == (100, 100)
