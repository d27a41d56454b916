"""minitf compared with PyTorch on a GPU: each runs gpu_step.py in its own process.

Two processes of each run in turn.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEP = Path(__file__).resolve().parent / "gpu_step.py"
LIMIT = 140  # seconds for one process
# The model, pairs and source and target tokens of each, and the target ratio for each precision.
TRAINING = (
    (
        {"model": "base", "pairs": 512, "length": 48},
        {"float32": None, "tf32": 1.0, "bfloat16": 0.9},
    ),
    ({"model": "small", "pairs": 128, "length": 32}, {"float32": 1.0, "tf32": None}),
)
DECODING = {"model": "base", "pairs": 64, "source": 20, "length": 32, "beam": 4, "alpha": 0.6}
# Sizes with which a contender takes seconds: its figures mean nothing, its results are compared.
SMALL = {"model": "tiny", "pairs": 16, "source": 5, "length": 8, "vocabulary": 50}
# The largest difference between the losses of both contenders.
LOSSES = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 2e-2}
RATE = 400e12  # operations per second, for the theoretical minimum time


def training(models, precisions, note, small=False):
    """Compare the training step of these models in these precisions; note: called with each row."""
    rows = []
    for work, bars in TRAINING:
        chosen = [name for name in bars if work["model"] in models and name in precisions]
        work = work | (SMALL if small else {})
        for precision in chosen:
            row = compare(work | {"work": "train", "precision": precision}, bars[precision])
            rows.append(row | _projected(row, work))
            note({"passed": False, "rows": rows})  # as long as some are missing
    return {"passed": all(row["passed"] for row in rows), "rows": rows}


def decoding(small=False):
    """Compare beam search."""
    work = DECODING | {"work": "decode", "precision": "float32"} | (SMALL if small else {})
    row = compare(work, bar=1.0)
    return {"passed": row["passed"], "rows": [row]}


def compare(task, bar=None, ask=None):
    """Time both contenders on one task in turn; returns a row of the report.

    passed: both contenders worked and got the same result, whether or not the ratio reached its
    target.
    """
    ask = ask or in_a_process
    answers = {"minitf": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("minitf", "torch") * 2:
            weights = f"{folder}/weights.npz"
            answers[name].append(ask(task | {"contender": name, "weights": weights}))
    row = {name: value for name, value in task.items() if name != "alpha"}
    row["errors"] = [
        answer["error"] for both in answers.values() for answer in both if "error" in answer
    ]
    for name, both in answers.items():
        if good := [answer for answer in both if "error" not in answer]:
            row[name] = {
                "ms": float(np.median([answer["ms"] for answer in good])),
                "memory": good[0]["memory"],
            }
            row[name]["all_ms"] = [answer["ms"] for answer in good]
    if row["errors"]:
        return row | {"passed": False}
    row["ratio"] = round(row["torch"]["ms"] / row["minitf"]["ms"], 3)
    row |= {"bar": bar, "reached": None if bar is None else row["ratio"] >= bar}
    return row | _same(task, answers["minitf"][0], answers["torch"][0])


def _same(task, ours, theirs):
    """Return whether both contenders got the same result."""
    if task["work"] == "train":
        apart = abs(ours["loss"] / theirs["loss"] - 1)
        return {"losses_apart": apart, "passed": apart < LOSSES[task["precision"]]}
    pairs = list(zip(ours["found"], theirs["found"], strict=True))
    equal = [abs(a[1] / b[1] - 1) for a, b in pairs if list(a[0]) == list(b[0])]
    found = {"same_translations": len(equal) / len(pairs), "ln_p_apart": max(equal, default=None)}
    return found | {"passed": len(equal) >= 0.9 * len(pairs) and max(equal) < 1e-3}


def _projected(row, work):
    """Return tokens a second, and for `base` two more figures.

    These are the fraction of the theoretical minimum time, and the hours of the paper's 100,000
    steps.
    """
    if "minitf" not in row:
        return {}
    sys.path.insert(0, str(STEP.parent.parent))
    from minitf.config import Config
    from minitf.training.planning import arithmetic

    pairs, length, seconds = work["pairs"], work["length"], row["minitf"]["ms"] / 1000
    operations = arithmetic(
        Config.preset(work["model"], 37000), pairs, length, length, pairs * length
    )
    found = {"target_tokens_per_second": round(pairs * length / seconds), "operations": operations}
    found |= {
        "operations_per_second": round(operations / seconds),
        "floor_ms": operations / RATE * 1000,
    }
    found["share_of_floor"] = round(operations / RATE / seconds, 3)
    return found | (
        {"hours_of_100000": round(seconds * 100_000 / 3600, 2)} if work["model"] == "base" else {}
    )


def in_a_process(task):
    """Return the answer of gpu_step.py to a task, or {"error": its last words} if it gives none."""
    try:
        command = [sys.executable, str(STEP), json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        return (
            json.loads(done.stdout.splitlines()[-1])
            if done.returncode == 0
            else {"error": done.stderr[-800:]}
        )
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return {"error": f"{task['contender']}: {error}"[-800:]}
