"""The texts of a line, and the sentences of a text, by patterns for English and German."""

import functools
import re
from collections.abc import Iterable
from itertools import pairwise

from minitf.text.normalise import normalise

# A list marker or a quote marker, tried at the left edge of a line until none fits.
_MARKER = re.compile(
    r"\s+"
    r"|>+(?=\s|\w)(?!\w+<<)"  # of a quote; >>de<< names a language
    r"|(?:[-+*·–—]|#{1,6})(?=\s)"
    r"|[•‣⁃∙\uf0a7\uf0b7\u2190-\u21ff\u25a0-\u27bf\u2b00-\u2bff]\ufe0f?"  # bullets everywhere
    r"|[-–—](?=[^\W\d_])"  # before direct speech
    r"|(?:\(?(?:\d{1,3}|[A-Za-z]|[ivx]+)\)|(?:\d{1,3}\.)+\)?)(?=\s)"
    r"|[a-h]\.(?=\s+[A-Z]\w)"  # but z. B. and d. h. begin a sentence
    r"|(?:[A-Z]:|\[[ xX]\])(?=\s)"  # Q: and A:, or a task [x]
)
_BETWEEN_TABS = re.compile(r"\S(?:[^\t]*\S)?")


def has_letters(texts: Iterable[str]) -> bool:
    """Return whether a text, or one of several, has more to translate than a label such as B-5."""
    return bool(re.search(r"[^\W\d_]{2}|[^\W\d_A-HJ-Z]", "".join(texts)))


def text_ranges(line: str) -> list[tuple[int, int]]:
    """Return the start and the stop of each text of a line: tabs separate texts, as lines do.

    What has no letter is no text. A line in which nothing is visible becomes empty.

    >>> text_ranges("  - Wash the car "), text_ranges("> 2. Go\\tC-5\\tI"), text_ranges("A, B")
    ([(4, 16)], [(5, 7), (12, 13)], [])
    """
    start = 0
    while match := _MARKER.match(line, start):
        start = match.end()
    texts = _BETWEEN_TABS.finditer(line, start)
    ranges = [text.span() for text in texts if has_letters(text[0])]
    return ranges if ranges or normalise(line) else [(0, len(line))]


# Sentences ----------------------------------------------------------------------------------------

