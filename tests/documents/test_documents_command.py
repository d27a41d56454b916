"""translate.py with documents: the format by the ending, mistakes in one line, small cases."""

import builtins
import io
import re

import pytest
from command import QUICK, Command
from test_documents import FOLDER, one
from tiny_translator import make_subwords, save

from minitf.commands.output import LostText
from minitf.documents import markdown
from minitf.documents.reading import read_document
from minitf.errors import UserError
from minitf.translation import Translation


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny", make_subwords())


@pytest.fixture
def run(model):
    command = Command(model)
    yield command
    command.stop()


@pytest.mark.parametrize("name", ["shop.html", "strings.xml", "film.srt", "readme.md"])
def test_a_document_is_written_with_its_markup(run, name, tmp_path):
    if name.endswith(".md"):
        pytest.importorskip("tree_sitter_markdown", reason='pip install -e ".[documents]"')
    output = tmp_path / name
    code, out, _ = run(*QUICK, "--input", FOLDER / name, "--output", output)
    assert (code, out) == (0, "")
    before, after = ((folder / name).read_text("utf-8") for folder in (FOLDER, tmp_path))
    assert before != after and before.count("</") == after.count("</") > 1


def test_the_format_is_that_of_the_ending_or_of_the_option(run, tmp_path):
    text = '{"a": "b c"}'
    (tmp_path / "a.JSON").write_text(text)
    (tmp_path / "a.txt").write_text(text)
    as_json = run(*QUICK, "--input", tmp_path / "a.JSON")[1]
    assert as_json.startswith('{"a": "') and not as_json.endswith("\n")
    assert run(*QUICK, "--format-in", "json", "--input", tmp_path / "a.txt")[1] == as_json
    assert run(*QUICK, "--format-in", "json", stdin=text.encode())[1] == as_json
    plain = run(*QUICK, "--input", tmp_path / "a.txt")[1]
    assert plain.endswith("\n")
    assert run(*QUICK, "--format-in", "plain", "--input", tmp_path / "a.JSON")[1] == plain


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.json", '{"a": "b",\n "c" "d"}', r"line 2, column 6: this is not valid JSON \(E"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.xml", "<a>\n<b></a>", r"line 2, column 6: this is not valid XML \(mismatched tag\)"),
        ("a.xml", "<a>&eacute;</a>", "undefined entity"),
        ("a.xliff", "", "no element found"),
        ("a.po", 'msgid "a"\nmsgstr "b\n', "line 1: this is not a message"),
        ("a.po", '# c\nmsgid "a"\nmsgstr ""\n\nmsgstr "b"\n', "line 5: this is not a message"),
        ("a.po", 'msgid "a" b"\nmsgstr ""\n', "line 1: this"),
        ("a.srt", "Hello.\n", "these are not subtitles"),
        ("a.json", b'"\xe4"', "a.json is not UTF-8 but probably cp1252: iconv"),
        ("a.md", b"PK\x03\x04\xff", "is a Word, LibreOffice or zip file"),
    ],
)
def test_a_damaged_document_gets_one_line_and_no_output(run, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = run("--input", tmp_path / name, "--output", tmp_path / "out")
    assert code == 2 and out == "" and err.count("\n") == 1 and name in err
    assert re.search(said, err), err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", ["--nbest 2 --scores", "--paragraphs", "--format json", "--attention a.png"]
)
def test_options_for_lines_are_refused(run, options):
    code, out, err = run(*options.split(), "--input", FOLDER / "en.json")
    said = options.replace(" 2 ", " and ").removesuffix(" a.png")
    assert code == 2 and out == "" and f"{said}: only for lines of text" in err


def test_a_document_without_a_text_stays_and_is_told(run, tmp_path):
    (tmp_path / "a.json").write_text('{"a": 5}')
    code, out, err = run("--input", tmp_path / "a.json")
    assert (code, out) == (0, '{"a": 5}') and "no text to translate" in err


def test_text_in_quotes_is_no_document(run):
    code, _, err = run("--format-in", "json", "Hello.")
    assert code == 2 and "--format-in needs a document" in err


