"""Run the test suite on a GPU and write what came out as JSON: one command for a machine with CuPy.

    python examples/gpu_check.py --out examples/results/gpu.json

The report names the device, the versions, the commit and the date, so that a figure can be traced. Without a GPU
it says so and ends with exit code 2.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from minitf import backend  # noqa: E402

PACKAGES = ("numpy", "cupy-cuda12x", "cupy-cuda13x", "sentencepiece", "sacrebleu", "pytest", "torch")


def main(arguments=None):
    """Run the parts that were asked for and write the report; the exit code is 0 if all passed."""
    parser = argparse.ArgumentParser(description="Run the tests on a GPU and write a JSON report.")
    parser.add_argument("--out", default="gpu.json", help="the report (default gpu.json)")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what to run")
    options = parser.parse_args(arguments)
    try:
        backend.use("cupy")
    except backend.UserError as error:
        print(f"gpu_check.py: {error}", file=sys.stderr)
        return 2
    report = described() | {part: PARTS[part]() for part in options.parts}
    Path(options.out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
    return 0 if all(report[part]["passed"] for part in options.parts) else 1


def described():
    """Say on what, with what and when the report was made."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "device": properties["name"].decode(),
        "memory": int(properties["totalGlobalMem"]),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run_tests():
    """The tests that are marked gpu: every op, a training step and decoding on CuPy, compared with NumPy."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu and not slow", "-o", "addopts="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ), check=False)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-500:]]
    return {
        "passed": done.returncode == 0,
        "summary": re.sub(r"=+", "", last[0]).strip(),
        "failures": re.findall(r"^FAILED (.*)$", done.stdout, re.MULTILINE),
        "seconds": round(time.perf_counter() - started, 1),
    }


PARTS = {"tests": run_tests}

if __name__ == "__main__":
    sys.exit(main())
