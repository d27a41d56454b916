"""parsing/grammar.py: counts by hand, and the best tree as another program finds it."""

import itertools
import math
from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest

from minitf.parsing.grammar import Grammar, _best_chains, _counted, _rules, right_branching
from minitf.parsing.lexicon import Lexicon, signatures
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
    assert rules["NP(S)", "DT", "NN"] == pytest.approx(2 / 4)
    assert rules["NP(S)", "DT", "NP(S) DT"] == pytest.approx(1 / 4)
    assert rules["NP(S) DT", "JJ", "NN"] == pytest.approx(1)
    assert rules["S(TOP)", "NP(S)", "S(TOP) NP"] == pytest.approx(1 / 5)
    assert rules["VP(S)", "VBZ", "VP(S) VBZ"] == pytest.approx(1 / 5)
    unary = grammar._ln_p_of_chain
    direct = {("NP(S)", "NN"): 1 / 4, ("VP(S)", "VBZ"): 1 / 5, ("S(TOP)", "VP(S)"): 1 / 5}
    for (parent, child), p in direct.items():
        assert math.exp(unary[names.index(parent), names.index(child)]) == pytest.approx(p)
    assert math.exp(unary[names.index("S(TOP)"), names.index("VB")]) == pytest.approx(1 / 25)


def test_a_rule_remembers_the_last_two_children():
    children = [(label, f"{label}(X)") for label in "abcde"]
    assert list(_rules("X(S)", children)) == [
        ("X(S)", "a(X)", "X(S) a"),
        ("X(S) a", "b(X)", "X(S) a b"),
        ("X(S) a b", "c(X)", "X(S) b c"),
        ("X(S) b c", "d(X)", "e(X)"),
    ]
    assert list(_rules("X(S)", children[:1])) == [("X(S)", "a(X)")]


def test_chains_with_a_cycle():
    """2 -> 0 -> 1 is better than 2 -> 1. 0 and 1 lead to each other, but no chain to itself."""
    ln_half, ln_tenth = math.log(0.5), math.log(0.1)
    rules = {(0, 1): ln_half, (1, 0): ln_tenth, (2, 0): ln_half, (2, 1): ln_tenth}
    ln_p, chains = _best_chains(rules)
    assert ln_p == rules | {(2, 1): 2 * ln_half}
    assert {first: sorted(some) for first, some in chains.items()} == {
        0: [(0, 1)],
        1: [(1, 0)],
        2: [(2, 0), (2, 0, 1)],
    }


def chains_by_trial(rules):
    """Return the ln P of the best chain between two symbols, of all without a repeated symbol."""
    symbols, best = sorted({symbol for pair in rules for symbol in pair}), {}
    for n in range(2, len(symbols) + 1):
        for chain in itertools.permutations(symbols, n):
            ln_p = sum(rules.get(pair, -math.inf) for pair in itertools.pairwise(chain))
            ends = chain[0], chain[-1]
            if ln_p > best.get(ends, -math.inf):
                best[ends] = ln_p
    return best


def test_chains_of_random_rules():
    random = Random(3)
    for _ in range(40):
        pairs = [pair for pair in itertools.permutations(range(5), 2) if random.random() < 0.4]
        rules = {pair: -random.expovariate(1) for pair in pairs}
        ln_p, chains = _best_chains(rules)
        assert ln_p == pytest.approx(chains_by_trial(rules))
        of_chains = {
            (chain[0], chain[-1]): sum(map(rules.get, itertools.pairwise(chain)))
            for some in chains.values()
            for chain in some
        }
        assert of_chains == pytest.approx(ln_p)


def test_a_rule_from_a_symbol_to_itself_only_costs():
    """NP(NP) has a word once and itself once, so each of its two rules has P = 1/2."""
    (tree,) = trees_of(["(NP (NP (NP (NN a))))"])
    grammar = Grammar([tree])
    assert penn(grammar.best(["a"])) == "(NP (NP (NN a)))"
    first, last = grammar.symbols.index("NP(NP)"), grammar.symbols.index("NN")
    assert math.exp(grammar._ln_p_of_chain[first, last]) == pytest.approx(1 / 2)
    assert (first, first) not in grammar._ln_p_of_chain


def random_tree(random, n, depth=3):
    """Return a tree over n words x, y or z, with chains of constituents over the same words."""
    label = random.choice("ABC")
    leaf = [Leaf(random.choice("tu"), random.choice("xyz"))]
    if n == 1:
        inside = random_tree(random, 1, depth - 1) if depth and random.random() < 0.5 else leaf
    elif depth and random.random() < 0.25:
        inside = random_tree(random, n, depth - 1)
    else:
        ends = sorted(random.sample(range(1, n), random.randint(1, min(3, n - 1))))
        inside = []
        for size in np.diff([0, *ends, n]):
            leaf = [Leaf(random.choice("tu"), random.choice("xyz"))]
            is_leaf = size == 1 and random.random() < 0.5
            inside += leaf if is_leaf else random_tree(random, int(size), max(depth - 1, 0))
    return [f"({label}", *inside, f"){label}"]


