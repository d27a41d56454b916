"""The experiments behind the lessons, a cheap point of each repeated, and their small trainings."""

import numpy as np
import pytest
from lesson_files import ROOT

from minitf.config import Config
from minitf.course.experiments import early_model, leaks, quick_run, shared_gradient, smoothing
from minitf.course.experiments import warmup as warmups
from minitf.course.lesson import kept
from minitf.course.trainings import (
    ContinuedTraining,
    ReversedRows,
    gradients_of_ranks,
    parameters_of_the_trainer,
)
from minitf.data import toy
from minitf.files.models import read_notes
from minitf.optim import Adam
from minitf.text import make_batch
from minitf.transformer import Transformer
from minitf.translation import Translator

# Lesson 06 ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.lesson06
@pytest.mark.parametrize("mistake", ["none", "mask transposed", "target in the source"])
def test_the_kept_losses_of_the_leaks_are_repeated(mistake):
    again = leaks.run(50, [mistake])[mistake]["training"]
    assert np.allclose(again, kept("leaks")[mistake]["training"][:5], rtol=0.02)


def test_text_of_an_honest_pair_is_shifted_and_that_of_a_leaking_one_is_not():
    sources, targets = leaks.random_text(np.random.default_rng(1), 2)
    source, target_in = leaks.pair_of(sources, targets, "none")
    assert (source == sources).all() and (target_in[:, 0] == leaks.START).all()
    assert (target_in[:, 1:] == targets[:, :-1]).all()
    assert (leaks.pair_of(sources, targets, "target not shifted")[1] == targets).all()
    longer, _ = leaks.pair_of(sources, targets, "target in the source")
    assert (longer[:, leaks.LENGTH :] == targets).all()


# Lesson 07 ----------------------------------------------------------------------------------------


def test_a_batch_has_its_rows_backwards():
    batch = warmups.reversal(np.random.default_rng(1), 20)
    for source, target in zip(batch.source, batch.target_out, strict=True):
        digits = source[: np.argmax(source == 3)]
        assert 3 <= len(digits) <= 8
        assert [*digits[::-1], 3] == target[: len(digits) + 1].tolist()


@pytest.mark.slow
def test_the_kept_losses_of_the_warm_up_are_repeated():
    """Only the beginning: later, differences in rounding have grown."""
    losses = warmups.curve("warm-up", 0.004, seed=2, updates=100)
    np.testing.assert_allclose(losses, kept("warmup")["warm-up"]["0.004"][1][:2], rtol=0.05)


@pytest.mark.slow
def test_the_kept_scores_of_the_smoothing_are_repeated():
    (first,) = smoothing.judged(smoothing.Task(), 2000, 0.2, seed=2, last=100)
    expected = kept("smoothing")["2000 pairs, 0.2"][1][0]
    assert first["update"] == expected["update"] == 100
    assert first["perplexity"] == pytest.approx(expected["perplexity"], rel=0.1)
    assert first["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)


def test_the_walk_in_parts_is_the_same_training():
    notes = shared_gradient.training("at once", 0.008, 2)
    whole = warmups.training("at once", 0.008, 1, updates=2, dtype=np.float64)
    np.testing.assert_allclose(notes["loss"], [loss for _, loss in whole])
    without = shared_gradient.training("at once", 0.008, 2, without=(1,))
    assert without["loss"][0] == notes["loss"][0]
    assert abs(without["loss"][1] - notes["loss"][1]) > 0.01


def test_the_trainer_makes_its_updates_from_rows_written_backwards():
    rows = [[4, 9, 5], [8, 6], [7, 7, 4, 10], [13], [5, 4], [6], [9, 9, 8], [12, 11]]
    data = ReversedRows(rows, 14)
    first, second = data.plan(1, 100, 1)
    assert [*first, *second] == list(range(8))
    assert data.batch(first).target_out[0].tolist() == [5, 9, 4, 3, 0]
    config = Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
    before, after = parameters_of_the_trainer(config, rows, 2)
    assert abs(after - before).max() > 0 and np.isfinite(after).all()


# Lesson 08 ----------------------------------------------------------------------------------------


def test_the_model_beside_the_lessons_is_the_first_that_is_good_enough():
    results = kept("early_model")
    assert [row["updates"] for row in results["checkpoints"]] == list(range(50, 1501, 50))
    good = [row for row in results["checkpoints"] if row["greedy"]["BLEU"] >= early_model.ENOUGH]
    assert early_model.choose(results["checkpoints"]) == results["chosen"] == good[0]["updates"]
    assert read_notes(early_model.FOLDER)["step"] == results["chosen"]
    text = (early_model.FOLDER / "README.md").read_text(encoding="utf-8")
    assert early_model.COMMAND in " ".join(text.replace("\\\n", " ").split())


@pytest.mark.slow
def test_the_kept_scores_of_the_early_model_are_repeated():
    results = kept("early_model")
    (expected,) = (row for row in results["checkpoints"] if row["updates"] == results["chosen"])
    translator = Translator.load(early_model.FOLDER)
    found = early_model.measure(translator, *toy.splits(n_train=0)["valid"])
    assert {"updates", *found} == expected.keys()
    for name, row in found.items():
        assert row == pytest.approx(expected[name], abs=0.5), name


# Lesson 09 ----------------------------------------------------------------------------------------


def test_the_lesson_trains_as_the_kept_run_did():
    text = (ROOT / "lessons" / "09_train_wmt.py").read_text(encoding="utf-8")
    assert f'OPTIONS = "{quick_run.OPTIONS}"' in text


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_ranks_gradients_sum_to_that_of_one(size):
    model = Transformer(Config(9, n_layers=1, d_model=8, d_ff=8, n_heads=2))
    model.astype(np.float64)
    adam = Adam(model.named_parameters())
    rows = [[4, 5, 6, 7], [8, 4], [5], [6, 7, 8]]
    batches = [make_batch(rows, rows[::-1], 9), make_batch(rows[:3], rows[1:], 9)]

    (alone,) = gradients_of_ranks(model, adam, batches, 1, seed=3, step=7)
    of_ranks = gradients_of_ranks(model, adam, batches, size, seed=3, step=7)

    assert len(of_ranks) == size
    assert all(np.linalg.norm(gradient - alone) > 0.1 for gradient in of_ranks)
    np.testing.assert_allclose(sum(of_ranks), alone, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_each_continued_training_begins_with_the_early_model_and_keeps_all_copies():
    further = ContinuedTraining(batch_tokens=250, order=np.random.default_rng(1))
    first, second, third = further.checkpoints([0.001, 0.0])
    again = further.checkpoints([0.0])
    for name in first:
        assert (first[name] == again[0][name]).all() and (first[name] == again[1][name]).all()
        assert (second[name] == third[name]).all()
    assert any((first[name] != second[name]).any() for name in first)
    assert further.loss_on_unseen(first) == further.loss_on_unseen(again[1])
    assert further.loss_on_unseen(first) != further.loss_on_unseen(second)
