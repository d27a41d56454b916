"""Results of several processes arrive as from one: in order, with errors, and none survives."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT

from minitf.cpu import processes
from minitf.cpu.processes import over_cores

forks = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is the process forked")


@pytest.fixture(params=[2, 3, pytest.param(8, marks=pytest.mark.slow)])
def n_cores(request, monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: request.param)
    return request.param


@pytest.fixture(autouse=True)
def nothing_is_left():
    open_before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    yield
    if sys.platform == "linux":
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_order(n_cores, count):
    large = np.arange(50_000)  # more than a pipe holds
    results = list(over_cores(lambda i: (i, large + i), range(count)))
    assert [i for i, _ in results] == list(range(count))
    assert all((array == large + i).all() for i, array in results)


@forks
def test_each_core_has_its_own_process(n_cores):
    own = list(over_cores(lambda i: os.getpid(), range(16)))
    assert len(set(own)) == n_cores and own[0] == os.getpid() == own[n_cores]
    assert own == [own[i % n_cores] for i in range(16)]


@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.slow), 5])
def test_errors_arrive_as_they_are(n_cores, place):
    class Odd(Exception):
        """Cannot be pickled."""

        def __init__(self, number, reason):
            super().__init__(f"number {number} is {reason}")

    def work(i):
        if i == place:
            raise Odd(i, "wrong")
        return i

    seen = []
    with pytest.raises(Odd, match=f"^number {place} is wrong$") as error:
        for result in over_cores(work, range(9)):
            seen.append(result)
    assert seen == list(range(place)) and error.traceback[-1].name == "work"


def test_results_that_cannot_be_pickled(n_cores):
    assert [result() for result in over_cores(lambda i: lambda: i, range(9))] == list(range(9))


@forks
@pytest.mark.parametrize("half_way", [False, True])
def test_the_items_of_a_killed_process_are_computed_here(n_cores, half_way, monkeypatch):
    def dump(message, file):
        data = pickle.dumps(message)
        if message[0] == n_cores + 1:
            file.write(data[: len(data) // 2 if half_way else 0])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        file.write(data)

    monkeypatch.setattr(processes.pickle, "dump", dump)
    results = list(over_cores(lambda i: (i, os.getpid()), range(4 * n_cores)))
    assert [i for i, _ in results] == list(range(4 * n_cores))
    assert {own for i, own in results if i % n_cores == 1 and i > 1} == {os.getpid()}
    assert results[1][1] != os.getpid()


@forks
def test_an_interruption_while_processes_are_made(n_cores, monkeypatch):
    interrupt_while_processes_are_made(n_cores, monkeypatch)


def interrupt_while_processes_are_made(n_cores, monkeypatch):
    """A worker ignores the signal; the parent ends all workers."""
    fork, here = os.fork, os.getpid()

    def interrupted():
        pid = fork()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)  # until a thread has received it
        return pid

    monkeypatch.setattr("os.fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(over_cores(lambda i: time.sleep(600), range(n_cores)))
    assert os.getpid() == here


@forks
def test_the_number_of_processes_is_limited(monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: 500)
    assert len(set(over_cores(lambda i: os.getpid(), range(100)))) == processes._MAX_PROCESSES


@forks
def test_closing_the_generator_stops_the_work(n_cores):
    results = over_cores(lambda i: i if i < 2 else time.sleep(600), range(n_cores))
    assert next(results) == 0
    results.close()


@forks
def test_an_interruption_stops_the_work(n_cores):
    here = os.getpid()

    def work(i):
        if os.getpid() == here:
            raise KeyboardInterrupt
        time.sleep(600)

    with pytest.raises(KeyboardInterrupt):
        list(over_cores(work, range(n_cores)))


def test_where_the_system_allows_no_more_processes(n_cores, monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", refuse, raising=False)
    assert list(over_cores(lambda i: (i, os.getpid()), range(9))) == [
        (i, os.getpid()) for i in range(9)
    ]


@pytest.mark.parametrize("why", ["MPI", "macOS"])
def test_threads_where_forking_is_not_allowed(n_cores, monkeypatch, why):
    if why == "MPI":
        monkeypatch.setitem(sys.modules, "mpi4py.MPI", object())
    else:
        monkeypatch.setattr(sys, "platform", "darwin")
    assert list(over_cores(lambda i: (i, os.getpid()), range(9))) == [
        (i, os.getpid()) for i in range(9)
    ]
    with pytest.raises(ZeroDivisionError):
        list(over_cores(lambda i: 1 // i, range(3)))
    monkeypatch.undo()


PROGRAM = """
import os, time
from minitf.cpu import processes
processes.cores = lambda: 3
def work(i):
    os.write(1, b"%d\\n" % os.getpid())  # in one call
    time.sleep(0.1)
    return bytes(1 << 20)
list(processes.over_cores(work, range(3_000)))
"""


@forks
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process(number):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=-1, stderr=-1, text=True
    ) as process:
        started = {int(process.stdout.readline()) for _ in range(9)}
        assert len(started) == 3
        process.send_signal(number)
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}/fd").exists() and _alive(pid) for pid in started):
            assert time.monotonic() < deadline, "a worker outlives the process"
            time.sleep(0.05)
        process.stdout.close()
        assert process.stderr.read().count("Traceback") == (number == signal.SIGINT)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
