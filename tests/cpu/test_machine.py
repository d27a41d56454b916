"""Cores, within the quota of a container, and memory."""

import os
import tracemalloc

import pytest

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


def test_no_quota_in_cgroup_version_1(eight):
    (eight / "cpu").mkdir()
    (eight / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (eight / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == 8


def test_memory_of_a_container_too(eight):
    (eight / "memory.max").write_text("5000\n")
    (eight / "memory.current").write_text("2000\n")
    assert machine.free_memory() == 3000
    (eight / "memory.stat").write_text("anon 100\ninactive_file 1500\nactive_file 7\n")
    assert machine.free_memory() == 4500, "Linux drops copies of files before it refuses memory"


def test_memory_of_a_container_in_cgroup_version_1(eight):
    (eight / "memory").mkdir()
    (eight / "memory" / "memory.limit_in_bytes").write_text("5000\n")
    (eight / "memory" / "memory.usage_in_bytes").write_text("2000\n")
    (eight / "memory" / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 500\n")
    assert machine.free_memory() == 3500


def test_nothing_is_traced_after_an_error():
    """Tracing slows down every allocation for the rest of the process."""
    with pytest.raises(ZeroDivisionError):
        machine.memory_of(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()
