"""The page of a lesson: code that a beginner can read, and figures that the text discusses."""

import ast
import re

import lesson_page as page
import pytest
from lesson_files import LESSONS, ROOT

FIGURES = ROOT / "lessons" / "figures"
FIREFOX = ROOT / "lessons" / "firefox.py"  # a page for those who have read the lessons
LARGEST = 2_000_000  # bytes of all pictures
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
OF_TREES = (
    page.tuples_to_tuples,
    page.many_names,
    page.crowded_statements,
    page.rebound_names,
    page.tricks,
)
OF_TEXTS = (
    page.long_lines,
    page.crowded_cells,
    page.undiscussed_figures,
    page.unclosed_formulas,
    page.accidental_lists,
)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [*OF_TREES, *OF_TEXTS], ids=lambda rule: rule.__name__)
def test_the_lessons_keep_the_rule(rule):
    for path in [*LESSONS, *([FIREFOX] if rule in OF_TEXTS else [])]:
        text = path.read_text(encoding="utf-8")
        broken = rule(ast.parse(text) if rule in OF_TREES else text)
        assert not broken, f"{len(broken)} times in {path.name}:\n" + "\n".join(broken)


@each_lesson
def test_the_frame_of_the_page(path):
    text = path.read_text(encoding="utf-8")
    parts = page.cells(text)
    kind, opening, _ = parts[0]
    assert text.startswith("# %% [markdown]\n") and kind == "markdown"
    plain = re.fullmatch(r'"""# Lesson 0\d\. [^\\]+\n"""\s*', opening)
    assert plain and opening.count('"""') == 2, "plain text in one docstring"
    drawn = page.drawn(text)
    assert any(name.startswith(f"{path.stem[:2]}_here.") for name in drawn), "no 'you are here'"
    kind, last, _ = parts[-1]
    assert kind == "code" and last.startswith("# For the tests:") and "INTRODUCES = " in last
    assert "INTRODUCES" not in "".join(source for _, source, _ in parts[:-1])


# The committed pictures ---------------------------------------------------------------------------


def test_the_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in FIGURES.iterdir()}
    assert sum(sizes.values()) < LARGEST
    assert {name: size for name, size in sizes.items() if size > LARGEST / 20} == {}


def test_the_pictures_are_those_that_the_pages_draw():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "lessons").glob("*.py")]
    drawn = {name for text in texts for name in page.drawn(text)}
    assert {path.name for path in FIGURES.iterdir()} == drawn
