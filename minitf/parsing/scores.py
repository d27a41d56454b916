"""How well trees agree with gold ones: labelled brackets, counted as the program EVALB does."""

import dataclasses
from collections import Counter
from collections.abc import Iterable

import numpy as np

from minitf.cli import amount
from minitf.text.trees import ROOT, Leaf, Tree, to_line, words_of

# COLLINS.prm, the parameters with which parsers of the Penn Treebank are compared.
_PUNCTUATION = {",", ":", "``", "''", "."}  # tags; those of brackets and hyphens are words
_NO_CONSTITUENT = {"TOP", *_PUNCTUATION}
_EQUAL = {"PRT": "ADVP"}
# The labels that other treebanks and programs write instead of TOP, around a whole tree.
_ROOTS = {"S1", ROOT, ""}


@dataclasses.dataclass(frozen=True)
class Scores:
    """Brackets in the gold trees, in the others, and in both; sentences, and those that agree.

    precision = 100 both / found,   recall = 100 both / gold
    F1 = 2 precision recall / (precision + recall) = 100 * 2 both / (gold + found)
    """

    sentences: int = 0
    exact: int = 0
    gold: int = 0
    found: int = 0
    both: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Scores(*(a + b for a, b in pairs))

    @property
    def precision(self) -> float:
        return 100 * self.both / max(1, self.found)

    @property
    def recall(self) -> float:
        return 100 * self.both / max(1, self.gold)

    @property
    def f1(self) -> float:
        return 200 * self.both / max(1, self.gold + self.found)

    def __str__(self):
        exact = 100 * self.exact / max(1, self.sentences)
        return (
            f"F1 {self.f1:.2f}  precision {self.precision:.2f}  recall {self.recall:.2f}  "
            f"exact {exact:.1f}%  of {amount(self.sentences, 'sentence')}"
        )


def score(gold: Iterable[Tree], found: Iterable[Tree], labelled: bool = True) -> list[Scores]:
    """Return the Scores of each sentence; `sum(scores, Scores())` adds them up.

    gold, found: cleaned trees. labelled: whether a bracket also has to have the right label.
    Raises ValueError for trees over different words.
    Source: EVALB by Sekine and Collins 1997, with COLLINS.prm, except in three ways. A word is left
    out of both trees if the gold tree tags it as punctuation, since a network writes no tags; EVALB
    goes by the tags of each tree. Beside TOP, a root labelled ROOT, S1 or not at all does not
    count. A sentence of punctuation alone is one of the sentences; EVALB skips it.
    """
    scores = []
    for gold_tree, found_tree in zip(gold, found, strict=True):
        if words_of(gold_tree) != words_of(found_tree):
            raise ValueError(f"different words: {to_line(gold_tree)}, {to_line(found_tree)}")
        leaves = (item for item in gold_tree if isinstance(item, Leaf))
        counted = [leaf.tag not in _PUNCTUATION for leaf in leaves]
        a, b = (spans(tree, counted, labelled) for tree in (gold_tree, found_tree))
        scores.append(Scores(1, int(a == b), a.total(), b.total(), (a & b).total()))
    return scores


def interval(scores: list[Scores], draws: int = 1_000, seed: int = 0) -> tuple[float, float]:
    """Return the lower and the upper end of a 95% interval of F1, by the bootstrap (Efron 1979).

    A draw takes as many sentences as there are, each time from all of them, and gives an F1; 95% of
    these lie in the interval. It says how much F1 depends on the choice of the sentences, and
    nothing about another training. Without scores, both are 0.
    """
    counts = np.array([(one.gold + one.found, one.both) for one in scores]).reshape(-1, 2)
    rng, n = np.random.default_rng(seed), len(counts)
    # One draw at a time: a thousand of all sentences of a treebank would fill a gigabyte.
    sums = [counts[rng.integers(n, size=n)].sum(axis=0) for _ in range(draws)]
    total, both = np.array(sums).T
    low, high = np.percentile(200 * both / np.maximum(1, total), [2.5, 97.5])
    return float(low), float(high)


def spans(tree: Tree, counted: list[bool], labelled: bool = True) -> Counter:
    """Return how often each (label, start, end) occurs as a constituent of a tree.

    counted: which words count. start, end: among those. A constituent without any is left out.
    """
    counts, stack, position = Counter(), [], 0
    flags = iter(counted)
    for item in tree:
        if isinstance(item, Leaf):
            position += next(flags)
        elif item[0] == "(":
            stack.append(position)
        else:
            start, label = stack.pop(), _EQUAL.get(item[1:], item[1:])
            is_root = label in _NO_CONSTITUENT or (not stack and label in _ROOTS)
            if start < position and not is_root:
                counts[label if labelled else "", start, position] += 1
    return counts
