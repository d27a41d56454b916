"""Values leave a line before the model reads it, and come back in place of their placeholders."""

import dataclasses
import re

import pytest

from minitf.errors import UserError
from minitf.text.protected import PLACEHOLDERS
from minitf.translation import Translation, Translator
from minitf.translation.placeholders import copied_placeholders
from minitf.translation.reading import Line, Part, Text, read_text
from minitf.translation.writing import LOST_SPAN, join_parts, restore

PART = Part((0, 0), ("Call ", " at ", "!"), ("030 1234567", "17:45"))


def said(*texts):
    return [Translation(text, -1.0, -1.0) for text in texts]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["Um ② ruf ① an!"], ["Um 17:45 ruf 030 1234567 an!"]),
        (["Ruf an!", "Ruf ① an!", "① ②"], ["030 1234567 17:45"]),  # the first that has both
        (["① ② ②"], []),  # none may come twice
        (["① ② ③"], []),  # nor one that was never given
        (["① ②.", "① ②."], ["030 1234567 17:45."]),
    ],
)
def test_a_translation_needs_each_placeholder_once(written, expected):
    assert [t.text for t in restore(PART, said(*written), PLACEHOLDERS)] == expected


def test_a_placeholder_inside_a_word_is_not_there():
    written = said("X1 or X2, X12.", "X1, X1 or X2.", "X1 or X2.")
    part = Part((0, 0), ("", " or ", "."), ("1,1", "2,2"))
    assert [t.text for t in restore(part, written, ("X1", "X2"))] == ["1,1 or 2,2."]


def test_capitals_do_not_change_a_span():
    part = Part((0, 0), ("write to ", ""), ("anna@x.org",), in_capitals=True)
    assert restore(part, said("schreib ①"), PLACEHOLDERS)[0].text == "SCHREIB anna@x.org"


def test_a_span_beside_markup_may_have_a_character_for_private_use():
    part = Part((0, 0), ("see ", " it ", ""), ("*", "\ue000x9\ue000"))
    assert restore(part, said("sieh ①"), PLACEHOLDERS)[0].text == "sieh * \ue000x9\ue000"


def test_what_the_model_writes_by_itself_keeps_its_full_stop():
    part = Part((0, 0), ("Save",))
    assert restore(part, said("Sparen."), PLACEHOLDERS, False)[0].text == "Sparen."


def test_no_full_stop_is_added_before_markup():
    part = Part((0, 0), ("", " Save ", ""), ("♪", "♪"))
    assert restore(part, said("Sparen."), PLACEHOLDERS)[0].text == "♪ Sparen ♪"


def test_only_spans_are_copied():
    assert [each.text for each in Part((0, 0), ("", "?"), ("1,2",)).as_translation()] == ["1,2?"]
    assert Part((0, 0), ("12 ?",)).as_translation() == []


@pytest.mark.parametrize(
    ("source", "written", "expected"),
    [
        ("It is 5pm.", ["Es ist 5 Uhr.", "Es ist 55 Uhr."], "Es ist 5 Uhr."),
        ("It is 5pm.", ["Es ist 55 Uhr.", "Es ist 5 Uhr."], None),  # the best one decides
        ("No. 5 on p. 12", ["Nr. 12.", "Nr. 512."], None),  # lost, joined
        ("I am 5", ["Ich bin 5 und 6"], None),  # and none that was not there
        ("so - or so", ["so - oder so"], "so - oder so"),
        ("so", ["5"], "5"),
        ('so "so"', ['"so so', '"so" so'], '"so" so'),  # the first that has its quotes
        ('so "so"', ["„so“ so"], "„so“ so"),
        ('so "so"', ["so so"], None),
    ],
)
def test_a_translation_has_the_numbers_and_the_dashes_of_its_source(source, written, expected):
    found = restore(Part((0, 0), (source,)), said(*written), PLACEHOLDERS)
    assert [each.text for each in found] == [expected] * (expected is not None)


def test_a_number_that_was_lost_becomes_a_span():
    (part,) = Part((0, 0), ("At 5pm or ", " - no. 12"), ("1,5",)).fallback().parts
    assert part.spans == ("5pm", "1,5", "12")
    assert [piece.text for piece in part.markup] == ["-"] and part.texts[-1] == ""


