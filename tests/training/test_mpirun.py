"""Training on several ranks: the weights of one process, one set of files, no rank left waiting."""

import json
import os
import platform
import re
import shlex
import signal
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from mpi import finish, needs_mpi, start
from paths import ROOT
from runs import PACE, SMALL, prepare_folder

from minitf.files.arrays import load_arrays
from minitf.training.commandline import EXIT_NO_MODEL
from minitf.training.log import read_history

pytestmark = needs_mpi
TEXTS = shlex.split("--train train.en train.de --valid valid.en valid.de")
DROPOUT = ["--set", "attention_dropout=0.1"]
ONE_THREAD = ["--replicas", "1"]
LESSON = ROOT / "lessons" / "09_train_wmt.py"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


def begin(ranks, out, *more, **wish):
    return start(
        ranks, "rank_program.py", json.dumps(wish), *TEXTS, *SMALL, *PACE, "--out", out, *more
    )


def train(ranks, out, *more, **wish):
    """Train on so many ranks until the end; return the output."""
    code, said, error = finish(begin(ranks, out, *more, **wish))
    assert code == 0, error
    return said


def rows(ranks):
    """Return the rows that each rank computed in the last training here."""
    return [Path(f"rows-{rank}.txt").read_text().splitlines() for rank in range(ranks)]


def weights(out):
    return load_arrays(f"{out}/checkpoint.safetensors")[0]


def losses(out):
    return [(entry["step"], entry["loss"]) for entry in read_history(out) if "loss" in entry]


def files(out):
    return sorted(path.name for path in Path(out).iterdir())


def assert_close(one, other, tolerance):
    for name, array in weights(one).items():
        assert np.allclose(array, weights(other)[name], rtol=tolerance, atol=tolerance), name


def assert_same(one, other):
    assert losses(one) == losses(other)
    for name, array in weights(one).items():
        assert np.array_equal(array, weights(other)[name]), name


# The same training --------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_ranks_equal_one_process():
    """With dropout and clipping; in float64 the two differ only by the order of the sums."""
    more = [*DROPOUT, *ONE_THREAD, *shlex.split("--accumulate 3 --clip 0.5 --steps 9")]
    train(1, "one", *more, float64=True)
    (all_rows,) = rows(1)
    said = train(2, "two", *more, float64=True)
    first, second = rows(2)
    assert sorted(first + second) == sorted(all_rows), (
        "no row is missing, none is computed twice, each has its number"
    )
    assert 0.7 < len(first) / len(second) < 1.4
    assert_close("one", "two", 1e-9)
    assert np.allclose(losses("one"), losses("two"), rtol=1e-9)
    assert files("one") == files("two")
    assert len(re.findall(r"step +9 ", said)) == 2, "its loss and its validation, from one rank"
    assert "ranks    2 on 1 machine" in said


@pytest.mark.slow
def test_two_ranks_equal_two_threads_bit_for_bit():
    train(1, "threads", *DROPOUT, "--replicas", "2")
    train(2, "ranks", *DROPOUT, *ONE_THREAD)
    assert_same("threads", "ranks")
    train(2, "again", *DROPOUT, *ONE_THREAD)
    assert_same("ranks", "again")


@pytest.mark.slow
def test_ranks_with_threads_equal_one_process():
    """Three ranks of two threads; some batches have fewer rows."""
    train(1, "one", *DROPOUT, *ONE_THREAD, float64=True)
    (all_rows,) = rows(1)
    train(3, "six", *DROPOUT, "--replicas", "2", float64=True)
    assert sorted(chain.from_iterable(rows(3))) == sorted(all_rows)
    assert_close("one", "six", 1e-9)


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_ranks():
    train(2, "whole", *ONE_THREAD, float64=True)
    done = []
    for ranks, stop in ((2, 5), (1, 9), (3, 13)):
        said = train(
            ranks,
            "parts",
            *ONE_THREAD,
            "--steps",
            str(stop),
            *(["--resume"] if done else []),
            float64=True,
        )
        if done:
            assert "the result will differ from that of an uninterrupted run" in said
            assert f"ranks {done[-1]} -> {ranks}" in said
        done.append(ranks)
    assert_close("whole", "parts", 1e-9)
    train(2, "same", *ONE_THREAD, "--steps", "6")
    said = train(2, "same", *ONE_THREAD, "--resume")
    assert "will differ" not in said
    train(2, "unstopped", *ONE_THREAD)
    assert_same("same", "unstopped")


