"""Which array library is in use: NumPy on the CPU, CuPy on the GPU. Chosen once for the whole process.

Every other file says `from minitf.backend import xp` and writes `xp.exp(...)`. `xp` is one object that `use`
fills with the names of the chosen library, so switching costs nothing at the call: no array carries a device,
and no two arrays of one process can live in different places.

Beyond its name, what CuPy does differently has one named form at the end of this file, and nowhere else.
"""

import contextlib
import ctypes
import importlib
import itertools
import math
import os
import sys
import tracemalloc
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from minitf.errors import UserError

__all__ = [
    "blocks",
    "column_sums",
    "cores",
    "cpu_cores",
    "cuda",
    "free_memory",
    "gemm",
    "generation",
    "has_kernels",
    "keep_memory",
    "largest_memory",
    "launch",
    "memory_of",
    "nccl",
    "on_gpu",
    "plain",
    "row_dots",
    "row_sums",
    "segment_sum",
    "stretches",
    "to_device",
    "to_numpy",
    "use",
    "using",
    "xp",
]

DType = np.dtype | type | str  # for type hints: what NumPy takes as a dtype
_CGROUP = Path("/sys/fs/cgroup")  # what Linux lets this container use


class _Library:
    """The names of the array library in use."""

    def __getattr__(self, name):
        # Reached only for names that the library itself makes on demand, such as numpy.random.
        return getattr(self.__dict__["_module"], name)


class _InsideKernels:
    """The words that have a meaning only inside a kernel: `launch` puts the real ones in its place."""

    def __getattr__(self, name):
        raise AttributeError(f"cuda.{name} is for kernels: start them with minitf.backend.launch")


xp = _Library()
cuda = _InsideKernels()


def use(library: str | types.ModuleType) -> None:
    """Choose the array library: "numpy", "cupy", or a module that looks like one of them.

    Arrays made before the switch stay where they are, so call it before the first Tensor is made.
    Raises UserError for an unknown name, for CuPy without a GPU, and where CuPy is not installed.
    """
    module = _load(library) if isinstance(library, str) else library
    if not isinstance(module, types.ModuleType):
        raise TypeError(f"use() takes the name of a library or a module, not {type(library).__name__}")
    xp.__dict__.clear()
    xp.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    xp.__dict__["_module"] = module
    own = importlib.import_module("minitf.gpu.launch") if module.__name__ == "cupy" else None
    xp.__dict__["_kernels"] = (own.launch, own.gemm) if own else getattr(module, "kernels", None)
    xp.__dict__["_room"] = "cpu" if module is np else "gpu" if xp.__dict__["_kernels"] else None  # of its forms


@contextlib.contextmanager
def using(library: str | types.ModuleType) -> Iterator[_Library]:
    """Use another array library inside a `with` block: for tests that compare the two."""
    before = xp.__dict__["_module"]
    use(library)
    try:
        yield xp
    finally:
        use(before)


def _load(name):
    if name not in ("numpy", "cupy"):
        raise UserError(f"unknown backend {name!r}: choose numpy or cupy")
    try:
        module = importlib.import_module(name)
    except ImportError:
        raise UserError(
            "CuPy is not installed: pip install 'cupy-cuda13x[ctk]' (or cupy-cuda12x[ctk]), or use --backend numpy"
        ) from None
    if name == "cupy" and not module.cuda.is_available():
        raise UserError("CuPy finds no usable GPU (see nvidia-smi): use --backend numpy")
    return module


def to_device(array: np.ndarray | Sequence | float, dtype: DType | None = None) -> np.ndarray:
    """Give the array (or nested list) as an array of the library in use, moved there if it has to be."""
    return xp.asarray(array, dtype=dtype)


def to_numpy(array: np.ndarray | Sequence | float) -> np.ndarray:
    """Give the array as a NumPy array. From a GPU this waits for the result: log with it, do not compute."""
    if isinstance(array, np.ndarray):
        return array
    return xp.asnumpy(array) if hasattr(xp, "asnumpy") else np.asarray(array)


# Kernels ------------------------------------------------------------------------------------------------------


def has_kernels(*arrays):
    """Tell whether fused kernels are there for these arrays: on a GPU, for float32."""
    return xp.__dict__["_kernels"] is not None and all(array.dtype == np.float32 for array in arrays)


@contextlib.contextmanager
def plain():
    """Use no fused kernels inside a `with` block: for tests and timings that compare the two."""
    before, xp.__dict__["_kernels"] = xp.__dict__["_kernels"], None
    try:
        yield
    finally:
        xp.__dict__["_kernels"] = before


def on_gpu():
    """Whether a GPU computes: it works through a queue, and the host has to wait when it reads a number."""
    return xp.__dict__["_module"] is not np


def generation():
    """Which generation the GPU in use belongs to: 75 Turing, 80 Ampere, 90 Hopper."""
    return int(xp.cuda.Device().compute_capability) if xp.__name__ == "cupy" else 90


def launch(kernel, grid, block, *arguments):
    """Run a kernel once for every thread: `grid` blocks of `block` threads each, both given as one to three lengths."""
    if min(grid) > 0:
        xp.__dict__["_kernels"][0](kernel, grid, block, *arguments)


def gemm(*arguments):
    """Multiply matrices as cuBLAS does: see minitf/gpu/launch.py, and minitf/gpu/matmul.py, where this is called."""
    xp.__dict__["_kernels"][1](*arguments)


