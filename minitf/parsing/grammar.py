"""A parser without a network: a grammar that is counted on a treebank, and the best tree by it.

Everything before neural networks began here, so a network has to beat it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from minitf.cpu.workers import over_cores
from minitf.parsing.lexicon import Lexicon
from minitf.text.trees import WORD, Leaf, Tree, plain

__all__ = ["Grammar", "right_branching"]

_TOP = "TOP"  # the parent of the root
_ORDER = 2  # how many of the children before it a child depends on
_MOST_WORDS = 60
_BATCH = 8  # sentences


class Grammar:
    """A probabilistic context-free grammar, and the CKY algorithm.

    Each label also names its parent, so an NP below a VP, NP(VP), may differ from one below an S.
    Rules with more than two children are cut into rules of two. Of the children that were written,
    such a rule remembers the last two. The probability of a rule is its share among those with the
    same left side:

        P(A -> B C) = count(A -> B C) / count(A)

    Source: Johnson 1998 for the parents; Klein and Manning 2003 for the children remembered.
    """

    def __init__(self, trees: Iterable[Tree]):
        rules, roots, leaves = _counted(trees)
        self.lexicon = Lexicon(leaves)
        names = {name for parent, *children in rules for name in (parent, *children)}
        self.symbols = sorted(names | set(self.lexicon.tags))
        ids = {name: i for i, name in enumerate(self.symbols)}
        totals = Counter()
        for (parent, *_), count in rules.items():
            totals[parent] += count
        binary, unary = [], {}
        for (parent, *children), count in rules.items():
            ln_p = math.log(count / totals[parent])
            if len(children) == 2:
                binary.append((ids[parent], ids[children[0]], ids[children[1]], ln_p))
            elif parent != children[0]:
                unary[ids[parent], ids[children[0]]] = ln_p
        self._binary = _columns(binary, children=2)
        self._chains, self._paths = _closure(unary)
        chains = [(*pair, ln_p) for pair, ln_p in self._chains.items()]
        self._unary = _columns(chains, children=1)
        self._tag_ids = np.array([ids[tag] for tag in self.lexicon.tags])
        total = math.log(roots.total())
        self._roots = {ids[root]: math.log(count) - total for root, count in roots.items()}

    def parse(
        self,
        sentences: Iterable[Sequence[str]],
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Tree]:
        """Return the tree of each sentence, a list of words; of no words, the empty list.

        A sentence without a tree by the grammar gets the right-branching one. progress: called with
        the number of sentences done and of all.
        """
        sentences, trees = list(sentences), []
        batches = [sentences[start : start + _BATCH] for start in range(0, len(sentences), _BATCH)]
        for found in over_cores(lambda batch: [*map(self.best, batch)], batches):
            trees += found
            if progress:
                progress(len(trees), len(sentences))
        pairs = zip(trees, sentences, strict=True)
        return [tree or right_branching(words) for tree, words in pairs]

    def best(self, words: Sequence[str]) -> Tree | None:
        """Return the most probable tree over the words, or None if the grammar has none.

        None also for more than 60 words: the time grows with the cube of their number.
        """
        n = len(words)
        if not 0 < n <= _MOST_WORDS:
            return None
        # chart[i, j, s]: ln P of the best tree with root s over the words i to j - 1. `without`:
        # of those whose root has two children, or is a tag.
        chart = np.full((n, n + 1, len(self.symbols)), -np.inf, np.float32)
        without = chart.copy()
        for i, word in enumerate(words):
            without[i, i + 1, self._tag_ids] = self.lexicon.log_probabilities(word)
        for length in range(1, n + 1):
            for i in range(n - length + 1):
                j = i + length
                if length > 1:
                    self._combine(chart[i, i + 1 : j], chart[i + 1 : j, j], without[i, j])
                self._close(without[i, j], chart[i, j])
        best = max(self._roots, key=lambda root: chart[0, n, root] + self._roots[root])
        if chart[0, n, best] == -np.inf:
            return None
        return self._tree(chart, without, best, words)

    def _combine(self, lefts, rights, found):
        """Fill found (symbols,) with the best of all rules over all splits, (splits, symbols)."""
        parents, left, right, ln_p = self._binary
        possible = (lefts > -np.inf).any(axis=0)[left] & (rights > -np.inf).any(axis=0)[right]
        rules = np.flatnonzero(possible)
        if len(rules):
            of_rules = (lefts[:, left[rules]] + rights[:, right[rules]]).max(axis=0) + ln_p[rules]
            heads, best = _best(parents[rules], of_rules)
            found[heads] = best

    def _close(self, without, found):
        """Fill found (symbols,) with the best of `without` and of the chains that end in it."""
        parents, children, ln_p = self._unary
        found[:] = without
        if len(parents):
            heads, best = _best(parents, without[children] + ln_p)
            found[heads] = np.maximum(found[heads], best)

    def _tree(self, chart, without, root, words):
        """Return the best tree from the chart, with the labels of the treebank."""
        tree, waiting = [], [(root, 0, len(words))]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):  # a bracket to close
                tree.append(item)
                continue
            symbol, i, j = item
            *chain, last = self._path(chart, without, symbol, i, j)
            is_word = j == i + 1
            constituents = [self.symbols[s] for s in (chain if is_word else [*chain, last])]
            labels = [name.partition("(")[0] for name in constituents if " " not in name]
            tree += [f"({label}" for label in labels]
            waiting += [f"){label}" for label in labels]
            if is_word:
                tree.append(Leaf(self.symbols[last], words[i]))
            else:
                left, right, middle = self._split(chart, last, i, j)
                waiting += [(right, middle, j), (left, i, middle)]
        return tree

    def _path(self, chart, without, symbol, i, j):
        """Return the chain of symbols, from `symbol` to one with two children or to a tag."""
        chains = [(without[i, j, symbol], (symbol,))]
        for child, path in self._paths.get(symbol, ()):
            chains.append((without[i, j, child] + self._chains[symbol, child], path))
        return max(chains, key=lambda chain: chain[0])[1]

    def _split(self, chart, symbol, i, j):
        """Return the two children of a symbol over i to j, and where they meet."""
        first, last = np.searchsorted(self._binary[0], (symbol, symbol + 1))
        _, left, right, ln_p = (column[first:last] for column in self._binary)
        sums = chart[i, i + 1 : j][:, left] + chart[i + 1 : j, j][:, right] + ln_p
        split, rule = np.unravel_index(sums.argmax(), sums.shape)
        return int(left[rule]), int(right[rule]), i + 1 + int(split)


def right_branching(words: Sequence[str], label: str = "NP") -> Tree:
    """Return the tree in which each word is followed by the constituent of all later ones."""
    opened = [item for word in words for item in (f"({label}", Leaf(WORD, word))]
    return opened + [f"){label}"] * len(words)


def _counted(trees):
    """Return counts of rules (parent, child, ...), counts of roots, and the leaves."""
    rules, roots, leaves = Counter(), Counter(), []
    for tree in trees:
        stack = []  # of the open constituents: name, and the children as (label, name)
        for item in tree:
            if isinstance(item, Leaf):
                leaves.append(Leaf(item.tag, plain(item.word)))
                stack[-1][1].append((item.tag, item.tag))
            elif item[0] == "(":
                above = stack[-1][0].partition("(")[0] if stack else _TOP
                stack.append((f"{item[1:]}({above})", []))
            else:
                name, children = stack.pop()
                rules.update(_rules(name, children))
                if stack:
                    stack[-1][1].append((item[1:], name))
                else:
                    roots[name] += 1
    return rules, roots, leaves


def _rules(name, children):
    """Yield the rules of one constituent, with at most two children each.

    The names in between are the only ones with a blank. children: (label, name) of each.

    >>> list(_rules("NP(S)", [("DT", "DT"), ("JJ", "JJ"), ("NN", "NN")]))
    [('NP(S)', 'DT', 'NP(S) DT'), ('NP(S) DT', 'JJ', 'NN')]
    """
    left = name
    for i in range(len(children) - 2):
        before = [label for label, _ in children[max(0, i + 1 - _ORDER) : i + 1]]
        rest = " ".join([name, *before])
        yield left, children[i][1], rest
        left = rest
    yield (left, *(child for _, child in children[-2:]))


def _columns(rules, children):
    """Return an array for each column of rules, (parent, children, ln P), sorted by parent."""
    rules = sorted(rules)
    columns = (np.array([rule[k] for rule in rules], np.int64) for k in range(1 + children))
    return *columns, np.array([rule[-1] for rule in rules], np.float32)


def _best(parents, values):
    """Return the different parents, which are sorted, and the greatest value of each."""
    starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    return parents[starts], np.maximum.reduceat(values, starts)


def _closure(rules):
    """Return the best chain of rules of one child between any two symbols: ln P, and the paths.

    {(parent, child): ln P} and {parent: [(child, (parent, ..., child))]}.
    """
    best = {pair: (ln_p, pair) for pair, ln_p in rules.items()}
    longer = dict(best)
    while longer:  # the chains that are one rule longer, and better than any before
        found = {}
        for (parent, middle), (first, path) in longer.items():
            for (start, child), second in rules.items():
                known = found.get((parent, child)) or best.get((parent, child)) or (-math.inf,)
                if start == middle and child not in path and first + second > known[0]:
                    found[parent, child] = first + second, (*path, child)
        best |= found
        longer = found
    paths = {}
    for (parent, child), (_, path) in best.items():
        paths.setdefault(parent, []).append((child, path))
    return {pair: ln_p for pair, (ln_p, _) in best.items()}, paths
