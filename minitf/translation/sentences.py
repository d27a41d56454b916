"""Where a line is cut before it is translated: between sentences, or where a sentence is too long
to be read at once.

A model that learned from single sentences leaves some out where several follow each other, and it
reads no more than a limited number of subwords.
"""

import re
from itertools import pairwise

from minitf.text import Subwords, Words
from minitf.text.vocabulary import printable, valid

__all__ = ["cut_line"]

# A sentence ends here: not after a title or an initial, and not before a small letter.
_TITLE = r"(?<!\b[A-Z])(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<!\bProf)"
_SENTENCE = re.compile(
    rf"(?:{_TITLE}\.|[!?…])[\"'”’»)\]]*\s+(?![\sa-zà-öø-ÿ])|[。！？]+[」』”’]*\s*"
)
# A sentence that is too long is cut after a clause, or else after a word.
_CUTS = (re.compile(r"[,;:–—)]\s+|[，、；：]\s*"), re.compile(r"\s+"))


def cut_line(line: str, subwords: Subwords | Words, longest: int, usual: int) -> list[list[int]]:
    """Return the parts of a line as lists of subword ids; none if there is nothing to translate.

    longest: the most subwords of a part. usual: a line of no more subwords than this is one part,
    a longer one is cut into its sentences.
    """
    line = printable(valid(line)).strip()
    (ids,) = subwords.encode([line])
    if len(ids) <= min(usual, longest):
        return [ids] if ids else []
    return _parts(_split(line, _SENTENCE), subwords, longest, _CUTS)


def _parts(texts, subwords, longest, cuts):
    """Return the ids of each text; one that is too long is cut at the first kind of
    place in `cuts`.
    """
    texts = [text.strip() for text in texts]
    parts = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        if len(ids) <= longest:
            parts += [ids] if ids else []
        elif cuts:
            joined = _joined(_split(text, cuts[0]), subwords, longest)
            parts += _parts(joined, subwords, longest, cuts[1:])
        elif len(text) > 1:
            # One endless word: between two characters, never inside the bytes of one.
            middle = len(text) // 2
            parts += _parts([text[:middle], text[middle:]], subwords, longest, ())
        else:  # a character spelled in more bytes than the model reads
            parts += [ids[i : i + longest] for i in range(0, len(ids), longest)]
    return parts


def _joined(texts, subwords, longest):
    """Join neighbours that together are not too long."""
    joined, size = [], 0
    lengths = map(len, subwords.encode([text.strip() for text in texts]))
    for text, length in zip(texts, lengths, strict=True):
        if joined and size + length <= longest:
            joined[-1] += text
            size += length
        else:
            joined.append(text)
            size = length
    return joined


def _split(line, end):
    """Cut a line after each match of the pattern; nothing is lost."""
    ends = [0, *(match.end() for match in end.finditer(line)), len(line)]
    return [line[start:stop] for start, stop in pairwise(ends)]
