"""HTML and XML, with Android's strings and XLIFF: text is what stands between tags."""

import html
import re
from bisect import bisect
from functools import partial, partialmethod
from html.parser import HTMLParser
from itertools import pairwise
from typing import NamedTuple
from xml.parsers import expat

from minitf.documents.segments import Escaping, Kind, Segment, Span, char_offsets, edit, segments_in
from minitf.documents.strings import spans_in
from minitf.errors import UserError

# The elements of HTML inside a sentence; any other one separates two texts.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|input|ins|kbd|mark|math|q|"
    "ruby|rp|rt|s|samp|small|span|strike|strong|sub|sup|svg|time|tt|u|var|wbr"
)
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
_ALONE = {"img", "input", "wbr"}  # elements inside a sentence that open nothing
_CODE = re.compile("script|style|pre|code|kbd|samp|var|svg|math|iframe|object")
_HIDDEN = re.compile(
    r"\stranslat(?:e|able)\s*=\s*[\"']?(?:no|false)\b|\sclass\s*=\s*[\"'][^\"']*\bnotranslate\b"
)
_VISIBLE = {"alt", "title", "placeholder", "aria-label"}
_ABOUT = re.compile(
    r"<meta\b[^>]*\b(?:name|property)\s*=\s*[\"']?(?:og:|twitter:)?(?:description|title)\b", re.I
)
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'<>]+)")

_BAR = re.compile(r"(?<=[\s>])[|·•/→](?=[\s<])")  # between two links


class _Event(NamedTuple):
    """What a parser has found from a place of a document up to the next one.

    kind: "open" or "close" for a tag, "text", "[" or "]" for CDATA, "other" for a comment,
    "declaration".
    """

    start: int
    stop: int
    kind: str
    name: str = ""


def _events(parts, stop):
    """Return the Events of [(start, kind, name), ...]; texts that follow each other are one."""
    pairs = pairwise([("", "", ""), *parts])
    parts = [each for before, each in pairs if {before[1], each[1]} != {"text"}]
    return [_Event(start, after[0], *rest) for (start, *rest), after in pairwise([*parts, (stop,)])]


def _escape(text, quote=""):
    text = html.escape(text, quote=False)
    return text.replace(quote, f"&#{ord(quote)};") if quote else text


def _unescape(raw):
    return re.sub(r"\s+", " ", html.unescape(raw))


_TEXT = Escaping(_unescape, _escape)
_IN_QUOTES = {quote: Escaping(_unescape, partial(_escape, quote=quote)) for quote in "\"'"}
_BARE = Escaping(_unescape, partial(_escape, quote='"'), lambda text, _: f'"{text}"')


def _spans(document, events, inline, codes):
    """Return the spans of all tags, and the opening tags (and CDATA) outside of what is hidden.

    inline: where tags inside a text begin. codes: a pattern for the names of elements that are
    hidden because they have no text.
    """
    spans, tags, hidden, depth = [], [], None, 0
    for event in events:
        if hidden is None and event.kind in ("open", "["):
            tag = document[event.start : event.stop]
            if codes.fullmatch(event.name) or _HIDDEN.search(tag):
                hidden = event
            else:
                tags.append(event)
        if hidden is None and event.kind not in ("text", "[", "]") and event.start < event.stop:
            is_inside = event.kind == "other" or event.start in inline
            kind = Kind.POSITIONAL if event.name in _ALONE else Kind.MARKUP
            spans.append(Span(event.start, event.stop, kind if is_inside else Kind.SEPARATOR))
        if hidden and (event.name == hidden.name or event is events[-1]):
            depth += {"open": 1, "close": -1}.get(event.kind, 0)
            if not depth or event is events[-1]:
                kind = Kind.WORD if _INLINE.fullmatch(hidden.name) else Kind.POSITIONAL
                kind = kind if hidden.start in inline else Kind.SEPARATOR
                spans.append(Span(hidden.start, event.stop, kind))
                hidden, depth = None, 0
    return spans, tags


