"""The experiment of lesson 09: the lesson runs what the kept run ran."""

import pytest
from lesson_files import ROOT

from minitf.course.experiments import quick_run
from minitf.course.lesson import kept
from minitf.data import toy


def test_the_lesson_trains_as_the_kept_run_did():
    text = (ROOT / "lessons" / "09_train_wmt.py").read_text(encoding="utf-8")
    assert f'OPTIONS = "{quick_run.OPTIONS}"' in text


@pytest.mark.slow
def test_the_kept_sentences_are_those_of_the_test_set():
    sources = toy.splits(n_train=0)["test"][0]
    kept_sources = [source for source, _ in kept("quick_run")["sentences"]]
    assert kept_sources == sources[: quick_run.N_SENTENCES]


def test_the_summary_has_the_form_of_results_json():
    results = {
        "valid": {
            "last": {"perplexity": 2.0, "bleu": 60.0},
            "averaged": {"perplexity": 1.5, "bleu": 70.0},
        },
        "tests": {"test": {"bleu": 93.96}},
    }
    printed = ["step      1  loss 6", "step     10  loss 5", "step  2,600  loss 1"]
    found = quick_run.summary(results, ["a", "b", "c", "d"], ["A", "B", "C", "D"], printed)
    assert found["valid"] == results["valid"]
    assert found["tests"] == results["tests"]
    assert found["sentences"] == [("a", "A"), ("b", "B"), ("c", "C")]
    assert found["printed"] == [printed[0], printed[2]]
