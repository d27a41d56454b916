"""The form of the lessons: in order, complete, equated with the library, nothing copied."""

import ast
import functools
import re

import pytest
from lesson_files import (
    ENGINE,
    LESSONS,
    PUBLIC,
    ROOT,
    TRAINING,
    checked,
    engine_names,
    introduced,
    mentioned,
    prose_of,
    tree_of,
    windows,
)

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
# Containers compute nothing, so there is nothing to equate: a proof must name them.
CONTAINERS = {
    "Module",
    "Config",
    "no_grad",
    "Parameter",
    "Hypothesis",
    "PRESETS",
    "record",
    "dropout_state",
    "Tensor",
}
FILLERS = (
    r"\b(simply|just|obvious(ly)?|trivial(ly)?|clearly|eas(y|ily)|of "
    r"course|note that|basically|actually)\b"
)


def test_together_they_introduce_the_whole_engine_and_the_training_each_name_once():
    assert [path.stem[:2] for path in LESSONS] == [f"{n:02d}" for n in range(1, 10)]
    names = [name for path in LESSONS for name in introduced(tree_of(path))]
    assert sorted(names) == sorted(set(names)), "introduced twice"
    assert set(names) == PUBLIC | TRAINING


@each_lesson
def test_a_lesson_uses_only_what_has_been_introduced(path):
    known = {
        name for earlier in LESSONS if earlier <= path for name in introduced(tree_of(earlier))
    }
    tree = tree_of(path)
    names = engine_names(tree)
    used = {name for name in mentioned(tree, names) if name.split(".")[0] in ENGINE and "." in name}
    used |= {name for name in names.values() if "." in name}
    assert not used - known


@each_lesson
def test_what_is_introduced_is_equated(path):
    tree = tree_of(path)
    calls = checked(tree, engine_names(tree, {*ENGINE, *(name.split(".")[0] for name in TRAINING)}))
    for name in introduced(tree):
        last = name.split(".")[1]
        if last in CONTAINERS:
            assert any(last in text for _, text, _ in calls), f"nothing is proved about {name}"
        else:
            equated = [
                text for function, text, names in calls if function != "claim" and name in names
            ]
            assert equated, f"{name} is neither equated nor grad-checked"


@functools.cache
def library_windows():
    """Return {sequence of statements: the library's function that contains it}."""
    library = {}
    for file in sorted((ROOT / "minitf").rglob("*.py")):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.FunctionDef):
                library.update(dict.fromkeys(windows(node), f"{file.stem}.{node.name}"))
    return library


@pytest.mark.slow
@each_lesson
def test_no_function_is_a_copy_of_the_library(path):
    library = library_windows()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            copied = [library[window] for window in windows(node) if window in library]
            assert not copied, f"{node.name} repeats {copied[0]}"


@each_lesson
def test_form(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == "# %% [markdown]" and lines[1].startswith(f'"""# Lesson {path.stem[:2]}. ')
    assert f'begin("{path.stem}"' in text and "\nfinish(" in text
    for beat in ("State", "Derive", "Equate", "Use"):
        assert re.search(rf"^# (\*\*)?{beat}[.:]", text, re.MULTILINE), f"no beat is called {beat}"
    joined = re.findall(r"^# ##.*[.?] .*$", text, re.MULTILINE)
    assert not joined, "a title and its paragraph are one line"
    titles = [line for line in lines if line.startswith("# ## ")]
    assert titles.pop() == "# ## Your turn"
    if titles[-1].startswith("# ## More on "):
        titles.pop()
    assert len(titles) >= 2 and all(title.endswith("?") for title in titles), (
        "a section starts from a question"
    )


def test_the_plan_of_two_hours_names_sections_of_lesson_03():
    guide = (ROOT / "lessons" / "README.md").read_text(encoding="utf-8")
    (plan,) = re.findall(r"^\| 2 hours \|.*$", guide, re.MULTILINE)
    named = re.findall(r'"(.*?)"', plan)
    assert len(named) == 4 and {f"## {title}" for title in named} <= set(prose_of(LESSONS[2]))


@each_lesson
def test_prose_is_plain(path):
    for line in prose_of(path):
        assert not re.search(FILLERS, line, re.IGNORECASE), line
