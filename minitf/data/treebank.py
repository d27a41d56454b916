"""Treebanks: sentences, and the trees that a decoder should write for them."""

from pathlib import Path

from minitf.cli import amount
from minitf.errors import UserError
from minitf.text.trees import WORD, Tree, clean, escape_bracket, linearise, read_trees, words_of

Article = list[Tree]  # the cleaned trees of one file


def articles(folder: Path) -> list[Article]:
    """Return the articles of a folder of .tree files, in the order of their names.

    Raises UserError for a folder without any, and for a file that is not in Penn Treebank form.
    """
    files = sorted(folder.glob("*.tree"))
    if not files:
        raise UserError(
            f"{folder} has no .tree files: delete this folder, and the trees of CRAFT (CC BY 3.0) "
            "will be downloaded; or copy other .tree files there"
        )
    return [list(filter(None, map(clean, read_trees(path)))) for path in files]


def as_pairs(trees: list[Tree], with_words: bool) -> tuple[list[str], list[str]]:
    """Return the sentences, and their trees in linear form, each as a line with spaces.

    with_words: the trees have the words themselves instead of XX.

    >>> from minitf.text.trees import Leaf
    >>> as_pairs([["(NP", Leaf("DT", "the"), Leaf("NN", "cat"), ")NP"]], with_words=False)
    (['the cat'], ['(NP XX XX )NP'])
    """
    sentences = [map(escape_bracket if with_words else str, words_of(tree)) for tree in trees]
    return list(map(" ".join, sentences)), [" ".join(linearise(tree, with_words)) for tree in trees]


def symbols(trees: list[Tree], with_words: bool) -> list[str]:
    """Return the tokens of the trees that are one subword each: XX, if used, and the brackets."""
    labels = sorted({item[1:] for tree in trees for item in tree if isinstance(item, str)})
    return [*([] if with_words else [WORD]), *(sign + label for label in labels for sign in "()")]


def held_out(articles: list[Article], least: int) -> tuple[list[Article], list[Article]]:
    """Return the first articles, and the last ones that together have at least `least` trees.

    Sentences of one article are alike, so a text to validate on has articles of its own.
    """
    size = 0
    for i in reversed(range(1, len(articles))):
        size += len(articles[i])
        if size >= least:
            return articles[:i], articles[i:]
    trees = amount(sum(map(len, articles)), "tree")
    raise UserError(
        f"{amount(len(articles), 'article')} with {trees}: too few to hold out {least:,} of them, "
        "and train on the others"
    )
