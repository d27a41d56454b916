"""--plan: operations counted product by product, memory predicted, and a run that does not fit."""

import contextlib
import operator
import re
import shlex
import time
from pathlib import Path

import numpy as np
import pytest
import strict
from models import random_batch, small_model
from runs import SMALL, prepare_folder, run

from minitf import backend
from minitf.cpu.machine import memory_of
from minitf.errors import UserError
from minitf.training import commandline, planning
from minitf.training.planning import arithmetic
from minitf.training.settings import parse
from minitf.training.trainer import Trainer
from minitf.training.update import Updater

TEXTS = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


@pytest.fixture
def trainer(folder):
    """A trainer whose batches need far more memory than its parameters."""
    sizes = shlex.split(
        "--set d_model=64 --set d_ff=256 --batch-tokens 300 --replicas 1 --accumulate 2"
    )
    return commandline.build(parse([*TEXTS, *SMALL, *sizes])[0])


def report(trainer):
    """Return the lines of --plan."""
    lines = []
    trainer.log._write = lines.append
    planning.log_plan(trainer)
    return lines


# Arithmetic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "tie": False},
        {"n_layers": 1, "d_k": 5, "d_v": 3},
        {"n_decoder_layers": 3, "output_bias": True},
        {"decoder": "ssru"},
    ],
    ids=str,
)
def test_arithmetic_is_the_sum_of_all_products(rng, monkeypatch, changes):
    compute, counted = strict._compute, []

    def count(function, args, kwargs):
        if function in (np.matmul, operator.matmul):
            left, right = (array.shape for array in args[:2])
            # Sums written as products with ones do not count.
            if min(*left[-2:], right[-1]) > 1:
                outside = np.broadcast_shapes(left[:-2], right[:-2])
                counted.append(2 * np.prod(outside, dtype=int) * left[-2] * left[-1] * right[-1])
        return compute(function, args, kwargs)

    monkeypatch.setattr(strict, "_compute", count)
    with backend.using(strict.module):
        model = small_model("float32", **changes)
        batch = random_batch(rng, 3)
        model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
    rows, width = batch.source.shape
    # Forms compute no logits for padding, the equations do.
    positions = batch.target_out.size
    assert sum(counted) == arithmetic(
        model.config, rows, width, batch.target_in.shape[1], positions
    )


def test_averages_are_those_of_the_epoch(trainer):
    tokens, work, typical = planning._average(trainer)
    batches = [trainer.dataset.batch(rows) for rows in trainer.cursor.plan]
    n_tokens = sum(batch.n_tokens for batch in batches)
    assert tokens == pytest.approx(2 * n_tokens / len(batches)), "two batches to an update"
    shapes = [(*batch.source.shape, batch.target_in.shape[1], batch.n_tokens) for batch in batches]
    operations = [arithmetic(trainer.config, *shape) for shape in shapes]
    assert work == pytest.approx(2 * np.mean(operations))
    assert any(np.array_equal(typical, rows) for rows in trainer.cursor.plan)


# Memory -------------------------------------------------------------------------------------------


def test_memory_of_is_the_most_at_one_time():
    def work():
        for size in (3, 5, 2):
            np.ones(size << 20, np.uint8)  # each freed before the next
        hold = np.ones(4 << 20, np.uint8)
        np.ones(3 << 20, np.uint8)
        del hold

    assert memory_of(work) == pytest.approx(7 << 20, rel=0.01)


def test_the_largest_batch_is_predicted_from_a_slice_of_it(trainer):
    predicted = planning._memory(trainer) - trainer.optimizer.gradients.nbytes  # not yet touched
    real = memory_of(lambda: list(map(trainer.updater.try_batch, trainer.largest_batches())))
    assert real > 1e6
    assert predicted == pytest.approx(real, rel=0.15)


def test_the_copies_from_which_files_are_written_are_predicted(trainer, monkeypatch):
    Path("here").mkdir()
    trainer.update()
    monkeypatch.setattr(trainer, "largest_batches", lambda: [trainer.dataset.batch([0])])
    predicted = planning._memory(trainer) - trainer.optimizer.gradients.nbytes
    assert 0.8 < predicted / memory_of(trainer.save) < 1.3


