"""What must not be translated is found whole, and nothing else is."""

import inspect
import re
import string
from types import SimpleNamespace

import pytest

from minitf.text import protected
from minitf.text.protected import has_no_spans, protected_pattern, split_protected

PATTERN = protected_pattern()
# A sentence of each kind, in which what is between two | is kept.
FOUND = """
|{% if a b %}|Hello|{% endif %}| my |<0>|friend|</0>|, |<?xml version="1.0"?>|.
|a + b = c| if |x > 3|, |200 g|, |1.80 m|, |H~2~O|, |C:\\|; it is |\\$5| or |\\$| 5.
Call |030 1234567| or |+49 (30) 1234567|.
The card |4111 1111 1111 1111|, the number |12345|, the number |15.441.912|, and |1'000|.
It costs |$5|-|$6|, |$815.88|, |12,50 €|, |€100| or |$ 5|.
It is |5%| less, |3.5 %| more, |-3 %|, |20 °C|, |45°|.
On |2010-09-25|, |25.09.2010| or |9/25/2010|, at |17:45|, from |8:30-9:45|, |00:00:01,600|.
The server is |192.168.0.1|, |10.0.0.1:8080|, |fe80::1| or |2001:db8::8a2e:370:7334|.
Write to |anna.berg+x@mail.example.org|.
See |https://example.org/a_b?x=1&y=2#z|, |www.foo.de| (or |example.com/path|).
|@anna| likes |#summer|, and \U00100000|#tag|\U00100001.
Open |C:\\Users\\me\\file.txt|, |/etc/passwd|, |~/x/y.py| or |report_final.pdf|.
Use |v1.2.3|, |3.11.2rc1| or |2.0.1|.
The codes |AB-12345|, |X7|, |COVID-19|, |de305d54-75b4-431b-adb2-eb6b9e546014|.
This is |<b>|bold|</b>|, |<a href="x">|a link|</a>|, |[b]|loud|[/b]|, |&lt;| and |&amp;|.
Hello |{name}|, |%s|, |%(n)d|, |${price}|, |{{ user }}|, |%USER%|, |__NAME__|.
Call |foo()|, |np.zeros()|, |snake_case| or |`a + b`| with |--level=5|.
The mark |①| itself.
See [the page|](a/b.md)| and ![a dog|](dog.png)| or [![Build|](x.svg)](https://x.org)| there.
It is so|[1][2]| or so|[^3]|.
It is |**|not|**| so, and |*|never|*|, |_||main.py||_| or |_||17:45||_|.
Am |24. 12. 2010| kam er, nach |§ 3| Abs. 2 und |§ 5|.
Press |<a x="a > b" y>|here|</a>|, or see |main.py:45|.
The |\\emph||{dog}| of |\\cite||[5]||{tom}|, |$x^2 + y$| and |$x$| is his.
I know |:-)| it |;)| all |:D|.
""".strip().split("\n")
NOT_FOUND = """
I have 365 books, 3 cats and 1 dog.
In the 1980s, the 20th century, on the 3rd day, at 10 a.m.
He said: "Go." Then we left. It was (really) late.
etc. e.g. i.e. U.S.A. Ph.D. Dr. Mr. No. 5 St. John
and/or he/she yes/no
We are here;they are there,too.
Der 3. Oktober, im 19. Jahrhundert, um 8 Uhr, Nr. 7
It is 6. (a; b): c. class dismissed: I ate
Is it 5? It is 5! 5, 6 and 7.
What?! Well... so - no – yes.
I love rock'n'roll & jazz.
Tom and Mary's, O'Brien's, don't.
100 people, 1994.
""".strip().split("\n")

