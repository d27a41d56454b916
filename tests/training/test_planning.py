"""--plan: operations counted product by product, memory predicted, and a run that does not fit."""

import operator
import re
import shlex
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import strict
from models import random_batch, small_model
from runs import SMALL, prepare_folder, run

from minitf import backend
from minitf.cpu import machine
from minitf.cpu.machine import memory_of
from minitf.training import commandline, planning
from minitf.training.planning import arithmetic
from minitf.training.settings import parse
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


def slice_of(trainer, indices):
    return trainer.updater.largest_slice(indices)


def needed(trainer):
    fixed, batch, _ = planning._needed(trainer.updater, trainer.largest_batches())
    return fixed + batch


def report(trainer, update=lambda: None):
    """Return the lines of --plan."""
    load = trainer.workload()
    typical = slice_of(trainer, load.typical)
    return planning.report(load, trainer.updater, trainer.largest_batches(), typical, update)


# Arithmetic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "tie": False},
        {"n_layers": 1, "d_k": 5, "d_v": 3},
        {"n_decoder_layers": 3, "output_bias": True},
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
    load = trainer.workload()
    batches = [trainer.dataset.batch(rows) for rows in trainer.cursor.plan]
    n_tokens = sum(batch.n_tokens for batch in batches)
    assert load.tokens == pytest.approx(2 * n_tokens / len(batches)), "two batches to an update"
    shapes = [(*batch.source.shape, batch.target_in.shape[1], batch.n_tokens) for batch in batches]
    assert load.work == pytest.approx(
        2 * np.mean([arithmetic(trainer.config, *shape) for shape in shapes])
    )


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
    batch = trainer.largest_batches()[0]
    fixed, proportional, _ = planning._predicted(trainer.updater, batch)
    real = memory_of(lambda: trainer.updater.backward(batch, batch.n_tokens, 0))
    assert len(batch.source) > 20 and real > 1e6
    assert fixed + proportional == pytest.approx(real, rel=0.15)


def test_memory_of_this_process():
    free, largest = machine.free_memory(), machine.largest_memory()
    assert free is None or 1e7 < free < 1e15
    assert largest is None or 1e7 < largest < 1e12


def changed(line):
    """Return the options in a line "change   use --this 5 --that 6; or ..."."""
    return shlex.split(line.removeprefix("change   use ").split(";")[0])


@pytest.mark.parametrize("share", [0.9, 0.4])
def test_the_suggested_change_fits(folder, trainer, monkeypatch, share):
    free = int(share * needed(trainer) / planning.SAFE)
    monkeypatch.setattr(planning, "free_memory", lambda: free)
    monkeypatch.setattr(planning, "FEWEST_TOKENS", 5)
    monkeypatch.setattr(planning, "_copied", lambda team: 0)
    lines = list(report(trainer, lambda: pytest.fail("it does not fit")))
    assert re.match(r"memory +this run does not fit: it needs another [\d.]+ .B ", lines[-2])
    more = changed(lines[-1])
    settings, _ = parse(
        [*TEXTS, *SMALL, "--set", "d_model=64", "--set", "d_ff=256", "--replicas", "1", *more]
    )
    assert settings.batch_tokens * settings.accumulate >= 600, (
        "the update has as many tokens as before"
    )
    assert needed(commandline.build(settings)) < planning.SAFE * free


def test_the_copies_from_which_files_are_written_are_predicted(trainer):
    trainer.update()
    most = planning.memory_of(trainer.save)
    assert 0.8 * most < planning._copied(trainer.updater) < 1.3 * most


def test_a_model_whose_files_cannot_be_written(trainer, monkeypatch):
    """Smaller batches would not help."""
    copies = 10**9
    monkeypatch.setattr(planning, "_copied", lambda team: copies)
    monkeypatch.setattr(planning, "free_memory", lambda: copies)
    lines = list(report(trainer))
    assert "or 1.00 GB to write the files), but only 1.00 GB are free" in lines[-2]
    assert "choose a smaller --preset, or" in lines[-1]
    monkeypatch.setattr(planning, "free_memory", lambda: 2 * copies)
    for name in "used_memory", "largest_memory":  # what the tests before this one have taken
        monkeypatch.setattr(planning, name, lambda: 0)
    (memory,) = (line for line in report(trainer) if line.startswith("memory"))
    assert re.search(r"at most about 1\.[0-9]+ GB", memory)


def test_a_model_too_large_for_any_batch(trainer, monkeypatch):
    monkeypatch.setattr(planning, "free_memory", lambda: 1000)
    assert "choose a smaller --preset, or" in list(report(trainer))[-1]
    for origin, advice in (("start_from", "start from a smaller"), ("resume", "of more memory")):
        monkeypatch.setattr(trainer.settings, origin, "there")
        assert advice in list(report(trainer))[-1]


# Time ---------------------------------------------------------------------------------------------


class Clock:
    """Replaces Updater.try_batch: passes take a time that is known, and their rows are noted."""

    def __init__(self, load, fixed, slope):
        self.load, self.fixed, self.slope, self.rows = load, fixed, slope, []

    def __call__(self, batch):
        self.rows.append(len(batch.source))
        return self.fixed + self.slope * planning._work(self.load, batch, len(batch.source))


def predicted_passes(trainer, monkeypatch, fixed, slope):
    """Return the predicted seconds of an update, the typical batch, and the rows of all slices."""
    load = trainer.workload()
    typical = slice_of(trainer, load.typical)
    clock = Clock(load, fixed, slope)
    monkeypatch.setattr(trainer.updater, "try_batch", clock)
    seconds, _ = planning._passes(load, trainer.updater, typical)
    return seconds, typical, clock.rows