# HTML ---------------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    """Collects the events of a piece of HTML."""

    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.parts = []
        self.feed(text.replace("&", "+"))  # it would find no tags after a second "&#"
        self.close()

    def _add(self, kind, name="", after=0):
        line, column = self.getpos()
        self.parts.append((self.lines[line - 1] + column + after, kind, name))

    def handle_starttag(self, tag, attrs):
        if _VOID.fullmatch(tag):
            self.handle_startendtag(tag, attrs)
        else:
            self._add("open", tag)

    def handle_startendtag(self, tag, attrs):
        self._add("open", tag)
        self._add("close", tag, len(self.get_starttag_text()))

    handle_endtag = partialmethod(_add, "close")
    handle_data = partialmethod(_add, "text")
    handle_comment = handle_pi = unknown_decl = partialmethod(_add, "other")
    handle_decl = partialmethod(_add, "declaration")

    def parse_marked_section(self, i, report=1):
        return self.parse_bogus_comment(i)  # HTML's rule for <![x; Python 3.11 raises an error


def read_html(document: str) -> tuple[str, list[Segment]]:
    """Return the segments of a page: its texts, and the attributes that people see."""
    return document, html_segments(document, 0, len(document))


def html_segments(
    document: str, start: int, stop: int, escaping: Escaping = _TEXT
) -> list[Segment]:
    """Return the segments of a range of a document that is HTML."""
    parts = [(start + place, *rest) for place, *rest in _Tags(document[start:stop]).parts]
    events = _events(parts, stop)
    inline = {event.start for event in events if _INLINE.fullmatch(event.name)}
    spans, tags = _spans(document, events, inline, _CODE)
    for event in events:
        if event.kind == "text":
            spans += spans_in(document, event.start, event.stop, (Kind.WORD,))
            bars = _BAR.finditer(document, event.start, event.stop)
            spans += [Span(*bar.span(), Kind.SEPARATOR) for bar in bars]
    segments = segments_in(document, start, stop, spans, escaping)
    for tag in tags:
        segments += attribute_segments(document, tag.start, tag.stop)
    return segments


def attribute_segments(document: str, start: int, stop: int) -> list[Segment]:
    """Return the segments of those attributes of a tag that people see."""
    segments, is_about = [], _ABOUT.match(document, start)
    for match in _ATTRIBUTE.finditer(document, start, stop):
        if match[1].lower() in _VISIBLE or (is_about and match[1].lower() == "content"):
            begin, end = match.span(2)
            escaping = _IN_QUOTES.get(document[begin], _BARE)
            if escaping is not _BARE:
                begin, end = begin + 1, end - 1
            spans = spans_in(document, begin, end, (Kind.WORD,))
            segments += segments_in(document, begin, end, spans, escaping)
    return segments


# XML ----------------------------------------------------------------------------------------------


def _from_android(raw):
    def character(match):
        return chr(int(match[2], 16)) if match[2] else match[1]

    return re.sub(r"\\(u([0-9A-Fa-f]{4})|.)", character, _unescape(raw))


# The quotation marks around a text, and a string that is a reference to another one.
_IN_ANDROID = re.compile(r"(?P<markup>(?<!\\)\")|(?P<word>(?<=>)[@?][\w:.+]*/[\w.]+(?=<))")
_ANDROID = Escaping(
    _from_android,
    lambda text: re.sub(r"[\\'\"]", r"\\\g<0>", _escape(text)),
    lambda text, _: re.sub("^[@?]", r"\\\g<0>", text),  # else it would be a reference
)

_CODE_IN_XML = re.compile(r"xliff:g|(?:\w+:)?(?:ph|it|x|bx|ex|bpt|ept|sc|ec)")  # XLIFF's
_SOURCE = re.compile(
    r"(?P<space>\s*)<(?P<prefix>\w+:|)source\b[^>]*>(?P<text>.*?)</(?P=prefix)source\s*>"
    r"(?:\s*<(?P=prefix)seg-source\b.*?</(?P=prefix)seg-source\s*>)?"
    r"(?:\s*(?P<target><(?P=prefix)target\b[^>]*?)(?:/>|>(?P<old>.*?)</(?P=prefix)target\s*>))?",
    re.DOTALL,
)
_ENTITY = r"&(?!(?:amp|lt|gt|quot|apos|#\w+);)[\w.:-]+;"  # that the document declares


