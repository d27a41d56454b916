"""Texts, formulas and program text as HTML: the rules by which the book is set.

Markdown is read by markdown-it, LaTeX becomes MathML by latex2mathml, and Pygments colours
the programs.
"""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# What is written in LaTeX, and what the converter understands.
BEFORE = [
    (r"\.\.\.", r"\\ldots "),
    ("·", r"\\cdot "),
    (r"_\{(?!ij\})([a-z]{2,})\}", r"_{\\text{\1}}"),
    (r"\|(\w)\|", r"\\left|\1\\right|"),
    (r"\\Big\(", r"\\left("),
    (r"\\Big\)", r"\\right)"),
]
# What it makes of it, and what a browser sets well: a minus after ( , or = is a sign, there is
# space around a function's name, and none between max and its parenthesis.
SPACE = '<mspace width="0.17em"/>'
AFTER = [
    (
        r"(<mo[^>]*>&#x000(?:28|2C|3D);</mo>)<mo>(&#x02212;</mo>)",
        r'\1<mo form="prefix">\2',
    ),
    (r"<mo>(max|min)</mo>", r"<mi>\1</mi>"),
    (
        r"(?<!<msup>)(?<!<msub>)(<mi>(?:ln|log|exp|sin|cos)</mi>)"
        r"(?=<m(?:i|n|sub|sup|frac|row|under)\b)",
        rf"\1{SPACE}",
    ),
    (r"(</mi>|</mn>|&#x00029;</mo>)(?=<mi>(?:ln|log|exp|sin|cos)</mi>)", rf"\1{SPACE}"),
    (r"\\_", "_"),
]
# A picture alone in its paragraph, and the paragraph in italics that says what to see.
FIGURE = re.compile(r"<p>(<img [^>]*>)</p>\n(?:<p><em>What to see: (.*?)</p>\n)?", re.DOTALL)
# A link to the stage alone in its paragraph, and the paragraph in italics that says what to see.
STAGE = re.compile(
    r'<p><a href="([^"]*/toy-page\.html[^"]*)">(.*?)</a></p>\n(?:<p><em>What to see: (.*?)</p>\n)?',
    re.DOTALL,
)
SHORT_FORMULA = 20  # characters; a longer one may be broken on a telephone
# A formula in a line, with the punctuation that may not leave it.
GLUED = re.compile(r'\(?<span class="math inline">(?:(?!</math>).)*</math></span>[.,;:!?)]+')
SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')
WIDE_FIGURE = 600  # points; on a telephone it scrolls, as its letters would be too small
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)
FORMULA_HEADING = re.compile(
    r"<th>(<span[^>]*><math(?:(?!</math>).)*</math></span>)</th>", re.DOTALL
)
TITLE = re.compile(r'<h([23]) id="([^"]*)">(.*?)</h\1>', re.DOTALL)
WIDE = 28  # characters; a table of shorter cells keeps each in one line
FOLD = re.compile(r'<details class="fold">.*?</details>', re.DOTALL)
SECTION = re.compile(r'(?=<h2 id=")')
HEADING = re.compile(r'<h2 id="([^"]*)">(.*?)</h2>', re.DOTALL)
MORE = "More on "  # begins the title of a section whose parts are folded
PART = re.compile(r"(<h3 .*?</h3>)(.*?)(?=<h3 |\Z)", re.DOTALL)


def formula(latex, display):
    """Return MathML of a formula; display: it stands in a line of its own.

    A formula is written so that it can be read in the lesson's file, too: a dot is a dot, and
    the name in d_{model} needs no command.
    """
    latex = latex.strip()
    for pattern, better in BEFORE:
        latex = re.sub(pattern, better, latex)
    mathml = convert(latex, display="block" if display else "inline")
    for pattern, better in AFTER:
        mathml = re.sub(pattern, better, mathml)
    return f'<div class="scroll">{mathml}</div>' if display else mathml


def code(text, language="python"):
    """Return a program, coloured."""
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return f'<pre class="code"><code>{lines}</code></pre>'


def folded(summary, inside, kind=""):
    """Return what a click on the summary, which is HTML, opens and closes."""
    return f'<details class="{kind}"><summary>{summary}</summary>{inside}</details>'