@pytest.mark.slow
def test_sums_and_messages():
    code, said, error = finish(start(3, "sum_program.py"))
    assert (code, said) == (0, "3 ranks agree\n"), error


# Accidents ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "rank, what, words",
    [
        (0, "err", "RuntimeError: nobody foresaw this"),
        (1, "err", "RuntimeError: nobody foresaw this"),
        (1, "kill", ""),
        (
            0,
            "use up the memory",
            "program: out of memory after step 6: lower --batch-tokens, which is 60",
        ),
        (1, "use up the memory", "and raise --accumulate (rank 1 on "),
        (
            1,
            "spoil a weight",
            f"program: weights after step 8 of rank 1 (on {platform.node()}) differ from those of",
        ),
    ],
)
def test_a_failure_of_one_rank_ends_all(rank, what, words):
    code, said, error = finish(begin(2, "here", accidents=[[6, rank, what]]))
    assert code != 0 and words in error
    assert error.count("program: ") == (words.startswith(("program", "and raise"))), "said once"
    assert "Traceback" not in error or what == "err"
    assert re.search(r"step +4 ", said) and not re.search(r"step +9 ", said)
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 4


@pytest.mark.slow
def test_a_mistake_is_reported_once():
    code, said, error = finish(begin(2, "here", "--steps", "0"))
    assert (code, said) == (2, "") and error.count(
        "program: --steps must be at least 1, not 0"
    ) == 1
    assert not Path("here/checkpoint.safetensors").exists()


@pytest.mark.slow
def test_a_plan_is_measured_by_all_ranks():
    """All make the same number of updates, although each has its own clock."""
    said = train(2, "here", "--plan")
    assert "GB on each rank" in said and said.count("\nspeed  ") == 1
    first, second = rows(2)
    steps = [{line.split(" ", 1)[0] for line in each} for each in (first, second)]
    assert len(steps[0]) > 3 and steps[0] == steps[1]
    assert not Path("here").exists()


@pytest.mark.slow
def test_a_run_that_ends_early_has_one_exit_code():
    more = shlex.split("--steps 1000000 --minutes 0.005 --learning-rate 1e-9")
    code, said, error = finish(begin(2, "here", *more))
    assert code == EXIT_NO_MODEL, error
    assert len(re.findall("cannot translate yet|has diverged", said)) == 1


@pytest.mark.slow
def test_waiting_for_rank_0_keeps_no_core_busy():
    """Rank 0 validates for three seconds; the other rank sleeps."""
    train(2, "here", "--steps", "4", *ONE_THREAD, slow_validation=3)
    assert float(Path("computed-1.txt").read_text()) < 0.3 * 3


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_all_after_the_update(rank):
    said = train(2, "here", accidents=[[6, rank, "terminate"]])
    reason = ("SIGTERM received", "another rank received a signal")[rank]
    assert f"stopped  {reason} after step 6: continue with --resume --out here\n" in said
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 6
    assert not Path("here/results.json").exists()


@pytest.mark.slow
def test_a_signal_while_rank_0_scores_the_model():
    """mpirun forwards it to the other ranks too, which are waiting."""
    process = begin(2, "here", slow_end=2)
    for line in process.stdout:
        if "scoring" in line:
            break
    os.kill(process.pid, signal.SIGUSR1)
    code, said, error = finish(process)
    assert code == 0, error
    assert "received after the last step: score it with --resume --out here\n" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_a_signal_to_mpirun(name):
    """mpirun forwards SIGUSR1, and all ranks finish.

    After SIGTERM, Open MPI 5 kills the ranks: the last checkpoint is intact.
    """
    process = begin(2, "here", "--steps", "1000000", "--valid-every", "20")
    for line in process.stdout:
        if re.search(r"step +30 ", line):
            break
    os.kill(process.pid, getattr(signal, name))
    code, _, error = finish(process)
    step = load_arrays("here/checkpoint.safetensors")[1]["step"]
    if name == "SIGUSR1":
        assert code == 0 and step >= 30, error
    assert step >= 20
    train(2, "here", "--resume", "--steps", str(step + 3), "--valid-every", "20")
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == step + 3
