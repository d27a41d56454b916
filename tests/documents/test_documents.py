"""Documents: each text is translated, all else stays, and another parser reads the result.

The translator of these tests makes capitals small and small letters capital: so every text shows
whether it was translated, and a text twice translated is the text.
"""

import html
import io
import json
import re
from pathlib import Path

import pytest

from minitf.documents import format_of
from minitf.documents.reading import read_document

FOLDER = Path(__file__).parent / "files"
FILES = sorted(FOLDER.iterdir())
BY_FORMAT = {
    format: [path for path in FILES if format_of(path) == format]
    for format in ("html", "json", "markdown", "po", "subtitles", "xml")
}


def swapped(text, kept="(?!)"):
    """Return a text with its letters swapped, but for what a pattern finds."""
    place, out = 0, []
    for found in [*re.finditer(kept, text), None]:
        part = text[place : found.start() if found else len(text)]
        out += [each.swapcase() if len(each.swapcase()) == 1 else each for each in part]
        if found:
            out.append(found[0])
            place = found.end()
    return "".join(out)


def read(path, data=None):
    if format_of(path) == "markdown":
        pytest.importorskip("tree_sitter_markdown", reason='pip install -e ".[documents]"')
    data = path.read_bytes() if data is None else data
    return read_document(io.BytesIO(data), format_of(path), str(path))


def translated(document):
    """Return a document as the translator of these tests writes it."""
    split = []
    for segment in document.segments:
        split.append(segment.split_translation(swapped(segment.text)))
        assert split[-1] == segment.split(swapped(segment.text))
    return document.with_translations(split)


def one(text, ending):
    """Return the text of a small document, translated."""
    return translated(read(Path(f"a.{ending}"), text.encode())).decode()


# Every document -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_all_but_the_texts_stays_byte_for_byte(path):
    document = read(path)
    output, place = translated(document), 0
    assert output.startswith(document.bom) and len(document.segments) > 4
    text = output[len(document.bom) :].decode(document.encoding)
    gaps, end = [], 0
    for segment in document.segments:  # one in the markup of another is checked with that
        if segment.start >= end:
            gaps.append(document.text[end : segment.start])
            end = segment.stop
    assert text.startswith(gaps[0]) and text.endswith(document.text[end:])
    for gap in gaps:
        place = text.index(gap, place) + len(gap)


# HTML, XML and Markdown, by lxml and markdown-it --------------------------------------------------

VISIBLE = ("alt", "title", "placeholder", "aria-label")
CODE = r"pre|code|script|style|kbd|samp|var|svg|math|eq|eqn|(?:\{.*\})?(?:ph|bpt|ept)"


def tokens(element, is_hidden=False):
    """Yield what is in an element: (kind, what, whether it stays), of tags, attributes, texts."""
    if not isinstance(element.tag, str):
        yield "comment", str(element), True
        return
    is_hidden = is_hidden or (
        bool(re.fullmatch(CODE, element.tag))
        or element.get("translate") == "no"
        or element.get("translatable") == "false"
        or bool(re.search("notranslate|math", element.get("class", "")))
    )
    about = element.get("name", element.get("property", "")).partition(":")[2] or element.get(
        "name"
    )
    seen = (*VISIBLE, "content") if about in ("description", "title") else VISIBLE
    yield "tag", (element.tag, {*element.attrib} - {*seen}), True
    for key, value in sorted(element.attrib.items()):
        yield "attribute", value, is_hidden or key not in seen
    yield "text", element.text or "", is_hidden
    for child in element:
        yield from tokens(child, is_hidden)
        yield "text", child.tail or "", is_hidden


def assert_swapped(before, after, kept):
    """Assert that two trees have one structure, and that all that people read is translated."""
    before, after = list(tokens(before)), list(tokens(after))
    assert len(before) == len(after)
    for (kind, text, is_hidden), (kind_after, text_after, _) in zip(before, after, strict=True):
        if isinstance(text, str):
            text, text_after = " ".join(text.split()), " ".join(text_after.split())
        assert (kind_after, text_after) == (kind, text if is_hidden else swapped(text, kept))


