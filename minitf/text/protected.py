"""What must not be translated in a sentence: numbers, dates, addresses, tags, codes, symbols.

Each is a *protected span*. It leaves its sentence before a model reads it, and comes back at its
place. A model learns to copy placeholders from pairs in which both sides have the same spans
(examples/models/prepare.py finds them by `KINDS` as well).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice

# A sentence gets them in this order. Each is one of the subwords that minitf learns.
PLACEHOLDERS = "①②③④⑤⑥⑦⑧"

# Characters for private use from here on stand for spans: for words, and for markup.
FIRST_WORD, FIRST_MARKUP = 0xF0000, 0x100000

# The last character of an address is not the full stop or the bracket after it.
_REST = r"[^\s<>\"]*[^\s<>\".,;:!?)\]}']"
# A full stop is part of an address before one of these; before another word, a space was forgotten.
_ENDINGS = (
    "com|org|net|edu|gov|info|io|dev|app|eu|de|ch|uk|fr|nl|example|"
    "txt|md|pdf|docx?|xlsx?|pptx?|od[tsp]|csv|tsv|json|ya?ml|toml|xml|html?|css|[jt]sx?|py|ipynb|"
    "java|[ch](?:pp)?|rs|go|php|sh|bat|exe|dll|zip|rar|tar|t?gz|bz2|xz|iso|jpe?g|png|gif|svg|webp|"
    "bmp|mp[34]|wav|ogg|flac|avi|mov|mkv|srt|vtt|log|ini|cfg|conf|sql|db|bak|tmp|epub"
)
_MAX_SPAN = 1000  # characters of a span
_BEGINS = r"(?<![^\s(\[\"'*~\U000f0000-\U0010ffff])"  # a bracket, quote or tag may be before it
_ALNUM = r"[^\W_]"
# The full stop after a number is no part of it. Digits alone are a span if they are five or more:
# a shorter number is a word that the grammar may need.
_DIGITS = r"\d+(?:[.,:/'\u2013×x-]\d+)*(?![.,]?\d)"
_UNIT = r"(?: ?[ghlmVW]| s)(?![\w'/])"  # of measurement, of one letter
_ANY_NUMBER = rf"{_DIGITS}(?:{_UNIT})?"
_NUMBER = r"(?:\d+(?:[.,:/'\u2013×-]\d+)+|\d{5,})(?![.,]?\d)"
_SIGN = r"[^\w\s.,;:!?'\"(){}\[\]\u2013\U000f0000-\U0010ffff-]"  # a symbol, no punctuation
# Around a word _ is emphasis, and read as *; all patterns take it for a letter.
_EMPHASIS = rf"(?<!\w)_(?={_ALNUM})|(?<={_ALNUM}|[.,:;!?)])_(?!\w|\.\w)"
_KEY = r"[B-HJ-Z]\d*"  # A and I are words
_NAME = rf"(?:{_ANY_NUMBER}|[A-HJ-Za-z]\d*\b)"
_TERM = rf"(?:{_ANY_NUMBER}|{_KEY}\b)"

# Tried in this order at each place of a sentence, each with examples. A comment above says what
# fails without it.
KINDS = (
    # What stands between a pair of symbols: code, tags, gaps to be filled, formulas, notes. A model
    # would translate the words inside.
    r"`[^`]+`|\{\{[^{}]*\}\}",  # `a + b`, {{ user }}
    r"[$%]?\{[^{}\s]*\}|\{[%#][^{}]*\}",  # ${price}, {% if x %}
    r"%\(\w+\)[a-z]|%[A-Z_]{2,}%|\b__\w+__\b",  # %(n)d, %USER%, __NAME__
    r"<[/?]?[A-Za-z\d][^\s<>]*(?:\s[^<>]*=(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?\s*/?>",  # <a b=">">
    r"\$[^$\s](?:[^$]*[^$\s])?\$(?![\w.])",  # $x^2 + y$
    r"(?:\[(?:\^\w+|\d{1,3})\])+",  # [1][2], [^3]
    r"\[/\w+\]|\[\w+(?:=[^\[\]]*)?\](?=[\w\[])",  # [/b], [size=5]big
    r"(?:\]\([^()\s]*(?: \"[^\"]*\")?\))+|(?<=[\w)])\(\w+\)\w*",  # ](a.md "b"), dog(s)
    # An address has characters inside that no word has; one wrong letter is another one.
    rf"\b(?:\w+://|(?:mailto|tel):|www\.){_REST}",  # https://x.org/a, www.x.org
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",  # anna@x.org
    rf"(?<![\w@.-])(?:[\w-]+\.)+(?:{_ENDINGS})\b(?:/{_REST}|(?::\d+)+)?(?![\w@])",  # main.py:45
    r"(?<!\w)(?:[A-Za-z]:\\(?:[\w.-]+\\)*(?:[\w.-]*\w)?"
    r"|(?:~|\.{1,2})?(?:/[\w.-]*\w)+/?)(?!\w)",  # C:\a\b.txt, /etc, ~/x
    # What is written for a computer has such characters, too, at its beginning or inside.
    r"\\[nrtN](?![a-z])|(?<=[\w.,:;!?])\\[nrtN]|\\[\"']|\\[^\w\s](?!\d)",  # \n, so\nand, \", \*
    rf"{_BEGINS}(?:[@#$%\\]+[^\W\d](?:[\w.]*\w)?|--?[a-z][\w-]*=\S*\w)",  # @tom, %s, --level=5
    rf"{_BEGINS}%[\d.$+-]*[a-z]\b|(?<!\w\.)\b[A-Za-z]\w*(?:\.\w+)*\(\)",  # %1$s, np.zeros()
    rf"\b{_ALNUM}+(?:(?:[@_=^%$&#+~]+|\*){_ALNUM}+)+|\b[A-Za-z]{{1,2}}/[A-Za-z]\b",  # AT&T, w/o
    rf"\b[A-Z](?:\+\+|[#*+])(?!\w)|&#?\w+;|{_BEGINS}[:;=](?:[^\s\w]+\w?|\w)(?!\w)",  # C#, &lt;, :-)
    rf"(?<![\w.,/-]){_DIGITS}{_UNIT}(?: {_SIGN} {_ANY_NUMBER})*",  # 5 m, 20-30 m
    # A model spells digits beside letters anew.
    r"(?<!\w)(?=[\w.:-]{0,40}?(?:[^\W\d_]\d|[A-Z]-\d|\d-?[A-Z]))\w+(?:[.:-]+\w+)*",  # AB-12345, X7
    # Groups of digits are one number.
    r"(?<![\w.,/-])(?:\+\d{1,3}[ /-]?)?(?:\(\d+\)[ /-]?\d+|\d+[ /-]\d{2,})"
    r"(?:[ /-]\d{2,})*(?![\w-])",  # 030 12345, +49 (30) 12345
    r"(?<![\w.])\d{1,2}\. \d{1,2}\. ?\d{2,4}\b",  # 24. 12. 2010
    # Emphasis around words: the model took its symbols for words, and never closed them.
    rf"(?<!{_ALNUM})(?!~\d)[*_~]++(?=[@#]?{_ALNUM})|(?<=[^\W_]|[.,:;!?)])[*_~]++(?!{_ALNUM})",  # *a
    # Numbers, or letters for them, with a symbol beside or between them.
    rf"(?<![\w.,']){_NAME}(?: (?:{_SIGN}+|x) {_NAME})+(?!\w)",  # x = 5, 4 x 5
    rf"(?<![\w.,]){_TERM}(?: ?{_SIGN}+ ?{_TERM})+(?: ?=)?(?!\w)|\b\w+ ?\+ ?{_KEY}\b",  # 1+1, Ctrl+C
    rf"(?<![\w.,])(?<!{_SIGN})(?:(?:(?<!\S){_SIGN}+ |{_SIGN}+)[-+\u2013]?{_ANY_NUMBER}"
    rf"(?: ?{_SIGN}+ ?{_TERM})*(?!\w)"
    rf"|[-+\u2013]?{_ANY_NUMBER} ?{_SIGN}+(?: ?[CF]\b|(?!\w)))",  # < 5, €100, 5%, 20 °C
    rf"(?<![\w.,])[-+\u2013]?{_NUMBER}(?!\w)|(?<!\w)[-+\u2013]\d+(?!\w)",  # 12345, 17:45, -3
    f"[{PLACEHOLDERS}]",  # ①
)


# Words, and what is usual at their edges; no full stop is inside a word, as in x.org.
_PLAIN = r"(?:['\"]?[A-Za-z][A-Za-z'-]*[,.!?]*['\"]?(?: |$))*"


def has_no_spans(text: str) -> bool:
    """Return whether a text has nothing to protect, at first sight: most texts are words alone.

    So a user with a plain sentence does not wait until the pattern of all KINDS is compiled.
    """
    return bool(re.fullmatch(_PLAIN, text))


def protected_pattern(
    own: Iterable[str] = (), characters: Collection[str] = (), alone: Collection[str] | None = None
) -> re.Pattern:
    """Return a pattern of all that is protected: a person's own patterns, and KINDS.

    characters: what the model can write; any other character is protected, too, and a word with
    such a letter (default: it can write all). alone: the symbols that it can write between two
    spaces (default: all).
    Raises re.error for an own pattern that is not a regular expression.
    """
    kinds = [*own, *KINDS]
    if characters:
        both = characters, characters if alone is None else alone
        known, lone = (re.escape("".join(sorted(each))) for each in both)
        kinds.append(rf"(?<![^\W\d_])[^\W\d_]*(?={_ALNUM})[^{known}](?:[^\s!-~]|\w)*")
        kinds.append(rf"(?<!\S)(?![-{lone}]+ )[^\w\s]+(?= )|(?<= )[\"'](?= )")
        # A bracket, or other symbols, with the hyphens of an arrow.
        kinds.append(rf"(?![{known}])[()\[\]{{}}]")
        kinds.append(rf"(?:(?<!\S)-+)?(?:(?!{_ALNUM})[^\s()\[\]{{}}{known}])+(?:-+(?!\S))?")
    return re.compile("|".join(f"(?:{kind})" for kind in kinds))


def split_protected(text: str, pattern: re.Pattern) -> tuple[list[str], list[str]]:
    """Return the texts around the spans, and the spans, one fewer.

    Spans of up to 1,000 characters are found, in up to 2,000 characters at a time: a pattern may
    read a text as often as it has characters.

    >>> split_protected("Call 030 1234567 at 17:45!", protected_pattern())
    (['Call ', ' at ', '!'], ['030 1234567', '17:45'])
    """
    texts, spans, start = [], [], 0
    read = re.sub(_EMPHASIS, "*", text)
    for place in range(0, len(text), _MAX_SPAN):
        for match in pattern.finditer(read, max(place, start), place + 2 * _MAX_SPAN):
            if match[0] and match.start() < place + _MAX_SPAN:
                texts.append(text[start : match.start()])
                spans.append(text[match.start() : match.end()])
                start = match.end()
    return [*texts, text[start:]], spans


def interleave(texts: Sequence[str], spans: Iterable[str]) -> str:
    """Return the texts with a span or a placeholder between every two; there must be enough.

    >>> interleave(["Call ", " at ", "!"], PLACEHOLDERS)
    'Call ① at ②!'
    """
    between = chain(islice(spans, len(texts) - 1), [""])
    return "".join(text + each for text, each in zip(texts, between, strict=True))
