"""The left edge of a line is copied: list markers and quote markers, and nothing else."""

import pytest

from minitf.text.sentences import text_ranges

# What is before | is copied.
EDGES = """
2. |Add the eggs
2) |Add the eggs
1.2. |The eggs
1.) |Add the eggs
a) |Go to bed
(b) |Go to bed
iv) |Go to bed
b. |Add the eggs
- |No, he said.
-|No, he said.
* |Wash the car
\uf0b7\t|Wash the car
  • |Wash the car
•|Wash the car
☑ ✅\ufe0f |Wash the car
→ |Go on
## |The car
> > |Hello there,
>|Hello there,
> - |Hello
Q: |Where are you?
- [x] [X] |Wash the car
1.	|Wash the car
""".strip("\n").split("\n")
SENTENCES = """
A. Smith came.
I. Newton was here.
1984 was a year.
3 men came.
3.5 million people came.
*sigh* I know.
(He) left (it).
... and then he left.
...und dann ging er.
"No," he said.
a. M. is a letter.
z. B. morgen
d. h. morgen
24 Stunden sind ein Tag.
12:30 is late.
$5 is too much.
$ is the sign for dollars
@anna is here.
#friday is near.
& so on
+1 from me
>>deu<< Hello there.
<3 you all
-5 degrees
class dismissed:
import taxes
Date: we met on 5 May and it was a great evening.
From: all of us @ the office, have a great day!
File "letter", line 3 is missing.
I ate the cake {
Name = Tom
""".strip("\n").split("\n")


@pytest.mark.parametrize("line", EDGES)
def test_markers_at_the_left_edge_stay(line):
    before, _, text = line.partition("|")
    assert text_ranges(before + text + " \t") == [(len(before), len(before + text))]


@pytest.mark.parametrize("line", SENTENCES)
def test_a_sentence_has_no_marker(line):
    assert text_ranges(line) == [(0, len(line))]


def test_a_line_in_which_nothing_is_to_be_seen_becomes_empty():
    assert text_ranges(" \x00\u3000") == [(0, 3)]