def test_a_symbol_that_joins_two_words_is_read_as_a_word():
    part = Part((0, 0), ("her", "his and ", ""), ("/", "1,5"))
    assert part.input(PLACEHOLDERS) == "her ① his and ②"
    for written, expected in (("② ihr ① sein", "1,5 ihr/sein"), ("② ihr sein ①", None)):
        found = restore(part, said(written), PLACEHOLDERS)
        assert [each.text for each in found] == [expected] * (expected is not None)
    assert part.fallback().around == ("", "/", " 1,5")


def test_more_spans_than_placeholders_are_translated_around():
    part = Part((0, 0), ("a ", " b ", " c"), ("1,1", "2,2"))
    assert restore(part, said("a ① b c"), PLACEHOLDERS[:1]) == []


def test_around_its_spans_a_part_is_whole_again():
    line = PART.fallback()
    assert line.around == ("", " 030 1234567 ", " 17:45!")
    assert [part.all_texts for part in line.parts] == [("Call",), ("at",)]
    assert [part.place for part in line.parts] == [(0, 0, 0), (0, 0, 1)]


def test_each_part_gets_its_own_spans():
    cut = [("Call ① now.", [8]), ("Or ② or ③.", [9]), ("So it is.", [6, 5])]
    line = Line.from_text(4, Text("", ("a", "b", "c"), prefix=[7]), cut)
    first, second, plain = line.parts
    assert first == Part((4, 0), ("Call ", " now."), ("a",), [7])
    assert second.spans == ("b", "c") and second.input(PLACEHOLDERS) == "Or ① or ②."
    assert plain == Part((4, 2), ("So it is.",), prefix=[7])
    assert (first.ids, second.ids, plain.ids) == (None, None, [6, 5])  # one is not read yet


def test_what_is_given_up_in_any_part_is_told_once():
    notes = [("one",), ("one", "two"), ("three",)]
    found = [[Translation("Ja.", -1.0, -1.0, each)] for each in notes]
    assert join_parts(found, 1)[0].problems == ("one", "two", "three")


def test_what_is_around_the_parts_of_a_sentence_brings_its_spaces():
    for around, expected in (((), "Ja. Nein."), (("<b>", "</b>, ", "!"), "<b>Ja.</b>, Nein.!")):
        found = join_parts([said("Ja."), said("Nein.")], 1, around)
        assert found[0].text == expected


# Characters that stand for spans -----------------------------------------------------------------

WORD, OTHER, SIGN = "\U000f0000", "\U000f0001", "\U00100000"


@pytest.mark.parametrize(
    ("line", "read", "spans"),
    [
        (f"{WORD} is here,  {OTHER} there", "① is here, ② there", [WORD, OTHER]),
        (f"It\u00a0is {WORD} 5,000 \u201eyes\u201c ②", 'It is ① ② "yes" ③', [WORD, "5,000", "②"]),
        (f"See {SIGN}this{SIGN}, {SIGN}{WORD}*!", "See this, ①!", [f"{SIGN}{WORD}"]),
        (f"Look {WORD}. {OTHER} is so", "Look ①. ② is so", [WORD, OTHER]),
        (f"See https://x.org/{WORD}/a now", "See ① now", [f"https://x.org/{WORD}/a"]),
    ],
)
def test_a_character_for_private_use_is_a_span(echo, line, read, spans):
    found, kept = read_text(line, echo.subwords, [])
    (part,) = Line.from_text(0, Text(found, kept), [(found, [])]).parts
    assert (part.input(PLACEHOLDERS), list(part.spans)) == (read, spans)


def test_characters_for_private_use_arrive(echo):
    plain = Echo(echo.model, echo.subwords, placeholders=[])
    for line in (f"{SIGN}call Tom{OTHER} or {WORD} now.", f"call {WORD}{SIGN} us now"):
        for method in (echo.translate, echo.sample, plain.translate):
            text = method([line])[0][0].text
            assert all(text.count(each) == line.count(each) for each in (WORD, OTHER, SIGN))


class Echo(Translator):
    """Writes what it reads, but loses the placeholders of the second of two parts."""

    def _search(self, source, *rest):
        found = super()._search(source, *rest)
        texts = self.subwords.decode([row[row > 3].tolist() for row in source])
        texts = [text.replace("②", "") for text in texts]
        return [
            [dataclasses.replace(best[0], ids=ids)]
            for best, ids in zip(found, self.subwords.encode(texts), strict=True)
        ]