class Slow:
    """The same grammar, in dictionaries: how probable a tree is, and how probable the best one."""

    def __init__(self, grammar, trees):
        self.lexicon = grammar.lexicon
        self.rules, self.roots, _ = _counted(trees)
        self.totals = Counter()
        for (parent, *_), count in self.rules.items():
            self.totals[parent] += count

    def ln_rule(self, rule):
        return math.log(self.rules[rule] / self.totals[rule[0]])

    def ln_root(self, root):
        return math.log(self.roots[root] / self.roots.total())

    def ln_tree(self, tree):
        rules, roots, leaves = _counted([tree])
        of_words = (
            self.lexicon.log_probabilities(leaf.word)[self.lexicon.tags.index(leaf.tag)]
            for leaf in leaves
        )
        of_rules = (count * self.ln_rule(rule) for rule, count in rules.items())
        return sum(of_rules) + sum(of_words) + sum(map(self.ln_root, roots))

    def ln_best(self, sentence):
        chart, n = defaultdict(lambda: defaultdict(lambda: -math.inf)), len(sentence)
        for i, word in enumerate(sentence):
            found = self.lexicon.log_probabilities(word)
            chart[i, i + 1].update(zip(self.lexicon.tags, found, strict=True))
            self._close(chart[i, i + 1])
        for i, j in sorted(itertools.combinations(range(n + 1), 2), key=lambda ij: ij[1] - ij[0]):
            for k in range(i + 1, j):
                for rule in self.rules:
                    if len(rule) == 3:
                        p = chart[i, k][rule[1]] + chart[k, j][rule[2]] + self.ln_rule(rule)
                        chart[i, j][rule[0]] = max(chart[i, j][rule[0]], p)
            self._close(chart[i, j])
        return max(chart[0, n][root] + self.ln_root(root) for root in self.roots)

    def _close(self, cell):
        changed = True
        while changed:
            changed = False
            for rule in self.rules:
                if len(rule) == 2:
                    p = cell[rule[1]] + self.ln_rule(rule)
                    if p > cell[rule[0]] + 1e-12:
                        cell[rule[0]], changed = p, True


def test_the_best_tree_on_random_treebanks():
    """They have chains of constituents, cycles among them, and several roots."""
    random = Random(5)
    trees_found = 0
    for _ in range(80):
        trees = [random_tree(random, random.randint(1, 5)) for _ in range(random.randint(1, 6))]
        grammar = Grammar(trees)
        slow = Slow(grammar, trees)
        for _ in range(4):
            sentence = random.choices("xyzq", k=random.randint(1, 5))
            tree, expected = grammar.best(sentence), slow.ln_best(sentence)
            if tree is None:
                assert expected == -math.inf
                continue
            trees_found += 1
            assert words(tree) == sentence
            assert slow.ln_tree(tree) == pytest.approx(expected, abs=1e-4), (sentence, penn(tree))
    assert trees_found > 100


def test_a_grammar_knows_the_brackets_of_its_treebank():
    (tree,) = parse(["(NP (-LRB- -LRB-) (NN cat) (-RRB- -RRB-))"])
    grammar = Grammar([tree, *trees_of(TREEBANK)])
    found = grammar.best(["(", "cat", ")"])
    assert penn(found) == "(NP (-LRB- -LRB-) (NN cat) (-RRB- -RRB-))"


def test_labels_may_contain_any_sign():
    trees = trees_of(["(S (@X (NN a) (NN b) (NN d)) (N^P (NN c)))"])
    assert penn(Grammar(trees).best(["a", "b", "d", "c"])) == penn(trees[0])


def test_its_own_treebank_comes_back(grammar):
    for text in (*TREEBANK[:2], TREEBANK[4]):  # the two others are ambiguous
        assert penn(grammar.best(words(trees_of([text])[0]))) == text


def test_a_sentence_that_is_too_long_or_has_no_tree(grammar):
    assert grammar.best(["dog"] * 61) is None
    small = Grammar(trees_of(TREEBANK[-1:]))
    assert small.best(["go", "go"]) is None
    assert small.best([]) == []
    missing, empty, found = small.parse([["go", "go"], [], ["stay"]])
    assert missing is None
    assert empty == []
    assert penn(found) == "(S (VP (VB stay)))"


def test_sixty_words_are_not_too_long():
    tree = ["(NP", *[Leaf("NN", "dog")] * 60, ")NP"]
    assert Grammar([tree]).best(["dog"] * 60) == tree


def test_trees_that_branch_to_the_right():
    assert penn(right_branching(["go", "away"])) == "(NP (XX go) (NP (XX away)))"
    assert right_branching(["a"]) == ["(NP", Leaf("XX", "a"), ")NP"]
    assert right_branching([]) == []


@pytest.mark.parametrize("trees", [[], [[]]])
def test_a_grammar_needs_trees(trees):
    with pytest.raises(ValueError, match="there are no trees to count rules on"):
        Grammar(trees)


def test_a_word_outside_of_all_brackets_is_named():
    (tree,) = parse(["(NN cat)"])
    with pytest.raises(ValueError, match=r"the word 'cat' is outside .*cleaned returned"):
        Grammar([tree])


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


def test_looks_are_counted_on_words_that_occur_twice_but_not_thrice():
    leaves = [Leaf("NN", "twos")] * 2 + [Leaf("VB", "thrices")] * 3
    lexicon = Lexicon(leaves)
    share = np.array([2, 3]) / 5  # NN, VB
    shape = (np.array([2, 0]) + 5 * share) / 7
    last = (np.array([2, 0]) + 5 * shape) / 7  # ends in s
    np.testing.assert_allclose(lexicon.log_probabilities("xs"), np.log(last / share))


def test_looks_go_from_general_to_special():
    assert signatures("p53-null") == ["a0_", "a0_-l", "a0_-ll", "a0_-ull", "a0_-null"]
    assert signatures("α") == ["a"]
    assert signatures(",") == ["."]
    assert signatures("a/b+")[0] == "a"
    assert signatures("mRNA")[0] == "Ba"
