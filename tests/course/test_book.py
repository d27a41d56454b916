"""The book: the rules by which lessons become pages, and the whole page of a lesson."""

import html.parser
import importlib.util
import json
import re
import subprocess
import sys

import pytest
from lesson_files import LESSONS, ROOT
from page_browser import CHROMIUM, report_of

NEEDS = ("jinja2", "jupytext", "latex2mathml", "markdown_it", "mdit_py_plugins", "nbclient")
if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
    pytest.skip(f"pip install -e '.[dev]' brings {missing[0]}", allow_module_level=True)

sys.path.insert(0, str(ROOT / "lessons"))
from book_parts import cells, markup, slides  # noqa: E402

FIREFOX = ROOT / "lessons" / "firefox.py"  # the page without exercises
SVG = "http://www.w3.org/2000/svg"


class Page(html.parser.HTMLParser):
    """What a page contains: its anchors, the addresses that it names, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.addresses, self.tags, self.open = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.anchors |= {found["id"]} if "id" in found else set()
        self.addresses += [found[name] for name in ("href", "src") if name in found]
        if tag not in ("meta", "link", "img", "input", "hr", "br", "wbr", "mspace"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


def to_html(markdown, address=lambda address: address):
    return markup.Text(address).html(markdown)


# The rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latex", "there", "not_there"),
    [
        (r"d_{model}", "<mtext>model</mtext>", "<mi>m</mi>"),
        ("q · k", "<mo>&#x000B7;</mo>", ""),
        ("(-3, -1)", '<mo form="prefix">&#x02212;</mo><mn>1</mn>', "<mo>&#x02212;</mo>"),
        ("a - b", "<mo>&#x02212;</mo>", "prefix"),
        (r"\ln p", "<mi>ln</mi><mspace", ""),
        (r"\sin^2", "<msup><mi>sin</mi><mn>2</mn></msup>", ""),
        (r"\log_2 x", "<msub><mi>log</mi><mn>2</mn></msub>", ""),
        (r"\ln(p)", "<mi>ln</mi><mo", "<mspace"),
        (r"\max(0, x)", "<mi>max</mi>", "<mo>max"),
        (r"\text{warmup\_steps}", "warmup_steps", "\\"),
        (r"\Big( x \Big)", 'stretchy="true"', "minsize"),
    ],
)
def test_a_formula_is_set_as_in_print(latex, there, not_there):
    mathml = markup.formula(latex, display=False)
    assert there in mathml
    assert not not_there or not_there not in mathml


@pytest.mark.parametrize(
    "path",
    [*LESSONS, FIREFOX, *sorted((ROOT / "lessons").glob("*.md"))],
    ids=lambda path: path.name,
)
def test_each_formula_of_the_course_is_converted(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".py":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines if line[:1] == "#"]
    text = re.sub(r"(?m)^ {4}.*$|`[^`\n]*`", "", "\n".join(lines))
    for latex in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.DOTALL):
        mathml = markup.formula(max(latex), display=False)
        assert "\\" not in mathml and "<merror" not in mathml, f"{max(latex)}: {mathml}"


def test_mathematics_and_dollars():
    page = to_html("With $d_k$ and\n\n$$x^2$$\n\nin `$HOME` and 5$.")
    assert page.count("<math") == 2 and 'display="block"' in page
    assert "<code>$HOME</code> and 5$." in page


def test_a_link_leads_into_the_book_or_is_none():
    page = to_html("[a](a.md#b) [b](b.py)", {"a.md#b": "a.html#b"}.get)
    assert '<a href="a.html#b">a</a> <span class="file">b</span>' in page


def test_a_caption_stands_below_its_figure_and_is_upright():
    page = to_html("![What it is.](a.png)\n\n*What to see: a* dot *here.*\n\nText.")
    assert '<img src="a.png" alt="What it is." />' in page
    assert "<figcaption>A<em> dot </em>here.</figcaption></figure>\n<p>Text.</p>" in page


def test_a_link_to_the_stage_becomes_the_stage():
    page = to_html(
        "[Watch](figures/toy-page.html#next-9&beam)\n\n*What to see: a* dot *.*\n\nText."
    )
    address = "figures/toy-page.html#next-9&amp;beam"
    assert f'<iframe src="{address}" title="Watch" loading="lazy"></iframe>' in page
    assert f'<a href="{address}">Watch</a>. A<em> dot </em>.</figcaption></figure>\n<p>' in page
    assert "<iframe" not in to_html("See [it](figures/toy-page.html).")


SOURCE = """\
import numpy as np
begin("01_attention")
x = np.ones(2)
# A comment on y.
y = f(x)
for i in range(2):
    row = f"{i}"
    print(row)
    print("and")
