"""A parser without a network: a grammar that is counted on a treebank, and the best tree by it.

Everything before neural networks began here, so a network has to beat it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from minitf.cpu.workers import over_cores
from minitf.parsing.lexicon import Lexicon
from minitf.text.trees import WORD, Leaf, Tree, plain

__all__ = ["MOST_WORDS", "Grammar", "right_branching"]

_TOP = "TOP"  # the parent of the root
_ORDER = 2  # how many of the children before it a child depends on
MOST_WORDS = 60  # of a sentence that `Grammar.best` parses
_BATCH = 8  # sentences


class Grammar:
    """A probabilistic context-free grammar, and the CKY algorithm that finds the best tree by it.

        P(tree) = P(root) * product of P(rule) * product of P(word | tag)
        P(A -> B C) = count(A -> B C) / count(A)

    The algorithm fills a table with the best constituents, short ones first. best(i, j, A) is the
    probability of the best tree with root A over the words i to j - 1:

        best(i, j, A) = max of P(A -> B C) best(i, k, B) best(k, j, C)
                        over all rules A -> B C and all k with i < k < j
        best(i, j, A) = max of that and P(A -> ... -> B) best(i, j, B)
                        over all chains A -> ... -> B of rules with one child

    For a single word, P(word | tag) takes the place of the first line.

    Each label also names its parent (parent annotation), so an NP below a VP, NP(VP), may differ
    from one below an S. Rules with more than two children are cut into rules of two, from left to
    right (binarization). Of the children that were written, such a rule remembers the last two
    (horizontal Markovization of order 2). Chains of rules with one child are found beforehand (the
    unary closure).

    Source: Kasami 1965 and Younger 1967 for the algorithm; Johnson 1998 for the parents; Klein and
    Manning 2003 for the children remembered, but their rules are cut outward from the head.
    """

    def __init__(self, trees: Iterable[Tree]):
        """Count the rules of some trees, as `minitf.text.trees.cleaned` returns them.

        Raises ValueError if there are none, and for a word outside of all brackets.
        """
        rules, roots, leaves = _counted(trees)
        if not roots:
            raise ValueError("there are no trees to count rules on: give at least one")
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
            # The best tree has no A -> A, which makes any tree less probable. Its count is part of
            # the total even so.
            elif parent != children[0]:
                unary[ids[parent], ids[children[0]]] = ln_p
        self._binary = _columns(binary, children=2)
        self._ln_p_of_chain, self._chains_from = _best_chains(unary)
        chains = [(*ends, ln_p) for ends, ln_p in self._ln_p_of_chain.items()]
        self._chains = _columns(chains, children=1)
        self._tag_ids = np.array([ids[tag] for tag in self.lexicon.tags])
        total = math.log(roots.total())
        self._roots = {ids[root]: math.log(count) - total for root, count in roots.items()}

    def parse(
        self,
        sentences: Iterable[Sequence[str]],
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Tree | None]:
        """Return the best tree of each sentence, a list of words; see `best` for None.

        progress: called with the number of sentences done and of all.
        """
        sentences, trees = list(sentences), []
        batches = [sentences[start : start + _BATCH] for start in range(0, len(sentences), _BATCH)]
        for part in over_cores(lambda batch: [*map(self.best, batch)], batches):
            trees += part
            if progress:
                progress(len(trees), len(sentences))
        return trees

    def best(self, words: Sequence[str]) -> Tree | None:
        """Return the most probable tree over the words; over no words, the empty list.

        Return None if the grammar has no tree, or if there are more than 60 words: the time grows
        with the cube of their number. The caller decides what to write then: `right_branching`?
        """
        n = len(words)
        if n == 0:
            return []
        if n > MOST_WORDS:
            return None
        # best[i, j, s]: ln P of the best tree with root s over the words i to j - 1.
        # before_chains: of those in which s is a tag, or has two children.
        best = np.full((n, n + 1, len(self.symbols)), -np.inf, np.float32)
        before_chains = best.copy()
        for i, word in enumerate(words):
            before_chains[i, i + 1, self._tag_ids] = self.lexicon.log_probabilities(word)
        for length in range(1, n + 1):
            for i in range(n - length + 1):
                j = i + length
                if length > 1:
                    self._combine(best[i, i + 1 : j], best[i + 1 : j, j], before_chains[i, j])
                self._add_chains(before_chains[i, j], best[i, j])
        root = max(self._roots, key=lambda root: best[0, n, root] + self._roots[root])
        if best[0, n, root] == -np.inf:
            return None
        return self._tree(best, before_chains, root, words)

    def _combine(self, lefts, rights, cell):
        """Fill cell (symbols,) with the best of all rules over all splits, (splits, symbols)."""
        parents, left, right, ln_p = self._binary
        possible = (lefts > -np.inf).any(axis=0)[left] & (rights > -np.inf).any(axis=0)[right]
        rules = np.flatnonzero(possible)
        if len(rules):
            children = (lefts[:, left[rules]] + rights[:, right[rules]]).max(axis=0)
            heads, greatest = _greatest_of_each(parents[rules], children + ln_p[rules])
            cell[heads] = greatest

    def _add_chains(self, before_chains, cell):
        """Fill cell (symbols,) with the best of `before_chains` and of chains that lead there."""
        parents, children, ln_p = self._chains
        cell[:] = before_chains
        if len(parents):
            heads, greatest = _greatest_of_each(parents, before_chains[children] + ln_p)
            cell[heads] = np.maximum(cell[heads], greatest)

    def _tree(self, best, before_chains, root, words):
        """Return the best tree from the two tables, with the labels of the treebank."""
        tree, waiting = [], [(root, 0, len(words))]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):  # a bracket to close
                tree.append(item)
                continue
            symbol, i, j = item
            *chain, last = self._best_chain(before_chains[i, j], symbol)
            is_word = j == i + 1
            constituents = [self.symbols[s] for s in (chain if is_word else [*chain, last])]
            labels = [name.partition("(")[0] for name in constituents if " " not in name]
            tree += [f"({label}" for label in labels]
            waiting += [f"){label}" for label in labels]
            if is_word:
                tree.append(Leaf(self.symbols[last], words[i]))
            else:
                left, right, middle = self._split(best, last, i, j)
                # The last one in is the first one out: the left child is written first.
                waiting += [(right, middle, j), (left, i, middle)]
        return tree

    def _best_chain(self, before_chains, symbol):
        """Return the best chain from `symbol` to a tag, or to a symbol with two children."""
        chains = [(before_chains[symbol], (symbol,))]
        for chain in self._chains_from.get(symbol, ()):
            child = chain[-1]
            chains.append((before_chains[child] + self._ln_p_of_chain[symbol, child], chain))
        return max(chains, key=lambda pair: pair[0])[1]

    def _split(self, best, symbol, i, j):
        """Return the two children of a symbol over i to j, and where they meet."""
        first, last = np.searchsorted(self._binary[0], (symbol, symbol + 1))
        _, left, right, ln_p = (column[first:last] for column in self._binary)
        sums = best[i, i + 1 : j][:, left] + best[i + 1 : j, j][:, right] + ln_p
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
                if not stack:
                    raise ValueError(
                        f"the word {item.word!r} is outside of all brackets: give the grammar "
                        "trees that minitf.text.trees.cleaned returned"
                    )
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

    The names in between are the only ones with a space. children: (label, name) of each.

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


def _greatest_of_each(parents, values):
    """Return the different parents, which are sorted, and the greatest value of each."""
    starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    return parents[starts], np.maximum.reduceat(values, starts)


def _best_chains(rules):
    """Return the best chain of rules with one child between any two symbols.

    rules: {(parent, child): ln P}. Returns the same of the chains, {(first, last): ln P}, and the
    chains by their first symbol, {first: [(first, ..., last)]}.
    """
    rules_of = defaultdict(list)
    for (parent, child), ln_p in rules.items():
        rules_of[parent].append((child, ln_p))
    best = {ends: (ln_p, ends) for ends, ln_p in rules.items()}
    longer = dict(best)
    while longer:  # the chains that are one rule longer, and better than any before
        chains = {}
        for (first, middle), (ln_p, chain) in longer.items():
            for last, ln_p_of_rule in rules_of[middle]:
                known = chains.get((first, last)) or best.get((first, last)) or (-math.inf,)
                if last not in chain and ln_p + ln_p_of_rule > known[0]:
                    chains[first, last] = ln_p + ln_p_of_rule, (*chain, last)
        best |= chains
        longer = chains
    chains_from = defaultdict(list)
    for (first, _), (_, chain) in best.items():
        chains_from[first].append(chain)
    return {ends: ln_p for ends, (ln_p, _) in best.items()}, dict(chains_from)
