"""Text as a person pastes it becomes text as a model learned it: what looks alike is alike."""

import re
import unicodedata
from collections.abc import Collection

from minitf.text.vocabulary import valid_unicode

# The patterns are strings, which `re` compiles when they are first used: most lines need only one.

# Full-width forms of ASCII; they are usual in a text in Chinese or Japanese, and stay there.
_WIDE = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {0x3000: " "}
_EAST_ASIAN = "[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
# One character for several that look alike. A model learns a single kind of quote and apostrophe.
_ALIKE = (
    dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u00b4\u02bc"), "'")
    | dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"), '"')
    | dict.fromkeys(map(ord, "\u2010\u2011"), "-")
    | dict.fromkeys(map(ord, "\u2012\u2014\u2015\u2212"), "\u2013")
    | {0x2026: "..."}
    | dict(zip(range(0xFB00, 0xFB07), ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True))
)
# Control characters, soft hyphens, marks of direction, byte-order marks and the like show nothing.
# Nor do joiners, except in the scripts and the emoji that are written with them.
_INVISIBLE = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_JOINER = "(?<![\u0590-\U0010ffff])[\u200c\u200d]+"
_PLAIN = "[!-~]+(?: [!-~]+)*"  # ASCII without a space too many: nothing to do
# A dash between two words without spaces, as English prints it.
_TIGHT_DASH = r"(?<=[^\W\d_])\u2014(?=[^\W\d_])"
# An entity of HTML. The entities for & < >, which HTML itself needs, stay as they are.
_OWN = "amp|lt|gt|#38|#60|#62|#[xX](?:26|3[cCeE])"
_ENTITY = rf"&(?!(?:{_OWN});)(?:[A-Za-z]+\d*|#\d+|#[xX][0-9A-Fa-f]+);"
_AND_SIGN = r"(?<=[^\s(\[{]) (?:&|&amp;) (?=[^\s.,;:!?)\]}])"
_AND = """
    bg и, cs a, da og, de und, el και, en and, es y, et ja, fi ja, fr et, hi और, hu és, it e, lt ir,
    nl en, no og, pl i, pt e, ro și, ru и, sk a, sl in, sv och, tr ve, uk і, vi và
"""


def normalise(line: str) -> str:
    """Return a line as if it had been typed on a plain keyboard.

    Characters are composed (Unicode's form NFC); each run of spaces of any kind becomes one space,
    and none at the ends; quotes and apostrophes are straight; nothing is invisible; full-width
    letters and ligatures become plain ones; a lone surrogate becomes U+FFFD. The page does the
    same, in minitf/page/engine.js.

    >>> normalise("\u201eIch\u00a0bin\u00ad da\u2026\u201c,  sagte sie.")
    '"Ich bin da...", sagte sie.'
    """
    if re.fullmatch(_PLAIN, line):
        return line
    line = re.sub(_INVISIBLE, "", valid_unicode(line))
    line = unicodedata.normalize("NFC", line)  # which makes apostrophes of some Greek accents
    if (narrow := line.translate(_WIDE)) != line and not re.search(_EAST_ASIAN, line):
        line = narrow
    line = re.sub(_TIGHT_DASH, " \u2013 ", line).translate(_ALIKE)
    line = re.sub(r"\s+", " ", unicodedata.normalize("NFC", line)).strip(" ")
    # The neighbours of a removed joiner may look alike, or compose, only now.
    may_join = "\u200c" in line or "\u200d" in line
    return normalise(re.sub(_JOINER, "", line)) if may_join and re.search(_JOINER, line) else line


def without_entities(line: str) -> str:
    """Return a line in which HTML's entities for letters and symbols are replaced by these.

    >>> without_entities("Caf&eacute; &lt; I don&#39;t &amp; &nothing;")
    "Café &lt; I don't &amp; &nothing;"
    """
    if "&" not in line or ";" not in line:
        return line
    from html import unescape  # lazily: most lines have no entity

    def character(entity):
        letters = unescape(entity[0])
        return letters if len(letters) <= 2 else entity[0]  # in &nothing; it finds &not

    return re.sub(_ENTITY, character, line)


def word_for_and(language: str, characters: Collection[str]) -> str:
    """Return the word for & in a language such as "en".

    It is & itself if the word is not known, or if the vocabulary has the character &.
    """
    return "&" if "&" in characters else dict(re.findall(r"(\w+) (\w+)", _AND)).get(language, "&")


def with_and(line: str, word: str) -> str:
    """Return a line with a word for each & that is between two words.

    The page does the same, in minitf/page/engine.js.

    >>> with_and("Tom & Mary at AT&T", "and"), with_and("TOM & ANNA", "und")
    ('Tom and Mary at AT&T', 'TOM UND ANNA')
    """
    return re.sub(_AND_SIGN, f" {word.upper() if line.isupper() else word} ", line)