@pytest.mark.parametrize("path", BY_FORMAT["html"], ids=lambda path: path.name)
def test_html(path):
    lxml = pytest.importorskip("lxml.html", reason="pip install lxml")
    before, after = path.read_bytes(), translated(read(path))
    pages = [lxml.document_fromstring(data.decode()) for data in (before, after)]
    assert_swapped(*pages, r"\{\{.*?\}\}|\{%.*?%\}")


@pytest.mark.parametrize("name", ["strings.xml", "feed.xml", "manual.xml"])
def test_xml(name):
    etree = pytest.importorskip("lxml.etree", reason="pip install lxml")
    path = FOLDER / name
    before, after = map(etree.fromstring, (path.read_bytes(), translated(read(path))))
    for element in before.iter("string"):
        for found in re.findall(r"\\u....", element.text or ""):
            element.text = element.text.replace(found, chr(int(found[2:], 16)))
    kept = r"\\n|%[\d$]*[sd]|@string/\w+|</?\w[^<>]*>|&amp;|The Old Mill|help@example.org|\{\w+\}"
    assert_swapped(before, after, kept)


@pytest.mark.parametrize("name", ["app.xliff", "app2.xlf", "prefixed.xlf"])
def test_xliff_has_its_sources_in_empty_targets(name):
    etree = pytest.importorskip("lxml.etree", reason="pip install lxml")
    path = FOLDER / name
    before, after = map(etree.fromstring, (path.read_bytes(), translated(read(path))))
    units = [list(tree.iter("{*}trans-unit", "{*}segment")) for tree in (before, after)]
    filled = 0
    for unit, unit_after in zip(*units, strict=True):
        source, target = unit.find("{*}source"), unit.find("{*}target")
        source_after, target_after = unit_after.find("{*}source"), unit_after.find("{*}target")
        assert etree.tostring(source_after, with_tail=False) == etree.tostring(
            source, with_tail=False
        )
        if target is not None and "".join(target.itertext()).strip():
            assert target.text == target_after.text
            continue
        filled += 1
        stays = "no" in [each.get("translate") for each in (unit, *unit.iterancestors())]
        texts = [
            [
                (" ".join(text.split()), is_hidden)
                for kind, text, is_hidden in tokens(each, stays)
                if kind == "text"
            ]
            for each in (source, target_after)
        ]
        for (text, is_hidden), (text_after, _) in zip(*texts, strict=True):
            kept = r"%[d@]|\{\w+\}|</?\w[^<>]*>|&amp;"
            assert text_after == (text if is_hidden else swapped(text, kept))
    assert filled > 4


@pytest.mark.parametrize("path", BY_FORMAT["markdown"], ids=lambda path: path.name)
def test_markdown(path):
    lxml = pytest.importorskip("lxml.html", reason="pip install lxml")
    markdown_it = pytest.importorskip("markdown_it", reason='pip install -e ".[dev]"')
    from mdit_py_plugins import deflist, dollarmath, footnote, front_matter

    markdown = markdown_it.MarkdownIt("commonmark", {"html": True})
    markdown.enable(["table", "strikethrough"]).use(front_matter.front_matter_plugin)
    markdown.use(dollarmath.dollarmath_plugin, allow_space=False, allow_digits=False)
    markdown.use(footnote.footnote_plugin).use(deflist.deflist_plugin)
    before, after = path.read_bytes(), translated(read(path))
    pages = [
        lxml.fragment_fromstring(markdown.render(data.decode()), "div") for data in (before, after)
    ]
    kept = r"\{\{.*?\}\}|\{%.*?%\}|:tea:|::: ?\w+|\[(?:!\w+|x)\]|<[^<>]*>|https://\S*team|tea@example.org|_line_"
    assert_swapped(*pages, kept)


# JSON, gettext and subtitles ----------------------------------------------------------------------

