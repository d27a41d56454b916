"""Markup beside the words is not read, and stands at its place in the translation."""

import numpy as np
import pytest

from minitf.text.protected import PLACEHOLDERS, protected_pattern, split_protected
from minitf.translation.markup import (
    Markup,
    gaps_of,
    insert_markup,
    place_markup,
    without_markup,
)
from minitf.translation.reading import Line, Text

KNOWN = frozenset("abcdefghijklmnopqrstuvwxyzIHST .,:;!?\"'0123456789")


def read(line):
    """Return what a model reads of a line, and its markup."""
    texts, spans, markup = without_markup(*split_protected(line, protected_pattern((), KNOWN)))
    return "①".join(texts), spans, markup


@pytest.mark.parametrize(
    ("line", "expected", "markup"),
    [
        ("It is > so.", "It is so.", [(">", 2, "", "")]),
        ("* It is so", "It is so", [("*", 0, "", "")]),
        ("It is so %.", "It is so.", [("%", 3, "", ".")]),
        ("It is (so).", "It is so.", [("(", 2, "", "s"), (")", 3, "o", ".")]),
        ("**It:** is so", "It: is so", [("**", 0, "", "I"), ("**", 1, ":", "")]),
        ('"*It* is"', '"It is"', [("*", 0, '"', "I"), ("*", 1, "t", "")]),
        ("It is\\nso", "It is so", [("\\n", 2, "s", "s")]),
        ("It is.\\nSo", "It is. So", [("\\n", 2, ".", "S")]),
        ("Is <b>it</b>?", "Is it?", [("<b>", 1, "", "i"), ("</b>", 2, "t", "?")]),
        ("It is (5%) so", "It is ① so", [("(", 2, "", "5"), (")", 3, "%", "")]),
    ],
)
def test_what_a_model_reads(line, expected, markup):
    text, spans, found = read(line)
    assert (text, found) == (expected, [Markup(*each) for each in markup])
    assert spans == ["5%"] * ("5%" in line)


def likely(*pairs):
    """Return a stand-in for a model to which these pairs of a source and a target are likely."""
    return lambda asked: [float(pair in pairs) for pair in asked]


@pytest.mark.parametrize(
    ("line", "translation", "likely_pairs", "expected"),
    [
        ("It is > so.", "So ist es.", [("It is ① so.", "So ① ist es.")], "So > ist es."),
        ("It is so %.", "So ist es.", [], "So ist es %."),
        ("**It:** is so", "Es: so ist es", [("It: ① is so", "Es: ① so ist es")],
         "**Es:** so ist es"),
        ("It is (so).", "Es ist (so.", [("It is ① so.", "Es ① ist (so.")], "Es (ist (so)."),
        ('Is "*it* so"', 'Ist "es so"', [('Is "it ① so"', 'Ist "es ① so"'),
         ('Is ① "it so"', 'Ist ① "es so"')], 'Ist "*es* so"'),
        ("It is *so* it", "So ist es", [("It is ① so it", "① So ist es"),
         ("It is so ① it", "So ① ist es")], "*So* ist es"),
        ("It (is) so", "So", [], "(So)"),
        ("[It / is](a.md) so", "So", [], "[ / So](a.md)"),
        ("<!IT [is it", "! ES", [], "<! [ES"),
        ("It *😀 is* so", "Es ist so", [], "*😀 Es* ist so"),
    ],
)  # fmt: skip
def test_markup_stands_where_the_model_expects_it(line, translation, likely_pairs, expected):
    source, _, markup = read(line)
    text = place_markup(translation, markup, source, "①", likely(*likely_pairs))
    assert insert_markup(text, markup, {}) == expected


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("It is (17:45) so", "① ist das so", "(17:45 ist das) so"),
        ("17:45 it ♥ is so", "So es ist ①", "So es ist 17:45 ♥"),
        ("It is <b>5</b> so", "5 ist das so", "<b>5 ist das</b> so"),
        ("17:45 is <b>it</b> so", "So ① ist es", "So 17:45 <b>ist</b> es"),
    ],
)
def test_the_spans_between_two_pieces_are_those_of_the_source(line, translation, expected):
    source, spans, markup = read(line)
    text = place_markup(translation, markup, source, "", None, ["①"])
    assert insert_markup(text, markup, {"①": "".join(spans)}) == expected


def test_markup_keeps_its_order_and_a_word_between_them():
    markup = [Markup("<b>", 1, "", "x"), Markup("</b>", 2, "x", ""), Markup("!", 2)]
    scores = np.zeros((3, 6))
    scores[0, 4], scores[1, 1], scores[2, 3] = 2, 1, 3
    first, second, third = gaps_of(markup, [0] * 4, np.zeros(6), scores)
    assert first < second == third == 3
    # At the end, as in the source.
    assert gaps_of(markup[:1], [0] * 2, np.zeros(6), scores[:1]) == [5]


def test_without_a_placeholder_markup_stands_as_far_from_the_beginning():
    markup = [Markup("%", 1)]
    found = place_markup("eins zwei drei vier", markup, "one two", "", None)
    assert insert_markup(found, markup, {}) == "eins zwei % drei vier"


def test_around_lost_spans_the_markup_is_in_its_piece():
    spans = ("(", ")", "5%", "<", ">", "6%", "*", "*", "%")
    line = "①yes② ③ is ④so⑤ and ⑥ ⑦no⑧ one ①"
    (part,) = Line.from_text(0, Text(line, spans), [(line, [])]).parts
    assert part.spans == ("5%", "6%") and part.input(PLACEHOLDERS) == "yes ① is so and ② no one"
    read = part.fallback().parts
    found = [(each.source, "".join(piece.text for piece in each.markup)) for each in read]
    assert found == [("yes", "()"), ("is so and", "<>"), ("no one", "**%")]
