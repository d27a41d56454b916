"""examples/models/prepare.py: both sides of a made pair change alike, and nothing else changes."""

import doctest
import re
import sys

import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "examples" / "models"))
import prepare

from minitf.data import corpora
from minitf.text.protected import PLACEHOLDERS

PAIRS = [
    ("Tom has 3 cats.", "Tom hat 3 Katzen."),
    ("Tom's car is red.", "Toms Auto ist rot."),
    ("Mary met Tom in Boston in 1990.", "Maria traf Tom 1990 in Boston."),
    ("Good day!", "Guten Tag!"),
    ("Tom Jackson sings.", "Tom Jackson singt."),
    ("I have 1 dog.", "Ich habe 1 Hund."),
]


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("It costs $1,000.", "Es kostet 1.000 $."), ("It costs ①.", "Es kostet ①.")),
        (("At 2:30 or 3:15.", "Um 3.15 oder 2.30 Uhr."), ("At ① or ②.", "Um ② oder ① Uhr.")),
        (("See x@y.de, x@y.de.", "Siehe x@y.de, x@y.de."), ("See ①, ②.", "Siehe ①, ②.")),
        (("At 2:30.", "Um halb drei."), None),  # nothing on the other side
        (("5% of 10%", "5% von 20%"), None),
        (("I have $5.", "Ich habe 5 €."), None),  # other money
        ((" ".join(["1,5"] * 9),) * 2, None),  # more spans than placeholders
    ],
)
def test_spans_of_both_sides_become_placeholders(pair, expected):
    assert prepare.protected_pair(*pair) == (expected or pair)


def test_placeholders_are_numbered_in_the_order_of_the_source():
    made = prepare.with_placeholders(PAIRS, 400, rng()) + prepare.joined(PAIRS, 20, rng())
    made += [prepare.numbered(*prepare._join_in_a_row([("① a", "a ①"), ("b ② ①", "① ② b")]))]
    assert made[-1] == ("① a b ② ③", "a ① ③ ② b")
    for source, target in made:
        placeholders = re.findall(f"[{PLACEHOLDERS}]", source)
        assert placeholders == list(PLACEHOLDERS[: len(placeholders)])
        assert sorted(re.findall(f"[{PLACEHOLDERS}]", target)) == placeholders


def test_a_placeholder_takes_the_place_of_one_name_or_number():
    made = prepare.with_placeholders(PAIRS[:1], 200, rng())
    assert ("① has 3 cats.", "① hat 3 Katzen.") in made
    assert ("Tom has ① cats.", "Tom hat ① Katzen.") in made
    assert ("①Tom② has 3 cats.", "①Tom② hat 3 Katzen.") in made
    assert not prepare._places(*PAIRS[1])  # a genitive
    assert not prepare._places(*PAIRS[5])  # the grammar of 1 is another
    assert "Tom" not in prepare._places(*PAIRS[4])  # Tom Jackson


def test_names_and_numbers_change_on_both_sides():
    for english, german in prepare.with_other_names(PAIRS[:1] * 2, 60, rng()):
        assert english.removesuffix(" has 3 cats.") == german.removesuffix(" hat 3 Katzen.")
    for english, german in prepare.with_other_names(PAIRS[1:2], 60, rng()):
        name = english.removesuffix("'s car is red.")
        assert german == f"{name}s Auto ist rot." and not name.endswith(("s", "x", "z", "ß", "ce"))
    for english, german in prepare.with_other_numbers(PAIRS[:1], 60, rng()):
        number = re.search(r"\d+", english)[0]
        assert german == f"Tom hat {number} Katzen." and 1 < int(number) < 10_000


def test_translated_names():
    pairs = [("Tom lives in Boston.", "Tom wohnt in Boston.")]
    made = prepare.with_translated_names(pairs, 100, rng())
    for english, german in made:
        place = re.fullmatch(r"Tom lives in (.+)\.", english)
        if place:
            assert german == f"Tom wohnt in {prepare.PLACES[place[1]]}."
        else:
            assert english.startswith("Mr. ") and german.startswith("Herr ")
    assert len(set(made)) > 30


@pytest.mark.parametrize("turned", [False, True])
def test_typed_and_same(turned):
    source = int(turned)
    for pair in prepare.typed(PAIRS, 50, rng(), turned):
        whole = next(each for each in PAIRS if each[1 - source] == pair[1 - source])
        assert pair[source].lower() == whole[source].lower().rstrip(".!?") != whole[source]
    for english, german in prepare.same(PAIRS, 20, rng(), turned):
        assert english == german and any(pair[1 - source] == german for pair in PAIRS)


def test_the_same_input_gives_the_same_pairs():
    counts = dict.fromkeys(prepare.COUNTS, 9)
    first, second, other = (prepare.added_pairs(PAIRS, seed, counts=counts) for seed in (0, 0, 1))
    assert first == second != other and len(first) == 9 * len(counts)


def test_back_translations_are_protected_and_chosen(tmp_path):
    mono = ["Das ist gut.", "Das ist Kladderadatsch, sehr.", "Gut.", "Das ist das.", "Ist das ①?"]
    back = ["This is good.", "That is nonsense.", "Well", "Das ist das.", "Is that ①?"]
    for name, lines in (("mono", mono), ("back", back)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    known = {"das", "ist", "gut", "sehr"}
    found = prepare.back_translated(tmp_path / "mono", tmp_path / "back", known, familiar=0.95)
    assert found == [(f"{prepare.BACK} This is good.", "Das ist gut.")]


def test_the_phrases_are_what_their_pages_say():
    """How many there are, that those to measure on are not taught, and how many graded ones are."""
    folder = prepare.FOLDER / "phrases"
    text = (folder / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (\w+) \| ([\d,]+) \| \d+ \|", text, re.MULTILINE)
    taught = {path.stem: corpora.read_lines(path) for path in (folder / "taught").glob("*.tsv")}
    assert {group: f"{len(rows):,}" for group, rows in taught.items()} == dict(told)
    for side, language in enumerate(("en", "de")):

        def bare(line, column=side):
            return line.split("\t")[column].lower().rstrip(".!?")

        known = {bare(line) for lines in taught.values() for line in lines}
        assert not known & set(map(bare, corpora.read_lines(folder / "unseen.tsv")))
        for name, count in (("sixty", (3, 3)), ("fresh", (7, 6))):
            graded = corpora.read_lines(prepare.FOLDER / "judged" / f"{name}.{language}.tsv")[1:]
            assert sum(bare(line, 1) in known for line in graded) == count[side]


def test_examples():
    assert doctest.testmod(prepare).failed == 0
