"""The log of a training run: lines to read, the same as JSON, curves, versions, and its clock."""

import contextlib
import errno
import importlib.metadata
import json
import math
import platform
import time
from pathlib import Path

from minitf import __version__
from minitf.atomic import save_text
from minitf.files.arrays import exists, user_errors

LOG = "log.jsonl"
CURVES = "curves.png"


class RunLog:
    """Prints each entry as one line, and appends it to log.jsonl in the run's folder.

    folder: None to print lines and write no files. after: when a run is resumed, the step of its
    checkpoint: later entries are deleted. closed: whether nobody reads the lines any more, as in
    `... | head`. bar: a Progress on the terminal, which a line replaces. write: called with each
    line instead of printing it.
    Raises UserError if a begun log cannot be read or written; later, a full disk costs log entries
    but never the run.
    """

    def __init__(self, folder, after=None, write=None):
        self.folder = None if folder is None else Path(folder)
        self.history, self.closed, self.bar = [], False, None
        self._write, self._drawn = write or _print, time.monotonic()
        self._is_stored = self.folder is not None
        if self.folder and after is not None:
            with user_errors(self.folder / LOG):
                entries = read_history(self.folder)
            self.history = [entry for entry in entries if entry["step"] <= after]
            save_text(
                self.folder / LOG, "".join(json.dumps(entry) + "\n" for entry in self.history)
            )

    def say(self, text):
        """Print a line that is not an entry of the log."""
        if self.closed:
            return
        if self.bar:
            self.bar.wipe()
        try:
            self._write(text)
        except OSError as error:  # a closed pipe, or a terminal that is gone
            self.closed = error.errno not in (errno.ENOSPC, errno.EDQUOT)  # a full disk costs lines

    def add(self, entry):
        """Log an entry: a dictionary with "step" and figures."""
        entry = {**entry, "time": round(time.time(), 1)}
        self.history.append(entry)
        try:
            if self._is_stored:
                with open(self.folder / LOG, "a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
        except OSError as error:
            self._is_stored = False
            self.say(
                f"notice   {self.folder / LOG}: entries from here on are missing "
                f"({error.strerror}); training continues"
            )
        self.say(entry_line(entry))

    def draw(self, seconds=0):
        """Draw the history as curves.png, unless it was drawn less than `seconds` seconds ago."""
        from minitf import plot

        if not self.folder or not self.history or time.monotonic() - self._drawn < seconds:
            return
        try:
            plot.curves(self.history, self.folder / CURVES)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            # A missing picture must not end a run.
            self.say(f"notice   {CURVES} could not be drawn: {error}")
        self._drawn = time.monotonic()


def _print(text):
    print(text, flush=True)  # else the lines of a run in the background appear hours late


def read_history(folder):
    """Return the entries of log.jsonl, without lines that a killed run left unfinished."""
    entries = []
    path = Path(folder) / LOG
    if exists(path):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                entry = json.loads(line)
                entry["step"] += 0
            except (KeyError, TypeError, ValueError):
                continue
            entries.append(entry)
    return entries


def entry_line(entry):
    """Return an entry of the log as a line to read, of 80 columns."""
    head = f"step {entry['step']:>6,}"
    if "valid_bleu" in entry:
        return (
            f"{head}  validation: perplexity {entry['valid_perplexity']:.3f}  "
            f"BLEU {entry['valid_bleu']:.2f}"
        )
    perplexity = entry["perplexity"]
    line = (
        f"{head}  epoch {math.ceil(entry['epoch']):>2}  loss {entry['loss']:.3f}  "
        f"perplexity {perplexity:>5,.{1 if perplexity < 1000 else 0}f}  "
        f"{entry['tokens_per_second']:>6,.0f} tokens/s"
    )
    if entry["seconds_left"] is None:  # too early to tell
        return line
    minutes = round(entry["seconds_left"] / 60)
    return f"{line}  {minutes // 60}h{minutes % 60:02d} left"


def versions():
    """Return the versions of Python and of the packages on which a result depends."""
    numbers = {"python": platform.python_version(), "minitf": __version__}
    for package in ("numpy", "sentencepiece", "sacrebleu"):
        numbers[package] = importlib.metadata.version(package)
    return numbers


class Clock:
    """Measures a session, from `start` to now. All times are in seconds.

    A run has one session or, if it is resumed, several; a session has laps, one for each entry of
    the log.
    earlier: what earlier sessions of the run took.
    first_step: the number of updates done before this session.
    """

    def __init__(self):
        self.earlier = 0.0
        self.start(0)

    def start(self, step):
        """Begin the session; `step` updates were done before it."""
        self.first_step, self.started = step, time.perf_counter()
        self._lap, self._first = self.started, None

    def session(self):
        """Return the seconds since `start`."""
        return time.perf_counter() - self.started

    def total(self):
        """Return the seconds of all sessions together."""
        return self.earlier + self.session()

    def lap(self):
        """Return the seconds since `next_lap`, without pauses."""
        return time.perf_counter() - self._lap

    def next_lap(self):
        """Begin a lap: the updates between two entries of the log."""
        self._lap = time.perf_counter()

    @contextlib.contextmanager
    def pause(self):
        """Leave the time of this block, such as a validation, out of the lap."""
        started = time.perf_counter()
        yield
        self._lap += time.perf_counter() - started

    def left(self, step, steps, minutes=0.0):
        """Return the seconds until the run ends, None in the first call of a session.

            left = (steps - step) * (now - t_f) / (step - f),  at most 60 minutes - session()

        f and t_f are the step and the time of that first call: the updates before it take longer
        than later ones. Validations count as well.
        step, steps: updates done, and in all. minutes: the time limit of a session, 0 for none.
        """
        now = time.perf_counter()
        self._first = first, started = self._first or (step, now)
        if step >= steps:
            return 0.0
        if step == first:
            return None
        left = (steps - step) * (now - started) / (step - first)
        return max(0.0, min(left, 60 * minutes - self.session()) if minutes else left)
