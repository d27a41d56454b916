"""The spans of a line: list marks, tags, bars and time codes are copied, the rest translated.

A text that people paste is subtitles, Markdown, HTML or mail as often as plain sentences. Its
markup is copied; the text between is translated. What must be kept inside a sentence is the
business of `minitf.text.kept`.
"""

import re
from collections.abc import Iterable

# Some text of a line, and whether it is kept as it is.
Span = tuple[str, bool]

# The patterns are strings: `re` compiles each when it is first used, and remembers it. To compile
# all of them would take longer than to translate a short line.

# Most lines: words and their commas, from a capital letter to the end of a sentence.
_SENTENCE = r"[A-Z][a-z]*(?:['-][A-Za-z]+)*(?:,? [A-Za-z]+(?:['-][A-Za-z]+)*)*[.!?]?"
_BLOCKS = (
    "address|article|aside|blockquote|body|button|caption|center|dd|details|div|dl|dt|fieldset|"
    "figcaption|figure|footer|form|h[1-6]|head|header|html|iframe|label|legend|li|link|main|meta|"
    "nav|ol|optgroup|option|p|section|select|summary|table|tbody|td|template|textarea|tfoot|th|"
    "thead|title|tr|ul|video|br|hr|img|input"
)
_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_BULLETS = "-*+·–—"  # before a space; the symbols below are bullets everywhere
# Boxes, check marks, arrows, notes of music, emoji, and what joins them.
_SYMBOLS = (
    "[•‣⁃∙\uf0a7\uf0b7\u2190-\u21ff\u2500-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][\u200d\ufe0f]*"
)
_LOG = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*Z?(?: (?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL))?"
# The name of a setting, in JSON or before an equals sign.
_SETTING = r"\"[\w .-]+\"\s*:\s*(?=\"[^\"\\]+\",?$)|[\w.-]+\s*=\s*(?=[\w\"])"
# Tried at the left edge of a line until none fits.
_LEFT = (
    r"\s+"
    r"|>+(?=\s|\w)(?!\S*<<)"  # quote marks of mail and Markdown; not >>de<<
    r"|#{1,6}(?=\s)"  # headings
    rf"|[{re.escape(_BULLETS)}](?=\s)|[-–—](?=[^\W\d_])"  # items, and what a second person says
    r"|\[[ xX]\](?=\s)"
    rf"|{_SYMBOLS}"
    rf"|(?:\d{{1,3}}\.)+\)?(?=\s)(?!\s+(?:{_MONTHS})\b)|[a-h]\.(?=\s+[A-Z]\w)"
    r"|\(?(?:\d{1,3}|[A-Za-z]|[ivx]+)\)(?=\s)"
    r"|\{\\[^{}]*\}|<v(?:\.\w+)*\s[^<>]*>"  # the place of a subtitle, and its speaker
    r"|\[[\d.,:/ -]*\d:\d\d(?:[:.]\d+)*(?: ?[AP]M)?\]"  # when something was sung or written
    r"|\d+:\d\d(?::\d\d)? [-–](?=\s)"
    r"|\[\^\w+\]:(?=\s)|\\item(?=\s)"  # footnotes of Markdown, items of LaTeX
    r"|//+(?=\s)|/\*+(?=\s)|--(?=\s)|\"\"\"|'''"  # comments of code
    rf"|{_LOG}(?=\s)|{_SETTING}"
    r"|\d+/(?=\s)|[-=]+>(?=\s)|[QAF]:(?=\s)|\[[A-Z]{3,}\](?=\s)"
    r"|(?:Subject|Betreff):\s(?:\s*(?:Re|AW|Aw|RE|Fwd|FW|WG):)*"  # the head of a mail
)
_RIGHT = rf"(?<!\s)\s+$|\s+\*/$|\"\"\"$|'''$|(?<=[.!?])(?:\[\^?\d+\])+$|{_SYMBOLS}$"
_STRING = r"\",?$"
_AFTER_HEADING = r"\s#+$"
# What is around all of a text: its beginning and its end, with nothing of the kind between.
_AROUND = (
    r"(?P<mark>\*{1,3}|_{1,3}|~~)(?=[^\s*_~])(?:[^*_~]|(?<=\w)_(?=\w))*(?<=[^\s*_~])(?P=mark)$"
    r"|\[(?=\S\S)[^\[\]]*\]\([^()]*\)$"  # a link
    r"|\\\w+\*?\{(?=\S)[^{}]*\}$"  # a command of LaTeX
    r"|\((?=\S\S)[^()]*\)$|\[(?=\S\S)[^\[\]]*\]$"
    r"|<(?P<tag>[A-Za-z]\w*)(?:\s[^<>]*)?>(?:(?!</?(?P=tag)\b).)*</(?P=tag)\s*>$"
)
_OPEN = r"\\\w+\*?\{|\*{1,3}|_{1,3}|~~|\(|\[|<[^<>]*>"
_CLOSE = r"(?:\}|\]\([^()]*\)|\*{1,3}|_{1,3}|~~|\)|\]|</[^<>]*>)$"
# A line that has no sentence although it has letters.
_WHOLE = (
    r"\s*(?:\d+:)?\d+:\d+[.,]\d+\s+-->\s.*"  # a time code, and the place of its subtitle
    r"|\s{0,3}\[(?!\^)[^\]]+\]:\s+\S+(?:\s+[\"'(].*)?"  # the address of a link
    r"|\s*(?:>\s?)+\[!\w+\][-+]?\s*|:::.*"  # the kind of a note in Markdown
    r"|(?:From|To|Cc|Bcc|Reply-To|Von|An):\s.*@.*|(?:Date|Sent|Datum|Gesendet):\s.*\d.*"
    r"|\s*\"[\w .-]+\"\s*:\s*(?:[\[{].*|\".*\\.*|[^\"]*)|#[:.,|~]\s.*|msg(?:id|str|ctxt)\b.*\".*"
    r"|\s*File \"[^\"]*\", line \d+.*|Traceback \(most recent call last\):"
    r"|\s*\\(?:begin|end)\{.*\}.*"  # LaTeX
    # Code, where it can be nothing else.
    r"|.*[\s)]\{\s*|[^(]*\w\(.*\);\s*|\s*(?:\w+ )?[\w.]+ = .*;\s*"
    r"|\s*(?:(?:async )?def|class) \w+(?:\(.*\))?(?: ->.*)?:"
    r"|(?:import [\w.]+(?: as \w+)?|from [\w.]+ import .*|#!/.*|#include\b.*|\$ [a-z].*)"
)
_FENCE = r"\s*(?:>\s?)*(?:[-*+]\s+)?(?P<fence>```+(?=[^`]*$)|~~~+|\$\$(?=\s*$))"
# What a tag has behind its name; an angle bracket in quotes ends no tag.
_ATTRIBUTES = r"(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*|\s[^<>]*)?"
_TAG = rf"(?i)<![A-Za-z][^<>]*>|</?(?:{_BLOCKS}){_ATTRIBUTES}/?>"
# What has no text, and may end in another line.
_NO_TEXT = rf"(?i)<!--|<(?P<name>script|style|pre|svg|math)\b|^\s*<(?:{_BLOCKS})\s[^<>]*$"
_BREAK = r"(?i)\S<br\s*/?>|<br\s*/?>\S"
_BAR = r"(?<!\\)\|"
_BAR_BETWEEN = r"(?<=\s)\|(?=\s)|(?<=[^\W\d_]{2} )/(?= [^\W\d_]{2})"
_TABS = r"\t+"
# A tab in place of a space: the only one of a sentence, or of many words that no cell would have.
_ONE_TAB = (
    r"[^\t]*(?:[^\t.!?]|\d\.)\t[^\t]*[.!?][\"')“”’»«]*"
    r"|(?=(?:\S+\s+){9})[^\t]*[^\t.!?]\t[^\t]*"
)
_STEP = r"(?<=\w )[»›→](?= \w)"  # "Home » News"
# A row of a table: with a bar at its left, or with two bars or more and no end of a sentence.
_ROW = r"\s*(?:>\s?)*\|.*\|.*|[^|]+\|(?!\|)[^|]+(?:\|[^|]+)+(?<![.!?:])"
# A row of values: with no space behind its commas or semicolons, but in quotes.
_VALUES = [
    (rf"{value}(?:{sign}{value}){{2,}}(?<![.!?])", rf'"(?:[^"]|"")*"|[^{sign}"]+')
    for sign in ",;"
    for value in [rf'(?:"(?:[^"]|"")*"|(?!\s)[^{sign}"]*)']
]
# An indented line is code in Markdown; but people indent sentences as well.
_CODE = (
    r"(?:.*[;{}]$|[\w.]+\(.*\)\s*$|[\w.\[\]]+\s*[-+*/]?=\s*\S"
    r"|(?:\$|>>>|#!|import|from|def|class|pip|npm|git|cd|sudo)\s.*)"
)
_EMPTY = r"^\s*$"
_INDENTED = r" {4}|\t"


