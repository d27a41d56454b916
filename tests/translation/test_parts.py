"""Values leave a line before the model reads it, and come back where it writes their marks."""

import dataclasses
import html.parser
import re

import pytest

from minitf.errors import UserError
from minitf.text.kept import PLACEHOLDERS
from minitf.translation import Translation, Translator
from minitf.translation.placeholders import copied_placeholders
from minitf.translation.reading import Line, Part, Text
from minitf.translation.writing import AROUND, joined, restored

PART = Part((0, 0), [], ["Call ", " at ", "!"], ["030 1234567", "17:45"], in_capitals=False)


def said(*texts):
    return [Translation(text, -1.0, -1.0) for text in texts]


def part(*texts):
    """A part with these translations."""
    found = Part((0, 0), [], [""], [], in_capitals=False)
    found.translations = said(*texts)
    return found


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
def test_a_translation_needs_each_mark_once(written, expected):
    assert [t.text for t in restored(PART, said(*written), PLACEHOLDERS)] == expected


def test_a_mark_inside_a_word_is_not_there():
    written = said("X1 or X2, X12.", "X1, X1 or X2.", "X1 or X2.")
    part = Part((0, 0), [], ["", " or ", "."], ["1,1", "2,2"], in_capitals=False)
    assert [t.text for t in restored(part, written, ("X1", "X2"))] == ["1,1 or 2,2."]


def test_capitals_do_not_change_a_value():
    part = Part((0, 0), [], ["write to ", ""], ["anna@x.org"], in_capitals=True)
    assert restored(part, said("schreib ①"), PLACEHOLDERS)[0].text == "SCHREIB anna@x.org"


def test_what_the_model_writes_by_itself_keeps_its_full_stop():
    part = Part((0, 0), [], ["Save"], [], in_capitals=False)
    for wellformed, expected in ((True, "Sparen"), (False, "Sparen.")):
        assert restored(part, said("Sparen."), PLACEHOLDERS, wellformed)[0].text == expected


def test_only_values_are_copied():
    for texts, values, copied in ((["12 ?"], [], []), (["", "?"], ["1,2"], ["1,2?"])):
        part = Part((0, 0), [], texts, values, in_capitals=False)
        assert [each.text for each in part.copied()] == copied


def test_more_values_than_marks_are_translated_around():
    part = Part((0, 0), [], list("abc"), ["1,1", "2,2"], in_capitals=False)
    assert restored(part, said("a ① b c"), PLACEHOLDERS[:1]) == []


def test_around_its_values_a_part_is_whole_again():
    line = PART.pieces_between_values()
    texts = [item if isinstance(item, str) else item.texts[0] for item in line.items]
    assert "".join(texts) == PART.read(PART.values)
    assert [part.texts[0] for part in line.parts] == ["Call", "at"]
    assert [part.place for part in line.parts] == [(0, 0, 0), (0, 0, 1)]
    assert line.runs() == [line.parts]  # as one sentence


def test_each_part_gets_its_own_values():
    cell = Text("", ["a", "b", "c"], [7], cut=[("Call ① now.", [8]), ("Or ② or ③.", [9])])
    line = Line.from_texts(4, ["- ", cell, " | ", Text("", cut=[("the mark ① itself", [6, 5])])])
    first, second, plain = line.parts
    assert first == Part((4, 0), [7], ["Call ", " now."], ["a"], False)
    assert second.values == ["b", "c"] and second.read(PLACEHOLDERS) == "Or ① or ②."
    assert plain == Part((4, 2), [7], ["the mark ① itself"], [], False)  # in the same language
    assert (first.ids, second.ids, plain.ids) == (None, None, [6, 5])  # one is not read yet
    assert line.items == ["- ", first, second, " | ", plain]
    assert line.runs() == [[first, second], [plain]]


def test_what_is_given_up_in_any_part_is_told_once():
    parts = [part("Ja."), part("Nein."), part("So.")]
    for each, notes in zip(parts, [("one",), ("one", "two"), ("three",)], strict=True):
        each.translations = [dataclasses.replace(each.translations[0], given_up=notes)]
    assert joined(Line(parts), 1)[0].given_up == ("one", "two", "three")


def test_copied_texts_bring_their_own_spaces():
    assert joined(Line(["- ", part("Ja."), part("Nein."), ""]), 1)[0].text == "- Ja. Nein."


class Echo(Translator):
    """Writes what it reads, but loses the marks of the second of two parts."""

    def _search(self, source, beam, *rest, **more):
        found = super()._search(source, beam, *rest, **more)
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
    subwords = Subwords.train(lines, 320, log=lambda notice: None)
    return Echo(make_model(subwords), subwords)


@pytest.mark.parametrize(
    "line",
    [
        "Write to anna@x.org now.",
        "Write to anna@x.org or call 030 1234567 now.",  # here the model loses one
        "to 1,1 2,2 3,3 4,4 5,5 6,6 7,7 8,8 9,9 now.",
        "call Дом \U0001f600 now.",  # letters and signs that are not in the vocabulary
        "call ② now.",
    ],
)
def test_every_value_arrives(echo, line):
    assert echo.placeholders == list(PLACEHOLDERS)
    for text in (line, line.replace(" ", "\u00a0")):
        assert echo.translate([text], beam=2)[0][0].text == line


