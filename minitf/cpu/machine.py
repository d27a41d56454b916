"""The cores, instruction sets and memory of this machine, or of the GPU in use."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.backend import on_gpu, xp

_CGROUP = Path("/sys/fs/cgroup")  # the limits that Linux sets for this container (cgroup v2)


def cores() -> int:
    """Return the number of workers to use: the cores of this process, or 1 if a GPU computes."""
    return 1 if on_gpu() else cpu_cores()


def cpu_cores() -> int:
    """Return how many cores of the CPU this process may use.

    A container may have a quota of fewer cores than its machine; one of 1.5 cores counts as two.
    """
    return max(1, math.ceil(min(len(own_cores()), _quota())))


def own_cores() -> set[int]:
    """Return the numbers of the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _quota():
    """Return how many cores this container may use: computing time in a period over its length."""
    # Without a quota, the first word is "max", which is not an integer.
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = map(int, (_CGROUP / "cpu.max").read_text().split())
        return quota / period
    return math.inf


def instruction_sets() -> str:
    """Return the instruction sets that NumPy uses here, such as "X86_V2 X86_V3".

    For each it has its own programs of exp, tanh and others, which differ in the last bits. The
    variable NPY_DISABLE_CPU_FEATURES leaves some out.
    """
    names = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return " ".join([*names.get("baseline", ()), *names.get("found", ())])


def keep_memory() -> None:
    """Ask the C library to keep freed memory for the next array of that size.

    By default each array of some megabytes is returned to the system when it is freed, and its
    pages are fetched again, zeroed, for the next one: a quarter of a training step. Programs that
    train or translate, and then end, call this once at their beginning: no other program gets the
    memory that they free. It works on Linux with glibc; elsewhere it does nothing.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: take arrays of up to 1 GiB from the heap,
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: never return the heap to the system,
        mallopt(-2, 100 << 20)  # M_TOP_PAD: and let it grow by 100 MiB at a time.
        # M_ARENA_MAX: one heap for all threads, because heaps of other threads are returned.
        mallopt(-8, 1)


def free_memory() -> int | None:
    """Return how many bytes new arrays may take, None if unknown.

    They are those of the GPU in use, else of this machine, or of its container.
    """
    if pool := _gpu_pool():
        return xp.cuda.Device().mem_info[0] + pool.free_bytes()
    free = []
    with contextlib.suppress(OSError, KeyError):
        free.append(_linux_bytes("/proc/meminfo", "MemAvailable"))
    with contextlib.suppress(OSError, ValueError):  # without a limit, memory.max is "max"
        free.append(int((_CGROUP / "memory.max").read_text()) - _container_usage())
    with contextlib.suppress(OSError, ValueError, AttributeError):  # all that macOS reports
        free.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(free, default=None)


def _container_usage():
    """Return how many bytes a container uses, without copies of files, which Linux drops first."""
    used = int((_CGROUP / "memory.current").read_text())
    with contextlib.suppress(OSError, ValueError):
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        used -= int(dict(line.split() for line in lines).get("inactive_file", 0))
    return used


def used_memory() -> int | None:
    """Return how many bytes this process uses now; where unknown, the most so far, or None.

    They are those of the GPU in use, else of main memory.
    """
    if pool := _gpu_pool():
        return pool.used_bytes()
    with contextlib.suppress(OSError, KeyError):
        return _linux_bytes("/proc/self/status", "VmRSS")
    with contextlib.suppress(ImportError):
        import resource  # missing on Windows

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used
    return None


def memory_of(action: Callable[[], object]) -> int:
    """Call a function and return the most bytes that its arrays took at one time."""
    if pool := _gpu_pool():
        pool.free_all_blocks()
        before = pool.used_bytes()
        action()
        return pool.total_bytes() - before
    import tracemalloc  # lazily: only the trainer measures memory

    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _gpu_pool():
    """Return the memory pool of the GPU in use, None on the CPU."""
    pool = getattr(xp, "get_default_memory_pool", None)
    return pool() if pool else None


def _linux_bytes(path, name):
    """Return the number of bytes in a line such as "VmHWM:  512 kB" of a file of Linux."""
    lines = (line.split() for line in Path(path).read_text().splitlines())
    kilobytes = {words[0]: int(words[1]) for words in lines if words[-1:] == ["kB"]}
    return 1024 * kilobytes[f"{name}:"]
