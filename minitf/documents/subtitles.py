"""Subtitles (.srt, .vtt): a cue is a line with -->, then its text, then an empty line."""

import html
import re
import textwrap
from functools import partial

from minitf.documents.segments import Escaping, Segment, Span, segments_in
from minitf.errors import UserError

# Without an empty line, the time of the next cue, or its number before that, ends a cue as well.
_TIME = r"(?:[^\S\n]*\d+[^\S\n]*\n)?[^\n]*-->"
_CUE = re.compile(rf"^[^\n]*-->[^\n]*\n((?:(?!{_TIME})[^\n]*\S[^\n]*(?:\n|\Z))+)", re.MULTILINE)
# What a second person says begins with a dash on a line of its own, or with a name in a tag.
_SPANS = re.compile(
    r"(?m)(?P<separator>(?:^|\n)\s*[-–—]\s*|\n(?=\s*<v[. ]))|(?P<markup><[^<>\n]*>|\{\\[^{}\n]*\})"
)


def read_subtitles(document: str) -> tuple[str, list[Segment]]:
    """Return the segments of subtitles: the text of each cue, or what each person says in it."""
    if "-->" not in document:
        raise UserError("no line has a time such as 00:01 --> 00:03: these are not subtitles")
    read, write = str, str
    if document.startswith("WEBVTT"):
        read, write = html.unescape, partial(re.sub, "[&<]", lambda each: html.escape(each[0]))
    escaping = Escaping(lambda raw: read(re.sub(r"(?<!\s)\s*\n\s*", " ", raw)), write, _in_lines)
    segments = []
    for cue in _CUE.finditer(document):
        matches = _SPANS.finditer(document, *cue.span(1))
        spans = [Span(*each.span(), each.lastgroup) for each in matches]
        segments += segments_in(document, *cue.span(1), spans, escaping)
    return document, segments


def _in_lines(text, replaced):
    """Return a text in as many lines as it replaces, at most, of about equal length.

    >>> _in_lines("Ich weiß nicht, wo er ist.", "I do not know\\nwhere he is.")
    'Ich weiß nicht,\\nwo er ist.'
    """
    most, end = replaced.count("\n") + 1, "\r\n" if "\r\n" in replaced else "\n"
    text = re.sub("<[^>]*>", lambda tag: tag[0].replace(" ", "\0"), text)  # no line ends in a tag
    for width in range(len(text) // most, len(text) + 1):
        lines = textwrap.wrap(text, width or 1, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= most:
            break
    return end.join(lines).replace("\0", " ")