class Text:
    """Markdown to HTML.

    address: a function from the address in a link or picture to the one in the book, or
    None for a file that the book has not: then its name stays, without a link.
    folder: the book's, where the pictures are.
    """

    def __init__(self, address, folder=Path()):
        self.address, self.folder = address, folder
        self.markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.markdown.use(anchors_plugin, min_level=1, max_level=3)
        self.markdown.use(
            dollarmath_plugin,
            allow_space=False,
            renderer=lambda latex, how: formula(latex, how["display_mode"]),
        )
        self.markdown.core.ruler.push("addresses", self._readdress)
        rules = self.markdown.renderer.rules
        rules["table_open"] = lambda *_: '<div class="scroll"><table>\n'
        rules["table_close"] = lambda *_: "</table></div>\n"
        rules["code_inline"] = lambda tokens, i, *_: f"<code>{_breakable(tokens[i].content)}</code>"
        rules["fence"] = lambda tokens, i, *_: code(tokens[i].content, tokens[i].info)
        rules["code_block"] = lambda tokens, i, *_: code(tokens[i].content, "text")

    def html(self, markdown):
        """Return a text as HTML, with each figure above its caption."""
        page = FIGURE.sub(self._figure, self.markdown.render(markdown))
        page = STAGE.sub(_stage, page)
        page = GLUED.sub(_glued, page)
        return TABLE.sub(_table, page)

    def line(self, markdown):
        """Return a text without paragraphs as HTML."""
        return self.markdown.renderInline(markdown)

    def _readdress(self, state):
        for block in state.tokens:
            opened = []
            for token in block.children or []:
                if token.type == "image":
                    token.attrs["src"] = self.address(token.attrs["src"])
                elif token.type == "link_open":
                    opened.append(token)
                    found = self.address(token.attrs["href"])
                    if found is None:
                        token.tag, token.attrs = "span", {"class": "file"}
                    else:
                        token.attrs["href"] = found
                elif token.type == "link_close":
                    token.tag = opened.pop().tag

    def _figure(self, found):
        picture, caption = found.groups()
        source = re.search(r'src="([^"]*)"', picture)[1]
        wide, path = "", self.folder / source
        if path.suffix == ".svg":  # the page keeps its place free until it is loaded
            head = path.read_text(encoding="utf-8")[:2000]
            width, height = (float(each) for each in SIZE.search(head).groups())
            wide = ' class="wide"' if width > WIDE_FIGURE else ""
            size = f'<img width="{width:.0f}" height="{height:.0f}"'
            picture = picture.replace("<img", size)
        seen = f"<figcaption>{_upright(caption)}</figcaption>" if caption else ""
        return f'<figure{wide}><a href="{source}">{picture}</a>{seen}</figure>\n'


def _upright(caption):
    """Return a caption that was in italics: what was upright is now emphasised."""
    upright = re.sub(r"<(/?)em>", lambda tag: "<em>" if tag[1] else "</em>", caption)
    upright = upright.removesuffix("<em>") + ("" if caption.endswith("</em>") else "</em>")
    return upright[:1].upper() + upright[1:]


def _stage(found):
    """Return a figure with the page that plays a translation, open at a moment of it."""
    address, title, caption = found.groups()
    seen = f" {_upright(caption)}" if caption else ""
    return (
        f'<figure class="stage"><iframe src="{address}" title="{html.escape(plain(title))}" '
        f'loading="lazy"></iframe><figcaption><a href="{address}">{title}</a>.{seen}</figcaption>'
        "</figure>\n"
    )


def _breakable(text):
    """Return a short piece of code, which may be broken where its parts meet."""
    return re.sub(r"(?<=[(._=/])(?=\w)", "<wbr>", html.escape(text, quote=False))


def _glued(found):
    short = len(plain(found[0])) <= SHORT_FORMULA
    return f'<span class="glued">{found[0]}</span>' if short else found[0]


def _table(found):
    longest = max(len(plain(cell)) for cell in CELL.findall(found[0]))
    table = found[0].replace("<th></th>", "<td></td>")  # an empty heading says nothing
    table = FORMULA_HEADING.sub(_named, table)
    return table.replace("<table>", '<table class="short">') if longest <= WIDE else table


def _named(found):
    """Return a heading that is a formula, with its name for readers that know no MathML."""
    shown = found[1].replace("<math", '<math aria-hidden="true"')
    return f'<th><span class="spoken">{html.escape(plain(found[1]))}</span>{shown}</th>'


def sections(page):
    """Return a page's sections: (its anchor, its title as HTML, the HTML below the title).

    What stands above the first title has the anchor "".
    """
    found = []
    for part in SECTION.split(page):
        heading = HEADING.match(part)
        anchor, title = heading.groups() if heading else ("", "")
        found.append((anchor, title, part[heading.end() if heading else 0 :]))
    return found


def with_more_folded(page):
    """Fold each part of a page's section "More on ...": a click on its title opens it."""
    return "".join(
        PART.sub(lambda part: folded(part[1], part[2], "more"), section)
        if (heading := HEADING.match(section)) and heading[2].startswith(MORE)
        else section
        for section in SECTION.split(page)
    )


def plain(text):
    """Return the words of HTML, but for folded code."""
    text = FOLD.sub("", text)
    text = re.sub(r"<(?:/?(?:p|li|td|th|tr|h\d|div|pre|summary|figcaption)\b)[^>]*>", " ", text)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def titles(page):
    """Return the anchor and the title, as HTML, of each section and each part of it."""
    return [(anchor, title) for _, anchor, title in TITLE.findall(page)]
