"""Experiments that take too long for a lesson: each is run once, and its results are kept.

`python -m minitf.course.experiments.NAME` writes lessons/results/NAME.json. The lesson reads it by
`kept("NAME")`, draws it, and repeats a part of it.
"""

import json
import platform
import time
from pathlib import Path

import numpy as np

import minitf

__all__ = ["write"]

FOLDER = Path(__file__).parents[3] / "lessons" / "results"


def write(name: str, results: dict, seconds: float) -> Path:
    """Write the results of an experiment beside the lessons; return the file.

    seconds: how long the experiment took. The file also says how, when and on what it was run.
    """
    run = {
        "command": f"python -m minitf.course.experiments.{name}",
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "versions": {"minitf": minitf.__version__, "numpy": np.__version__},
        "seconds": round(seconds),
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    text = json.dumps({"run": run, **results}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    print(f"wrote {path.relative_to(FOLDER.parents[1])}")
    return path


def _processor():
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