def read_xml(document: str) -> tuple[str, list[Segment]]:
    """Return the segments of an XML document: the text of each element.

    An element beside text, as the <b> of a paragraph, is a part of that text. In XLIFF each empty
    target first gets its source, and nothing else is translated. In Android's strings a backslash
    escapes. Raises UserError for a document that is not well-formed.
    """
    events = _xml_events(document)
    root = next(event.name for event in events if event.kind == "open").rpartition(":")[2]
    if root != "xliff":
        return document, _xml_segments(document, events, root)
    document, ranges = edit(document, _targets(document))
    segments, filled = _xml_segments(document, _xml_events(document), root), []
    for each in segments:
        before = bisect(ranges, (each.start, len(document)))
        if before and each.stop <= ranges[before - 1][1]:
            filled.append(each)
    return document, filled


def _targets(document):
    """Yield the edits that copy each source of XLIFF to its target, if that is empty."""
    for match in _SOURCE.finditer(document):
        if not (match["old"] or "").strip():
            start, tag = match.end(), f"{match['space']}<{match['prefix']}target>"
            if match["target"]:
                start, tag = match.start("target"), f"{match['target'].rstrip()}>"
            yield start, match.end(), tag, False
            yield match.end(), match.end(), match["text"], True
            yield match.end(), match.end(), f"</{match['prefix']}target>", False


def _xml_events(document):
    """Return the Events of XML. Raises UserError for a document that is not well-formed."""
    parser, parts = expat.ParserCreate("utf-8"), []

    def add(kind):
        return lambda name="", *_: parts.append((parser.CurrentByteIndex, kind, name))

    parser.StartElementHandler, parser.EndElementHandler = add("open"), add("close")
    parser.StartCdataSectionHandler, parser.EndCdataSectionHandler = add("["), add("]")
    parser.CommentHandler = parser.ProcessingInstructionHandler = add("other")
    parser.CharacterDataHandler, parser.DefaultHandlerExpand = add("text"), add("declaration")
    data = document.encode()
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        place = f"line {error.lineno:,}, column {error.offset + 1}"
        reason = expat.ErrorString(error.code)
        raise UserError(f"{place}: this is not valid XML ({reason}): correct it") from None
    places = char_offsets(data)
    return _events([(places[start], kind, name) for start, kind, name in parts], len(document))


def _xml_segments(document, events, root):
    spans, tags = _spans(document, events, _inline(document, events), _CODE_IN_XML)
    spans += [Span(*match.span(), Kind.WORD) for match in re.finditer(_ENTITY, document)]
    escaping, kinds, segments = _TEXT, (Kind.MARKUP, Kind.WORD, Kind.POSITIONAL), []
    if root == "resources":
        escaping, kinds = _ANDROID, (*kinds, Kind.SEPARATOR)
        spans += [Span(*each.span(), each.lastgroup) for each in _IN_ANDROID.finditer(document)]
    for event in events:
        if event.kind == "text":
            spans += spans_in(document, event.start, event.stop, kinds)
    for data in (tag for tag in tags if tag.kind == "["):
        stop = document.index("]]>", data.stop)
        spans.append(Span(data.start, stop + len("]]>"), Kind.SEPARATOR))
        segments += html_segments(document, data.stop, stop, escaping)
    return segments_in(document, 0, len(document), spans, escaping) + segments


def _inline(document, events):
    """Return where the tags of elements begin that are beside text, or inside such an element."""
    parents, mixed, opened, inline = {}, set(), [None], set()
    for event in events:
        if event.kind == "open":
            parents[event.start] = opened[-1]
            opened.append(event.start)
        elif event.kind == "close":
            parents[event.start] = parents[opened.pop()]
        elif event.kind == "text" and document[event.start : event.stop].strip():
            mixed.add(opened[-1])
    for start in sorted(parents):
        if parents[start] in mixed or parents[start] in inline:
            inline.add(start)
    return inline
