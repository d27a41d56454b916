"""--plan: the arithmetic counted product by product, memory predicted and kept, and a run that
would not fit.
"""

import operator
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import strict
from models import random_batch, small_model
from runs import SMALL, prepare_folder, run

from minitf import backend
from minitf.cpu import machine
from minitf.cpu.machine import memory_of
from minitf.cpu.replicas import Replicas
from minitf.training import commandline, planning
from minitf.training.planning import arithmetic
from minitf.training.settings import parse
from minitf.training.trainer import Trainer

TEXTS = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


@pytest.fixture
def trainer(folder):
    """One whose batches hold far more memory than its parameters."""
    sizes = shlex.split(
        "--set d_model=64 --set d_ff=256 --batch-tokens 300 --replicas 1 --accumulate 2"
    )
    return commandline.build(parse([*TEXTS, *SMALL, *sizes])[0])


# Arithmetic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "tie": False}, {"n_layers": 1, "d_k": 5, "d_v": 3}], ids=str
)
def test_arithmetic_is_the_sum_of_all_products(rng, monkeypatch, changes):
    compute, counted = strict._compute, []

    def count(function, args, kwargs):
        if function in (np.matmul, operator.matmul):
            left, right = (array.shape for array in args[:2])
            # Sums written as products with ones are no matrix products.
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
    # Forms leave those of padding out of the logits, the equations do not.
    positions = batch.target_out.size
    assert sum(counted) == arithmetic(
        model.config, rows, width, batch.target_in.shape[1], positions
    )


def test_averages_are_those_of_the_epoch(trainer):
    tokens, work = planning._averages(trainer)
    batches = [trainer.dataset.batch(rows) for rows in trainer.plan]
    n_tokens = sum(batch.n_tokens for batch in batches)
    assert tokens == pytest.approx(2 * n_tokens / len(batches)), "two batches to an update"
    shapes = [(*batch.source.shape, batch.target_in.shape[1], batch.n_tokens) for batch in batches]
    assert work == pytest.approx(
        2 * np.mean([arithmetic(trainer.config, *shape) for shape in shapes])
    )


# Memory -------------------------------------------------------------------------------------------


def test_memory_of_is_what_stands_at_one_time():
    def work():
        for size in (3, 5, 2):
            np.ones(size << 20, np.uint8)  # each gone before the next
        hold = np.ones(4 << 20, np.uint8)
        np.ones(3 << 20, np.uint8)
        del hold

    assert memory_of(work) == pytest.approx(7 << 20, rel=0.01)


def test_the_largest_batch_is_foretold_from_a_part_of_it(trainer):
    batch = next(trainer.largest_shares())
    foretold = sum(planning._predicted(trainer, batch))
    real = memory_of(lambda: trainer.replicas.backward(batch, batch.n_tokens, 0, 0))
    assert len(batch.source) > 20 and real > 1e6
    assert foretold == pytest.approx(real, rel=0.15)


def test_memory_of_this_process():
    free, largest = machine.free_memory(), machine.largest_memory()
    assert free is None or 1e7 < free < 1e15
    assert largest is None or 1e7 < largest < 1e12


def changed(line):
    """The settings that a line "change   --this 5 --that 6; or ..." asks for."""
    return shlex.split(line.removeprefix("change").split(";")[0])


@pytest.mark.parametrize("share", [0.9, 0.4])
def test_what_it_says_to_change_fits(folder, trainer, monkeypatch, share):
    needed = sum(planning._needed(trainer))
    free = int(share * needed / planning.SAFE)
    monkeypatch.setattr(planning, "free_memory", lambda: free)
    monkeypatch.setattr(planning, "FEWEST", 5)
    monkeypatch.setattr(Trainer, "try_largest_batches", lambda self: pytest.fail("it does not fit"))
    lines = list(planning.report(trainer))
    assert "this run does not fit" in lines[-2] and "more are needed" in lines[-2]
    more = changed(lines[-1])
    settings, _ = parse(
        [*TEXTS, *SMALL, "--set", "d_model=64", "--set", "d_ff=256", "--replicas", "1", *more]
    )
    assert settings.batch_tokens * settings.accumulate >= 600, (
        "the update has as many tokens as before"
    )
    assert sum(planning._needed(commandline.build(settings))) < planning.SAFE * free