# What is kept besides, because a vocabulary has letters, figures and usual punctuation alone.
USUAL = frozenset(string.ascii_letters + string.digits + " .,:;!?'\"-$äöüß")
WITHOUT_PIECES = """
It is |5 > 3|. Mix |1 + 1|. I ate |5 * 3| apples at |10 × 5 m| or |4 m × 5 m|, |5m|, |20-30 m|.
It's |50%| now, |3 %| of |~10|, not |5#|, |50%ige| or |(||±5||)|.
Press |Ctrl + C|, |Alt + F4| or |Ctrl+C|.
I know |C++| and |C#|, |x^2|, tea |w/o| sugar. I |<3| you.
|**|Note:|**| It is |*|not|*| so |~~|old|~~|. It works|**|very|**|.
|<!--| This is old |-->|
first|\\n|second and |\\n| third|\\t|x. He said |\\"|go|\\"|.
Tom |%| went |→| there |{| |}| |->| |<-| |=>| it |•| was |$| ten |;| yes |!| no.
the dog|(s)| |(|really|)| or he|/|she |[|so|]| is |<|I am|>| 3 |m/s|, |km/h|
|AT&T| and |Q&A| |&| so on
A hat |\U0001f600| and |\U0001f468\u200d\U0001f469\u200d\U0001f467|!
Nur |\U00100000||$5||\U00100001| und |\U00100000||5%||\U00100001| |**||@tom||**|.
The child|(ren)|, 4|(a)||(iii)|, |Schüler*innen|.
Ich mag |Dvořák|, |日本語| und Käse.
""".strip().split("\n")


def test_each_pattern_finds_its_examples():
    source = inspect.getsource(protected).partition("KINDS = (")[2].partition("\n)")[0]
    examples = re.findall(r"\",  # (.+)", source)
    for kind, found in zip(protected.KINDS, examples, strict=True):
        assert all(re.search(kind, example) for example in found.split(", ")), found


@pytest.mark.parametrize("line", FOUND)
def test_spans_are_found_whole(line):
    texts, spans = split_protected(line.replace("|", ""), PATTERN)
    pieces = line.split("|")
    assert (texts, spans) == (pieces[::2], pieces[1::2])


def test_a_text_with_spans_is_not_plain():
    lines = [line.replace("|", "") for line in FOUND]
    lines += ["www.,x", "Go to Node.js", "a.b", "It is x.org.", "wash()", "a -- b=c", "*no*", ":D"]
    assert not list(
        filter(has_no_spans, filter(lambda line: split_protected(line, PATTERN)[1], lines))
    )
    assert has_no_spans('"Well-known," said Tom\'s friend... Really? Yes!')
    assert not has_no_spans(f"a{5000 * '.'}x")  # at once: no full stop is counted in two ways


@pytest.mark.parametrize("line", NOT_FOUND)
def test_words_and_short_numbers_are_no_spans(line):
    assert split_protected(line, PATTERN) == ([line], [])


@pytest.mark.parametrize("line", WITHOUT_PIECES)
def test_what_the_vocabulary_has_no_piece_for_is_kept(line):
    pattern = protected_pattern((), USUAL, alone="-")
    pieces = line.split("|")
    assert split_protected(line.replace("|", ""), pattern) == (pieces[::2], pieces[1::2])


def test_a_long_text_is_read_piece_by_piece():
    """Each piece twice at most, so that no pattern can make a long line slow."""
    read, address = [], f"https://x.org/{'a' * 900}"

    def finditer(text, *ends):
        return read.append(text[slice(*ends)]) or PATTERN.finditer(text, *ends)

    words = 5 * f"{'so it is ' * 110}{address} {'so it is ' * 111}12,345 {address} "
    assert split_protected(words, SimpleNamespace(finditer=finditer))[1] == 5 * [
        address,
        "12,345",
        address,
    ]
    assert len("".join(read)) <= 2 * len(words)


def test_ones_own_patterns_come_first_and_what_matches_nothing_keeps_nothing():
    assert split_protected("pay 12.50 EUR", protected_pattern()) == (["pay ", " EUR"], ["12.50"])
    pattern = protected_pattern([r"\d+\.\d+ EUR ", "x*"])
    assert split_protected("pay 12.50 EUR xx", pattern) == (["pay ", "", ""], ["12.50 EUR ", "xx"])
    with pytest.raises(re.error):
        protected_pattern(["(?i)acme"])  # it would hold for all kinds
