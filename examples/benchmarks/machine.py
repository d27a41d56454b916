"""The processor: its name, its instruction sets, and its speed.

A ratio of two programs depends on the processor: on how fast it runs Python, reads memory and
multiplies matrices. Each speed is that of the fastest of a few trials; all take about a second.
"""

import platform
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.protocol import cores, serve

# The instruction sets that change the speed of matrix products, as Linux names them; the last three
# are those of 64-bit Arm.
INSTRUCTIONS = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"),
    *("asimd", "sve", "sve2"),
)
TRIALS = 5


def about(task):
    """Return the processor and its speed; task: {"threads": a number, or None for all cores}."""
    return processor() | speed(task["threads"] or cores())


def processor(cpuinfo="/proc/cpuinfo"):
    """Return the name of the processor and its instruction sets, which only Linux lists."""
    found = {}
    if Path(cpuinfo).exists():
        lines = Path(cpuinfo).read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        pairs = (line.partition(":") for line in lines)
        found = {key.strip(): value.strip() for key, _, value in pairs}
    flags = found.get("flags", found.get("Features", "")).split()
    return {
        "model name": found.get("model name") or platform.processor() or platform.machine(),
        "family": found.get("cpu family", ""),
        "model": found.get("model", ""),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
    }


def speed(threads):
    """Return additions a second, bytes and floating-point operations a second.

    Additions are those of a Python loop; a thread copies 64 MB; the products are of 1,024 x 1,024
    float32 matrices, on one thread and on all.
    """
    x = np.ones(1 << 24, np.float32)
    y, square = np.ones_like(x), x[: 1 << 20].reshape(1024, 1024)
    found = {
        "additions": 1_000_000 / _fastest(_additions),
        "copy": 2 * x.nbytes / _fastest(lambda: np.copyto(y, x)),
        "products": {},
    }
    for count in sorted({1, threads}):
        with threadpool_limits(count, "blas"):
            seconds = _fastest(lambda: square @ square)
        found["products"][str(count)] = 2 * 1024**3 / seconds
    return found


def _additions():
    total = 0
    for i in range(1_000_000):
        total += i


def _fastest(work):
    """Return the seconds of the fastest trial."""
    times = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    serve({"about": about})
