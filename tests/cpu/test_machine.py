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
def test_a_container_may_use_part_of_the_cores(eight, quota, period, cores):
    (eight / "cpu.max").write_text(f"{quota} {period}\n")
    assert machine.cores() == cores


@pytest.mark.parametrize("content", [None, "max 100000\n", "", "200000 0\n", "many\n"])
def test_without_a_quota_all_cores(eight, content):
    assert machine.cores() == 8
    if content is not None:
        (eight / "cpu.max").write_text(content)
    assert machine.cores() == 8


def test_memory_of_a_container_too(eight):
    (eight / "memory.max").write_text("5000\n")
    (eight / "memory.current").write_text("2000\n")
    assert machine.free_memory() == 3000
    (eight / "memory.stat").write_text("anon 100\ninactive_file 1500\nactive_file 7\n")
    assert machine.free_memory() == 4500, "Linux drops copies of files before it refuses memory"


def test_nothing_is_traced_after_an_error():
    """Tracing slows down every allocation for the rest of the process."""
    with pytest.raises(ZeroDivisionError):
        machine.memory_of(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()