@pytest.fixture(scope="module")
def echo():
    from tiny_translator import make_model

    from minitf.text import Subwords

    lines = [f"Write to ① or call ② {word}." for word in ("now", "Tom", "us", "THEM")]
    lines += ['The quick brown fox jumps over the lazy dog, "THE QUICK BROWN FOX ...?" 1234567890!']
    subwords = Subwords.train(lines, 370, log=lambda notice: None)
    return Echo(make_model(subwords), subwords)


@pytest.mark.parametrize(
    "line",
    [
        "Write to anna@x.org now.",
        "Write to anna@x.org or call 030 1234567 now.",  # here the model loses one
        "to 1,1 2,2 3,3 4,4 5,5 6,6 7,7 8,8 9,9 now.",
        "call Дом now.",  # letters that are not in the vocabulary
        "call now \U0001f600.",
        "call ② now.",
    ],
)
def test_every_span_arrives(echo, line):
    assert echo.placeholders == list(PLACEHOLDERS)
    for text in (line, line.replace(" ", "\u00a0")):
        assert echo.translate([text], beam=2)[0][0].text == line


def test_a_sentence_that_was_cut_around_its_spans_says_so(echo):
    kept, lost = echo.translate(["call 1,1 now.", "call 1,1 or 2,2 now."], beam=2)
    assert (kept[0].problems, lost[0].problems) == ((), (LOST_SPAN,))


def test_with_a_span_all_of_the_beam_is_looked_at(echo, monkeypatch):
    """The best hypothesis may lack its placeholder."""
    asked, search = [], echo._search

    def watch(source, options, *more):
        asked.append(options.n_best)
        return search(source, options, *more)

    monkeypatch.setattr(echo, "_search", watch)
    for line in ("call now.", "call 1,1 now."):
        echo.translate([line], beam=3)
    assert asked == [1, 3]


def test_markup_is_placed_by_the_subwords_of_both_languages(echo, monkeypatch):
    sides, encode = [], echo.subwords.encode

    def watch(lines, side="source"):
        sides.append(side)
        return encode(lines)

    monkeypatch.setattr(echo.subwords, "encode", watch)
    echo.translate(["call **Tom** now"])
    assert "target" in sides


def test_a_pattern_of_ones_own(echo):
    assert echo.translate(["call TOM now"], keep=["TOM"])[0][0].text == "call TOM now"
    with pytest.raises(UserError, match=r"'TOM\(' is not a regular expression: missing"):
        echo.translate(["call"], keep=["TOM("])
    with pytest.raises(UserError, match=r"'\(\?i\)tom' is not .*: global flags"):
        echo.translate(["call"], keep=["(?i)tom"])
    assert echo.translate(["call TOM now"], keep=["(?i:tom)"])[0][0].text == "call TOM now"


def test_the_placeholders_of_a_model_are_in_its_notes(echo, tmp_path):
    from tiny_translator import save

    for noted, expected in (
        ({}, list(PLACEHOLDERS)),
        ({"placeholders": ["4711", "X1"]}, ["4711", "X1"]),
    ):
        save(tmp_path, echo.subwords, noted)
        assert Translator.load(tmp_path).placeholders == expected


class Copier:
    """Copies some words, and replaces all others."""

    def __init__(self, *copied):
        self.copied = copied

    def translate(self, lines):
        return [said(" ".join(w for w in re.findall(r"[\w①-⑥]+", line) if w in self.copied))
                for line in lines]  # fmt: skip


def test_words_that_a_model_copies_become_its_placeholders():
    names = ["X1", "X2", "X3", "X4", "X5", "X6"]
    for copied, expected in (
        (names, names),
        (names[:3], []),
        ([*names, *PLACEHOLDERS], list(PLACEHOLDERS)),
    ):
        for language in ("en", "xx"):
            assert copied_placeholders(Copier(*copied), language) == expected


def test_nothing_is_kept_of_words_that_came_cut(echo):
    plain = Echo(echo.model, echo.subwords, as_text=False)
    assert plain._read(["call  2,2 now"])[0].parts[0].source == "call  2,2 now"