def split_markup(lines: Iterable[str]) -> list[list[Span]]:
    """Return the spans of each line; joined, they are the line.

    >>> split_markup(["- **Wash** the car", "12", "| one | two |"])[0]
    [('- ', True), ('**Wash** the car', False)]
    """
    return list(map(MarkupSplitter(), lines))


class MarkupSplitter:
    """A function from a line to its spans, which knows the lines before it.

    It is in a block of code, in a script or a comment of HTML, in the head of a Markdown file or in
    a note of WebVTT until that ends.
    """

    def __init__(self):
        self.number = 0  # of lines seen
        self.until = None  # a pattern of the end of what is kept
        self.is_vtt = self.may_be_head = self.in_code = False
        self.after_space = True  # whether the line before has no text

    def __call__(self, line: str) -> list[Span]:
        """Return the spans of the next line: (text, whether it is kept)."""
        if not self.until and not self.is_vtt and re.fullmatch(_SENTENCE, line):
            self.number, self.after_space, self.in_code = self.number + 1, False, False
            return [(line, False)]
        spans = []
        for text, is_kept in self._spans(line):
            if not text:
                continue
            is_kept = is_kept or not any(map(str.isalpha, text))
            if spans and spans[-1][1] and is_kept:
                text = spans.pop()[0] + text
            spans.append((text, is_kept))
        self.number += 1
        self.after_space = not line.strip()
        return spans

    def _spans(self, line):
        if self.until:
            end = re.search(self.until, line)
            if not end:
                return [(line, True)]
            self.until = None
            return [(line[: end.end()], True), *self._spans(line[end.end() :])]
        if self._is_whole(line):
            return [(line, True)]
        return self._split(line)

    def _is_whole(self, line):
        """Return whether nothing in the line is to be translated."""
        if self.number == 0:
            self.is_vtt = bool(re.match("\ufeff?WEBVTT", line))
            self.may_be_head = line.rstrip() == "---"
            if self.is_vtt:
                self.until = _EMPTY
            return self.is_vtt or self.may_be_head or self._is_special(line)
        if self.may_be_head and self.number == 1 and re.match(r"[\w-]+:(?:\s|$)", line):
            self.until = r"^(?:---|\.\.\.)\s*$"
            return True
        if self.is_vtt and self.after_space and "-->" not in line:
            if re.match(r"(?:NOTE|STYLE|REGION)\b", line):
                self.until = _EMPTY
            return True  # else the name of what follows
        return self._is_special(line)

    def _is_special(self, line):
        if fence := re.match(_FENCE, line):
            mark = fence["fence"]
            more = re.escape(mark[-1])
            self.until = rf"^\s*(?:>\s?)*{re.escape(mark)}{more}*\s*$"
            return True
        if re.match(_INDENTED, line) and (
            self.in_code or (self.after_space and re.match(_CODE, line.strip()))
        ):
            self.in_code = True
            return True
        is_whole = bool(re.fullmatch(_WHOLE, line))
        self.in_code = is_whole and line.rstrip().endswith((":", "{"))
        return is_whole

    def _split(self, line):
        """Return the spans of a line that may have scripts and comments."""
        spans, start = [], 0
        for match in re.finditer(_NO_TEXT, line):
            if match.start() < start:  # in what is kept
                continue
            name = match["name"]
            pattern = rf"(?i)</{name}\s*>" if name else "-->" if match[0] == "<!--" else ">"
            end = re.compile(pattern).search(line, match.end())
            if name and not end and line[: match.start()].rstrip()[-1:] not in ("", ">"):
                break  # a sentence about a tag
            spans += _cells(line[start : match.start()])
            start = end.end() if end else len(line)
            spans.append((line[match.start() : start], True))
            if not end:
                self.until = pattern
                break
        return [*spans, *_cells(line[start:])]