# The patterns are strings, which `re` compiles when they are first used: that takes 20 ms, and a
# single sentence needs none of them.
# Quotes, brackets, placeholders, and the number of a footnote.
_CLOSING = r"(?:[\"'”’“‘»«)\]①-⑧]|\[\d+\])*"
# Words that begin many sentences, and are not names.
_STARTERS = (
    r"A(?!\.)|After|All|Also|Although|An|And|Another|Any|Are|As|At|Because|Before|Both|But|By|Can|Could|"
    "Did|Do|Does|Don|Each|Even|Every|Everybody|Everyone|Everything|Few|For|From|Had|Has|Have|He|"
    r"Her|Here|His|How|However|I(?!\.)|If|In|Is|It|Its|Just|Let|Many|Maybe|Most|My|Never|No(?!\.)|"
    "Nobody|Not|Nothing|Now|On|Once|One|Only|Or|Our|Perhaps|Please|She|Should|Since|So|Some|"
    "Somebody|Someone|Something|Thank|Thanks|That|The|Their|Then|There|These|They|This|Those|To|"
    "Today|Tomorrow|Under|Until|Was|We|Were|What|When|Where|Which|While|Who|Why|With|Without|"
    "Would|Yes|Yesterday|You|Your|Aber|Alle|Alles|Als|Am|Auch|Auf|Aus|Bei|Beide|Bin|Bis|Bist|Bitte|"
    "Da|Dabei|Dafür|Daher|Damit|Danach|Danke|Dann|Das|Dass|Davon|Dazu|Dein|Dem|Den|Denn|Der|"
    "Deshalb|Die|Dies|Diese|Dieser|Dieses|Doch|Dort|Du|Ein|Eine|Einem|Einen|Einer|Einige|Er|Es|"
    "Euer|Für|Gestern|Habe|Haben|Habt|Hallo|Hast|Hat|Heute|Hier|Ich|Ihm|Ihn|Ihr|Ihre|Im|Ist|Ja|"
    "Jede|Jeder|Jedes|Jemand|Jetzt|Kann|Kannst|Könnt|Kein|Keine|Keiner|Kommen|Können|Leider|Man|"
    "Manche|Mein|Meine|Mit|Muss|Nach|Nachdem|"
    "Nein|Nicht|Nichts|Niemand|Noch|Nun|Nur|Ob|Obwohl|Oder|Ohne|Schon|Sein|Seine|Seit|Sie|Sind|"
    "Soll|Sonst|Später|Trotzdem|Um|Und|Uns|Unser|Unsere|Viele|Vielen|Vielleicht|Von|Vor|Wann|War|"
    "Waren|Warum|Weil|Welche|Wem|Wen|Wenn|Wer|Wie|Wieso|Wir|Wird|Wo|Zu|Zuerst|Zum|Zur"
)
# A full stop after one of these does not end a sentence.
_TITLES = (
    "Mr|Mrs|Ms|Messrs|Dr|Prof|Mt|Gov|Sen|Rep|Gen|Lt|Sgt|Cpl|Pvt|Capt|Cmdr|Adm|Col|Maj|Rev|Hon|"
    "Pres|Supt|Dipl|Ing|Hr|Hrn|Fr|Frl|Fa|Nr|Abb|Kap|Anm|approx|Approx|vs|bzw|Bzw|ca|Ca|Cf|cf|vgl|"
    "Vgl|inkl|Inkl|exkl|Exkl|zzgl|Zzgl|evtl|Evtl|ggf|Ggf|bes|sog|ehem|allg|lt|geb|Geb|einschl|"
    "incl|kath|evang|dt|engl|frz|ital|span|lat|griech|staatl|städt|wiss|techn|stellv|Fig|Sec|Ch|"
    "para|chap|[Ss]ect|Mfg|[Pp]kg|Pck|rd|Az|Urt|Beschl|Lkr|gegr|verh|gest|Aufl|Hrsg|hrsg|Bsp|tsp|tbsp|"
    r"z\.\s?(?:B|H|Hd)|d\.\s?h|u\.\s?a"
)
# A full stop after one of these ends a sentence only if the next word is one of the starters.
_ABBREVIATIONS = (
    "St|Ft|Jr|Sr|jr|sr|jun|sen|Co|Inc|Ltd|Corp|Bros|Dept|Jan|Feb|Mar|Apr|Jun|"
    "Jul|Aug|Sep|Sept|Oct|Nov|Dec|Okt|Dez|Mon|Tue|Wed|Thu|Fri|Mo|Di|Mi|Do|Sa|So|med|jur|phil|ff|"
    r"Mio|Mrd|Tsd|Std|Min|Sek|Abs|Rt|Ave|Blvd|Rd|Jän|Febr|al|gem|Gem|Tab|Bd|Anl|\w*[Ss]tr|[IVXL]{2,}"
)
# A full stop between one of these and a number ends none.
_NUMBERED = "[Nn]o|N°|[Vv]ol|fig|pp?|ch|sec|apt|est|Art|[Tt]el|mind|max"
# Words that often follow an ordinal number, besides months.
_RANKED = (
    "Jahrhunderts?|Geburtstags?|Weltkriegs?|Stelle|Platz|Rang|Klasse|Liga|Runde|Stock|Etage|Auflage"
)
_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_EMOJI = "[\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f?"
# A single letter, as in "А. С." or "a.m.": not the end of a word after an apostrophe or in an
# address, and not a character of East Asia, which is a syllable.
_INITIAL = "(?<!\\w)(?<!['’=/&#@\u0300-\u036f])[^\\W\\d_\u0900-\U0010ffff]"
_NO_SMALL = rf"{_CLOSING}\s+(?![a-zäöü])"
_HALF = r"[AaPp]\.\s?[Mm]\."  # a.m. and p.m.
_SPEECH = "said|says|asked|cried|shouted|answered|replied|whispered|yelled|exclaimed|added"
_START = rf"{_CLOSING}\s+(?:{_STARTERS})(?!\w|-)"
# A German ordinal: a number after an article or a possessive, as in "im 19. Jahrhundert" and "ihren
# 30. Geburtstag", or after another one. But "I am 5. He is 6." is English.
_ORDINAL = (
    r"\b(?:[Dd](?:er|ie|as|em|en|es)|[Ii](?:m|ns)|(?<!\bI )[Aa](?:m|ns)|[Aa]ufs|[Ff]ürs|[Zz]u[mr]"
    r"|[Vv]om|[Bb]eim|[Jj]ede[mnrs]?|(?:[MmDdSs]ein|[Ii]hr|[Uu]nser|[Ee]ure?)(?:e[mnrs]?)?"
    r"|\d{1,3}\. (?:und|oder|bis))\s\d{1,3}"
)
# Rows (before the end of a full stop, after it, whether the sentence goes on): the first row that
# fits decides.
_RULES = (
    (r"", rf"\W{{1,40}}$|{_CLOSING}\s+[.!?…,;:)]", True),  # no sentence follows
    # "... I", and after a question in quotes: Tom asked.
    (r"\.\.\.|…|\. \. \.", r"\s+I\b", True),
    (r"[\[(](?:\.\.\.|…)", r"[\])]", True),
    (r"[!?]", rf"[\"'”’“»«]\s+(?:I|[A-Z]\w+) (?:{_SPEECH})\b", True),
    (rf"\b(?:{_TITLES})\.", "", True),
    (r"\b(?:etc|usw|usf|Ph\.D|LL\.[BM]|\d+ ?(?:B\.C|A\.D|C\.E))\.", _NO_SMALL, False),
    # "At 5 p.m. Tom left", and no sentence before the time.
    (rf"\b(?:At|By|From|Until|After|Before|Around)(?: \w+)? [\d:.]+ ?{_HALF}", "", True),
    (rf"\b{_HALF}", r"\s+(?:Eastern|Pacific|\w+day|[A-Z]{3,4})\b", True),
    (rf"\b{_HALF}", _NO_SMALL, False),
    # "It is I", "Give me an A", "A, B and C", "20 °C": no initial.
    (r"\b(?:is|was|than|as|or|and|did|do|said) I\.", "", False),
    (r"\b(?:[Aa]n?|[Gg]rade|[Pp]lan|[Tt]eam|[Tt]ype|[Tt]yp|[Vv]itamin) [A-Z]\.", "", False),
    (r"(?:\b[A-Z] (?:and|or|und|oder) |°\s?)[A-Z]\.", "", False),
    (rf"(?:\b(?:{_ABBREVIATIONS})|{_INITIAL})\.", _START, False),
    (rf"(?:\b(?:{_ABBREVIATIONS})|{_INITIAL})\.", "", True),
    (r"\d (?:ft|in|lbs?|oz|yd|hrs?|min)\.", r"\s+\d", True),
    (rf"\b(?:{_NUMBERED})\.", r"\s+(?:\d|§)", True),
    # Dates: "3. Oktober", "24. 12. 2010".
    (r"\d\.", rf"\s+(?:{_MONTHS}|{_RANKED})\b", True),
    (r"\b\d\d?\.", r"\s+\d\d?\.\s", True),
    (r"\b\d\d?\.\s\d\d?\.", r"\s+(?:\d\d|\d{4})\b", True),
    (rf"{_ORDINAL}\.", _START, False),
    (rf"{_ORDINAL}\.", "", True),
)
_SENTENCE = (
    rf"[.!?…]{_CLOSING}\s+(?!\s)|[。！？]+[」』”’]*\s*"
    r"|:[①-⑧]\s+"  # a label in bold letters
    rf"|{_EMOJI}\s+(?=(?:{_STARTERS})(?!\w|-))"
    rf"|(?<=[^\W\d_A-Z]{{2}})[.!?](?=(?:{_STARTERS})(?:\s|[,']))"  # a space was forgotten
)
_SHORT = rf"(?:\b(?:{_TITLES}|{_ABBREVIATIONS}|etc|usw|usf)|{_INITIAL})\.$"
_ITEM = r"\W{0,9}(?:\d{1,3}|[A-Za-z])\.\)?\s+"  # "1. Wash the car. 2. Clean the kitchen."
_LOOKBACK = 30  # characters that the patterns look at before a full stop


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; joined, they are the text.

    >>> sentences("Mr. Hill left at 5 p.m. He met Gov. Brown.")
    ['Mr. Hill left at 5 p.m. ', 'He met Gov. Brown.']
    """
    ends, is_small = [0], text.islower()
    for match in re.finditer(_SENTENCE, text):
        is_number = re.compile(_ITEM).fullmatch(text, ends[-1], match.end())
        if not is_number and not _goes_on(text, match, is_small):
            ends.append(match.end())
    return [text[start:stop] for start, stop in pairwise([*ends, len(text)])]


def is_abbreviated(text: str) -> bool:
    """Return whether the full stop at the end of a text belongs to its last word.

    >>> is_abbreviated("at 5 p.m."), is_abbreviated("He left.")
    (True, False)
    """
    return text.rstrip("\n").endswith(".") and bool(re.search(_SHORT, text))


def _goes_on(text, match, is_small):
    """Return whether a sentence goes on after a match of _SENTENCE.

    is_small: whether no letter of the text is a capital; then a small one may begin a sentence.
    """
    stop = match.start() + 1
    if text[match.start()] in "。！？":
        return False
    if text[match.end() : match.end() + 1].islower():
        may_begin = is_small and stop + 1 == match.end()
        starter = may_begin and re.compile(rf"(?i)(?:{_STARTERS})\b").match(text, match.end())
        if not (starter or re.compile("[a-z]{1,3}[A-Z]").match(text, match.end())):
            return True
    for before, after, goes_on in _rules():
        if after.match(text, stop) and before.search(text, max(0, stop - _LOOKBACK), stop):
            return goes_on
    return False


@functools.cache
def _rules():
    """Return _RULES with compiled patterns."""
    return [
        (re.compile(rf"(?:{before})$"), re.compile(after), goes_on)
        for before, after, goes_on in _RULES
    ]
