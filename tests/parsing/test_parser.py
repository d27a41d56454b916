"""parsing/: every output of any model is a tree over exactly the words of its sentence."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLES

from minitf.config import Config
from minitf.errors import UserError
from minitf.parsing.brackets import Brackets
from minitf.parsing.parser import Parser
from minitf.parsing.scores import Scores, score
from minitf.text import BOS, EOS, Subwords
from minitf.text.trees import WORD, clean, read_trees, to_line, words_of
from minitf.transformer import Transformer
from minitf.translation import Search

BUNDLED = EXAMPLES / "models" / "parse-en"
CRAFT = Path(os.environ.get("MINITF_DATA", "")) / "craft" / "dev"
SYMBOLS = [WORD, "(S", ")S", "(NP", ")NP", "(VP", ")VP"]
TEXT = ["the cat sat on the mat .", "a dog ( not a cat ) sat", "(S (NP XX XX )NP (VP XX )VP )S"]
SENTENCES = [
    ["The", "cat", "sat", "."],
    ["Go"],
    [],
    ["(", "a", ")", "-LRB-", "XX", "(S", ")S", "(Sat)", "\uff08S"],
    ["\x00", "\ufeff", "é\u0301", "🐈", "x" * 5000, "´", "\u2581"],
    ["a"] * 60,
    ["b", "."] * 210,
]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train(TEXT * 3, 310, symbols=SYMBOLS, log=lambda notice: None)


def parser_of(subwords, seed, with_words=False):
    config = Config(len(subwords), n_layers=1, d_model=16, d_ff=16, n_heads=2)
    model = Transformer(config, seed=seed)
    for parameter in model.parameters():  # a wild model, whose favourite texts are no trees
        parameter.data *= 3
    return Parser(model, subwords, with_words)


@pytest.mark.parametrize("with_words", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_every_output_is_a_tree_over_its_words(subwords, beam, seed, with_words):
    found = parser_of(subwords, seed, with_words).parse(SENTENCES, beam=beam, max_extra=40)
    for sentence, tree in zip(SENTENCES, found, strict=True):
        assert [leaf.word for leaf in tree if not isinstance(leaf, str)] == sentence
        assert bool(tree) == bool(sentence)
        depths = np.cumsum(
            [0 if not isinstance(x, str) else 1 if x[0] == "(" else -1 for x in tree]
        )
        assert not sentence or (depths[-1] == 0 and (depths[:-1] > 0).all())


def asked(parser, monkeypatch, *arguments, **options):
    """Return what a parser asks its translator for: the lines, beam, alpha and the limit."""
    calls, translate = [], parser._translator.translate

    def noted(*arguments, **options):
        calls.append(arguments)
        return translate(*arguments, **options)

    monkeypatch.setattr(parser._translator, "translate", noted)
    parser.parse(*arguments, **options)
    (call,) = calls
    return call


def test_the_model_reads_the_words_and_searches_as_it_is_told(subwords, monkeypatch):
    call = asked(
        parser_of(subwords, 0),
        monkeypatch,
        [["The", "cat"], ["a", "x" * 99, "\x00"]],
        beam=3,
        alpha=0.9,
        max_extra=7,
    )
    assert call == (["The cat", f"a {'x' * 60} ?"], Search(3, 0.9, 7, wellformed=False))


@pytest.mark.parametrize("with_words", [False, True])
def test_the_tree_depends_on_the_sentence(subwords, with_words):
    """Of two sentences with equally many words."""
    parser = parser_of(subwords, 1, with_words)
    sentences = [["the", "cat", "sat", "on", "a", "mat"], ["a", "dog", "(", "not", "cat", ")"]]
    first, second = (
        ["XX" if not isinstance(item, str) else item for item in tree]
        for tree in parser.parse(sentences, beam=1, max_extra=40)
    )
    assert first != second


@pytest.mark.parametrize(
    ("signs", "lengths"),
    [
        ({45: "."}, [45, 30]),
        ({15: ".", 61: "."}, [60, 15]),
        ({40: ";", 50: ",", 55: ":"}, [40, 35]),
        ({50: ",", 45: ":"}, [45, 30]),
        ({40: ",", 50: ","}, [50, 25]),
    ],
)
def test_a_part_ends_after_a_clause_in_its_second_half(subwords, monkeypatch, signs, lengths):
    sentence = [signs.get(i, "b") for i in range(1, 76)]
    lines, *_ = asked(parser_of(subwords, 0), monkeypatch, [sentence], beam=1)
    assert [len(line.split()) for line in lines] == lengths


def test_a_long_sentence_is_parsed_in_parts(subwords):
    (tree,) = parser_of(subwords, 0).parse([SENTENCES[-1]], beam=1)
    assert (tree[0], tree[-1]) == ("(ROOT", ")ROOT")
    inside, depth, size, sizes = tree[1:-1], 0, 0, []
    for item in inside:
        depth += 0 if not isinstance(item, str) else 1 if item[0] == "(" else -1
        size += not isinstance(item, str)
        if depth == 0:
            sizes.append(size)
            size = 0
    assert sizes == [60] * 7


def brute_force(tokens, n_words, left):
    """Return what may follow by trying all continuations, of a tiny language."""

    def is_tree(text):
        count, before, stack = 0, None, []
        for i, token in enumerate(text):
            if i and not stack:
                return False
            if token == WORD:
                if not stack:
                    return False
                count += 1
            elif token[0] == "(":
                stack.append(token[1:])
            elif not stack or stack.pop() != token[1:] or before[0] == "(":
                return False
            before = token
        return bool(text) and not stack and count == n_words

    found = set()

    def go(text, first, left):
        if left == 0:
            return
        if is_tree(text):
            found.add(first or EOS)
        if left == 1 or text.count(WORD) > n_words or len(text) > 9:
            return
        for token in SYMBOLS[:5]:
            if first is None or first not in found:
                go([*text, token], first or token, left - 1)

    go(list(tokens), None, left)
    return found


@pytest.mark.parametrize(("n_words", "room"), [(1, 4), (1, 6), (1, 7), (2, 5), (2, 7)])
def test_allowed_is_exactly_what_can_be_completed(subwords, n_words, room):
    pieces = [piece[1:] for piece in subwords.pieces(range(len(subwords)))]
    ids = {symbol: pieces.index(symbol) for symbol in SYMBOLS}
    rules = Brackets(subwords, [[[ids[WORD]]] * n_words], EOS)
    texts, seen = [[]], 0
    while texts:
        rows = np.array([[BOS, *(ids[token] for token in text)] for text in texts])
        left = room - len(texts[0])
        allowed = rules(rows, np.zeros(len(rows), int), np.full(len(rows), left))
        longer = []
        for text, row in zip(texts, allowed, strict=True):
            found = {name for name, i in ids.items() if row[i] and "VP" not in name}
            found |= {EOS} if row[EOS] else set()
            assert found == brute_force(text, n_words, left), text
            assert found, "something may always follow"
            assert row.sum() == len(found) + any("(" in str(name) for name in found)
            longer += [[*text, token] for token in found - {EOS}]
            seen += 1
        texts = longer
    assert seen > 3


def test_a_word_is_written_piece_by_piece_and_nothing_comes_between(subwords):
    """Of two sentences, each gets its own words, after the same text so far."""
    pieces = [piece[1:] for piece in subwords.pieces(range(len(subwords)))]
    opening, closing, other = (pieces.index(name) for name in ("(S", ")S", "(NP"))
    rules = Brackets(subwords, [[[7, 8], [9]], [[7], [7, 8]]], EOS)

    def after(*text):
        rows = np.array([[BOS, *text]] * 2)
        return [set(row.nonzero()[0]) for row in rules(rows, np.arange(2), np.full(2, 20))]

    brackets = {pieces.index(name) for name in ("(S", "(NP", "(VP")}
    assert after() == [brackets] * 2
    assert after(opening) == [brackets | {7}] * 2
    assert after(opening, 7) == [{8}, brackets | {7}]
    assert after(opening, 7, 8) == [brackets | {9}, set()]
    assert after(opening, 7, 8, 9) == [{closing}, set()] and other in brackets


@pytest.mark.parametrize(("n_words", "most"), [(1, 3), (2, 4), (8, 10), (30, 10)])
@pytest.mark.parametrize("pieces", [[7], [7, 8, 9]])
def test_brackets_that_open_in_a_row_are_few(subwords, n_words, most, pieces):
    """A model that knows no better, as for a Japanese word, builds no tower of unary phrases."""
    opening = [piece[1:] for piece in subwords.pieces(range(len(subwords)))].index("(S")
    rules = Brackets(subwords, [[pieces] * n_words], EOS)
    text, rows = [BOS], [0]  # rows: of brackets, before each word
    while len(rows) <= n_words:
        (allowed,) = rules(np.array([text]), np.array([0]), np.array([900]))
        if allowed[opening]:
            rows[-1] += 1
            text.append(opening)
        else:
            text.append(int(allowed[7:10].argmax()) + 7)
            rows += [0] * (text[-1] == pieces[-1])
    assert rows[0] == most
    assert rows[:-1] == [min(10, left + 2) for left in range(n_words, 0, -1)]


def test_what_cannot_be_parsed_is_refused(subwords):
    parser = parser_of(subwords, 0)
    for word in ("", "a b", " a", "a\u2009"):
        with pytest.raises(ValueError, match="needs characters, and no spaces"):
            parser.parse([["a", word]])
    with pytest.raises(TypeError, match=r"each a list of words: minitf\.parsing\.words\.tokenise"):
        parser.parse(["Mice die."])


def test_models_that_cannot_parse_are_refused(subwords):
    sizes = {"n_layers": 1, "d_model": 16, "d_ff": 16, "n_heads": 2}
    learned = Config(len(subwords), **sizes, positions="learned", max_length=9)
    with pytest.raises(UserError, match="train it with sinusoids"):
        Parser(Transformer(learned), subwords)
    others = Subwords.train(TEXT[:2] * 3, 300, log=lambda notice: None)
    with pytest.raises(UserError, match="does not write trees"):
        Parser(Transformer(Config(len(others), **sizes)), others)


# The bundled parser -------------------------------------------------------------------------------


def test_the_bundled_parser_writes_the_words_into_its_trees():
    """As its notes say; a model read as one that writes XX opens a bracket after the other."""
    parser = Parser.load(BUNDLED)
    (tree,) = parser.parse([["Mice", "lack", "the", "gene", "."]])
    assert parser.with_words
    assert to_line(tree) == "(S (NP (XX Mice)) (VP (XX lack) (NP (XX the) (XX gene))) (XX .))"


@pytest.mark.slow
@pytest.mark.skipif(not CRAFT.is_dir(), reason="MINITF_DATA has no craft")
def test_the_score_of_the_bundled_parser_on_real_sentences():
    """On a hundred, with a small beam; the card has the score of all, with the paper's beam."""
    gold = [tree for path in sorted(CRAFT.glob("*.tree")) for tree in map(clean, read_trees(path))]
    gold = random.Random(0).sample([tree for tree in gold if 0 < len(words_of(tree)) <= 40], 100)
    found = Parser.load(BUNDLED).parse(map(words_of, gold), beam=8)
    assert sum(score(gold, found), Scores()).f1 > 70
