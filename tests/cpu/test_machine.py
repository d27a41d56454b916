"""How many cores there are, those of this process and no more than a container's quota, and
how much memory.
"""

import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import strict

from minitf.backend import using
from minitf.cpu import machine


@pytest.fixture
def eight(tmp_path, monkeypatch):
    """A machine of eight cores whose cgroup files are in tmp_path."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        (200_000, 100_000, 2),
        (150_000, 100_000, 2),
        (10_000, 100_000, 1),
        (50_000, 20_000, 3),
        (6_400_000, 100_000, 8),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_container_may_use_part_of_the_cores(eight, version, quota, period, cores):
    if version == 2:
        (eight / "cpu.max").write_text(f"{quota} {period}\n")
    else:
        (eight / "cpu").mkdir()
        (eight / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (eight / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    assert machine.cores() == cores


@pytest.mark.parametrize("content", [None, "max 100000\n", "", "200000 0\n", "many\n"])
def test_without_a_quota_all_cores(eight, content):
    assert machine.cores() == 8
    if content is not None:
        (eight / "cpu.max").write_text(content)
    assert machine.cores() == 8


def test_a_quota_of_version_1_that_is_none(eight):
    (eight / "cpu").mkdir()
    (eight / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (eight / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == 8


def test_memory_of_a_container_too(eight):
    (eight / "memory.max").write_text("5000\n")
    (eight / "memory.current").write_text("2000\n")
    assert machine.free_memory() == 3000


def test_a_gpu_needs_no_more_than_one_process_of_this_machine():
    assert machine.cores() >= 1
    with using(strict.module):
        assert machine.cores() == 1


def test_nothing_is_traced_after_an_error():
    """Tracing makes every allocation slower, for the rest of the process."""
    with pytest.raises(ZeroDivisionError):
        machine.memory_of(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()


SLACK = 2 << 20  # the kernel counts pages of each thread for itself, and adds them up now and then


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_largest_memory_is_that_of_before_in_bytes():
    hold = np.ones(64 << 20, np.uint8)
    now = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    largest = machine.largest_memory()
    assert 64 << 20 < now <= largest + SLACK
    del hold
    assert machine.largest_memory() + SLACK >= largest
