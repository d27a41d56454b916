"""The log of a training run: lines to read, the same as JSON, curves, and what the run
was made with.
"""

import contextlib
import importlib.metadata
import json
import math
import platform
import time
from pathlib import Path

from minitf import __version__
from minitf.errors import UserError
from minitf.files.atomic import save_text

__all__ = ["RunLog", "read_history", "step_line", "versions"]

LINES = "log.jsonl"
CURVES = "curves.png"


class RunLog:
    """Prints each entry as one line, and appends it to log.jsonl in the run's folder.

    folder: None for lines that are only said. after: when a run is resumed, the step of its
    checkpoint; what was logged later is forgotten. closed: whether nobody reads the lines any more,
    as in `... | head`. bar: a Progress that is on the terminal between the lines.
    Raises UserError if the folder cannot be written; later on, a full disk costs log entries but
    never the training.
    """

    def __init__(self, folder, after=None, write=None):
        self.history, self.closed, self.bar = [], False, None
        self._write, self._lossy, self._drawn = write or _print, False, time.monotonic()
        if folder is None:
            return
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if after is not None:
                self.history = [
                    entry for entry in read_history(self.folder) if entry["step"] <= after
                ]
        except OSError as error:
            raise UserError(
                f"{self.folder}: cannot be written ({error.strerror}): choose another --out"
            ) from None
        save_text(self.folder / LINES, "".join(map(_as_json, self.history)))

    def say(self, text):
        """Print a line that is not part of the history."""
        if self.closed:
            return
        if self.bar:
            self.bar.wipe()
        try:
            self._write(text)
        except OSError:  # a closed pipe, or a terminal that is gone
            self.closed = True

    def step(self, entry):
        """Log the values of a step: a dictionary with "step" and figures."""
        entry = {**entry, "time": round(time.time(), 1)}
        self.history.append(entry)
        try:
            with open(self.folder / LINES, "a", encoding="utf-8") as file:
                file.write(_as_json(entry))
        except OSError as error:
            if not self._lossy:
                self.say(f"{self.folder / LINES} lacks entries from here on: {error.strerror}")
            self._lossy = True
        self.say(step_line(entry))

    def draw(self, seconds=0):
        """Draw the history as curves.png, unless that was done less than so many seconds ago."""
        from minitf import plot

        if time.monotonic() - self._drawn < seconds or not self.history:
            return
        try:
            plot.curves(self.history, self.folder / CURVES)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            # A picture is no reason to lose a training.
            self.say(f"{CURVES} was not drawn: {error}")
        self._drawn = time.monotonic()


def _print(text):
    print(text, flush=True)  # or the lines of a run in the background come hours late


def read_history(folder):
    """Read log.jsonl; a last line that a killed run left unfinished is skipped."""
    entries = []
    path = Path(folder) / LINES
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                entry = json.loads(line)
                entry["step"] += 0
            except (KeyError, TypeError, ValueError):
                continue
            entries.append(entry)
    return entries


def _as_json(entry):
    """One line of strict JSON, which has no infinity."""
    finite = {
        k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in entry.items()
    }
    return json.dumps(finite, allow_nan=False) + "\n"


def step_line(entry):
    """Return an entry as a line to read."""
    head = f"step {entry['step']:>7,}"
    if "valid_bleu" in entry:
        return (
            f"{head}  validation: perplexity {entry['valid_perplexity']:.3f}  "
            f"BLEU {entry['valid_bleu']:.2f}"
        )
    left = int(entry["seconds_left"])
    return (
        f"{head}  epoch {entry['epoch']:6.2f}  loss {entry['loss']:.4f}  perplexity "
        f"{entry['perplexity']:9.3f}  {entry['tokens_per_second']:6,.0f} tokens/s  "
        f"rate {entry['learning_rate']:.2e}  gradient {entry['gradient_norm']:.3f}  "
        f"left {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
    )


def versions():
    """Return the versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version(), "minitf": __version__}
    for package in ("numpy", "cupy", "sentencepiece", "sacrebleu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # without CuPy, say
            found[package] = importlib.metadata.version(package)
    return found
