"""The built-in corpus: its German is right and depends on the English alone; no test sentence
is learned from.
"""

import hashlib
import re
from pathlib import Path

import pytest

from minitf.data import toy
from minitf.data.toy import grammar
from minitf.data.toy.grammar import (
    NOUNS,
    PRONOUNS,
    VERB,
    Clause,
    Phrase,
    after,
    english_clause,
    german_clause,
    pronoun,
)

CLAUSES = Path(__file__).with_name("clauses.txt").read_text(encoding="utf-8")
# fmt: off
ROLES = {
    "s": ("subject", "nominative"), "o": ("object", "accusative"), "do": ("object", "dative"),
    "r": ("recipient", "dative"), "w": ("partner", "dative", "with", "mit"),
    "f": ("partner", "accusative", "for", "für"),
    "in": ("place", "dative", "in", "in"), "at": ("place", "dative", "at", "an"),
    "into": ("place", "accusative", "into", "in"), "to": ("place", "dative", "to", "zu"),
}
# fmt: on
TIMES = {english: german for table in grammar.TIMES.values() for english, german in table.items()}


def phrase(text, case):
    """`phrase("the old man+", "dative")`: the old men."""
    if text in PRONOUNS:
        return pronoun(text, case)
    if text in grammar.NAMES:
        return Phrase(text, text)
    article, *adjective, name = text.split()
    return grammar.noun_phrase(
        name.rstrip("+"), article.replace("_", " "), case, name.endswith("+"), *adjective
    )


def clause_of(verb, mode, negated, parts):
    fields = {}
    for part in parts:
        role, text = part.split(" ", 1)
        if role == "p":
            fields["predicate"] = Phrase(text, grammar.ADJECTIVES[text])
        elif role == "t":
            fields["often" if text in grammar.TIMES["often"] else "time"] = Phrase(
                text, TIMES[text]
            )
        else:
            field, case, *prepositions = ROLES[role]
            words = phrase(text, case)
            fields[field] = after(*prepositions, words) if prepositions else words
    return Clause(verb=VERB[verb], mode=mode, negated=bool(negated), **fields)


@pytest.mark.parametrize(
    "lines", re.findall(r"(.+)\n    (.+)", CLAUSES), ids=lambda lines: lines[1].split(" | ")[0]
)
def test_clause_in_both_languages(lines):
    made_of, (english, german) = lines[0], lines[1].split(" | ")
    head, *parts = made_of.split("; ")
    order, verb, mode, *negated = head.split()
    clause, front = clause_of(verb, mode, negated, parts), Phrase()
    if order == "front":
        front, clause, order = clause.time, clause._replace(time=Phrase()), "second"
    assert english_clause(clause, order == "first", front) == english
    assert german_clause(clause, order, front) == german


def test_the_sentences_are_those_of_every_machine():
    """All trainings on them depend on it: a change of the grammar draws others."""
    digest = hashlib.sha256(repr(toy.pairs(3000)).encode()).hexdigest()
    assert digest == "2717fe03430512ad1cf0dd2608a90824fb2486465749fa059c05494fe3cfae5b"
    assert toy.pairs(100, seed=6)[0] != toy.pairs(100, seed=5)[0]


@pytest.fixture(scope="module")
def sample():
    return toy.pairs(5_000, seed=1), toy.pairs(5_000, seed=2)


def test_one_english_sentence_has_one_german_sentence_and_there_are_many(sample):
    translations = {}
    for sources, targets in sample:
        assert len(set(sources)) == len(sources) == len(targets) == 5_000
        for source, target in zip(sources, targets, strict=True):
            assert translations.setdefault(source, target) == target
    # Capture and recapture: of N equally likely sentences, two samples of n share n * n / N.
    assert 5_000**2 / (10_000 - len(translations)) > 200_000


def held_out_pattern():
    """Return what finds HELD_OUT in a text: "red bag", "the bag is red", "how many hats"."""
    between = "|".join(
        [*grammar.ADJECTIVES, "an?|any|the|this|some|two|three|four|five|six|my|his|her|our"]
    )
    patterns = []
    for word, name in toy.HELD_OUT:
        noun = f"(?:{name}|{NOUNS[name].plural or name})"
        if word in grammar.ADJECTIVES:
            patterns += [rf"{word} {noun}", rf"{noun} (?:is|are|was|were)(?: not)? {word}"]
            patterns += [rf"(?:Is|Are|Was|Were) (?:\w+ )?{noun} {word}"]
            continue
        verb = next(verb for verb in grammar.VERBS if verb.base == word)
        forms = "|".join({verb.base, verb.third, verb.ing, verb.past} - {""})
        patterns += [rf"(?:{forms})(?: (?:{between}))* {noun}"]
        patterns += [rf"[Hh]ow many (?:\w+ )?{noun} .*\b(?:{forms})"]
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


def test_splits():
    sizes = {"train": 6_000, "valid": 200, "test": 300, "test_held_out": 300}
    splits = toy.splits(n_train=6_000, n_valid=200, n_test=300)
    assert {name: len(pairs[0]) for name, pairs in splits.items()} == sizes
    sources = {name: set(pairs[0]) for name, pairs in splits.items()}
    assert len(set().union(*sources.values())) == sum(sizes.values()), "one is in two splits"
    smaller = toy.splits(n_train=100, n_valid=200, n_test=300)
    assert all(smaller[name] == splits[name] for name in ("valid", "test", "test_held_out"))
    held_out = held_out_pattern()
    for name, lines in sources.items():
        found = sum(bool(held_out.search(line)) for line in lines)
        assert found == (300 if name == "test_held_out" else 0), name
