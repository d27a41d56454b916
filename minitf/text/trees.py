"""Constituency trees: read from brackets, cleaned, as a line that a decoder writes, and back.

A tree is a flat list, in the order in which it is written: `(NP` opens a constituent, a Leaf is a
word with its tag, and `)NP` closes the constituent again. So no function here calls itself, and a
tree may be as deep as it likes.

    (S (NP (DT The) (NN cat)) (VP (VBD sat)))
    ["(S", "(NP", Leaf("DT", "The"), Leaf("NN", "cat"), ")NP", "(VP", Leaf("VBD", "sat"), ...]
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from minitf.errors import UserError, in_file

WORD = "XX"  # each word of a tree in linear form, and the tag of a word whose tag is unknown
WITH_WORDS = "trees-with-words"  # the target language of a model that writes them instead of XX
ROOT = "ROOT"  # for several constituents side by side
# (NN cat); (NP; ); or what does not belong there. Any space may be between: CRAFT has U+2009.
_TOKEN = re.compile(r"\(\s*([^\s()]+)((?:\s+[^\s()]+)+)\s*\)|\(\s*([^\s()]*)|\)|[^\s()]+")
_TRACE = "-NONE-"
_FUNCTION = re.compile("[-=|]")
_DEEPEST = 50  # levels; deeper ones are not indented further
# The constituents of the Penn Treebank (Bies et al. 1995), without clauses of questions.
_PHRASES = {"S", "SBAR", "NP", "VP", "PP", "ADJP", "ADVP", "QP", "PRN", "WHNP", "WHPP", "WHADVP"}


class Leaf(NamedTuple):
    """A word of a tree with its part of speech, such as NN."""

    tag: str
    word: str


Tree = list[str | Leaf]


def read_trees(path: str | Path) -> Iterator[Tree]:
    """Yield the trees of a file in the form of the Penn Treebank, each as it is written.

    Raises UserError, with file and line, for text that is not in this form.
    """
    try:
        with in_file(path), open(path, encoding="utf-8-sig") as file:
            yield from parse_trees(file.read())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): name a .tree file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8: convert the file") from None


def parse_trees(text: str) -> Iterator[Tree]:
    """Yield the trees that are written in brackets in a text.

    A tree may extend over several lines. Its outermost bracket may be without a label.
    Raises UserError, with the number of the line, for any other text.

    >>> list(parse_trees("( (NP (DT the)\\n      (NN cat)) )"))
    [['(', '(NP', Leaf(tag='DT', word='the'), Leaf(tag='NN', word='cat'), ')NP', ')']]
    """
    tree, labels, start = [], [], 0  # labels: of the brackets that are open; start: of the tree

    def wrong(place, what):
        line = text.count("\n", 0, place) + 1
        return UserError(f"line {line}: {what}")

    for token in _TOKEN.finditer(text):
        place, (tag, written, label) = token.start(), token.groups()
        start = start if labels else place
        if written:
            leaves = [Leaf(tag, word) for word in written.split()]
            if len(leaves) > 1 and _category(tag) in _PHRASES:
                what = f"the bracket ({tag} has {len(leaves)} words"
                raise wrong(place, f"{what}: give each its own, with its tag")
            tree += leaves  # more than one by mistake: (NN Xpd TTD) occurs in CRAFT
        elif label is not None:
            labels.append(label)
            tree.append(f"({label}")
        elif token[0] != ")":
            what = "is in no bracket of its own, with its tag: is this a file of trees?"
            raise wrong(place, f"{token[0][:30]!r} {what}")
        elif not labels:
            raise wrong(
                place, "a bracket is closed that was not opened: remove it, or add ( before"
            )
        elif isinstance(tree[-1], str) and tree[-1][0] == "(":
            raise wrong(place, f"the bracket {tree[-1]}) has no word: add one, or remove it")
        else:
            tree.append(f"){labels.pop()}")
        if not labels:
            yield tree
            tree = []
    if labels:
        raise wrong(start, "the bracket that opens here is not closed: add )")


def clean(tree: Tree) -> Tree:
    """Return a tree without traces, functions and indices; nothing is left of an empty tree.

    - Traces (words that were not said, with the tag -NONE-) go, and constituents of traces alone.
    - Functions and indices go: NP-SBJ-1, NP=2 and ADVP|PRT become NP and ADVP. A label that begins
      with a hyphen, such as -LRB-, is left as it is.
    - Brackets without a label go; but an outermost one around several constituents gets the label
      ROOT. A tree that is a word alone gets a bracket with the label ROOT.

    Source: the usual preparation of the Penn Treebank for parsers; Bies et al. 1995 for functions.

    >>> clean(next(parse_trees("( (S (NP-SBJ-1 (-NONE- *)) (VP-CC (VB Go))))")))
    ['(S', '(VP', Leaf(tag='VB', word='Go'), ')VP', ')S']
    """
    tokens, kept = [], []  # kept: whether each open bracket has a label, or is the outermost
    for item in tree:
        if isinstance(item, Leaf):
            if item.tag != _TRACE:
                tokens.append(item)
        elif item[0] == "(":
            kept.append(item != "(" or not kept)
            if kept[-1]:
                tokens.append(f"({_category(item[1:])}")
        elif kept.pop():
            if isinstance(tokens[-1], str) and tokens[-1][0] == "(":
                tokens.pop()  # nothing was left inside
            else:
                tokens.append(f"){_category(item[1:])}")
    return _without_root(tokens)


def _category(label):
    """Return NP for NP-SBJ-1, and -LRB- as it is."""
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def _without_root(tree):
    if tree and isinstance(tree[0], Leaf):
        return [f"({ROOT}", *tree, f"){ROOT}"]
    if tree[:1] != ["("]:
        return tree
    inside = tree[1:-1]
    depth = ends = 0
    for item in inside:
        depth += 0 if isinstance(item, Leaf) else 1 if item[0] == "(" else -1
        ends += depth == 0
    if ends == 1 and not isinstance(inside[0], Leaf):
        return inside
    return [f"({ROOT}", *inside, f"){ROOT}"]


def linearise(tree: Tree, with_words: bool = False) -> list[str]:
    """Return the tree as the tokens that a decoder writes: brackets with labels, and XX for words.

    with_words: the words themselves instead of XX, as `escape_bracket` writes them.
    Source: Vinyals et al. 2015, section 2.2, who also give closing brackets their label.

    >>> linearise(["(NP", Leaf("DT", "the"), Leaf("NN", "cat"), ")NP"])
    ['(NP', 'XX', 'XX', ')NP']
    >>> linearise(["(NP", Leaf("DT", "the"), Leaf("NN", "cat"), ")NP"], with_words=True)
    ['(NP', 'the', 'cat', ')NP']
    """

    def token(leaf):
        return escape_bracket(unescape_brackets(leaf.word)) if with_words else WORD

    return [token(item) if isinstance(item, Leaf) else item for item in tree]


def is_bracket(token: str) -> bool:
    """Return whether a token of the linear form is a bracket, and not a word.

    >>> is_bracket("(NP"), is_bracket("("), is_bracket("")
    (True, False, False)
    """
    return token[:1] in ("(", ")") and len(token) > 1


def escape_bracket(word: str) -> str:
    """Return a word that cannot be taken for a bracket of the tree.

    >>> escape_bracket("("), escape_bracket("(S"), escape_bracket(")b(c")
    ('(', '-LRB-S', '-RRB-b(c')
    """
    return _escape(word[0]) + word[1:] if is_bracket(word) else word


def delinearise(tokens: Sequence[str], words: Sequence[str]) -> Tree:
    """Return the tree of tokens as `linearise` writes them, with these words, all tagged XX.

    Raises ValueError for tokens that are not one tree over exactly these words.
    """
    if tokens.count(WORD) != len(words):
        raise ValueError(f"a tree over {tokens.count(WORD)} words, not {len(words)}")
    waiting, stack, tree = iter(words), [], []
    for i, token in enumerate(tokens):
        if i and not stack:
            raise ValueError("the tree ends before its last token")
        if token == WORD and stack:
            tree.append(Leaf(WORD, next(waiting)))
        elif token[:1] == "(" and token != "(":
            stack.append(token[1:])
            tree.append(token)
        elif token[:1] == ")" and stack and token[1:] == stack.pop() and tokens[i - 1][0] != "(":
            tree.append(token)
        else:
            raise ValueError(f"the token {token!r} cannot follow here")
    if stack or not tokens:
        raise ValueError("the tree is not complete")
    return tree


def words_of(tree: Tree) -> list[str]:
    """Return the words of a tree, as `unescape_brackets` writes them."""
    return [unescape_brackets(item.word) for item in tree if isinstance(item, Leaf)]


def unescape_brackets(word: str) -> str:
    """Return a word of a treebank with ( and ) for -LRB- and -RRB-.

    >>> unescape_brackets("-LRB-"), unescape_brackets("f-LRB-x-RRB-")
    ('(', 'f(x)')
    """
    return word.replace("-LRB-", "(").replace("-RRB-", ")")


def to_line(tree: Tree) -> str:
    """Return the tree in one line, each word in a bracket of its own.

    >>> to_line(["(NP", Leaf("XX", "the"), Leaf("XX", "cat"), ")NP"])
    '(NP (XX the) (XX cat))'
    """
    return " ".join(to_lines(tree).split())


def to_lines(tree: Tree) -> str:
    """Return the tree in several lines: each constituent begins one, and its words share one."""
    parts, depth = [], 0
    for i, item in enumerate(tree):
        new_line = "\n" + "  " * min(depth, _DEEPEST)
        if isinstance(item, Leaf):
            is_beside = i and (isinstance(tree[i - 1], Leaf) or _only_words(tree, i - 1))
            parts.append(f"{' ' if is_beside else new_line}({item.tag} {_escape(item.word)})")
        elif item[0] == "(":
            parts.append(new_line + item)
            depth += 1
        else:
            parts.append(")")
            depth -= 1
    return "".join(parts).removeprefix("\n")


def _only_words(tree, start):
    """Return whether the constituent that opens at `start` contains no other."""
    end = start + 1
    while isinstance(tree[end], Leaf):
        end += 1
    return tree[start][0] == "(" and tree[end][0] == ")"


def _escape(word):
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
