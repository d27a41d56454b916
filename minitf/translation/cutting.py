"""Cutting a line into parts: its sentences, and slices of a sentence that is too long.

A model that learned from single sentences leaves some out where several follow each other, and it
reads a limited number of subwords at once.
"""

import re
from collections.abc import Sequence
from itertools import chain, pairwise

from minitf.text import Vocabulary
from minitf.text.sentences import sentences

__all__ = ["cut_texts", "in_small_letters", "join"]

# A sentence that is too long is cut after a clause; a clause that is too long, after a word.
_CLAUSE = r"[,;:–—)]\s+|[，、；：]\s*"
_WORD = r"\s+"
_LETTERS = r"[^\W\d_]+"
# Words whose small letters would have as few subwords.
_AS_IT_IS = "I|USA|UK|EU|UN|UNO|NATO|NASA|FBI|CIA|IBM|UFO|DNA|IQ|HIV|AIDS|UNESCO|UNICEF|CEO"
# The characters of Chinese and Japanese, which have no spaces between sentences or words.
_WIDE = ("\u3000", "\u30ff"), ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uff00", "\uffef")


def cut_texts(
    texts: Sequence[str], subwords: Vocabulary, max_subwords: int, max_unsplit: int
) -> list[list[str]]:
    """Cut each text into its sentences, and a sentence that is too long after clauses or words.

    max_subwords: the most subwords of a part. max_unsplit: a text of up to so many subwords is a
    single part, whatever its sentences. A text without any subwords has no part.
    """
    cut = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        parts = [text] if len(ids) <= max_unsplit else sentences(text)
        if len(parts) == 1:
            cut.append(_parts(text, ids, subwords, max_subwords, (_CLAUSE, _WORD)))
        else:
            cut.append(_all_parts(parts, subwords, max_subwords, (_CLAUSE, _WORD)))
    return cut


def join(texts: Sequence[str]) -> str:
    """Return some texts as one, with a space between two of them where their script has spaces.

    >>> join(["Der Hund.", "Er schläft."]), join(["我喜欢它。", "他也喜欢。", "OK."])
    ('Der Hund. Er schläft.', '我喜欢它。他也喜欢。 OK.')
    """
    between = (
        "" if _is_wide(first[-1:]) and _is_wide(second[:1]) else " "
        for first, second in pairwise(texts)
    )
    return "".join(chain(*zip(texts, chain(between, [""]), strict=False)))


def _is_wide(character):
    return any(first <= character <= last for first, last in _WIDE)


def in_small_letters(lines: Sequence[str], subwords: Vocabulary) -> list[str]:
    """Return the lines, those IN CAPITALS as they would be written otherwise.

    A model that has read few words in capitals cuts them into many subwords, and makes nonsense of
    them. So a line is taken for one in capitals if it has no small letter, and fewer subwords when
    written small. Each word is written in the way that has the fewest subwords: the, Tom, Straße
    for STRASSE, TV. The first of a sentence begins with a capital letter. No line is changed if all
    of the text is in capitals that the model learned from.
    """
    in_capitals = [row for row, line in enumerate(lines) if line.isupper()]
    lines = list(lines)
    words = {word for row in in_capitals for word in re.findall(_LETTERS, lines[row])}
    small = _small_forms(sorted(words), subwords)
    texts = ["".join(_small(each, small) for each in sentences(lines[row])) for row in in_capitals]
    lengths = [
        map(len, subwords.encode(texts)) for texts in ([lines[i] for i in in_capitals], texts)
    ]
    for row, text, n_capitals, n_small in zip(in_capitals, texts, *lengths, strict=True):
        if n_small < n_capitals:
            lines[row] = text
    return lines


def _small_forms(words, subwords):
    """Return {word in capitals: the same as it is probably written}."""
    forms = {}
    for word in words:
        low = word.lower()
        sharp = low[:1] + low[1:].replace("ss", "ß")  # no word begins with it: SSD
        small = [low, word[0] + word[1:].lower(), sharp, word[0] + sharp[1:]]
        forms[word] = [word] if re.fullmatch(_AS_IT_IS, word) else [*small, word]
    lengths = map(len, subwords.encode([form for each in forms.values() for form in each]))
    best = {}
    for word, each in forms.items():
        counts = [next(lengths) for _ in each]
        least = min(counts)
        # What is no subword in any form, and no shorter in small letters, is an abbreviation.
        best[word] = word if counts[-1] == least > 1 else each[counts.index(least)]
    return best


def _small(sentence, forms):
    """Return a sentence in small letters; a quote before it is none."""
    text = re.sub(_LETTERS, lambda match: forms[match[0]], sentence)
    first = next((i for i, sign in enumerate(text) if sign.isalnum()), 0)
    return text[:first] + text[first : first + 1].upper() + text[first + 1 :]


def _all_parts(texts, subwords, max_subwords, cuts):
    """Return the parts of all texts in one list."""
    texts = [text.strip() for text in texts]
    parts = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        parts += _parts(text, ids, subwords, max_subwords, cuts)
    return parts


def _parts(text, ids, subwords, max_subwords, cuts):
    """Return the parts of one text, which is cut if it has too many ids.

    cuts: the patterns after which it may be cut, the best first.
    """
    if len(ids) <= max_subwords or (not cuts and len(text) == 1):
        return [text] if ids else []
    if cuts:
        slices = _joined(_slices(text, cuts[0]), subwords, max_subwords)
    else:  # One endless word: between two characters, never inside the bytes of one.
        middle = len(text) // 2
        slices = [text[:middle], text[middle:]]
    return _all_parts(slices, subwords, max_subwords, cuts[1:])


def _joined(texts, subwords, max_subwords):
    """Join neighboring texts that together are not too long."""
    joined, size = [], 0
    lengths = map(len, subwords.encode([text.strip() for text in texts]))
    for text, length in zip(texts, lengths, strict=True):
        if joined and size + length <= max_subwords:
            joined[-1] += text
            size += length
        else:
            joined.append(text)
            size = length
    return joined


def _slices(text, end):
    """Cut a text after each match of the pattern; joined, the slices are the text."""
    return _between(text, [match.end() for match in re.finditer(end, text)])


def _between(text, ends):
    """Cut a text at these places."""
    return [text[start:stop] for start, stop in pairwise([0, *ends, len(text)])]
