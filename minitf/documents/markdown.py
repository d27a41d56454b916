"""Markdown, by tree-sitter's two grammars: one for blocks, one for what is inside a text."""

import html
import re

from minitf.documents.segments import Escaping, Kind, Segment, Span, char_offsets, segments_in
from minitf.documents.tagged import attribute_segments, html_segments
from minitf.errors import UserError

# Spans that the grammars do not know; the groups have the names of their kinds. A list of
# definitions, an alert, a container and a footnote keep their lines.
_MORE = re.compile(
    r"(?P<separator>^[ \t>]*(?::::.*|!!! .*|\[!\w+\].*|:(?=\s)|\[\^[^\]\n]+\]:"  # ::: note
    r"|\[[^\]\n]+\]:[ \t]+\S+(?:[ \t]+[\"'(].*)?$)[\s>]*"  # [a]: b.md, below a footnote
    r"|<br\s*/?>|(?<=\s)[|·•/→](?=\s))"  # <br>, and what separates links
    r"|(?P<word>\w*(?:\\_\w*)+|\\&"  # snake\_case
    r"|(?<!\\)\{[#.:{%][^{}]*\}+"  # {#section}
    r"|(?<![\w:]):[a-z]\w*:(?![\w:])"  # :tea:
    r"|<(?P<tag>kbd|code|samp|var)\b[^>]*>.*?</(?P=tag)>"  # <kbd>F5</kbd>
    r"|(?<![`\\])(?P<ticks>`+)(?!`)[^`](?s:.*?)(?<!`)(?P=ticks)(?!`))"  # ``a ` b``
    r"|(?P<markup>(?<!\\)(?:[\[\]]*\]\([^\s()]*\)|[\[\]]+))",  # [![ and ](a.svg)](b)
    re.MULTILINE,
)
_GAP = re.compile(r"[\s>]*")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
# Pandoc's rule for a formula: no space inside the dollar signs, no digit after them. Or a lone $.
_FORMULA = re.compile(rb"\$\$[^$]*\$\$|\$(?![\s$])[^$]*(?<!\s)\$(?!\d)|\$")
_MAX_BYTES = 4000  # bytes
_WORDS = {"latex_block", "uri_autolink", "email_autolink"}
_LINKS = {"inline_link", "full_reference_link", "collapsed_reference_link", "shortcut_link"}
# What would begin a block at the start of a line.
_BLOCK = re.compile(r"\d+(?=[.)](?:\s|$))|(?=[-+*](?:\s|$)|>|#{1,6}(?:\s|$)|~~~)")


def _read(raw):
    """Return a text in one line, without the `>` and spaces that begin later lines of a quote."""
    return _ESCAPED.sub(r"\1", html.unescape(re.sub(r"(?<!\s)\s*\n[\s>]*", " ", raw)))


def _escaping(raw, more=""):
    """Return how a text is escaped: what it escapes itself, and emphasis if it has none."""
    signs = {*"*_`"} - {*raw} | {*re.findall(r"\\([*_`\[\]$~<>{}|\\])", raw), *more}
    signs = "|".join([r"<(?=[A-Za-z/!?])", *map(re.escape, sorted(signs))])

    def write(text):
        return re.sub(signs, r"\\\g<0>", re.sub(r"&(?=#?\w+;)", "&amp;", text))

    return Escaping(_read, write, _escape_start)


def _escape_start(text, replaced):
    """Return a text that begins no list or heading, unless it began one before."""
    begun = None if _BLOCK.match(replaced) else _BLOCK.match(text)
    return f"{begun[0]}\\{text[begun.end() :]}" if begun else text


def read_markdown(document: str) -> tuple[str, list[Segment]]:
    """Return the segments of Markdown: paragraphs, headings, cells, titles, what images show.

    Code, front matter and comments have none. The lines of a paragraph are one text, and so is its
    translation. Raises UserError if the parser is not installed.
    """
    blocks, inline = _parsers()
    # The grammar ends an underline, a rule and front matter only where a line ends.
    data, segments, texts = f"{document}\n".encode(), [], []
    labels = set(map(_normal_label, re.findall(r"(?m)^[ \t>]*(\[[^\]\n]+\]):", document)))
    places, todo = char_offsets(data), [blocks.parse(data).root_node]
    while todo:
        node = todo.pop()
        start, stop = places[node.start_byte], places[node.end_byte]
        if node.type == "html_block":
            segments += html_segments(document, start, stop)
        elif node.type == "link_title":
            segments += _title_segments(document, start + 1, stop - 1)
        elif node.type in ("inline", "pipe_table_cell") or (
            node.type == "link_reference_definition" and document.startswith("[^", start)
        ):  # [^1]: Yes is a footnote of one word, and not the address of a link
            texts.append(node)
            continue
        todo += node.children
    for node in texts:
        inside = _inline_nodes(inline, data, node.start_byte, node.end_byte)
        segments += _text_segments(document, node, inside, places, labels)
    return document, segments


