"""The processor: its name, its instruction sets and caches, and its speed.

A ratio of two programs depends on the processor: on how fast it runs Python, reads memory and
multiplies matrices. Each speed is that of the fastest of a few trials; all take about a second.
"""

import platform
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.protocol import cores, serve

# The instruction sets that change the speed of matrix products, as Linux names them.
INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_tile",
    "amx_bf16",
    "asimd",  # 64-bit Arm, as the next two
    "sve",
    "sve2",
)
TRIALS = 5


def about(task):
    """Return the processor and its speed; task: {"threads": a number, or None for all cores}."""
    return processor() | speed(task["threads"] or cores())


# Names --------------------------------------------------------------------------------------------


def processor(cpuinfo="/proc/cpuinfo", caches="/sys/devices/system/cpu/cpu0/cache"):
    """Return the names of the processor, its instruction sets and its caches.

    Only Linux lists instruction sets and caches.
    """
    found = _first_block(cpuinfo)
    flags = found.get("flags", found.get("Features", "")).split()
    return {
        "model name": found.get("model name") or platform.processor() or platform.machine(),
        "vendor": found.get("vendor_id", ""),
        "family": found.get("cpu family", ""),
        "model": found.get("model", ""),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "caches": _caches(Path(caches)),
    }


def _first_block(path):
    """Return what /proc/cpuinfo says about the first core: {key: value}."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _caches(folder):
    """Return the sizes of the caches for data: {"L1": "32K", "L2": ...}."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


# Speed --------------------------------------------------------------------------------------------


def speed(threads):
    """Return additions a second, seconds a call, bytes and floating-point operations a second."""
    found = {
        "additions": 1_000_000 / _fastest(_additions),
        "array call": _fastest(_array_calls) / 1000,
        "copy": _copy(),
        "products": {},
    }
    for count in sorted({1, threads}):
        with threadpool_limits(count, "blas"):
            found["products"][str(count)] = _products()
    return found


def _fastest(work):
    """Return the seconds of the fastest trial."""
    times = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _additions():
    """Add a million integers in a Python loop."""
    total = 0
    for i in range(1_000_000):
        total += i


def _array_calls():
    """Add arrays of 256 numbers a thousand times."""
    x = np.ones(256, np.float32)
    for _ in range(1000):
        x + x


def _copy():
    """Return the bytes read and written in a second by one thread that copies 64 MB."""
    x = np.ones(1 << 24, np.float32)
    y = np.ones_like(x)
    return 2 * x.nbytes / _fastest(lambda: np.copyto(y, x))


def _products():
    """Return the operations in a second of a product of 1,024 x 1,024 float32 matrices."""
    x, y = np.ones((2, 1024, 1024), np.float32)
    return 2 * 1024**3 / _fastest(lambda: x @ y)


if __name__ == "__main__":
    serve({"about": about})
