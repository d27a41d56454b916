"""The page of a lesson: code that a beginner can read, and figures that the text discusses."""

import ast
import re

import lesson_page as page
import pytest
from lesson_files import LESSONS, ROOT

FIGURES = ROOT / "lessons" / "figures"
LARGEST = 2_000_000  # bytes of all pictures
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
# A rule, a text that keeps it, and texts that do not.
OF_STATEMENTS = [
    (page.tuples_to_tuples, "a, b = f(1)\nc = 1, 2", ["a, b = 1, 2", "def f():\n    a, b = b, a"]),
    (
        page.many_names,
        "a, b, c = f(x)\na, b = x\nfor i, a in x: pass\nwith f() as a, g() as b: pass",
        [
            "a, b, c = x",
            "a = b = c = 0",
            "(a, b), c = x",
            "a, *b, x.y = z",
            "for i, (a, b) in enumerate(x): pass",
            "with f() as (a, b), g() as c: pass",
        ],
    ),
    (
        page.crowded_statements,
        "a = [x for x in y]\nfor b in [x for x in y]:\n    c = [x for x in y]\n"
        "def f(g=lambda: 1):\n    return [x for x in y]",
        [
            "a = [[x for x in y] for y in z]",
            "f(lambda: 1, lambda: 2)",
            "a = sum(x for x in y) + sum(x for x in z)",
            "for a in [x for x in y]:\n    b = {x: 1 for x in {y for y in z}}",
            "if any(x for x in y) and all(x for x in y):\n    pass",
            "def f(g=lambda: 1, h=lambda: 2):\n    pass",
        ],
    ),
    (
        page.rebound_names,
        "a = 1\nfor i in a:\n    b = i\nfor i in a:\n    c = i\n"
        "def f():\n    a = 2\n    return a\n"
        "d = [e for e in a]\ne = 1\n_ = 1\n_ = 2\na[0] += 1\nx.a = 1",
        [
            "a = 1\na = 2",
            "a = 1\na += 2",
            "a = 1\nfor i in x:\n    a = i",
            "def a(): pass\na = 1",
            "import a\nfrom b import c as a",
            "with f() as a:\n    pass\nwith g() as a:\n    pass",
            "try:\n    a = 1\nexcept E:\n    a = 2",
            "a = 1\nif (a := 2):\n    pass",
        ],
    ),
    (
        page.tricks,
        "a = f(*b)\ndef f(*a): pass",
        ["a, *b = c", "a = [*b, 1]", "a = np.r_[1, 2]", "a = x, *y"],
    ),
]
CELL = "# %%\ndraw(lines, 'a.png', x)\n"
SHOWN = f"# %% [markdown]\n# ![{'a' * 40}](figures/a.png)\n#\n# *What to see: a dot.*\n"
FOUR = "claim('a', 1)\nsame('b', x, y)\ngrad_check(f)\nfor i in x:\n    claim('d', i)\n"
OF_CELLS = [
    (page.long_lines, f"{'a' * 88}\n# ![{'a' * 99}](b)", ["a" * 89]),
    (
        page.crowded_cells,
        f"# %% [markdown]\n# {'claim() ' * 5}\n# %%\n{FOUR.partition('for')[0]}# %%\n"
        "def check_f():\n" + "    claim(1)\n" * 5,
        [f"# %%\n{FOUR}"],
    ),
    (
        page.undiscussed_figures,
        f'# %% [markdown]\n"""# It\'s a lesson."""\n{CELL}{SHOWN}# %%\nx = 1',
        [
            CELL,
            f"{CELL}# %%\nx = 1\n{SHOWN}",
            f"{CELL}{SHOWN.replace('a' * 40, 'a' * 39)}",
            f"{CELL}{SHOWN.replace('What to see', 'Look')}",
            f"{CELL}{SHOWN.replace('a.png', 'b.png')}",
            f"{CELL}{SHOWN}# %% [markdown]\n# ![b](figures/b.png)",
        ],
    ),
    (
        page.unclosed_formulas,
        "# %% [markdown]\n# $a$ and `$HOME` and\n# $b\n# c$\n#\n"
        "# $$\n# a\n# $$\n#\n# $$ b $$\n# %%\nx = '$'",
        [
            "# %% [markdown]\n# $a\n#\n# $b$",
            "# %% [markdown]\n# b $$ a $$\n#\n# b",
            "# %% [markdown]\n# $$ a $$ b",
            "# %% [markdown]\n# $$\n# a",
        ],
    ),
    (
        page.accidental_lists,
        "# %% [markdown]\n# ## a\n# - b\n#   c\n# - d\n#\n# e 1.\n#\n# 1. f\n# %%\na = 1\n# 1. b",
        ["# %% [markdown]\n# a is\n# 1. b", "# %% [markdown]\n# a\n# - b"],
    ),
]
RULES = OF_STATEMENTS + OF_CELLS


def broken(rule, text):
    return rule(ast.parse(text) if (rule, text) and rule in _of_trees() else text)


def _of_trees():
    return [rule for rule, _, _ in OF_STATEMENTS]


@pytest.mark.parametrize(("rule", "good", "bad"), RULES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_rule_accepts_and_rejects(rule, good, bad):
    assert broken(rule, good) == []
    for text in bad:
        assert broken(rule, text), f"{text!r} is accepted"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [row[0] for row in RULES], ids=lambda rule: rule.__name__)
def test_the_lessons_keep_the_rule(rule):
    for path in LESSONS:
        found = broken(rule, path.read_text(encoding="utf-8"))
        assert not found, f"{len(found)} times in {path.name}:\n" + "\n".join(found)


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


@each_lesson
def test_the_pictures_of_a_lesson_are_those_that_it_draws(path):
    kept = {picture.name for picture in FIGURES.glob(f"{path.stem[:2]}_*")}
    assert kept == set(page.drawn(path.read_text(encoding="utf-8")))


def test_every_picture_belongs_to_a_lesson():
    numbers = {path.stem[:2] for path in LESSONS}
    assert [path.name for path in FIGURES.iterdir() if path.name[:2] not in numbers] == []
