"""data/treebank.py, and --corpus craft: sentences and trees from a folder of articles."""

import pytest

from minitf.data import corpora
from minitf.data.dataset import prepare
from minitf.data.treebank import articles, as_pairs, held_out, symbols
from minitf.errors import UserError
from minitf.text.trees import Leaf
from minitf.training.settings import Settings

TREE = "( (S (NP-SBJ (NN w{}) (-NONE- *)) (VP (VBZ is) (ADJP (JJ red))) (. .)) )\n"


@pytest.fixture
def craft(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "_LEAST_HELD_OUT", 3)
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    for split, names in (("train", "abcd"), ("dev", "e")):
        (tmp_path / "craft" / split).mkdir(parents=True)
        for name in names:
            text = "".join(TREE.format(f"{name}{i}") for i in range(2)) + "( (-NONE- *) )\n"
            (tmp_path / "craft" / split / f"{name}.tree").write_text(text, encoding="utf-8")
    return tmp_path / "craft"


def test_a_corpus_of_trees(craft):
    corpus = corpora.load("craft")
    assert corpus.train.source == ["wa0 is red .", "wa1 is red .", "wb0 is red .", "wb1 is red ."]
    assert corpus.train.target[0] == "(S (NP XX )NP (VP XX (ADJP XX )ADJP )VP XX )S"
    assert [line[:3] for line in corpus.valid.source] == ["wc0", "wc1", "wd0", "wd1"]
    assert [line[:3] for line in corpus.tests["dev"].source] == ["we0", "we1"]
    assert corpus.symbols == ("XX", "(ADJP", ")ADJP", "(NP", ")NP", "(S", ")S", "(VP", ")VP")
    assert corpus.tokenised


def test_a_corpus_of_trees_with_words(craft):
    corpus, other = corpora.load("craft-words"), corpora.load("craft")
    assert corpus.train.source == other.train.source
    assert corpus.train.target[0] == "(S (NP wa0 )NP (VP is (ADJP red )ADJP )VP . )S"
    assert corpus.symbols == other.symbols[1:]
    assert (corpus.target_language, other.target_language) == ("trees-with-words", "trees")


def test_words_that_begin_like_a_bracket_are_no_brackets():
    trees = [["(NP", Leaf("NN", "-LRB-S"), Leaf("-RRB-", "-RRB-"), ")NP"]]
    assert as_pairs(trees, with_words=True) == (["-LRB-S )"], ["(NP -LRB-S ) )NP"])
    assert as_pairs(trees, with_words=False)[0] == ["(S )"]


def test_each_symbol_is_one_subword(craft):
    dataset = prepare(Settings(corpus="craft", vocabulary_size=300), corpora.load("craft"), print)
    corpus = corpora.load("craft")
    for line, ids in zip(
        corpus.train.target, dataset.subwords.encode(corpus.train.target), strict=True
    ):
        assert len(ids) == len(line.split())
    trees = corpus.train.target
    assert dataset.subwords.decode(dataset.subwords.encode(trees)) == trees


def test_the_articles_that_are_held_out_are_the_last(craft):
    found = articles(craft / "train")
    for least, n in ((1, 1), (2, 1), (3, 2), (6, 3)):
        assert held_out(found, least) == (found[:-n], found[-n:])
    with pytest.raises(UserError, match="4 articles with 8 trees: too few to hold out 7"):
        held_out(found, 7)


def test_pairs_and_symbols_fit_each_other(craft):
    trees = [tree for article in articles(craft / "train") for tree in article]
    _, lines = as_pairs(trees, with_words=False)
    assert {token for line in lines for token in line.split()} == set(symbols(trees, False))


def test_a_folder_without_trees_gets_one_line_that_says_what_to_do(craft):
    for path in (craft / "dev").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"dev has no \.tree files: delete this folder.*") as caught:
        corpora.load("craft")
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_named_with_its_line(craft):
    (craft / "train" / "b.tree").write_text("( (S (NN a)) )\n( (S (NN b) )", encoding="utf-8")
    with pytest.raises(UserError, match=r"b\.tree: line 2: .* is not closed"):
        corpora.load("craft")
