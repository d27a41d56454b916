"""Where a sentence ends: the patterns for English and German, and what ends none."""

import re
import unicodedata
from itertools import pairwise

__all__ = ["sentences"]

# The patterns and `_goes_on` are also in minitf/page/engine.js.
_CLOSING = "[\"'”’“‘»«)\\]]*"
_SENTENCE = re.compile(rf"[.!?…]{_CLOSING}\s+(?!\s)|[。！？]+[」』”’]*\s*")
# A full stop after one of these ends a sentence only if the next word is one that begins many.
_ABBREVIATIONS = (
    "Mr|Mrs|Ms|Messrs|Dr|Prof|St|Mt|Ft|Gov|Sen|Rep|Gen|Lt|Sgt|Capt|Col|Maj|Rev|Hon|Pres|Jr|Sr|Co|"
    "Inc|Ltd|Corp|Bros|Dept|Fig|Sec|Ch|approx|vs|etc|oz|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|"
    "Nov|Dec|Okt|Dez|Mon|Tue|Wed|Thu|Mo|Di|Mi|Nr|Abb|Tab|Kap|Bd|Fa|Hr|Fr|Dipl|Ing|med|jur|phil|"
    "jun|sen|ca|bzw|vgl|Vgl|usw|usf|ff|inkl|exkl|zzgl|evtl|ggf|bes|sog|geb|Geb|ehem|allg|Mio|Mrd|"
    "Tsd|Std|Min|Sek|Abs|Anm|Anl|gem|Ca|Bzw|Inkl|Exkl|Zzgl|Evtl|Ggf|Cf|cf|Approx|Rt|Ave|Blvd|"
    r"Rd|\w*[Ss]tr|[IVXL]{2,}"
)
_SHORT = re.compile(rf"\b(?:{_ABBREVIATIONS})$")
_STARTERS = (
    "I|He|She|It|We|You|They|The|This|That|These|Those|There|Then|But|And|So|My|His|Her|Our|Their|"
    "What|When|Where|Why|How|In|At|If|Ich|Er|Sie|Es|Wir|Ihr|Der|Die|Das|Dann|Aber|Und|Da|Dort|"
    "Dies|Diese|Dieser|Mein|Sein|Was|Wann|Wo|Warum|Wie|Im|Am|Wenn"
)
_STARTER = re.compile(rf"\.{_CLOSING}\s+(?:{_STARTERS})\b")
_NO_START = re.compile(r"\bz\.\s?B$|\bd\.\s?h$|\bu\.\s?a$")  # what follows is in their sentence
# Nor in "No. 5", nor after the day of a German date: "3. Oktober".
_BEFORE_NUMBER = re.compile(r"\b(?:[Nn]o|[Vv]ol|fig|pp?|ch|sec|[Tt]el|mind|max)$")
_NUMBER = re.compile(r"\.\s+\d")
_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_MONTH = re.compile(rf"\.\s+(?:{_MONTHS})\b")
# Nor after a German ordinal, a number of at most three digits after an article or a possessive: "im
# 19. Jahrhundert", "ihren 30. Geburtstag". But "I am 5. He is 6." is English.
_ORDINAL = re.compile(
    r"\b(?:[Dd](?:er|ie|as|em|en|es)|[Ii]m|(?<!\bI )[Aa]m|[Zz]u[mr]|[Vv]om|[Bb]eim|[Jj]ede[mnrs]?"
    r"|(?:[MmDdSs]ein|[Ii]hr|[Uu]nser|[Ee]ure?)(?:e[mnrs]?)?)\s\d{1,3}$"
)
_LONGEST = 20  # characters that the patterns look at before a full stop


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; joined, they are the text.

    >>> sentences("Mr. Hill left at 5 p.m. He met Gov. Brown.")
    ['Mr. Hill left at 5 p.m. ', 'He met Gov. Brown.']
    """
    ends = [match.end() for match in _SENTENCE.finditer(text) if not _goes_on(text, match)]
    return [text[start:stop] for start, stop in pairwise([0, *ends, len(text)])]


def _goes_on(text, match):
    """Return whether the sentence goes on: before a small letter, or after no end of a sentence.

    An initial is a single letter before a full stop, as in "А. С." or "a.m.": not the end of a
    word after a vowel sign or an apostrophe, and not a character of East Asia, which is a syllable.
    """
    stop = match.start()
    if text[stop] in "。！？":
        return False
    if text[match.end() : match.end() + 1].islower():
        return True
    if text[stop] != ".":
        return False
    before = text[max(0, stop - _LONGEST) : stop]
    if _is_initial(before) or _SHORT.search(before):
        return not _STARTER.match(text, stop) or bool(_NO_START.search(before))
    if _BEFORE_NUMBER.search(before) and _NUMBER.match(text, stop):
        return True
    is_day = before[-1:].isdecimal() and _MONTH.match(text, stop)
    return bool(is_day or (_ORDINAL.search(before) and not _STARTER.match(text, stop)))


def _is_initial(before):
    letter, second = before[-1:], before[-2:-1]
    in_word = second and (
        second.isalnum() or second in "_'’" or unicodedata.category(second)[0] == "M"
    )
    return letter.isalpha() and letter < "\u2e80" and not in_word
