"""The cores and the memory of this machine, and of the GPU if one computes: how much there is, and
how to keep it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import tracemalloc
from pathlib import Path

from minitf.backend import on_gpu, xp

__all__ = ["cores", "cpu_cores", "free_memory", "keep_memory", "largest_memory", "memory_of"]

_CGROUP = Path("/sys/fs/cgroup")  # what Linux lets this container use


def cores() -> int:
    """Return how many threads or processes may share the work: one per core of this process, one
    where a GPU computes.

    A container may have fewer cores than its machine: with a quota of 1.5 cores it is two threads.
    """
    return 1 if on_gpu() else cpu_cores()


def cpu_cores() -> int:
    """Return how many cores of the CPU this process may use, also where a GPU computes."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, math.ceil(min(count, _quota())))


def _quota():
    """Return how many cores this container may use: microseconds of computing in a period,
    over its length.
    """
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # cgroup v2, v1
        # v2 says "max" where there is no quota.
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = map(
                int, " ".join((_CGROUP / name).read_text() for name in files).split()
            )
            return quota / period if quota > 0 else math.inf  # v1 says -1
    return math.inf


def keep_memory():
    """Ask the C library to keep freed memory for the next array of that size (Linux with glibc;
    else nothing).

    By default each array of some megabytes is given back to the system when it is freed and its
    pages are fetched again, zeroed, for the next one: a quarter of a training step. Call once,
    before training.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: take arrays of up to 1 GiB from the heap ...
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: ... that is not given back ...
        mallopt(-2, 100 << 20)  # M_TOP_PAD: ... and grows in steps of 100 MiB.
        # M_ARENA_MAX: one heap for all threads, because those of their own are given back.
        mallopt(-8, 1)


def free_memory():
    """How many bytes new arrays may take: on the GPU in use, else on this machine (None where it
    does not say).
    """
    if pool := getattr(xp, "get_default_memory_pool", None):
        return xp.cuda.Device().mem_info[0] + pool().free_bytes()
    found = []
    with contextlib.suppress(OSError, KeyError):
        found.append(_kilobytes("/proc/meminfo", "MemAvailable"))
    with contextlib.suppress(OSError, ValueError):  # in a container; "max" is no number
        used, most = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("current", "max"))
        found.append(most - used)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # macOS says no more than this
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def largest_memory():
    """How many bytes were taken at the most so far: on the GPU in use, else by this process
    (None if unknown).
    """
    if pool := getattr(xp, "get_default_memory_pool", None):
        return pool().total_bytes()
    with contextlib.suppress(OSError, KeyError):
        return _kilobytes("/proc/self/status", "VmHWM")
    with contextlib.suppress(ImportError):
        import resource  # which Windows has not

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return None


def memory_of(action):
    """Call a function and say how many bytes it took at the most, beyond what was there before."""
    if pool := getattr(xp, "get_default_memory_pool", None):
        pool().free_all_blocks()
        before = pool().used_bytes()
        action()
        return pool().total_bytes() - before
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _kilobytes(path, name):
    lines = (line.split() for line in Path(path).read_text().splitlines())
    return 1024 * {words[0]: int(words[1]) for words in lines if words[-1:] == ["kB"]}[f"{name}:"]
