"""The frame of a line is copied: marks of lists, of mail, Markdown, subtitles and HTML."""

import re

import pytest

from minitf.text import frames
from minitf.text.frames import MarkupSplitter, split_markup

# What is translated of a line; the rest is kept.
FRAMES = {
    "...": [],
    "!!!": [],
    "|------|:--:|": [],
    "1984": [],
    "00:00:01,600 --> 00:00:04,200": [],
    "00:01.000 --> 00:04.000 align:start position:0%": [],
    "[1]: https://x.org/a": [],
    "2. Add the eggs": ["Add the eggs"],
    "2) Add the eggs": ["Add the eggs"],
    "5. He is here.": ["He is here."],
    "1.2. The eggs": ["The eggs"],
    "a) Go to bed": ["Go to bed"],
    "(b) Go to bed": ["Go to bed"],
    "iv) Go to bed": ["Go to bed"],
    "- No, he said.": ["No, he said."],
    "-No, he said.": ["No, he said."],
    "* Wash the car": ["Wash the car"],
    "\uf0b7\tWash the car": ["Wash the car"],
    "  • Wash the car  ": ["Wash the car"],
    "- [x] Wash the car": ["Wash the car"],
    "## The car ##": ["The car"],
    "# **The car**": ["The car"],
    "> > Hello there,": ["Hello there,"],
    ">Hello there,": ["Hello there,"],
    "> - Hello": ["Hello"],
    "| The car | **is red** | 12 |": ["The car", "is red"],
    "car\tis red": ["car", "is red"],
    "**The car**": ["The car"],
    "_The snake_case car_": ["The snake_case car"],
    "***The car***": ["The car"],
    "1.) Add the eggs": ["Add the eggs"],
    "b. Add the eggs": ["Add the eggs"],
    "☐ Wash the car": ["Wash the car"],
    "☑ ✅\ufe0f Wash the car": ["Wash the car"],
    "•Wash the car": ["Wash the car"],
    "♪ I love you ♪": ["I love you"],
    "Go on! \N{PARTY POPPER}": ["Go on!"],
    "→ Go on": ["Go on"],
    "> [!NOTE]": [],
    "[^1]: The car": ["The car"],
    "[00:12] The car": ["The car"],
    "[24.12.10, 10:15:01] Tom: Hello": ["Tom: Hello"],
    "12:01 - Tom: Hello": ["Tom: Hello"],
    "// Wash the car": ["Wash the car"],
    "/* Wash the car */": ["Wash the car"],
    "def wash(car):": [],
    '"""Wash the car."""': ["Wash the car."],
    "From: Tom <tom@x.org>": [],
    "Date: Tue, 3 Mar 2026": [],
    "Subject: Re: The car": ["The car"],
    "It is red.[1][2]": ["It is red."],
    "\\section{The car}": ["The car"],
    "=> Go on": ["Go on"],
    "Q: Is it red?": ["Is it red?"],
    "1/ The car": ["The car"],
    "[INFO] The car": ["The car"],
    "2026-03-03 10:15:00,123 ERROR The car": ["The car"],
    '  "car": "It is red",': ["It is red"],
    '  "car": ["red"],': [],
    '  "car": "It is \\"red\\"."': [],
    "car = It is red": ["It is red"],
    'car="It is red"': ["It is red"],
    'msgid "The car"': [],
    "The car\tIt is red\tnow.": ["The car", "It is red", "now."],
    "The car\tis red.": ["The car\tis red."],
    "He said: “It\tis red.”": ["He said: “It\tis red.”"],
    "It began on the 1.\tof May.": ["It began on the 1.\tof May."],
    "he was drunk and forgot where he had\tparked his car": [
        "he was drunk and forgot where he had\tparked his car"
    ],
    "1.\tthe car is red": ["the car is red"],
    "[The car](https://x.org)": ["The car"],
    "Home » The car": ["Home", "The car"],
    "I wash / You wash": ["I wash", "You wash"],
    '1,"He is ""red"".",car': ["car"],
    "wash(car);": [],
    "car|is red|12": ["car", "is red"],
    "car,is red,12": ["car", "is red"],
    '12;"The car; red";Tom': ["The car; red", "Tom"],
    "The car<br>is red<br/>now": ["The car", "is red", "now"],
    "<v Tom>The <c.red>car</c>": ["The <c.red>car</c>"],
    "\\item The car": ["The car"],
    "(which is black)": ["which is black"],
    "[door closes]": ["door closes"],
    "{\\an8}<i>Come in.</i>": ["Come in."],
    "<li>Wash the car</li>": ["Wash the car"],
    '<li><a href="x">Wash</a></li>': ["Wash"],
    "<td>One</td><td>and two</td>": ["One", "and two"],
    '<p class="x">A <b>red</b> car.<br>': ["A <b>red</b> car."],
    "<button onclick='a > b' x>The car</button>": ["The car"],
    "<!-- old --><h1>The car</h1>": ["The car"],
    "<!-- <pre>old</pre> --><h1>The car</h1>": ["The car"],
    "<script>let car;</script><p>The car</p>": ["The car"],
}
ORDINARY = """
A. Smith came.
I. Newton was here.
1984 was a year.
3 men came.
3.5 million people came.
*sigh* I know.
**Note:** read it.
**One** and **two**
_One_ and _two_
(He) left (it).
(One) day
No (he said).
He said (no).
... and then he left.
…und dann ging er.
"No," he said.
'Tis true.
„Nein“, sagte er.
»Nein«, sagte er.
1. Mai 2010
a. M. is a letter.
yes,no
He came,saw,won.
use a|b|c here.
If it is so:
from Berlin
From: here to there
90 km / h
« Bonjour », said he » so
Hello, {name}
$ 5 for you
class of ten
3. Oktober ist ein Feiertag.
24 Stunden sind ein Tag.
12:30 is late.
10 % of them left.
$5 is too much.
@anna is here.
#friday is near.
#1 is Tom.
& so on
+1 from me
>>deu<< Hello there.
<3 you all
<b>One</b> and <b>two</b>
Use the <p> tag for it.
Use the <pre> tag for it.
Write <br> here.
x < y and y > z
a|b
a || b
__init__ is a method.
Call __init__
snake_case
C #
I like C #
2nd of May
1st, go home.
a.m. is the morning.
z. B. morgen
d. h. morgen
St. Peter
U.S.A. is a country.
e.g. this
Mr. Smith
-5 degrees
[this](https://x.org) is it.
[1] says so.
[Tom] is here.
~ ten of them
~~old~~ new
`code` is here.
www.x.org is here.
https://x.org
anna@x.org wrote.
I
Я дома.
我喜欢它。
:) Hello
:-) Hello
""".strip().split("\n")


