"""parsing/words.py: lines cut as treebanks cut them, and lines that are cut already."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitf.data import corpora
from minitf.parsing.words import tokenise


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("We can't go; it's 10% of $5.", "We ca n't go ; it 's 10 % of $ 5 ."),
        ("See Fig. 3 (left).", "See Fig. 3 ( left ) ."),
        ("She lives in the U.S.", "She lives in the U.S."),
        ("It costs 3.5.", "It costs 3.5 ."),
        ("See version 1.2.", "See version 1.2 ."),
        ("It was significant (p < 0.5.)", "It was significant ( p < 0.5 . )"),
        ("They lack vitamin C.", "They lack vitamin C ."),
        ("J. Smith sees e.g. Ph.D.", "J. Smith sees e.g. Ph.D."),
        ("Wait..", "Wait. ."),
        ("[(see f(x)]", "[ ( see f(x) ]"),
        ("The gene (35%) died in (2003) [8].", "The gene ( 35 % ) died in ( 2003 ) [ 8 ] ."),
        ("(a) {5} ([6]) () (())", "( a ) { 5 } ( [ 6 ] ) () (())"),
        ("Pax6's role in the 1990's", "Pax6 's role in the 1990 's"),
        ("f(x) of Pax6(+) mice", "f(x) of Pax6(+) mice"),
        ("“Hello,” she said... Wait?!", "“ Hello , ” she said ... Wait ? !"),
        ("the dogs' tails", "the dogs ' tails"),
        ("well-known 3.5 a.b,c", "well-known 3.5 a.b,c"),
        ("CAN'T", "CA N'T"),
        ("(e.g., mice) (see", "( e.g. , mice ) ( see"),
        ("Wait.... «no»", "Wait .... «no»"),
        ("( ) ...", "( ) ..."),
        ("'", "'"),
        ("", ""),
    ],
)
def test_signs_at_the_edges(line, words):
    assert " ".join(tokenise(line)) == words


def test_a_line_that_is_cut_already_stays_as_it_is():
    line = "It 's 5' of Fig. (3) , isn't it ."
    assert tokenise(line) == line.split()


def test_a_word_of_thousands_of_signs_stays_as_it_is():
    n = 200_000
    assert tokenise("(" * n + "x!") == ["(" * n + "x!"]
    assert tokenise("." * 990 + "!!") == ["." * 990, "!", "!"]


@given(st.text())
def test_no_character_is_lost(line):
    assert "".join(tokenise(line)) == "".join(line.split())
    assert all(tokenise(line)) and not any(word.split() != [word] for word in tokenise(line))


@pytest.fixture(scope="module")
def treebank():
    """The sentences of CRAFT's test articles, their words between spaces."""
    if "MINITF_DATA" not in os.environ:
        pytest.skip("MINITF_DATA is not set")
    return corpora.load("craft").tests["dev"].source


@pytest.mark.slow
def test_every_sentence_of_a_treebank_stays_as_it_is(treebank):
    assert len(treebank) == 2780
    assert [" ".join(tokenise(line)) for line in treebank] == treebank


@pytest.mark.slow
def test_sentences_of_a_treebank_are_cut_as_there_when_they_are_written_as_usual(treebank):
    """Only those whose words a person would write together again without a doubt."""
    lines = [line for line in treebank if not re.search(r"['\"“”‘’`:/*+=<>~±×·-]|\.\.", line)]
    lines = [line for line in lines if not re.search(r"(?<!\S)\.(?= \S)", line)]
    as_usual = [re.sub(r"(?<=[(\[]) | (?=[%),.;?!\]])", "", line) for line in lines]
    assert len(lines) > 1_000
    assert [" ".join(tokenise(line)) for line in as_usual] == lines
