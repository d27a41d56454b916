"""parsing/grammar.py: counts by hand, and the best tree as another program finds it."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from minitf.parsing.grammar import Grammar, right_branching
from minitf.parsing.lexicon import Lexicon, look
from minitf.text.trees import Leaf, parse, penn, words

TREEBANK = [
    "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog))) (. .))",
    "(S (NP (DT the) (JJ old) (NN dog)) (VP (VBZ sleeps)))",
    "(S (NP (NN dog)) (VP (VBZ sees) (NP (NP (DT the) (NN cat)) (PP (IN with) (NP (NN hat))))))",
    "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)) (PP (IN with) (NP (NN me)))))",
    "(S (VP (VB go)))",
]


def trees_of(texts):
    return list(parse(texts))


@pytest.fixture(scope="module")
def grammar():
    return Grammar(trees_of(TREEBANK))


def test_rules_by_hand(grammar):
    names = grammar.symbols
    rules = {
        (names[a], names[b], names[c]): math.exp(p)
        for a, b, c, p in zip(*grammar._binary, strict=True)
    }
    assert rules["NP^S", "DT", "NN"] == pytest.approx(2 / 4)
    assert rules["NP^S", "DT", "@NP^S DT"] == pytest.approx(1 / 4)
    assert rules["@NP^S DT", "JJ", "NN"] == pytest.approx(1)
    assert rules["S^TOP", "NP^S", "@S^TOP NP"] == pytest.approx(1 / 5)
    assert rules["VP^S", "VBZ", "@VP^S VBZ"] == pytest.approx(1 / 5)
    totals = Counter()
    for (parent, *_), p in rules.items():
        totals[parent] += p
    unary = grammar._chains
    direct = {("NP^S", "NN"): 1 / 4, ("VP^S", "VBZ"): 1 / 5, ("S^TOP", "VP^S"): 1 / 5}
    for (parent, child), p in direct.items():
        assert math.exp(unary[names.index(parent), names.index(child)]) == pytest.approx(p)
    assert math.exp(unary[names.index("S^TOP"), names.index("VB")]) == pytest.approx(1 / 25)
    assert totals["NP^S"] == pytest.approx(3 / 4)


def ln_p(tree):
    """Return ln P of a tree from rules counted here, and from the Lexicon."""
    counts, totals = Counter(), Counter()

    def rules_of(text_tree):
        stack = []
        for item in text_tree:
            if isinstance(item, Leaf):
                stack[-1][1].append((item.tag, item.tag))
            elif item[0] == "(":
                parent = stack[-1][0].split("^")[0] if stack else "TOP"
                stack.append((f"{item[1:]}^{parent}", []))
            else:
                name, parts = stack.pop()
                left = name
                while len(parts) > 2:
                    seen = [label for label, _ in parts[:1]]
                    before = left.split(" ")[1:] if left[0] == "@" else []
                    rest = " ".join([f"@{name}", *[*before, *seen][-2:]])
                    yield left, (parts[0][1], rest)
                    left, parts = rest, parts[1:]
                yield left, tuple(part for _, part in parts)
                if stack:
                    stack[-1][1].append((item[1:], name))

    for known in trees_of(TREEBANK):
        for rule in rules_of(known):
            counts[rule] += 1
            totals[rule[0]] += 1
    leaves = [item for known in trees_of(TREEBANK) for item in known if isinstance(item, Leaf)]
    lexicon = Lexicon(leaves)
    of_rules = sum(math.log(counts[rule] / totals[rule[0]]) for rule in rules_of(tree))
    of_words = sum(
        lexicon.log_probabilities(leaf.word)[lexicon.tags.index(leaf.tag)]
        for leaf in tree
        if isinstance(leaf, Leaf)
    )
    return of_rules + of_words


def all_best(grammar, sentence):
    """Return ln P of the best tree by a slow, plain CKY over dictionaries."""
    names, n = grammar.symbols, len(sentence)
    chart = defaultdict(lambda: defaultdict(lambda: -math.inf))

    def close(cell):
        for _ in range(5):  # chains are shorter
            for (a, b), p in direct.items():
                cell[a] = max(cell[a], cell[b] + p)

    direct = {}
    for tree in trees_of(TREEBANK):
        stack = []
        for item in tree:
            if isinstance(item, Leaf):
                stack[-1][1].append(item.tag)
            elif item[0] == "(":
                stack.append((f"{item[1:]}^{stack[-1][0].split('^')[0] if stack else 'TOP'}", []))
            else:
                name, parts = stack.pop()
                if stack:
                    stack[-1][1].append(name)
                direct.setdefault(name, []).append(tuple(parts))
    direct = {
        (name, found[0]): math.log(all_parts.count(found) / len(all_parts))
        for name, all_parts in direct.items()
        for found in set(all_parts)
        if len(found) == 1
    }
    for i, word in enumerate(sentence):
        for tag, p in zip(
            grammar.lexicon.tags, grammar.lexicon.log_probabilities(word), strict=True
        ):
            chart[i, i + 1][tag] = p
        close(chart[i, i + 1])
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            cell = chart[i, i + length]
            for a, b, c, p in zip(*grammar._binary, strict=True):
                for k in range(i + 1, i + length):
                    total = chart[i, k][names[b]] + chart[k, i + length][names[c]] + p
                    cell[names[a]] = max(cell[names[a]], total)
            close(cell)
    return chart[0, n]["S^TOP"]


@pytest.mark.parametrize(
    "sentence",
    [
        "the cat sees a dog .",
        "the dog sees the cat with a hat",
        "go",
        "cat sees dog with the old hat",
        "the old old dog sleeps",
        "the blue zog sleeps",
    ],
)
def test_the_best_tree(grammar, sentence):
    tree = grammar.best(sentence.split())
    expected = all_best(grammar, sentence.split())
    if tree is None:
        assert expected == -math.inf
    else:
        assert words(tree) == sentence.split()
        assert ln_p(tree) == pytest.approx(expected, abs=1e-4)


def test_its_own_treebank_comes_back(grammar):
    for text in (*TREEBANK[:2], TREEBANK[3], TREEBANK[4]):
        assert penn(grammar.best(words(trees_of([text])[0]))) == text


def test_without_a_tree_it_branches_to_the_right(grammar):
    assert grammar.best(["dog"] * 61) is None
    small = Grammar(trees_of(TREEBANK[-1:]))
    assert small.best(["go", "go"]) is None
    found = small.parse([["go", "go"], [], ["stay"]])
    assert [penn(tree) for tree in found] == [
        "(NP (XX go) (NP (XX go)))",
        "",
        "(S (VP (VB stay)))",
    ]
    assert right_branching(["a"]) == ["(NP", Leaf("XX", "a"), ")NP"]


def test_unknown_words_are_tagged_by_their_looks():
    leaves = [Leaf("NNS", f"{word}s") for word in ("gene", "mutant", "cell", "hat")]
    leaves += [Leaf("VBG", f"{word}ing") for word in ("runn", "sleep", "see", "mak")]
    leaves += [Leaf("CD", number) for number in ("12", "3", "405")]
    lexicon = Lexicon(leaves)

    def best(word):
        return lexicon.tags[int(lexicon.log_probabilities(word).argmax())]

    assert [best(word) for word in ("dogs", "going", "77", "sleeping")] == [
        "NNS",
        "VBG",
        "CD",
        "VBG",
    ]


def test_the_probabilities_of_a_word_are_smoothed_counts():
    leaves = [Leaf("NN", "a")] * 6 + [Leaf("VB", "a")] * 2 + [Leaf("NN", "bb"), Leaf("JJ", "cb")]
    lexicon = Lexicon(leaves)
    share = np.array([1, 7, 2]) / 10  # JJ, NN, VB
    shape = (np.array([1, 1, 0]) + 5 * share) / 7  # of the rare words bb and cb
    known = (np.array([0, 6, 2]) + 5 * shape) / 13
    np.testing.assert_allclose(lexicon.log_probabilities("a"), np.log(known / share))
    last = (np.array([1, 1, 0]) + 5 * shape) / 7  # ends in b
    np.testing.assert_allclose(lexicon.log_probabilities("xb"), np.log(last / share))


def test_looks_go_from_general_to_special():
    assert look("p53-null") == ["a0_", "a0_-l", "a0_-ll", "a0_-ull", "a0_-null"]
    assert look("α") == ["a"]
    assert look(",") == ["."]
