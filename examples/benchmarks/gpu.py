"""minitf compared with PyTorch on a GPU: each runs gpu_step.py in its own process, in turn."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEP = Path(__file__).resolve().parent / "gpu_step.py"
_TRAINING = {"work": "train", "model": "base", "pairs": 512, "length": 48}
# The tasks, by name, and the ratio that each should reach.
TASKS = {
    "tf32": (_TRAINING | {"precision": "tf32"}, 1.1),
    "bfloat16": (_TRAINING | {"precision": "bfloat16"}, 0.95),
    "small": (
        _TRAINING | {"precision": "float32", "model": "small", "pairs": 128, "length": 32},
        1.0,
    ),
    "decoding": (
        {"work": "decode", "precision": "float32", "model": "base", "pairs": 64}
        | {"source": 20, "length": 32, "beam": 4, "alpha": 0.6},
        1.0,
    ),
}
# Sizes with which a contender takes seconds: its figures mean nothing, its results are compared.
SMALL = {"model": "tiny", "pairs": 2, "source": 3, "length": 5, "vocabulary": 30, "repeats": 1}
SMALL |= {"sizes": {"n_layers": 1, "d_model": 16, "d_ff": 12, "n_heads": 2}}
# The largest relative difference between the losses, and between the lengths of the gradients.
# Both programs round the operands of products, to 10 bits of fraction (tf32) or 7 (bfloat16), but
# not in the same places. The loss of a new model hardly shows that, as it is close to that of equal
# logits; the gradient does, as a product of many rounded factors. With base on an H200, the losses
# were 2.6e-7 and 1.9e-5 apart, and the gradients 2.8e-4 and 4.0e-3, about as much as rounding can
# change one operand (4.9e-4 and 3.9e-3). A wrong backward would be off by far more.
APART = {
    "float32": {"loss": 1e-5, "gradient": 1e-5},
    "tf32": {"loss": 1e-5, "gradient": 1e-3},
    "bfloat16": {"loss": 2e-4, "gradient": 1e-2},
}
RATE = 400e12  # operations per second, for the theoretical minimum time


def compare(name, note, deadline, small=False, turns=2, ask=None):
    """Time both contenders on a task in turn; returns a row of the report.

    note: called with the row after each process. deadline: a time of time.perf_counter().
    passed: both contenders worked and got the same result, whether or not the ratio reached its
    target.
    """
    ask, (task, bar) = ask or in_a_process, TASKS[name]
    task = task | (SMALL if small else {})
    answers = {"minitf": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for turn in range(turns):
            now = time.perf_counter()
            if turn and deadline - now < (now - started) / turn:
                break  # one turn of both says more than a second one that is cut off
            for contender in answers:
                more = {"contender": contender, "weights": f"{folder}/weights.npz"}
                answers[contender].append(ask(task | more, deadline))
                row = _row(task, bar, answers)
                note(row)
    return row


def _row(task, bar, answers):
    """Return what the report says of the answers so far."""
    row = {name: value for name, value in task.items() if name not in ("alpha", "sizes")}
    row["errors"] = [each["error"] for both in answers.values() for each in both if "error" in each]
    for name, both in answers.items():
        if timed := [answer for answer in both if "ms" in answer]:
            row[name] = {
                "ms": float(np.median([answer["ms"] for answer in timed])),
                "memory": timed[0]["memory"],
                "all_ms": [answer["ms"] for answer in timed],
            }
    row |= _projected(row, task)
    same = {"passed": False}
    if answers["minitf"] and answers["torch"]:
        same = _same(task, answers["minitf"][0], answers["torch"][0])
    row |= same | {"passed": same["passed"] and not row["errors"]}
    if "minitf" in row and "torch" in row:
        row["ratio"] = round(row["torch"]["ms"] / row["minitf"]["ms"], 3)
        row |= {"bar": bar, "reached": row["ratio"] >= bar}
    return row


def _same(task, ours, theirs):
    """Return whether both contenders got the same result."""
    if task["work"] == "train":
        if "loss" not in ours or "loss" not in theirs:
            return {"passed": False}
        largest = APART[task["precision"]]
        apart = {name: abs(ours[name] / theirs[name] - 1) for name in largest}
        passed = all(apart[name] < largest[name] for name in largest)
        return {"apart": apart, "passed": passed}
    pairs = list(zip(ours.get("found", []), theirs.get("found", []), strict=False))
    equal = [abs(a[1] / b[1] - 1) for a, b in pairs if list(a[0]) == list(b[0])]
    found = {"same_translations": len(equal) / max(1, len(pairs))}
    found["ln_p_apart"] = max(equal, default=None)
    return found | {"passed": bool(equal) and len(equal) >= 0.9 * len(pairs) and max(equal) < 1e-3}


def _projected(row, task):
    """Return tokens a second, and the fraction of the theoretical minimum time."""
    if "minitf" not in row or task["work"] != "train":
        return {}
    sys.path.insert(0, str(STEP.parent.parent))
    from minitf.config import Config
    from minitf.training.planning import arithmetic

    pairs, length, seconds = task["pairs"], task["length"], row["minitf"]["ms"] / 1000
    config = Config.preset(task["model"], 37000)
    operations = arithmetic(config, pairs, length, length, pairs * length)
    return {
        "target_tokens_per_second": round(pairs * length / seconds),
        "operations_per_second": round(operations / seconds),
        "floor_ms": operations / RATE * 1000,
        "share_of_floor": round(operations / RATE / seconds, 3),
    }


def without_forms(note, deadline, small=False, ask=None):
    """Time minitf alone, and without each of its forms in turn, and profile it."""
    ask, rows = ask or in_a_process, {}
    names = ("small", "decoding", "bfloat16")  # the short ones first
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            task = TASKS[name][0] | (SMALL if small else {}) | {"contender": "minitf"}
            task |= {"weights": f"{folder}/weights.npz", "repeats": 1}
            task |= {"profile": True, "forms": True}
            answer = ask(task, deadline)
            answer.pop("found", None)
            rows[name] = answer
            note({"passed": False, "rows": rows})
    return {"passed": all("error" not in row for row in rows.values()), "rows": rows}


def in_a_process(task, deadline):
    """Return what gpu_step.py finds until it ends or a deadline comes, and maybe an "error"."""
    command, error = [sys.executable, str(STEP), json.dumps(task)], {}
    left = max(1, deadline - time.perf_counter())
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
        output = done.stdout
        if done.returncode:
            error = {"error": f"{task['contender']}: {done.stderr[-1500:]}"}
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode()
        error = {"error": f"{task['contender']}: not done after {left:.0f} seconds"}
    found = {}
    for line in output.splitlines():
        if line.startswith("{") and line.endswith("}"):
            found |= json.loads(line)
    return found | error
