"""Experiments that take too long for a lesson: each is run once, and its results are kept.

`python -m minitf.course.experiments.NAME` writes lessons/results/NAME.json. The lesson reads it by
`kept("NAME")`, draws it, and repeats a part of it.
"""

import json
import platform
import re
import time
from pathlib import Path

import numpy as np

import minitf
from minitf.optim import Adam

FOLDER = Path(__file__).parents[3] / "lessons" / "results"


def write(name: str, results: dict) -> Path:
    """Write the results of an experiment beside the lessons; return the file.

    The file also says how, when and on what it was run, and how much CPU time it took.
    """
    run = {
        "command": f"python -m minitf.course.experiments.{name}",
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "versions": {"minitf": minitf.__version__, "numpy": np.__version__},
        "seconds": round(time.process_time()),
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    text = json.dumps({"run": run, **results}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
    print(f"wrote {path.relative_to(FOLDER.parents[1])}")
    return path


def updates(model, batches, rates):
    """Train a model; yield the loss of each batch after its update, made with its rate."""
    optimizer = Adam(model.named_parameters())
    for batch, rate in zip(batches, rates, strict=False):
        optimizer.zero_grad()
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
        optimizer.step(rate)
        yield float(loss)


def _processor():
    """Return the name of the processor, as far as the system tells it."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""  # only on Linux
    name = re.search(r"model name\s*: (.+)", text)
    return name[1] if name else platform.processor() or platform.machine()