def test_a_sentence_that_was_cut_around_its_values_says_so(echo):
    kept, lost = echo.translate(["call 1,1 now.", "call 1,1 or 2,2 now."], beam=2)
    assert (kept[0].given_up, lost[0].given_up) == ((), (AROUND,))


def test_with_a_value_all_of_the_beam_is_looked_at(echo, monkeypatch):
    """The best hypothesis may lack its mark."""
    asked, search = [], echo._search

    def watch(source, beam, alpha, max_extra, n_best, *more):
        asked.append(n_best)
        return search(source, beam, alpha, max_extra, n_best, *more)

    monkeypatch.setattr(echo, "_search", watch)
    for line in ("call now.", "call 1,1 now."):
        echo.translate([line], beam=3)
    assert asked == [1, 3]


def test_a_pattern_of_ones_own(echo):
    assert echo.translate(["call TOM now"], keep=["TOM"])[0][0].text == "call TOM now"
    with pytest.raises(UserError, match=r"'TOM\(' is no regular expression: missing"):
        echo.translate(["call"], keep=["TOM("])
    with pytest.raises(UserError, match=r"'\(\?i\)tom' is no .*: global flags"):
        echo.translate(["call"], keep=["(?i)tom"])
    assert echo.translate(["call TOM now"], keep=["(?i:tom)"])[0][0].text == "call TOM now"


def test_the_marks_of_a_model_are_in_its_notes(echo, tmp_path):
    from tiny_translator import save

    for noted, expected in (({}, list(PLACEHOLDERS)), ({"marks": ["4711", "X1"]}, ["4711", "X1"])):
        save(tmp_path, echo.subwords, noted)
        assert Translator.load(tmp_path).placeholders == expected


class Copier:
    """Copies some words, and replaces all others."""

    def __init__(self, *copied):
        self.copied, self.placeholders = copied, ["of the notes"]

    def translate(self, lines):
        assert self.placeholders == [], "the words themselves are to be read"
        return [said(" ".join(w for w in re.findall(r"[\w①-⑥]+", line) if w in self.copied))
                for line in lines]  # fmt: skip


def test_words_that_a_model_copies_become_its_marks():
    names = ["X1", "X2", "X3", "X4", "X5", "X6"]
    for copied, marks in (
        (names, names),
        (names[:3], []),
        ([*names, *PLACEHOLDERS], list(PLACEHOLDERS)),
    ):
        for language in ("en", "xx"):
            copier = Copier(*copied)
            assert copied_placeholders(copier, language) == marks
            assert copier.placeholders == ["of the notes"]


def test_nothing_is_kept_of_words_that_came_cut(echo):
    plain = Echo(echo.model, echo.subwords, as_text=False)
    assert plain._read(["call  2,2 now"])[0].parts[0].texts == ["call  2,2 now"]


class Loud(Translator):
    """Writes what it reads in capitals."""

    def _search(self, source, beam, *rest, **more):
        found = super()._search(source, beam, *rest, **more)
        texts = self.subwords.decode([row[row > 3].tolist() for row in source])
        return [
            [dataclasses.replace(best[0], ids=ids)]
            for best, ids in zip(
                found, self.subwords.encode([text.upper() for text in texts]), strict=True
            )
        ]


def loud(echo, document):
    """Return a document translated by a model that writes capitals."""
    translator = Loud(echo.model, echo.subwords, reads_capitals=True)
    found = translator.translate(document.split("\n"), beam=1, max_extra=0)
    return "\n".join(best.text for (best,) in found)


HTML = """<!DOCTYPE html>
<html lang="en"><head><title>The garden</title>
<style>
p { color: red }
</style>
</head><body class="wide">
<!-- not for
readers --><h1>The garden</h1>
<ul><li>Dig a <b>hole</b></li><li>Plant a tree</li></ul>
<table><tr><td>apple</td><td>12</td></tr></table>
<p>Tom &amp; Anna came.<br>
They left.</p>
</body></html>"""


class Tags(html.parser.HTMLParser):
    """The tags and comments of a document, and the text between them."""

    def __init__(self, document):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))

    def handle_endtag(self, tag):
        self.tags.append(tag)

    def handle_comment(self, data):
        self.tags.append(data)

    def handle_data(self, data):
        self.text += data


def test_html_stays_html(echo):
    before, after = Tags(HTML), Tags(loud(echo, HTML))
    assert after.tags == before.tags
    style = "p { color: red }"
    assert after.text.split() == before.text.upper().replace(style.upper(), style).split()


def test_spaces_at_the_ends_and_tabs_between_columns_stay(echo):
    assert loud(echo, "  Come in.  \n\tcome\tin\n") == "  COME IN.  \n\tCOME\tIN\n"
