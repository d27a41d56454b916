"""The parser in examples/models: what it writes, and how well."""

import os
import random
from pathlib import Path

import pytest
from paths import EXAMPLES

from minitf.parsing.parser import Parser
from minitf.parsing.scores import Scores, score
from minitf.text.trees import cleaned, penn, read_trees, words

MODEL = EXAMPLES / "models" / "parse-en"
CRAFT = Path(os.environ.get("MINITF_DATA", "")) / "craft" / "dev"


def test_it_writes_the_words_into_its_trees():
    """As its notes say; a model read as one that writes XX opens a bracket after the other."""
    parser = Parser.load(MODEL)
    (tree,) = parser.parse([["Mice", "lack", "the", "gene", "."]])
    assert parser.with_words
    assert penn(tree) == "(S (NP (XX Mice)) (VP (XX lack) (NP (XX the) (XX gene))) (XX .))"


@pytest.mark.slow
@pytest.mark.skipif(not CRAFT.is_dir(), reason="MINITF_DATA has no craft")
def test_its_score_on_real_sentences():
    """On a hundred, with a small beam; the card has the score of all, with the paper's beam."""
    gold = [
        tree for path in sorted(CRAFT.glob("*.tree")) for tree in map(cleaned, read_trees(path))
    ]
    gold = random.Random(0).sample([tree for tree in gold if 0 < len(words(tree)) <= 40], 100)
    found = Parser.load(MODEL).parse(map(words, gold), beam=8)
    assert sum(score(gold, found), Scores()).f1 > 70
