"""Tiny training runs through the command line, for the tests."""

import functools
import os
import shlex
import signal
from pathlib import Path

import numpy as np

from minitf.files.arrays import load_arrays
from minitf.files.models import read_model
from minitf.training import commandline
from minitf.training.log import RunLog, read_history
from minitf.training.trainer import Trainer

WORDS = (
    "the cat",
    "a red dog",
    "sees",
    "the house",
    "a man",
    "and",
    "likes",
    "small trees",
    "old",
    "rain",
)
SMALL = shlex.split(
    "--set n_layers=1 --set d_model=16 --set d_ff=24 --set n_heads=2 --subwords none --max-extra 2"
)
PACE = shlex.split(
    "--batch-tokens 60 --steps 13 --valid-every 4 --log-every 1 --warmup-steps 8 --average 2"
)
# In a checkpoint: where the run is, and the results of its validations.
NUMBERS = ("step", "epoch", "position", "weights")
NUMBERS += ("validated", "best", "best_perplexity", "bad_validations")


def prepare_folder(tmp_path, monkeypatch):
    """Change to an empty folder with a small text; no curves are drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RunLog, "draw", lambda self, seconds=0: None)
    # It takes long, and protects only from power cuts.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    write_text("train", 60, seed=1)
    write_text("valid", 5, seed=2)
    return tmp_path


def write_text(name, n, seed):
    rng = np.random.default_rng(seed)
    rows = [rng.choice(WORDS, rng.integers(1, 5)) for _ in range(n)]
    Path(f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
    Path(f"{name}.de").write_text("".join(" ".join(row)[::-1] + "\n" for row in rows))


def run(out, *more, text=True):
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de") if text else []
    return commandline.main([*texts, *SMALL, *PACE, "--out", out, *more])


@functools.cache
def _files_of_run(out, arguments):
    assert run(out, *arguments) == 0
    return {path.name: path.read_bytes() for path in Path(out).iterdir()}


def copied_run(out, *arguments):
    """Write the files of run(out, *arguments); it trains only once for all tests."""
    files = _files_of_run(out, arguments)
    Path(out).mkdir(exist_ok=True)
    for name, content in files.items():
        (Path(out) / name).write_bytes(content)


def at_step(monkeypatch, step, act):
    """Do something right after the update with this number."""
    update = Trainer.update

    def update_and_act(self):
        result = update(self)
        if self.step == step:
            act()
        return result

    monkeypatch.setattr(Trainer, "update", update_and_act)


def trained(out):
    """Return a run's checkpoint arrays, its numbers, the model's arrays, and the losses by step."""
    arrays, meta = load_arrays(f"{out}/checkpoint.safetensors")
    numbers = {key: meta[key] for key in NUMBERS}
    losses = {entry["step"]: entry["loss"] for entry in read_history(out) if "loss" in entry}
    return arrays, read_model(out)[0], numbers, losses


def assert_same_run(one, other, averaged=2):
    for mine, theirs in zip(trained(one), trained(other), strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert np.array_equal(value, theirs[name]), name
    kept = [sorted(path.name for path in Path(out).glob("weights-*")) for out in (one, other)]
    assert kept[0] == kept[1] and len(kept[0]) == averaged


def terminate():
    """Send this process the signal that ends it."""
    signal.raise_signal(signal.SIGTERM)