def _cells(line):
    """Return the spans of a text that may have tags or table bars."""
    core = line.strip()
    if core.startswith("<") or core.endswith(">") or "</" in core or re.search(_BREAK, core):
        return _between(line, re.finditer(_TAG, line), _edges)
    for row, value in _VALUES:
        if re.fullmatch(row, core):
            return _values(line, value)
    if re.search(_STEP, line) and "«" not in line:
        return _between(line, re.finditer(_STEP, line), _edges)
    if "\t" in core and not re.fullmatch(_ONE_TAB, core):
        return _between(line, re.finditer(_TABS, line), _edges)
    bar = _BAR if re.fullmatch(_ROW, core) else _BAR_BETWEEN
    return _between(line, re.finditer(bar, line), _edges)


def _between(text, separators, spans_of):
    """Return the spans of what is between some matches, which are kept."""
    spans, start = [], 0
    for match in separators:
        spans += [*spans_of(text[start : match.start()]), (match[0], True)]
        start = match.end()
    return [*spans, *spans_of(text[start:])]


def _values(line, value):
    """Return the spans of a row of values; one that has a quote in quotes is kept."""
    spans, start = [], 0
    for match in re.finditer(value, line):
        quote = '"' if match[0].startswith('"') else ""
        text = match[0].removeprefix(quote).removesuffix(quote)
        spans += [(line[start : match.start()] + quote, True)]
        spans += [(text, True)] if '"' in text else _edges(text)
        spans += [(quote, True)]
        start = match.end()
    return [*spans, (line[start:], True)]


def _edges(text):
    """Return the text without what is at its edges, which is kept, as spans."""
    start, stop = 0, len(text)
    while start < stop:
        if match := re.compile(_LEFT).match(text, start, stop):
            start = match.end()
        elif (match := re.compile(_RIGHT).search(text, start, stop)) or (
            text[:start].strip().endswith("#")
            and (match := re.compile(_AFTER_HEADING).search(text, start, stop))
        ):
            stop = match.start()
        elif (
            text[:start].rstrip().endswith((":", "="))
            and text.startswith('"', start)
            and (match := re.compile(_STRING).search(text, start + 1, stop))
        ):
            start, stop = start + 1, match.start()
        elif re.compile(_AROUND).match(text, start, stop):
            start = re.compile(_OPEN).match(text, start, stop).end()
            stop = re.compile(_CLOSE).search(text, start, stop).start()
        else:
            break
    return [(text[:start], True), (text[start:stop], False), (text[stop:], True)]
