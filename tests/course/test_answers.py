"""Typical wrong answers to each exercise are refused with their mistake's name, right ones are not.

tests/support/answers has them. A wrong answer is called wrong_NAME or wrong_NAME_2, and its
docstring is a piece of the message that refuses it; right_NAME_2 is right_NAME by another way.
"""

import contextlib
import importlib.util
import inspect
import io
import re
import runpy
import warnings

import pytest
from lesson_files import LESSONS, ROOT

from minitf.course import grading
from minitf.course.lesson import state_of

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
WRONG, RIGHT = 5, 2  # so many of each exercise at least


def load(path):
    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(lesson, folder):
    """Yield (name of the exercise, answer, its state, its message) of all answers to a lesson."""
    sheet = load(ROOT / "lessons" / "exercise.py").sheet(lesson)
    (folder / "sheet.py").write_text(sheet, encoding="utf-8")
    checks = runpy.run_path(str(folder / "sheet.py"), run_name="sheet")
    answers = load(ROOT / "tests" / "support" / "answers" / lesson.name)
    for name in grading.exercises(sheet):
        for own, answer in list(vars(answers).items()):
            if re.fullmatch(rf"((wrong|right)_)?{name}(_\d+)?", own) and inspect.isfunction(answer):
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    yield name, answer, *state_of(answer, checks[f"check_{name}"])


@each_lesson
def test_no_wrong_answer_is_right_and_no_right_one_wrong(lesson, tmp_path):
    failures, counts = [], {}
    for name, answer, state, message in judged(lesson, tmp_path):
        wrong = answer.__name__.startswith("wrong_")
        counts.setdefault(name, [0, 0])[wrong] += 1
        if wrong:
            named = " ".join((inspect.getdoc(answer) or "no docstring").split())
            told = named in message and "RecursionError" not in message
            as_it_should = state == "wrong" and told
        else:
            as_it_should = state == "right"
        if not as_it_should:
            failures.append(f"{answer.__name__}: {state}: {message}")
    assert not failures, "\n".join(failures)
    few = [name for name, (right, wrong) in counts.items() if right < RIGHT or wrong < WRONG]
    assert not few, f"at least {WRONG} wrong answers and {RIGHT} right ones to each of {few}"