# What NumPy and CuPy do differently, by name --------------------------------------------------------------


def segment_sum(ids, rows, n):
    """Add up the rows that carry the same id: the gradient of looking rows up in a table of n rows.

        out[v] = sum of rows[i] over all i with ids[i] == v

    ids: int (N,)   rows: (N, D)   ->   (n, D)

    NumPy sorts the ids and sums each run, three times as fast as np.add.at. CuPy subtracts running totals there,
    which loses digits, so on a GPU the additions are atomic instead.
    """
    out = xp.zeros((n, rows.shape[1]), dtype=rows.dtype)
    if on_gpu():
        xp.add.at(out, ids, rows)
        return out
    if len(ids):
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        out[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return out


def row_sums(x):
    """Sum over the last axis: (..., D) -> (..., 1).

    NumPy takes a third of the time for the product with ones. A GPU might round the factors of a product.
    """
    if on_gpu():
        return x.sum(axis=-1, keepdims=True)
    return (x @ np.ones(x.shape[-1], dtype=x.dtype))[..., None]


def column_sums(x):
    """Sum over all axes but the last: (..., D) -> (D,)."""
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if on_gpu():
        return rows.sum(axis=0)
    return np.ones(len(rows), dtype=x.dtype) @ rows


def row_dots(x, y):
    """Multiply row by row, and sum: (..., D) and (..., D) -> (..., 1), without an array of all products."""
    if on_gpu():
        return (x * y).sum(axis=-1, keepdims=True)
    return np.vecdot(x, y)[..., None]


def blocks(shape, size=1 << 17):
    """Cut an array into parts of about `size` elements, for several operations in a row on each: a list of indices.

    On a CPU such a part stays in the cache from one operation to the next; a GPU gets 512 times as much at once.
    >>> blocks((300_000,))
    [(slice(0, 131072, None),), (slice(131072, 262144, None),), (slice(262144, 300000, None),)]
    >>> blocks((2, 3, 10), 20)
    [(0, slice(0, 2, None)), (0, slice(2, 3, None)), (1, slice(0, 2, None)), (1, slice(2, 3, None))]
    """
    if on_gpu():
        size <<= 9
    axis, rest = 0, math.prod(shape[1:])
    if shape[0] * rest <= size:
        return [(slice(0, shape[0]),)]
    while rest > size and axis < len(shape) - 1:
        axis += 1
        rest //= shape[axis]
    step = max(1, size // max(1, rest))
    cuts = [slice(start, min(start + step, shape[axis])) for start in range(0, shape[axis], step)]
    return [(*first, cut) for first in itertools.product(*map(range, shape[:axis])) for cut in cuts]


def stretches(length, count):
    """Cut a length into `count` stretches that differ by one at the most: a list of (start, stop).

    >>> stretches(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(length * i // count, length * (i + 1) // count) for i in range(count)]


def cores():
    """Return how many threads or processes may share the work: one per core of this process, one where a GPU computes.

    A container may have fewer cores than its machine: with a quota of 1.5 cores it is two threads.
    """
    return 1 if on_gpu() else cpu_cores()


def cpu_cores():
    """Return how many cores of the CPU this process may use, also where a GPU computes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota())))


def _quota():
    """Return how many cores this container may use: microseconds of computing in a period, over its length."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # cgroup v2, v1
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # v2 says "max" where there is no quota
            quota, period = map(int, " ".join((_CGROUP / name).read_text() for name in files).split())
            return quota / period if quota > 0 else math.inf  # v1 says -1
    return math.inf


def nccl():
    """Give CuPy's door to NCCL, which sums arrays over several GPUs. Raises UserError where it is not installed."""
    library = importlib.import_module("cupy.cuda.nccl")
    if not library.available:
        raise UserError("several GPUs need NCCL: pip install nvidia-nccl-cu13 (or nvidia-nccl-cu12, as your CuPy)")
    return library


def keep_memory():
    """Ask the C library to keep freed memory for the next array of that size (Linux with glibc; else nothing).

    By default each array of some megabytes is given back to the system when it is freed and its pages are
    fetched again, zeroed, for the next one: a quarter of a training step. Call once, before training.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: take arrays of up to 1 GiB from the heap ...
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: ... that is not given back ...
        mallopt(-2, 100 << 20)  # M_TOP_PAD: ... and grows in steps of 100 MiB.
        mallopt(-8, 1)  # M_ARENA_MAX: one heap for all threads, because those of their own are given back


def free_memory():
    """How many bytes new arrays may take: on the GPU in use, else on this machine (None where it does not say)."""
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
    """How many bytes were taken at the most so far: on the GPU in use, else by this process (None if unknown)."""
    if pool := getattr(xp, "get_default_memory_pool", None):
        return pool().total_bytes()
    with contextlib.suppress(OSError, KeyError):
        return _kilobytes("/proc/self/status", "VmHWM")
    with contextlib.suppress(ImportError):
        import resource  # which Windows has not

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
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


try:
    use(os.environ.get("MINITF_BACKEND") or "numpy")
except UserError as error:  # while it is imported there is no program yet that could catch this
    print(f"MINITF_BACKEND: {error}", file=sys.stderr)
    raise SystemExit(2) from None
