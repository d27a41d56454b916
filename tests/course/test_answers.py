"""Right answers to each exercise are right; typical wrong ones are refused with their mistake.

The typical mistakes are those of the checks, each with its wrong answer. tests/support/answers has
right answers, NAME and right_NAME_2, and further wrong ones, wrong_NAME, whose docstring is a piece
of the message that refuses them.
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
WRONG, RIGHT = 5, 2  # so many of each exercise at least, and no more than so many named mistakes


def load(path):
    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers_to(lesson, folder):
    """Yield (its check in the sheet, right answers, {answer: what its refusal says}) of each."""
    sheet = load(ROOT / "lessons" / "exercise.py").sheet(lesson)
    (folder / "sheet.py").write_text(sheet, encoding="utf-8")
    checks = runpy.run_path(str(folder / "sheet.py"), run_name="sheet")
    answers = vars(load(ROOT / "tests" / "support" / "answers" / lesson.name))
    for name in grading.exercises(sheet):
        named = [(wrong, text) for text, wrong in mistakes_of(checks, name).items()]
        assert len(named) <= WRONG
        right = [answers[own] for own in answers if re.fullmatch(rf"(right_)?{name}(_\d+)?", own)]
        for own, answer in answers.items():
            if re.fullmatch(rf"wrong_{name}(_\d+)?", own):
                named.append((answer, " ".join(inspect.getdoc(answer).split())))
        yield checks[f"check_{name}"], right, named


def mistakes_of(checks, name):
    """Return {a typical mistake: an answer that makes it} of an exercise."""
    return getattr(getattr(checks["checks"], f"check_{name}"), "wrong", {})


@each_lesson
def test_no_wrong_answer_is_right_and_no_right_one_wrong(lesson, tmp_path):
    failures = []
    for check, right, wrong in answers_to(lesson, tmp_path):
        assert len(right) >= RIGHT and len(wrong) >= WRONG, check
        for answer, said in [*[(each, None) for each in right], *wrong]:

            def called(*arguments, answer=answer):
                return answer(*arguments)

            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                state, message = state_of(called, check)
            told = said is None or (said in message and "RecursionError" not in message)
            if state != ("right" if said is None else "wrong") or not told:
                failures.append(f"{check.__name__}: {said}: {state}: {message}")
    assert not failures, "\n".join(failures)
