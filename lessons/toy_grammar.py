"""Write a parallel corpus of a toy grammar, English and Korean: six files, here.

    python toy_grammar.py

A class that speaks another language changes the words, and what `pair` does with them.
"""

import itertools
import random
from pathlib import Path

# fmt: off
WHO = {"The teacher": "선생님", "The student": "학생", "My mother": "어머니",
       "The doctor": "의사", "The child": "아이", "My friend": "친구"}
WHAT = {"book": "책", "letter": "편지", "picture": "그림", "apple": "사과",
        "shoe": "신발"}
KIND = {"new": "새", "old": "오래된", "small": "작은", "good": "좋은"}
DOES = {"sees": "본다", "saw": "봤다", "buys": "산다", "bought": "샀다",
        "likes": "좋아한다", "found": "찾았다"}
WHERE = {"at school": "학교에서", "at home": "집에서", "in the park": "공원에서"}
# fmt: on


def marked(word, after_consonant, after_vowel):
    """Add a particle; which of the two, the last letter of the last syllable says."""
    has_consonant = (ord(word[-1]) - 0xAC00) % 28 > 0
    return word + (after_consonant if has_consonant else after_vowel)


def pair(who, does, kind, what, where):
    """Return a sentence in both languages: other order, particles, and no articles."""
    english = f"{who} {does} the {kind} {what} {where}."
    subject, thing = marked(WHO[who], "은", "는"), marked(WHAT[what], "을", "를")
    return english, f"{subject} {WHERE[where]} {KIND[kind]} {thing} {DOES[does]}."


pairs = [pair(*words) for words in itertools.product(WHO, DOES, KIND, WHAT, WHERE)]
random.Random(1).shuffle(pairs)
for name, part in {
    "valid": pairs[:100],
    "test": pairs[100:200],
    "train": pairs[200:],
}.items():
    for language, lines in zip(("en", "ko"), zip(*part, strict=True), strict=True):
        Path(f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
print(f"{len(pairs):,} pairs; the first: {pairs[0][0]} -> {pairs[0][1]}")