def test_a_run_that_does_not_fit_is_told_what_to_change(trainer, monkeypatch):
    monkeypatch.setattr(planning, "free_memory", lambda: 2_000_000)
    monkeypatch.setattr(trainer, "update", lambda *_: pytest.fail("it does not fit"))
    memory, change = report(trainer)[-2:]
    assert re.match(
        r"memory +this run does not fit: it needs another [\d.]+ GB, but only 0.00 GB", memory
    )
    assert "lower --batch-tokens, which is 300, and raise --accumulate; or choose a sm" in change


@pytest.mark.parametrize(("bytes_each", "fits"), [(15.9, False), (16.1, True)])
def test_a_model_needs_sixteen_bytes_a_parameter(trainer, monkeypatch, bytes_each, fits):
    """The weights, their gradients, and two moments, in float32."""
    free = bytes_each * trainer.config.count_parameters()
    monkeypatch.setattr(planning, "free_memory", lambda: free)
    with contextlib.nullcontext() if fits else pytest.raises(UserError, match="GB before training"):
        planning.check_model(trainer.settings, trainer.config, len(trainer.dataset.subwords))


# Time ---------------------------------------------------------------------------------------------


def test_the_time_of_an_update_is_in_proportion_to_its_operations(trainer, monkeypatch):
    now, rows = [0.0], []

    def update(batches):
        rows.append(len(batches.indices[0]))
        batch = trainer.dataset.batch(batches.indices[0])
        shape = len(batch.source), batch.source.shape[1], batch.target_in.shape[1]
        now[0] += 1e-6 * arithmetic(trainer.config, *shape, batch.n_tokens)

    monkeypatch.setattr(trainer, "update", update)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(planning, "SLICE_TOKENS", 80)
    _, work, typical = planning._average(trainer)
    assert planning._seconds(trainer, typical, work) == pytest.approx(1e-6 * work)
    assert max(rows) <= len(typical) / 2


def test_nothing_large_is_run(trainer, monkeypatch):
    """The memory is known before the first update, from slices that fit where a batch does not."""
    events, backward, update = [], Updater.backward, Trainer.update

    def watch(self, batch, *arguments):
        events.append(len(batch.source))
        return backward(self, batch, *arguments)

    def watch_update(self, batches):
        events.append("a real update")
        return update(self, batches)

    monkeypatch.setattr(Updater, "backward", watch)
    monkeypatch.setattr(Trainer, "update", watch_update)
    trainer.log._write = lambda text: events.append(text.split()[0])
    planning.log_plan(trainer)
    words = [event for event in events if isinstance(event, str) and event != "a real update"]
    assert words == ["update", "memory", "time", "speed"]
    first = events.index("memory")
    assert "a real update" not in events[:first] and "a real update" in events[first:]
    most = max(event for event in events[:first] if isinstance(event, int))
    assert most <= len(trainer.largest_batches()[0].source) / 2


# The command --------------------------------------------------------------------------------------


def test_plan_measures_and_writes_nothing(folder, monkeypatch, capsys):
    before = sorted(folder.rglob("*"))
    assert run("here", "--plan") == 0
    assert sorted(folder.rglob("*")) == before
    said = capsys.readouterr().out
    names = [line.split()[0] for line in said.splitlines()]
    assert names[1] == "notice"  # of the few pairs
    assert [names[0], *names[2:8]] == (
        ["corpus", "subwords", "pairs", "valid", "chosen", "model", "machine"]
    )
    assert names[8:] == ["update", "memory", "time", "speed"]
    assert "for the remaining 13 updates" in said


@pytest.mark.slow
def test_a_resumed_run_is_planned_for_the_remaining_updates(folder, monkeypatch, capsys):
    assert run("here", "--steps", "5") == 0
    before = {path: path.read_bytes() for path in Path("here").iterdir()}
    capsys.readouterr()
    assert run("here", "--resume", "--plan", "--steps", "45") == 0
    assert "for the remaining 40 updates" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in Path("here").iterdir()} == before
    assert run("here", "--steps", "5", "--plan") == 0, (
        "where a run is already, a plan takes nothing away"
    )