def _text_segments(document, node, inside, places, labels):
    """Return the segments of the text of a block: itself, and the descriptions and titles in it."""
    start, stop = places[node.start_byte], places[node.end_byte]
    if node.parent.type == "atx_heading":  # without the signs that close it
        stop = start + len(re.sub(r"\s#+\s*$", "", document[start:stop]))
    segments, spans = [], []
    for first, child in inside:
        begin, end = (places[first + i] for i in (child.start_byte, child.end_byte))
        if child.type in _LINKS or child.type == "image":
            spans += _link_spans(document, child, begin, end, labels)
        elif child.type in _WORDS:
            spans.append(Span(begin, end, Kind.WORD))
        elif child.type == "hard_line_break":
            spans.append(Span(begin, _GAP.match(document, end).end(), Kind.SEPARATOR))
        elif child.type in ("emphasis_delimiter", "html_tag"):
            spans.append(Span(begin, end))
            segments += attribute_segments(document, begin, end)
        elif child.type in ("image_description", "link_title"):
            edge = child.type == "link_title"
            segments += _title_segments(document, begin + edge, end - edge)
    spans += [
        Span(start + each.start(), start + each.end(), each.lastgroup)
        for each in _MORE.finditer(document[start:stop])
    ]
    escaping = _escaping(document[start:stop], "|" * (node.type == "pipe_table_cell"))
    return segments + segments_in(document, start, stop, spans, escaping)


def _title_segments(document, start, stop):
    return segments_in(document, start, stop, [], _escaping(document[start:stop], "\"'"))


def _link_spans(document, link, start, stop, labels):
    """Return the spans of a link or an image: its brackets, and its address.

    A link [text] without an address is looked up by its text, which must stay: [Text][text].
    """
    text = document[start:stop]
    if text.startswith("[^"):  # a footnote
        return [Span(start, stop, Kind.WORD)]
    shown = next((child for child in link.children if child.type == "link_text"), None)
    if link.type == "image" or shown is None:
        return [Span(start, stop)]
    place = start + len(link.text[: shown.end_byte - link.start_byte].decode())
    if link.type in ("inline_link", "full_reference_link"):
        return [Span(start, start + 1), Span(place, stop)]
    label = document[start:place] + "]"
    if _normal_label(label) not in labels:
        return []
    return [Span(start, start + 1), Span(place, stop, Kind.MARKUP, f"]{label}")]


def _normal_label(text):
    return " ".join(text.split()).casefold()


def _inline_nodes(parser, data, start, stop):
    """Yield the nodes of what is inside a block, each with the byte where its tree begins.

    The grammar breaks two rules of Pandoc and CommonMark: it takes "$5 here and $" for a formula,
    and "_in 2021_" for no emphasis. So it never sees such a dollar sign, nor a digit before an
    underscore. The time for a tree grows with the square of its length: what is longer than 4,000
    bytes has several, each up to the end of a line, a sentence or a word.
    """
    while start < stop:
        end, most = stop, start + _MAX_BYTES
        if most < stop:
            ends = (data.rfind(sign, start, most) for sign in (b"\n", b". ", b" "))
            end = next((end + 1 for end in ends if end >= 0), most)
        text = _FORMULA.sub(lambda match: match[0] if len(match[0]) > 1 else b"x", data[start:end])
        todo = [parser.parse(re.sub(rb"\d(?=_)", b"x", text)).root_node]
        while todo:
            node = todo.pop()
            yield start, node
            todo += node.children
        start = end


def _parsers():
    """Return tree-sitter's parsers of blocks, and of what is inside a line."""
    try:
        import tree_sitter
        import tree_sitter_markdown as grammars
    except ImportError:
        raise UserError(
            'Markdown needs its parser: pip install -e ".[documents]"   (or --format-in plain)'
        ) from None
    languages = grammars.language(), grammars.inline_language()
    return [tree_sitter.Parser(tree_sitter.Language(each)) for each in languages]
