"""What must not be translated: numbers, dates, addresses, tags, codes.

Each leaves its sentence before a model reads it, a placeholder stands in its place, and it comes
back where the model writes that placeholder. A model learns to copy them from pairs in which both
sides have them (examples/models/prepare.py finds their values by `KINDS` as well).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice

# A sentence gets them in this order. Each is a piece of the subwords that minitf learns.
PLACEHOLDERS = "①②③④⑤⑥⑦⑧"

_DOMAINS = "com|org|net|edu|gov|info|io|dev|app|eu|de|ch|uk|fr|nl|example"
_FILES = (
    "txt|md|pdf|docx?|xlsx?|pptx?|od[tsp]|csv|tsv|json|ya?ml|toml|xml|html?|css|[jt]sx?|py|ipynb|"
    "java|[ch](?:pp)?|rs|go|php|sh|bat|exe|dll|zip|rar|tar|t?gz|bz2|xz|iso|jpe?g|png|gif|svg|webp|"
    "bmp|mp[34]|wav|ogg|flac|avi|mov|mkv|srt|vtt|log|ini|cfg|conf|sql|db|bak|tmp|epub"
)
# The last character of an address is not the full stop or the bracket after it.
_REST = r"[^\s<>\"]*[^\s<>\".,;:!?)\]}']"
# Digits with one mark between two of them: the full stop after a number is no part of it. Digits
# alone are a value from the fifth on: a shorter number is a word that the grammar may need.
_NUMBER = r"(?:\d+(?:[.,:/'\u2013×-]\d+)+|\d{5,})"
_ANY_NUMBER = rf"(?:{_NUMBER}|\d+)"
_MONEY = "[$€£¥₹]"
_APART = r"(?<![\w.,])"

# Tried in this order at each place of a sentence.
KINDS = {
    "code": r"`[^`]+`",
    "tag": r"<!--.*?-->|</?[A-Za-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>|</?[A-Za-z][^<>]*>"
    r"|\[/?(?:b|i|u|s|url|img|quote|code)(?:=[^\]]*)?\]",
    "entity": r"&(?:[A-Za-z]+|#\d+|#x[0-9A-Fa-f]+);",
    "link of Markdown": r"!?\[(?:[^\[\]]|!\[[^\[\]]*\]\([^()\s]*\))*\]\([^()\s]*(?: \"[^\"]*\")?\)",
    "footnote": r"(?:\[\^?\d{1,3}\])+|\[\^\w+\]",
    "emphasis": r"(?<![\w*])\*{1,3}(?=\w[^*]*\*)|(?<=[\w.!?])\*{1,3}(?![\w*])",
    "command or formula of LaTeX": r"\\[A-Za-z]+\*?(?:\[[^\[\]]*\])?(?:\{[^{}]*\})+"
    r"|\$[^$\s](?:[^$]*[^$\s])?\$(?![\w.])",
    "e-mail address": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "URL": rf"\b(?:(?:https?|ftps?|file)://|(?:mailto|tel):|www\.){_REST}"
    rf"|\b(?:[\w-]+\.)+(?:{_DOMAINS})\b(?:/{_REST})?(?![\w@])",
    "placeholder": r"\{\{[^{}]*\}\}|\$?\{[^{}\s]*\}|%\(\w+\)[a-z]|%[A-Z_]{2,}%|\b__\w+__\b"
    r"|(?<![\w%])%(?:\d+\$)?[-+#0]?\d*(?:\.\d+)?[sdfgxi]\b|\$[A-Za-z_]\w*",
    "path": r"(?<!\w)(?:[A-Za-z]:\\(?:[\w.-]+\\)*[\w.-]*\w|(?:~|\.{1,2})?(?:/[\w.-]*\w)+/?)(?!\w)",
    "file": rf"(?<![\w@.])[\w-]+(?:\.[\w-]+)*\.(?:{_FILES})\b(?::\d+)*",
    "handle": r"(?<![\w@])@\w(?:[\w.]*\w)?|(?<![\w#&])#\w+",
    "identifier": r"\b[A-Za-z]\w*(?:\.\w+)*\(\)|\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b"
    r"|(?<!\w)--?[a-z][\w-]*=\S*\w",
    "amount": rf"{_MONEY} ?{_ANY_NUMBER}|{_APART}[-+\u2013]?{_ANY_NUMBER} ?(?:[€%‰]|{_MONEY}(?!\w))"
    rf"|{_APART}[-+\u2013]?{_ANY_NUMBER} ?°(?: ?[CF]\b)?",
    "IP address": r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){1,7}:?(?:[0-9A-Fa-f]{1,4}:)*[0-9A-Fa-f]*"
    r"[A-Fa-f][0-9A-Fa-f:]*\b|(?<![\w:])[0-9A-Fa-f:]*::[0-9A-Fa-f:]*\b",
    "date": r"(?<![\w.])\d{1,2}\. \d{1,2}\. ?(?:\d{4}|\d{2})\b",
    "paragraph of a law": r"§§? ?\d+[a-z]?(?: (?:Abs\.|S\.|Satz|Nr\.) ?\d+)*",
    "emoticon": r"(?<!\S)[:;=]['-]?[()DP](?!\w)",
    "version": r"\bv\d+(?:\.\d+)*(?:-\w+)*\b|\b\d+(?:\.\d+)+-?[A-Za-z]+\d*\b",
    "telephone number": r"(?<![\w.,/-])(?:\+\d{1,3}[ /-]?)?(?:\(\d+\)[ /-]?)?\d+(?:[ /-]\d{2,})+"
    r"(?![\w-])|(?<!\w)(?:\+\d{1,3}[ /-]?)?\(\d+\)[ /-]?\d+(?!\w)|(?<!\w)\+\d{5,}",
    "number": rf"{_APART}[-+\u2013]?{_NUMBER}(?:\s?(?:[KMGT]B|[kcm]?m|kg|ms))?(?!\w)"
    r"|(?<!\w)[-+\u2013]\d+(?!\w)",
    "unit": r"\b\d+(?:[KMGT]B|[kcm]m|kg|ms)\b",
    "name with digits": r"\b(?=[\w-]*\d)(?=[\w-]*[A-Z]{2}|[A-Z]-?\d)[A-Z0-9]+(?:-[A-Za-z0-9]+)*\b"
    r"|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b",
    "emoji": "(?:[\u2190-\u2bff\u3030\u303d\U0001f000-\U0001faff][\u200d\ufe0f\u20e3]*)+",
    "placeholder of minitf": f"[{PLACEHOLDERS}]",
}


_PLAIN = r"(?:[A-Za-z ,!?'\"-]|\.+(?= |$))*"  # without a full stop inside a word, as in x.org


def has_no_values(text: str) -> bool:
    """Return whether a text has nothing that is kept, at first sight: most have words alone.

    For these nobody has to wait until the pattern of all KINDS is compiled.
    """
    return bool(re.fullmatch(_PLAIN, text))


def protected_pattern(own: Iterable[str] = (), characters: Collection[str] = ()) -> re.Pattern:
    """Return a pattern of everything that is kept: of a person's own patterns, and of KINDS.

    characters: those that the model can write; a word with any other is kept, too (default: each).
    Raises re.error for a pattern that is none.
    """
    kinds = [*own, *KINDS.values()]
    if characters:
        known = re.escape("".join(sorted(characters)))
        kinds.append(rf"[^\W\d_]*[^\s!-~{known}](?:[^\s!-~]|\w)*")
    return re.compile("|".join(f"(?:{kind})" for kind in kinds))


def split_protected(text: str, pattern: re.Pattern) -> tuple[list[str], list[str]]:
    """Return the texts around the values, and the values, which are one fewer.

    >>> split_protected("Call 030 1234567 at 17:45!", protected_pattern())
    (['Call ', ' at ', '!'], ['030 1234567', '17:45'])
    """
    texts, values, start = [], [], 0
    for match in pattern.finditer(text):
        if match[0]:
            texts.append(text[start : match.start()])
            values.append(match[0])
            start = match.end()
    return [*texts, text[start:]], values


def with_placeholders(texts: Sequence[str], placeholders: Iterable[str]) -> str:
    """Return the texts with a placeholder between each two; there must be enough of them.

    >>> with_placeholders(["Call ", " at ", "!"], PLACEHOLDERS)
    'Call ① at ②!'
    """
    between = chain(islice(placeholders, len(texts) - 1), [""])
    return "".join(text + each for text, each in zip(texts, between, strict=True))