@pytest.mark.parametrize("line", FRAMES)
def test_what_is_translated_of_a_line(line):
    (spans,) = split_markup([line])
    assert [text for text, is_kept in spans if not is_kept] == FRAMES[line]
    assert "".join(text for text, _ in spans) == line


def test_an_ordinary_line_has_no_frame():
    for line in ORDINARY:
        expected = [(line, not any(map(str.isalpha, line)))]
        assert split_markup(["Hello.", line])[1] == expected, line


DOCUMENTS = {
    "a block of code": ("Hello\n```py\nfor car in cars:\n~~~\n```\nyou", "Hello you"),
    "a longer fence at its end": ("```\ncar\n````\nyou", "you"),
    "in a quote": ("> ````\n> car\n> ```\n> ````\n> you", "you"),
    "code that is indented": (
        "See:\n\n    x = car\n    more car\n\n    Hello there",
        "See: Hello there",
    ),
    "a function": ("def wash(car):\n    # car\n    return car\nHello", "Hello"),
    "a line of code": ("wash(car);\n    Hello there", "Hello there"),
    "a script": ("<script>\nlet car;\n</script> Hello\nyou", "Hello you"),
    "a comment": ("Hello <!-- a\ncar --> you", "Hello you"),
    "a tag": ('<img src="x"\n alt="car"> Hello', "Hello"),
    "the head of a file": ("---\ntitle: car\n---\nHello", "Hello"),
    "no head": ("---\nHello there: you", "Hello there: you"),
    "no key in the second line": ("---\nHello\nthere: you", "Hello there: you"),
    "notes of WebVTT": (
        "WEBVTT car\nKind: car\n\nNOTE car\nred\n\ncar\n00:01.000 --> 00:02.000 line:0\nHello\n\n"
        "car\n00:03.000 --> 00:04.000\nyou",
        "Hello you",
    ),
    "a formula": ("Hello\n$$\ncar = red\n$$\nyou", "Hello you"),
}


def test_a_plain_sentence_has_the_spans_that_all_patterns_find(monkeypatch):
    lines = [*FRAMES, *(line for text, _ in DOCUMENTS.values() for line in text.split("\n"))]
    lines += [
        "Hello.",
        "I'm here, Tom",
        "Import numpy",
        "From here, to there!",
        "A",
        "A, b, c",
        "NATO",
    ]
    plain = [line for line in lines if re.fullmatch(frames._SENTENCE, line)]
    assert 6 <= len(plain) < len(lines)
    for start in ([], ["WEBVTT"], ["---"], ["---", "a: b"], ["```"], ["<!--"], [""], ["def a():"]):
        found = [split_markup([*start, line, "    x = car"]) for line in plain]
        with monkeypatch.context() as patch:
            patch.setattr(frames, "_SENTENCE", "(?!)")
            assert found == [split_markup([*start, line, "    x = car"]) for line in plain], start


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_begins_in_one_line_and_ends_in_another(name):
    document, expected = DOCUMENTS[name]
    framer = MarkupSplitter()
    spans = [span for line in document.split("\n") for span in framer(line)]
    assert " ".join(t.strip() for t, is_kept in spans if not is_kept) == expected
    assert "".join(text for text, _ in spans) == document.replace("\n", "")
