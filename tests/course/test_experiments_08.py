"""The experiment of lesson 08: its rule, and the point of the kept model repeated."""

import pytest
from lesson_files import ROOT

from minitf.course.experiments import early_model
from minitf.course.lesson import kept
from minitf.data import toy
from minitf.files.models import read_notes
from minitf.translation import Translator


def test_the_first_checkpoint_that_is_good_enough_is_chosen():
    scores = {50: 12.0, 100: 59.9, 150: 61.0, 200: 58.0, 250: 80.0}
    rows = [{"updates": n, "greedy": {"BLEU": bleu}} for n, bleu in scores.items()]
    assert early_model.choose(rows) == 150


def test_the_model_beside_the_lessons_is_the_chosen_one():
    results = kept("early_model")
    assert [row["updates"] for row in results["checkpoints"]] == list(range(50, 1501, 50))
    assert early_model.choose(results["checkpoints"]) == results["chosen"]
    assert read_notes(early_model.FOLDER)["step"] == results["chosen"]


def test_the_command_in_its_readme_is_the_one_that_was_run():
    text = (ROOT / "lessons" / "toy-model-early" / "README.md").read_text(encoding="utf-8")
    assert early_model.COMMAND in " ".join(text.replace("\\\n", " ").split())


@pytest.mark.slow
def test_the_kept_scores_of_the_early_model_are_repeated():
    results = kept("early_model")
    expected = next(
        row for row in results["checkpoints"] if row["updates"] == results["chosen"]
    ).copy()
    del expected["updates"]
    translator = Translator.load(early_model.FOLDER)
    found = early_model.measure(translator, *toy.splits(n_train=0)["valid"])
    assert found.keys() == expected.keys()
    for name, row in found.items():
        assert row == pytest.approx(expected[name], abs=0.5), name
