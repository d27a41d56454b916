"""The strings of programs: JSON, and the messages of gettext (.po). Keys and msgid stay."""

import json
import re
from collections.abc import Container

from minitf.documents.segments import Escaping, Kind, Segment, Span, edit, segments_in
from minitf.errors import UserError

_BRACES = r"\{[^{}]*+\}"
for _ in range(3):  # in balance, four deep
    _BRACES = rf"\{{(?:[^{{}}]|{_BRACES})*+\}}"
# Spans in a string of a program; the groups have the names of their kinds.
_IN_STRINGS = re.compile(
    r"(?P<markup>(?:<|&lt;|\\u003c)/?[A-Za-z][^<>]*?(?:>|&gt;|\\u003e))"
    r"|(?P<separator>(?:\\[nrt])+)|\\."
    rf"|(?P<word>[$%@#]?{_BRACES}|\$t\([^()]*\)|%\(\w+\)[a-z]|%\d+\$[\w.]*[a-z@]|%\w\w+%"
    r"|(?<![\w&])#(?!\w))"
    r"|(?P<positional>(?<![\d%])%[-+0#]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j)?[diouxXeEfgGcsp@])"
)
# The cases of {count, plural, one {# file} other {# files}} are texts of their own.
_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_CASE = re.compile(rf"[=\w]+\s*({_BRACES})")
_QUOTED = r'"(?:[^"\\\n]|\\.)*+"'


def spans_in(document: str, start: int, stop: int, kinds: Container[str]) -> list[Span]:
    """Return the spans of some kinds in a range of a text, such as {name} and %s."""
    return [
        Span(match.start(), match.end(), match.lastgroup)
        for match in _IN_STRINGS.finditer(document, start, stop)
        if match.lastgroup in kinds
    ]


def _in_string(document, start, stop, escaping):
    """Return the segments of a string, given without its quotation marks; line breaks part them."""
    spans = spans_in(document, start, stop, list(Kind))
    segments = segments_in(document, start, stop, spans, escaping)
    for span in spans:
        if choice := _CHOICE.match(document, span.start, span.stop):
            for case in _CASE.finditer(document, choice.end(), span.stop - 1):
                segments += _in_string(document, case.start(1) + 1, case.end(1) - 1, escaping)
    return segments


# JSON ---------------------------------------------------------------------------------------------


def read_json(document: str) -> tuple[str, list[Segment]]:
    """Return the segments of a JSON document: its strings that are not keys.

    A document in ASCII alone stays in ASCII: é is written \\u00e9.
    """
    try:
        json.loads(document)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno:,}, column {error.colno}"
        raise UserError(f"{place}: this is not valid JSON ({error.msg}): correct it") from None
    except RecursionError:
        raise UserError("this JSON is nested too deeply: give its parts one by one") from None
    escaping = Escaping(
        lambda raw: json.loads(f'"{raw}"'),
        lambda text: json.dumps(text, ensure_ascii=document.isascii())[1:-1],
    )
    segments = []
    # In valid JSON quotes begin and end strings, and a colon follows keys alone.
    for match in re.finditer(rf"({_QUOTED})(\s*:)?", document):
        if not match[2]:
            segments += _in_string(document, match.start(1) + 1, match.end(1) - 1, escaping)
    return document, segments


# gettext ------------------------------------------------------------------------------------------

_STRINGS = rf"{_QUOTED}(?:\s*\n\s*{_QUOTED})*"
_MESSAGE = re.compile(
    rf"(?:^msgctxt\s+{_STRINGS}\s*\n)?^msgid\s+(?P<one>{_STRINGS})\s*\n"
    rf"(?:^msgid_plural\s+(?P<many>{_STRINGS})\s*\n)?"
    rf"(?P<targets>(?:^msgstr(?:\[\d+\])?\s+{_STRINGS}[^\S\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
_APART = r"(?m)^(?:#~.*|[^\S\n]*)\n"  # between the comments of two messages


def read_po(document: str) -> tuple[str, list[Segment]]:
    """Return a file of gettext with the msgid in each empty msgstr, and the segments of these.

    Such a message is marked as fuzzy, because no person has seen it yet. Messages that have a
    translation stay as they are, and so do the header and all comments.
    """
    edits, place, end = [], 0, "\r\n" if "\r\n" in document else "\n"
    for message in [*_MESSAGE.finditer(document), None]:
        stop = message.start() if message else len(document)
        if rest := re.compile(r"^\s*[^#\s]", re.MULTILINE).search(document, place, stop):
            line = document.count("\n", 0, rest.end()) + 1
            raise UserError(f"line {line:,}: this is not a message of a .po file: correct it")
        if message:
            edits += _fill(document, place, message, end)
            place = message.end()
    document, ranges = edit(document, edits)
    escaping = Escaping(  # line ends and tabs are not part of a text
        lambda raw: re.sub(r"\\(.)", r"\1", raw),
        lambda text: re.sub(r'["\\]', r"\\\g<0>", text),
    )
    return document, [each for part in ranges for each in _in_string(document, *part, escaping)]


def _fill(document, start, message, end):
    """Yield the edits that fill the targets of a message; none if some have a text already.

    start: where the message before it ends. end: the end of a line in this document.
    """
    targets = list(re.finditer(_STRINGS, message["targets"]))
    if not _join_strings(message["one"]) or any(_join_strings(target[0]) for target in targets):
        return
    comments = re.split(_APART, document[start : message.start()])[-1]
    begin = message.start() - len(comments)
    previous = re.search(r"(?m)^#\|", comments)
    if not (flags := re.search(r"(?m)^#,(.*\bfuzzy\b)?", comments)):
        place = begin + previous.start() if previous else message.start()
        yield place, place, f"#, fuzzy{end}", False
    elif not flags[1]:
        yield begin + flags.end(), begin + flags.end(), " fuzzy,", False
    for i, target in enumerate(targets):
        is_many = message["many"] and (i or len(targets) == 1)
        # A line ends nowhere inside of {n, plural, ...}.
        line = rf"(?:{_BRACES}|[^\\]|\\[^n])*+\\n|.+"
        lines = re.findall(line, _join_strings(message["many" if is_many else "one"])) or [""]
        start, stop = (message.start("targets") + place for place in target.span())
        yield start, stop, '"' if len(lines) == 1 else f'""{end}"', False
        for number, line in enumerate(lines, 1):
            yield stop, stop, line, True
            yield stop, stop, '"' if number == len(lines) else f'"{end}"', False


def _join_strings(strings):
    """Return the strings of a text of gettext as one, still escaped, without quotation marks."""
    return "".join(quoted[1:-1] for quoted in re.findall(_QUOTED, strings))