def test_markdown_without_its_parser_names_the_command(run, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("tree_sitter"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    code, _, err = run("--input", FOLDER / "readme.md")
    assert code == 2 and 'pip install -e ".[documents]"' in err and err.count("\n") == 1


# Encodings and small cases ------------------------------------------------------------------------


def translate_with(function, text, format):
    """Return a document that a function of texts translates, as the command does it."""

    def translate(lines):
        return [[Translation(function(line), 0.0, 0.0)] for line in lines]

    data = text if isinstance(text, bytes) else text.encode()
    return read_document(io.BytesIO(data), format, "a").translate(translate, LostText().note)


@pytest.mark.parametrize("named", ["utf-8-sig", "utf-16", "latin-1", "utf-8 UTF-16", "utf-8 rot13"])
def test_the_encoding_stays(named):
    encoding, declared = (named.split() * 2)[:2]
    text = f'<?xml version="1.0" encoding="{declared}"?><p>é</p>\r\n'
    output = translate_with(lambda line: f"{line}ü", text.encode(encoding), "xml")
    assert output == text.replace("é", "éü").encode(encoding)


def test_a_letter_that_the_encoding_lacks_is_a_reference_or_refused():
    xml = '<?xml version="1.0" encoding="latin-1"?><p>e</p>'
    assert translate_with(lambda _: "ж", xml, "xml").endswith(b"<p>&#1078;</p>")
    po = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=latin-1\\n"\n\n'
    po += 'msgid "é"\nmsgstr ""'
    with pytest.raises(UserError, match="its encoding, iso8859-1, lacks 'ж': convert"):
        translate_with(lambda _: "ж", po.encode("latin-1"), "po")


def test_marks_out_of_order_do_not_leave_the_text():
    """A closing tag before its opening one would be no XML: then each text is translated alone."""

    def turned(line):
        return " ".join(reversed(line.split(" ")))

    def moved(pattern, to):
        """Return a translator that moves what stands for words (w, v) and for markup (s, t)."""
        characters = str.maketrans("wvst", "\U000f0000\U000f0001\U00100000\U00100001")
        return lambda line: re.sub(pattern.translate(characters), to.translate(characters), line)

    text = '{"a": "The <b>red</b> house"}'
    assert translate_with(turned, "<p>a <b>c d</b> e</p>", "xml") == b"<p>a <b>d c</b> e</p>"
    assert b"<b>" in translate_with(turned, text, "json")
    # What stands for a word may go elsewhere; %s and %d may not.
    assert translate_with(turned, '"{a} has {b}"', "json") == b'"{b} has {a}"'
    assert translate_with(turned, '"%s x y %d"', "json") == b'"%s y x %d"'
    assert translate_with(moved("w", ""), '"{a} is"', "json") == b'"{a} is"'
    # Nor goes a word into a link, and none is left without words.
    text = '"{a} and <a>b c</a> d"'
    assert translate_with(moved("w and s", "and sw "), text, "json") == text.encode()
    assert translate_with(moved("sb ct", "st"), text, "json") == text.encode()
    text = '"a <a>b</a> c"'  # the text before the first tag, or behind the last, may be elsewhere
    assert translate_with(moved("a sbt c", "sa b ct"), text, "json") == b'"<a>a b c</a>"'
    text = "<p>a <img src=x> <kbd>b</kbd> c</p>"  # what opens nothing keeps nothing apart
    into = translate_with(moved("a (.*) v", r"v a \1"), text, "html")
    assert into == b"<p><kbd>b</kbd> a <img src=x> c</p>"
    text = b'"a <b>c</b><i>d {a}</i> e"'  # the span in the middle closes and opens
    assert translate_with(moved("(.+) w", r"w \1"), text, "json") == text


@pytest.mark.parametrize(
    "ending, text, expected",
    [
        ("html", "<p title=a>b</p>", '<p title="A">B</p>'),
        ("html", "<p>a<br>b <!-- c --> d", "<p>A<br>B <!-- c --> D"),
        ("html", "<p>a <code>b</code> c</p><pre>d", "<p>A <code>b</code> C</p><pre>d"),
        ("html", "<img alt='it\"s'>", "<img alt='IT\"S'>"),
        ("html", "<img alt=a translate=no>b", "<img alt=a translate=no>B"),
        ("html", "<p>a &lt;b> &amp;amp;</p>", "<p>A &lt;B&gt; &amp;AMP;</p>"),
        ("html", "<p>a &# b &# c<pre>d</pre>", "<p>A &amp;# B &amp;# C<pre>d</pre>"),
        ("html", "", ""),
        ("html", "<p>a <![x b]> c", "<p>A <![x b]> C"),
        ("html", "<a>b</a>|<a>c</a> | d / e", "<a>B</a>|<a>C</a> | D / E"),
        ("html", "<pre>a</pre><var>b</var> c d", "<pre>a</pre><var>b</var> C D"),
        (
            "xml",
            '<link t="" translate="no">b<![CDATA[c]]></link>',
            '<link t="" translate="no">b<![CDATA[c]]></link>',
        ),
        ("xml", "<a>b<![CDATA[c <i>d</i>]]> e</a>", "<a>B<![CDATA[C <i>D</i>]]> E</a>"),
        ("xml", "<a><b>c</b> <b>d</b></a>", "<a><b>C</b> <b>D</b></a>"),
        ("xml", "<a>x <b>c</b> <b>d</b></a>", "<a>X <b>C</b> <b>D</b></a>"),
        (
            "json",
            '["{n, plural, one {# a} other {# b}}"]',
            '["{n, plural, one {# A} other {# B}}"]',
        ),
        ("json", '"%s%%, 50% de"', '"%s%%, 50% DE"'),
        ("json", r'"\u00e9\n\\n"', r'"\u00c9\n\\N"'),
        ("po", 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n', "#, fuzzy\n"),
        ("vtt", "WEBVTT\n\n1 --> 2\n<v A>b\n2 --> 3\nc", "WEBVTT\n\n1 --> 2\n<v A>B\n2 --> 3\nC"),
        ("srt", "1\n1 --> 2\na\n2\n2 --> 3\nb 2\n", "1\n1 --> 2\nA\n2\n2 --> 3\nB 2\n"),
        ("md", "a [b] c\n\n[b]: x\n", "A [B][b] C\n\n[b]: x\n"),
        ("md", "a [b][] c\n\n[B]: x\n", "A [B][b] C\n\n[B]: x\n"),
        ("md", "a [b] c\n", "A [B] C\n"),
        ("md", "> a\n> *b\n> c* d\n", "> A *B C* D\n"),
        ("md", "# a # b #\n", "# A # B #\n"),
        ("md", "| a |\n|---|\n| b \\| c |\n", "| A |\n|---|\n| B \\| C |\n"),
        ("md", "pay $5 or $6, $x$ and\n$y z$\n", "PAY $5 OR $6, $x$ AND $y z$\n"),
        ("md", "> [!NOTE]\n> a\n", "> [!NOTE]\n> A\n"),
        ("md", "[^1]: a\n[^2]: b[^1]\n", "[^1]: A\n[^2]: B[^1]\n"),
        ("md", "[^1]: a [b]\n[b]: <c> 'd'\n[e f]: g\n", "[^1]: A [B][b]\n[b]: <c> 'd'\n[e f]: g\n"),
        ("md", "a\\\nb  \nc\n", "A\\\nB  \nC\n"),
        ("md", '[a](b "c") ![d](e "f")\n', '[A](b "C") ![D](e "F")\n'),
        ("md", "[a](b) | [c](d) · [e [f]](g)\n", "[A](b) | [C](d) · [E [F]](g)\n"),
        ("md", "1986\\. a\n===", "1986\\. A\n==="),
        ("md", "`` a ``` b `` c\n", "`` a ``` b `` C\n"),
        ("md", "_a 1_ \\_b\\_ \\*c\\*\n", "_A 1_ \\_b\\_ \\*C\\*\n"),
        ("md", "2 \\* 3, \\[a\\] \\<b>\n", "2 \\* 3, \\[A\\] \\<B>\n"),
        ("md", "\\`a\\` \\\\ \\$5\n", "\\`A\\` \\\\ \\$5\n"),
    ],
)
def test_a_small_document(ending, text, expected):
    if ending == "md":
        pytest.importorskip("tree_sitter_markdown", reason='pip install -e ".[documents]"')
    assert one(text, ending) == (expected if ending != "po" else f'{expected}{text[:-3]}"B"\n')


@pytest.mark.parametrize(
    "written, expected",
    [
        ("1986. x", "1986\\. x"),
        ("- x", "\\- x"),
        ("# x", "\\# x"),
        ("> x", "\\> x"),
        ("*x* `y <b>", "\\*x\\* \\`y \\<b>"),
        ("5 < 6", "5 < 6"),
        ("&amp; & co", "&amp;amp; & co"),
    ],
)
def test_what_markdown_would_read_is_escaped(written, expected):
    pytest.importorskip("tree_sitter_markdown", reason='pip install -e ".[documents]"')
    assert translate_with(lambda _: written, "text\n", "markdown").decode() == f"{expected}\n"
    numbered = translate_with(lambda _: "1. x", "# 1. text\n", "markdown")
    assert numbered == b"# 1. x\n"  # as the text does that it replaces


def test_a_long_paragraph_is_parsed_in_pieces(monkeypatch):
    """The grammar takes a time that grows with the square of what it reads at once."""
    pytest.importorskip("tree_sitter_markdown", reason='pip install -e ".[documents]"')
    lengths = []

    class Watched:
        sub = staticmethod(lambda _, data: lengths.append(len(data)) or data)

    monkeypatch.setattr(markdown, "_FORMULA", Watched)
    text = " ".join(500 * ["See `a b` and [this](u). It is *so*."])
    assert one(text, "md") == text.swapcase().replace("`A B`", "`a b`").replace("(U)", "(u)")
    assert max(lengths) <= 4000 and len(lengths) < 10


def test_the_mark_of_a_new_translation_stands_before_the_former_text():
    old = '#, c-format\n#~ msgid "gone"\n#~ msgstr ""\n\n# y\n'
    text = '#| msgid "c"\nmsgid "a"\nmsgstr ""\n'
    output = translate_with(lambda _: "b", old + text, "po").decode()
    assert output == f'{old}#, fuzzy\n{text[:-3]}"b"\n'


def test_the_cases_of_a_message_may_stand_in_several_lines():
    output = one('msgid "{n, plural,\\n one {a}}\\nb"\nmsgstr ""\n', "po")
    assert output.endswith('msgstr ""\n"{n, plural,\\n one {A}}\\n"\n"B"\n')


def test_a_subtitle_has_no_more_lines_than_before():
    text = "1\n00:01 --> 00:02\na b\nc\n"
    words = "word " * 12
    output = translate_with(lambda _: words.strip(), text, "subtitles").decode()
    lines = output.split("\n")[2:4]
    assert abs(len(lines[0]) - len(lines[1])) < 6 and output.count("word") == 12