def test_a_model_too_large_for_any_batch(trainer, monkeypatch):
    monkeypatch.setattr(planning, "free_memory", lambda: 1000)
    assert "take a smaller model with --preset" in list(planning.report(trainer))[-1]


# Lines --------------------------------------------------------------------------------------------


def test_each_line_comes_as_soon_as_it_is_known(trainer, monkeypatch):
    """What is known beforehand is said before anything is run; how long the rest takes, before
    it is measured.
    """
    rows, updates = [], []
    backward, update = Replicas.backward, Trainer.update

    def watch(self, batch, *arguments):
        rows.append(len(batch.source))
        return backward(self, batch, *arguments)

    monkeypatch.setattr(Replicas, "backward", watch)
    monkeypatch.setattr(
        Trainer, "update", lambda self: (updates.append(len(rows)), update(self))[1]
    )
    monkeypatch.setattr(planning, "MEASURED", (1e9, 2, 3))  # as many updates as may be: three
    lines = planning.report(trainer)
    assert [next(lines).split()[0] for _ in range(3)] == ["update", "products", "measure"]
    assert not rows, "nothing was run before"
    announced = re.match(r"measure  about (\d+) passes .*, (.*) each: (.*)", next(lines))
    assert sum(rows) <= len(next(trainer.largest_shares()).source) / 8, (
        "a small part of one batch tells how long"
    )
    assert next(lines).startswith("memory") and len(updates) == 4
    # And those of parts, before the updates.
    whole = len(rows) - updates[0] + len(list(trainer.largest_shares()))
    assert int(announced[1]) == whole
    assert [line.split()[0] for line in lines] == ["speed", "time", "paper"]


# The command --------------------------------------------------------------------------------------


def test_plan_measures_and_writes_nothing(folder, monkeypatch, capsys):
    monkeypatch.setattr(planning, "MEASURED", (0, 2, 2))
    before = sorted(folder.rglob("*"))
    assert run("here", "--plan") == 0
    assert sorted(folder.rglob("*")) == before
    said = capsys.readouterr().out
    names = [line.split()[0] for line in said.splitlines()]
    assert names[:7] == ["corpus", "subwords", "pairs", "valid", "chosen", "model", "machine"]
    assert names[7:] == [
        "update",
        "products",
        "measure",
        "measure",
        "memory",
        "speed",
        "time",
        "paper",
    ]
    assert "for the 13 updates to come" in said and "measured over 2 updates" in said
    speed = float(re.search(r"speed +([\d,]+) target", said)[1].replace(",", ""))
    assert re.search(r"paper +(.*) for the paper's 100,000 updates", said)[1] in {
        planning._duration(2.5e9 / (speed + change)) for change in np.linspace(-0.5, 0.5, 101)
    }


def test_a_run_that_goes_on_is_planned_for_the_rest(folder, monkeypatch, capsys):
    monkeypatch.setattr(planning, "MEASURED", (0, 1, 1))
    assert run("here", "--steps", "5") == 0
    before = {path: path.read_bytes() for path in Path("here").iterdir()}
    capsys.readouterr()
    assert run("here", "--resume", "--plan", "--steps", "45") == 0
    assert "for the 40 updates to come" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in Path("here").iterdir()} == before
    assert run("here", "--steps", "5", "--plan") == 0, (
        "where a run is already, a plan takes nothing away"
    )


def test_a_long_run_says_what_it_will_take(folder, monkeypatch, capsys):
    assert run("short", "--steps", "2") == 0
    assert "plan  " not in capsys.readouterr().out
    monkeypatch.setattr(planning, "LONG", 0)
    assert run("long", "--steps", "2") == 0
    assert re.search(
        r"plan +\d+ target tokens and .* for the 2 updates to come; --plan", capsys.readouterr().out
    )
    assert run("cut", "--steps", "1000000", "--minutes", "0.001") in (0, commandline.CUT_SHORT)
    assert re.search(
        r"for the 1,000,000 updates to come \(--minutes 0.001 ends it before\)",
        capsys.readouterr().out,
    )