CHOICES = {
    "messages": "{count, plural, =0 {yOU HAVE NO MESSAGES} one {yOU HAVE # MESSAGE FROM {sender}} "
    "other {yOU HAVE # MESSAGES}}",
    "who": "{gender, select, male {hE IS HERE} female {sHE IS HERE} other {tHEY ARE HERE}}, "
    "WE THINK",
    "select": "{n, selectordinal, one {#ST FLOOR} two {#ND FLOOR} other {#TH FLOOR}}",
}
PRINTF = r"[$#%]?\{\{.*?\}\}|[$#%]?\{.*?\}|%\d?\$?l?[sdu]|%\(\w+\)[sd]|</?\w[^<>]*>|\$t\(.*?\)"


def assert_json_swapped(before, after, key=""):
    assert type(before) is type(after)
    if isinstance(before, dict):
        assert list(before) == list(after)
        for name, value in before.items():
            assert_json_swapped(value, after[name], name)
    elif isinstance(before, list):
        assert len(before) == len(after)
        for pair in zip(before, after, strict=True):
            assert_json_swapped(*pair)
    elif isinstance(before, str):
        assert after == CHOICES.get(key, swapped(before, PRINTF))
    else:
        assert after == before


@pytest.mark.parametrize("path", BY_FORMAT["json"], ids=lambda path: path.name)
def test_json(path):
    output = translated(read(path))
    assert_json_swapped(json.loads(path.read_bytes()), json.loads(output))
    assert output.isascii() == path.read_bytes().isascii()
    assert output.count(b"\r\n") == path.read_bytes().count(b"\r\n")


@pytest.mark.parametrize("path", BY_FORMAT["po"], ids=lambda path: path.name)
def test_po(path, tmp_path):
    polib = pytest.importorskip("polib", reason='pip install -e ".[dev]"')
    output = tmp_path / path.name
    output.write_bytes(translated(read(path)))
    before, after = (polib.pofile(each, encoding="utf-8") for each in (path, output))
    assert (before.metadata, before.header) == (after.metadata, after.header)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        for name in ["msgctxt", "msgid", "msgid_plural", "comment", "tcomment", "occurrences"]:
            assert getattr(old, name) == getattr(new, name)
        forms = dict(old.msgstr_plural)
        if old.obsolete or old.msgstr or any(forms.values()):
            assert (old.msgstr, forms, old.flags) == (new.msgstr, new.msgstr_plural, new.flags)
            continue
        assert new.fuzzy and set(old.flags) <= set(new.flags)
        if forms:
            forms = {
                i: swapped(old.msgid_plural if i or len(forms) == 1 else old.msgid, PRINTF)
                for i in forms
            }
            assert new.msgstr_plural == forms
        else:
            assert new.msgstr == swapped(old.msgid, PRINTF)
    text, lines = path.read_bytes(), output.read_bytes().split(b"\n")
    rest = iter(lines)  # each old line is still there, in its order, but those that were filled
    for line in text.split(b"\n"):
        if not line.startswith((b"msgstr", b"#,")):
            assert line in rest
    assert all(line.endswith(b"\r") for line in lines[:-1]) == (b"\r" in text)


def cues(text):
    """Return the cues of subtitles: (what is before the text, the text in one line, its lines)."""
    for block in re.split(r"\n(?:[ \t]*\n)+", text.replace("\r\n", "\n").removeprefix("\ufeff")):
        head, arrow, rest = block.partition("-->")
        times, _, lines = rest.partition("\n")
        yield head + arrow + times, " ".join(lines.split()), lines.count("\n")


@pytest.mark.parametrize("path", BY_FORMAT["subtitles"], ids=lambda path: path.name)
def test_subtitles(path):
    before, after = (data.decode() for data in (path.read_bytes(), translated(read(path))))
    assert after.count("\r\n") in (0, after.count("\n"))
    for (head, text, n), (head_after, text_after, n_after) in zip(
        cues(before), cues(after), strict=True
    ):
        assert head_after == head and n_after <= n
        if path.suffix == ".vtt":
            text, text_after = (
                html.unescape(each).replace("\xa0", " ") for each in (text, text_after)
            )
        assert text_after == swapped(text, r"</?\w[^<>]*>|\{\\an8\}")
