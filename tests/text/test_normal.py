"""Text that was pasted becomes the text that would have been typed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitf.text.normalise import normalise, with_and, without_entities, word_for_and

PLAIN = '"It isn\'t far," she said - 5 km... Größe: fünf.'
SPACES = "\u00a0\u1680\u2000\u2003\u2007\u2009\u200a\u202f\u205f\u3000\t\x0b\x0c\r\u2028\u2029\x85"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\ufff9"


@pytest.mark.parametrize("space", [*SPACES, "  ", " \u200b ", "\u00a0 "])
def test_every_space_is_one_space(space):
    assert normalise(space + PLAIN.replace(" ", space) + space) == PLAIN


@pytest.mark.parametrize("character", [*INVISIBLE, "\x00", "\x08", "\x7f", "\x9b"])
def test_what_shows_nothing_is_dropped(character):
    inside = "".join(c + character if c.isascii() and c.isalpha() else c for c in PLAIN)
    assert normalise(inside) == normalise(character + PLAIN) == PLAIN


@pytest.mark.parametrize(
    ("typed", "pasted"),
    [
        ("'", "\u2019 \u2018 \u201a \u201b \u2032 \u00b4 \u02bc \u1ffd"),
        ('"', "\u201c \u201d \u201e \u201f \u2033 \u00ab \u00bb"),
        ("-", "\u2010 \u2011"),
        ("\u2013", "\u2012 \u2014 \u2015 \u2212"),
        ("...", "\u2026"),
        ("fi", "\ufb01"),
        ("ffl", "\ufb04"),
        ("A", "\uff21"),
        ("Á", "\uff21\u0301"),
        ("!", "\uff01"),
        ("~", "\uff5e"),
        ("ü", "u\u0308"),
        ("\ufffd", "\ud800 \udfff"),
    ],
)
def test_what_looks_alike_is_written_alike(typed, pasted):
    for each in pasted.split():
        assert normalise(f"a {each} b") == f"a {typed} b"


@pytest.mark.parametrize(
    "line",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family: joined by what shows nothing
        "\u0915\u094d\u200d\u0937",  # Devanagari that is written with a joiner
        "東京！」東京。",
        "カタカナ！",
        "한국어！",
        "½ liter, 5 m², ™ © ° € – é ß",
    ],
)
def test_what_somebody_needs_stays(line):
    assert normalise(line) == line


def test_a_dash_without_spaces_gets_them():
    assert normalise("He came\u2014late.") == "He came \u2013 late."
    assert normalise("1990\u20142000") == "1990\u20132000"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("I don&#39;t, &apos;so&apos;, &quot;yes&quot;", "I don't, 'so', \"yes\""),
        ("Caf&eacute; Sch&ouml;ne &#xE9;&nbsp;a", "Café Schöne é\u00a0a"),
        ("a &lt;b&gt; AT&amp;T &#60; &#x26;", "a &lt;b&gt; AT&amp;T &#60; &#x26;"),  # HTML's own
        ("&c; & so; R&D; &", "&c; & so; R&D; &"),
    ],
)
def test_entities_that_are_letters_are_read_as_these(written, read):
    assert without_entities(written) == read


def test_a_sign_for_and_is_read_in_the_language_of_the_line():
    assert with_and("a & b &amp; c&d & <e>", word_for_and("fr", "ab")) == "a et b et c&d et <e>"
    assert word_for_and("xx", "ab") == word_for_and("en", "a&b") == "&"


# What changes beside what goes: accents that compose, Greek accents that become apostrophes, what
# looks alike, joiners, spaces, full-width letters beside East Asian ones.
MIXED = st.sampled_from(
    "eAf\u0301\u0338\u1ffd\u1fef\u1f79\u00b4\u2014\ufb01\uff21\u1100\u1161\u304b\u3099\u0915"
    "\u200c\u200d\u200b \u2003\u3000\t"
)


@given(st.lists(MIXED | st.characters(), max_size=12).map("".join))
def test_any_text_is_composed_and_stays_as_it_is_the_second_time(text):
    once = normalise(text)
    assert normalise(once) == once and unicodedata.is_normalized("NFC", once)
    assert "  " not in once and once == once.strip(" ")