claim("it holds", y > 0, 1.5)
names = ["a", "b"]
draw(lines, "a.png", names)
"""


def test_a_cell_is_cut_into_thought_and_scaffolding():
    parts = [(kind, text.split("\n")[0]) for kind, text, *_ in cells.parts_of(SOURCE)]
    assert parts == [
        ("imports", "import numpy as np"),
        ("code", "x = np.ones(2)"),
        ("prints", "for i in range(2):"),
        ("checks", 'claim("it holds", y > 0, 1.5)'),
        ("draws", 'names = ["a", "b"]'),
    ]


def test_a_claim_is_a_tick_that_opens_to_its_check():
    outputs = [("text", "<0>"), ("claim", ["it holds", "1.5", 10])]
    page = cells.code_cell(SOURCE, outputs)
    shown, claim = page.split('<ul class="claims">')
    assert "it holds" not in shown and "A comment on y." in shown and "&lt;0&gt;" in shown
    assert 'it holds <span class="value">1.5</span></summary>' in claim
    assert "claim" in claim.partition("</summary>")[2]
    assert shown.count('<details class="fold">') == 3
    told = "# `claim` prints a line if\n# its statement holds.\ny = 1\n"
    assert cells.code_cell(told, []).count("<span") == cells.code_cell("y = 1", []).count("<span")
    # What failed to run proves nothing: then the check stays in the code.
    assert "it holds" in cells.code_cell(SOURCE, [])
    guessed = cells.code_cell(SOURCE, outputs, guessed=True)
    assert "&lt;0&gt;" in guessed.partition("<summary>The answer</summary>")[2]


def test_an_exercise_hides_its_hint_and_its_check():
    source = (
        'def two():\n    """Return 2.\n\n    Hint: "One?" adds.\n    """\n    ...\n\n\n'
        "NEEDED = 2\n\n\ndef check_two():\n    assert two() == NEEDED\n"
    )
    page = cells.exercises(source, markup.Text(lambda address: address), str.upper)
    task, hint, check = page.split("<details")
    assert "<p>Return 2.</p>" in task and "Hint" not in task and "assert" not in task
    assert "ONE?" in hint and "NEEDED" in check


def test_the_parts_of_more_are_folded_and_no_others():
    page = to_html("## One?\n\n### a\n\nA.\n\n## More on it\n\nIt.\n\n### b\n\nB.\n\n### c\n\nC.")
    folded = markup.with_more_folded(page)
    assert folded.count('<details class="more">') == 2
    assert "</summary>\n<p>B.</p>\n</details>" in folded and "<p>It.</p>\n<details" in folded
    assert folded.partition('<h2 id="more')[0] == page.partition('<h2 id="more')[0]


def test_no_more_slides_than_allowed_and_the_figures_stay(tmp_path):
    (tmp_path / "a.svg").write_text(f'<svg xmlns="{SVG}"/>', encoding="utf-8")
    page = "<h1>Title</h1><p>It begins.</p>" + "".join(
        f'<h2 id="{n}">{n}?</h2><figure><img src="a.svg" alt=""></figure>' for n in range(9)
    )
    kinds = [each["kind"] for each in slides.slides_of(page, tmp_path, 12)]
    assert len(kinds) == 12 and kinds[0] == "opening" and kinds.count("figure") == 9


def test_each_list_of_what_was_learned_has_a_slide(tmp_path):
    page = to_html("# L\n\nIt begins.\n\n## What did we learn?\n\n- a\n- b\n\nAll of it:\n\n1. c")
    shown = [each["inside"] for each in slides.slides_of(page, tmp_path, 9)[1:]]
    assert [re.findall("<li>(.)</li>", each) for each in shown] == [["a", "b"], ["c"]]


def test_a_hint_may_lead_to_a_section_or_a_part_of_one():
    page = to_html("# L\n\n## One?\n\n### Two?\n\n#### Three")
    assert markup.titles(page) == [("one", "One?"), ("two", "Two?")]


# A page -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Return the folder of a book with lesson 01 only, and the page that is no lesson."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "lessons/book.py", str(folder), "--lesson", "01,firefox", "--slides"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_every_page_is_whole_and_asks_for_nothing_from_elsewhere(book):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in book.glob("*.html")}
    assert len(pages) == 11
    for path, page in pages.items():
        assert page.open == [], path.name
        for address in page.addresses:
            if re.match("https?:|data:", address):
                continue
            name, _, anchor = address.partition("#")
            target = path if not name else path.parent / name
            assert target.is_file(), f"{path.name}: {address}"
            if anchor and target in pages:  # the stage reads its anchors itself
                assert anchor in pages[target].anchors, f"{path.name}: {address}"
    for path in book.rglob("*"):
        if path.suffix in (".html", ".css", ".js", ".svg") and path.name != "search.js":
            text = path.read_text(encoding="utf-8")
            loads = r"""(?:src=|url\(|@import|<link[^>]*href=)\s*["']?(https?:[^"') ]*)"""
            assert re.findall(loads, text) == [], path.name


@pytest.mark.slow
def test_the_page_of_a_lesson_has_all_that_the_lesson_has(book):
    text = (book / "01_attention.html").read_text(encoding="utf-8")
    source = LESSONS[0].read_text(encoding="utf-8")
    assert "$" not in markup.plain(re.sub(r"<pre.*?</pre>|<code>.*?</code>", "", text, flags=re.S))
    stages = text.count('<figure class="stage"')
    assert stages == source.count("](toy-page.html") == 1
    assert (n_figures := text.count("<figure") - stages) == source.count("](figures/")
    assert text.count('src="figures/01_') == text.count('.svg" alt=') == n_figures
    claims = re.findall(r"(?m)^ *(?:same|claim)\(", source.partition("# ## Your turn")[0])
    assert text.count('class="tick"') > len(claims)
    assert text.count('class="exercise"') == source.count("\ndef check_")
    assert text.count('class="hint"') == source.count("\n    Hint: ")


@pytest.mark.slow
def test_the_notebook_the_index_and_the_slides(book):
    import nbformat

    nbformat.validate(nbformat.read(book / "01_attention.ipynb", as_version=4))
    index = (book / "search.js").read_text(encoding="utf-8")
    rows = json.loads(index.removeprefix("const SECTIONS = ").rstrip(";\n"))
    assert {row[0] for row in rows} == {path.name for path in book.glob("*.html")}
    deck = (book / "slides" / "01_attention.html").read_text(encoding="utf-8")
    assert 5 < deck.count("<section") <= 25
    assert deck.count("<h1>") == deck.count("<section")  # whichever is shown has a heading
    assert Page(deck).open == [] and 'src="figures' not in deck


# In a browser -------------------------------------------------------------------------------------

# Returns what is wrong, or nothing.
READ = """
const wrong = [], check = (holds, what) => { if (!holds) wrong.push(what); };
const root = document.documentElement, box = (node) => node.getBoundingClientRect();
const frame = () => new Promise((resolve) => setTimeout(resolve, 50));
for (const each of document.querySelectorAll("details")) each.open = true;
check(root.scrollWidth <= innerWidth, `${root.scrollWidth} pixels are too wide`);
const links = [...document.querySelectorAll("#outline a[href^='#']")];
scrollTo(0, root.scrollHeight / 2);
menu.click();
if (links.length) {
  const { top, bottom } = box($("outline"));
  check(top >= 0 && top < innerHeight && bottom > top, "the outline is out of sight");
  links.at(-1).click();
  await frame();
  const at = box($(decodeURIComponent(location.hash.slice(1)))).top;
  check(at > 0 && at < innerHeight, "the outline leads nowhere");
  check(!box($("outline")).height, "the outline covers what it led to");
}
menu.click();
check($("outline").querySelector("a[href='index.html']"), "no way to the first page");
root.dataset.theme = "dark";
for (const rule of document.styleSheets[0].cssRules)
  if (rule.media?.mediaText === "print") rule.media.mediaText = "all";
const light = getComputedStyle(document.body).color.match(/[0-9]+/g).every((part) => part < 80);
check(light, "dark colours are printed");
check(!box($("outline")).height, "the outline is printed");
const cut = (node) => node.scrollHeight > node.clientHeight + 2;
check(![...document.querySelectorAll("pre")].some(cut), "printed code is cut");
return wrong;
"""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize("name", ["01_attention", "course"])
def test_a_page_on_a_telephone_and_on_paper(book, tmp_path, name):
    text = (book / f"{name}.html").read_text(encoding="utf-8")
    style, program = ((book / each).read_text(encoding="utf-8") for each in ("book.css", "book.js"))
    text = text.replace('<link rel="stylesheet" href="book.css">', f"<style>{style}</style>")
    text = text.replace("<iframe", "<span")  # the stage has its own tests
    page = tmp_path / "page.html"
    page.write_text(f"{text}<script>{program}</script>", encoding="utf-8")
    assert report_of(page, READ, frame=390)[0] == []