def test_time_of_a_slow_batch_is_predicted_from_slices(trainer, monkeypatch):
    monkeypatch.setattr(planning, "SLICE_TOKENS", 80)
    load = trainer.workload()
    seconds, typical, rows = predicted_passes(trainer, monkeypatch, 3.0, 1e-6)
    assert max(rows) * planning._width(typical) <= 80 and max(rows) <= len(typical.source) / 2
    assert min(rows) <= max(rows) / 3, "a line needs two points that are far from each other"
    assert seconds == pytest.approx(2 * 3.0 + 1e-6 * load.work), "an update has two passes"


def test_a_quick_batch_is_measured_uncut(trainer, monkeypatch):
    monkeypatch.setattr(planning, "SLICE_TOKENS", 80)
    load = trainer.workload()
    seconds, typical, rows = predicted_passes(trainer, monkeypatch, 0.0, 1e-12)
    assert max(rows) == len(typical.source)
    assert seconds == pytest.approx(1e-12 * load.work)


class FakeRanks:
    """One of several ranks, each a thread. gather and tell wait for all of them, as MPI's do."""

    def __init__(self, rank, barrier, values):
        self.rank, self.barrier, self.values = rank, barrier, values

    def gather(self, value):
        self.values[self.rank] = value
        self.barrier.wait(10)
        found = list(self.values)
        self.barrier.wait(10)
        return found

    def tell(self, value):
        return self.gather(value)[0]


@pytest.mark.parametrize("cost", [0.0, 3.0])
def test_ranks_with_unequal_slices_make_the_same_passes(trainer, monkeypatch, cost):
    """Three ranks that share an even number of batches have more or fewer rows of the typical."""
    load = trainer.workload()
    typical = slice_of(trainer, load.typical)
    lengths = 7, 4, 8
    monkeypatch.setattr(planning, "SLICE_TOKENS", 40)
    barrier, values = threading.Barrier(3), [None] * 3

    def passes(rank):
        rows = []
        team = types.SimpleNamespace(
            ranks=FakeRanks(rank, barrier, values),
            models=trainer.updater.models,
            try_batch=lambda batch: rows.append(len(batch.source)) or cost,
        )
        planning._passes(load, team, typical.rows(0, lengths[rank]))
        return rows

    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(passes, range(3))
    assert others == [first, first] and max(first) <= min(lengths)


def test_the_rest_of_an_update_does_not_count_its_pass_again(trainer, monkeypatch):
    batch = trainer.largest_batches()[0]
    monkeypatch.setattr(trainer.updater, "try_batch", lambda batch: 2.0)
    seconds = iter([100.0, 5.0, 5.5, 6.0])  # the first update is slower
    monkeypatch.setattr(planning, "_timed", lambda update: update())
    monkeypatch.setattr(planning, "FEWEST_REPEATS", 3)
    monkeypatch.setattr(planning, "MOST_REPEATS", 3)
    assert planning._rest_of_update(trainer.updater, batch, lambda: next(seconds)) == 3.5
    monkeypatch.setattr(trainer.updater, "try_batch", lambda batch: 9.0)
    assert planning._rest_of_update(trainer.updater, batch, lambda: 5.0) == 0.0


# Lines --------------------------------------------------------------------------------------------


def test_each_line_comes_as_soon_as_it_is_known(trainer, monkeypatch):
    """The first lines come before anything is run; memory is known before anything large is."""
    rows, updates = [], []
    backward = Updater.backward

    def watch(self, batch, *arguments):
        rows.append(len(batch.source))
        return backward(self, batch, *arguments)

    monkeypatch.setattr(Updater, "backward", watch)
    lines = report(trainer, lambda: updates.append(len(rows)))
    assert [next(lines).split()[0] for _ in range(3)] == ["update", "products", "measure"]
    assert not rows, "nothing was run before"
    assert next(lines).startswith("memory") and not updates
    assert max(rows) <= len(trainer.largest_batches()[0].source) / 2, "slices are small: they fit"
    assert [line.split()[0] for line in lines] == ["time", "speed", "paper"]
    assert len(updates) > planning.FEWEST_REPEATS


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
    assert names[8:] == [
        "update",
        "products",
        "measure",
        "memory",
        "time",
        "speed",
        "paper",
    ]
    assert "for the remaining 13 updates" in said
    speed = float(re.search(r"speed +([\d,]+) target", said)[1].replace(",", ""))
    assert re.search(r"paper +(.*) for the paper's 100,000 updates", said)[1] in {
        planning._duration(2.5e9 / (speed + change)) for change in np.linspace(-0.5, 0.5, 101)
    }


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


def test_a_long_run_is_predicted(folder, monkeypatch, capsys):
    assert run("short", "--steps", "2") == 0
    assert "plan  " not in capsys.readouterr().out
    monkeypatch.setattr(planning, "LONG", 0)
    assert run("long", "--steps", "2") == 0
    assert re.search(
        r"plan +\d+ target tokens and .* for the remaining 2 updates; --plan",
        capsys.readouterr().out,
    )
    assert run("cut", "--steps", "1000000", "--minutes", "0.001") in (0, commandline.CUT_SHORT)
    assert re.search(
        r"for the remaining 1,000,000 updates \(--minutes 0.001 ends the run earlier\)",
        capsys.readouterr().out,
    )
