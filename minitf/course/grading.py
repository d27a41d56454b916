"""The answers in an exercise sheet or a notebook, judged by the checks of the lesson.

The verdict is made here; another process only computes. A check of the lesson calls an answer, the
call goes to the process of the answers (`answering`) through a pipe, and what comes back is
compared here (`calls`). So an answer has no check to change and no result to write, and an answer
that prints, loops, or ends Python spoils no other. What a student changes in the checks of a sheet
changes no result.

The process of the answers is the first of its own group, which is ended with it. It still runs with
the rights of whoever grades: it can read and write files, end other processes, and leave its group.
That takes a container; and where root grades, as in most containers, the answers can run as another
user, by the environment variable MINITF_GRADE_AS.
"""

import contextlib
import ctypes
import inspect
import io
import linecache
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minitf.cli import blank_unprintable
from minitf.course.calls import LONGEST, AnswerError, Channel, Ended
from minitf.course.lesson import state_of
from minitf.errors import UserError

AS_USER = "MINITF_GRADE_AS"  # the environment variable of the user who runs the answers
SECONDS = 60.0  # for one answer, and for reading the sheet
READ, ANSWER = 0, 1  # the functions that the process of the answers keeps first

# 1: a prediction, or a mistake that is found by looking. 2: a few lines. 3: a derivation as well.
POINTS = {
    "predicted_weights": 1, "additive_mask": 2, "mended_weights": 1, "softmax_average": 3,
    "predicted": 1, "logsumexp": 3, "centred": 2, "fools_the_sum": 2,
    "predicted_sizes": 1, "mended_merge": 1, "prune": 2, "multi_query": 3,
    "normalised_on_paper": 1, "mended_dropout": 1, "tent": 2, "sees_one_position": 2, "rms_norm": 3,
    "predicted_position": 1, "look_up": 2, "right_input": 1, "look_back": 3,
    "predict_what_moves": 1, "shift_right": 2, "packed_mask": 2, "find_leaks": 3,
    "first_move": 1, "update_in_parts": 2, "pytorch_eps": 2,
    "predictions": 1, "fools_the_count": 1, "rank": 2, "step": 2, "consensus": 2,
    "predicted_cut": 1, "mended_rows": 1, "combine": 2, "slowest_link": 2,
}  # fmt: skip


def exercises(sheet: str) -> list[str]:
    """Return the names of the exercises of a sheet, in their order."""
    return re.findall(r"^def check_(\w+)\(", sheet, re.MULTILINE)


def grade(
    lesson: str,
    sheet: str,
    cells: list,
    *,
    only: Sequence[str] = (),
    seconds: float = SECONDS,
    beside: Path | None = None,
) -> dict:
    """Check the answers of a sheet or a notebook; return the result as a dictionary for JSON.

    lesson: its name, such as "04_layers". sheet: the lesson's empty sheet, with the checks.
    cells: [name, source, whether only its imports, functions and classes count] for each cell; a
    sheet is a single one, with the name SHEET. only: the exercises to grade, if not all. seconds:
    the time limit of each exercise. beside: the folder from which the answers may import.
    """
    found, process = [], _Process(cells, exercises(sheet), seconds, beside)
    try:
        empty = _loaded(sheet)
        for number, name in enumerate(exercises(sheet), 1):
            if only and name not in only:
                continue
            hint = (inspect.getdoc(empty[name]) or "").partition("Hint: ")[2]
            begun = time.perf_counter()
            state, message = _judged(process, empty, name)
            spent = round(time.perf_counter() - begun, 2)
            points = POINTS.get(name, 1)
            found.append(
                {"number": number, "name": name, "state": state, "message": _printable(message)}
                | {"hint": "" if state == "right" else " ".join(hint.split())}
                | {"points": points if state == "right" else 0, "max_points": points}
                | {"seconds": spent}
            )
    finally:
        process.end()
    totals = {key: sum(one[key] for one in found) for key in ("points", "max_points")}
    right = sum(one["state"] == "right" for one in found)
    notes = [_printable(note) for note in process.notes]
    return {
        "lesson": lesson, "exercises": found, "right": right, "total": len(found), **totals,
        "notes": notes,
    }  # fmt: skip


def _loaded(sheet):
    """Return the names of an empty sheet, whose functions know their source."""
    module, place = types.ModuleType("sheet"), "<sheet>"
    linecache.cache[place] = len(sheet), None, sheet.splitlines(True), place
    exec(compile(sheet, place, "exec", dont_inherit=True), vars(module))
    return vars(module)


def _judged(process, names, name):
    """Return (state, message) of one answer. names: of the empty sheet."""
    check, empty = names[f"check_{name}"], names[name]
    try:
        states = process.read()
    except (AnswerError, Ended) as error:
        return "wrong", str(error)
    if states[name] == "missing":
        return "wrong", "the function is missing"
    if states[name] == "to do":
        return state_of(empty, check)
    failures = process.channel.failures
    earlier = len(failures)

    def ask(*arguments, **options):
        return process.channel.ask(ANSWER, (name, *arguments), options)

    ask.__name__ = ask.__qualname__ = name
    ask.__signature__ = inspect.signature(empty)
    process.limit()
    with (
        contextlib.redirect_stdout(io.StringIO()),  # a check prints a line when it holds
        warnings.catch_warnings(action="ignore"),
        np.errstate(all="ignore"),
    ):
        state, message = state_of(ask, check)
    # A failure is never right, not even where a check expects an error of its own.
    failed = failures[earlier:]
    return ("wrong", str(failed[0])) if failed and state == "right" else (state, message)


def _printable(text):
    """Return a text of the other process in one line that any terminal and file can show."""
    text = blank_unprintable(text.encode("utf-8", "replace").decode("utf-8"))
    return text if len(text) <= 500 else text[:499] + "…"


class _Process:
    """The process of the answers, which is started again after an answer that has ended it."""

    def __init__(self, cells, names, seconds, beside):
        self.cells, self.names, self.seconds, self.beside = cells, names, seconds, beside
        self.running, self.states, self.notes, self.unread = None, None, [], None

    def read(self):
        """Return {name: "missing", "to do" or "written"}: the sheet is read if nobody has it.

        Raises AnswerError if it cannot be read. Then no other exercise is tried.
        """
        if self.unread:
            raise self.unread
        is_there = self.running and self.running.poll() is None
        # After a call that has had no end, it may still be at it.
        if is_there and not any(isinstance(error, Ended) for error in self.channel.failures):
            return self.states
        self.end()
        self._start()
        self.doing = "reads the sheet"
        try:
            states, notes = self.channel.ask(READ, (self.cells, self.names))
            self.states = {name: states[name] for name in self.names}
            if not all(type(state) is str for state in self.states.values()):
                raise TypeError("a state is no word")
            self.notes = [str(note) for note in notes[:20]]
        except AnswerError as error:
            self.unread = AnswerError(f"the sheet cannot be read {error}")
        except Ended as error:
            self.unread = AnswerError(str(error))
        except Exception:
            self.unread = AnswerError("the sheet cannot be read: it changes what reads it")
        if self.unread:
            raise self.unread
        self.doing = "runs the check"
        return self.states

    def limit(self):
        """Let the time of an exercise begin."""
        self.deadline = time.monotonic() + self.seconds

    def _start(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        package = str(Path(__file__).parents[2])
        path = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        # Without -O, which would take the asserts out of the answers as well.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONOPTIMIZE"}
        environment = kept | {
            "PYTHONPATH": os.pathsep.join(path),
            "MPLBACKEND": "agg",  # a plot opens no window
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        own_group = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}  # Windows
        beside = [str(self.beside.resolve())] if self.beside else []
        if user := os.environ.get(AS_USER):
            own_group |= _process_options(user, self.folder.name)
        _hide_memory()
        try:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "minitf.course.answering", *beside],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd=self.folder.name, env=environment, start_new_session=True, **own_group,
            )  # fmt: skip
        except PermissionError as error:
            raise UserError(
                f"{sys.executable}: {user or 'you'} may not run this Python: use one outside of "
                "your home folder"
            ) from error
        # Threads, because a process that has stopped reading or writing must not stop this one.
        self.sent, self.received = queue.SimpleQueue(), queue.Queue(maxsize=4)
        for work in _write, _read:
            arguments = self.running, self.sent, self.received
            threading.Thread(target=work, args=arguments, daemon=True).start()
        self.channel = Channel(self.sent.put, self._receive)
        self.limit()

    def _receive(self):
        """Return the next message; raise Ended if there is none in time."""
        while time.monotonic() < self.deadline:
            ended = self.running.poll() is not None
            try:
                message = self.received.get(timeout=0.1)
            except queue.Empty:
                if not ended:
                    continue
                message = None
            if message:
                return message
            raise Ended(f"Python ended (exit code {self._exit_code()}) while it {self.doing}")
        raise Ended(f"no end after {self.seconds:g} seconds, while Python {self.doing}")

    def _exit_code(self):
        """Return the exit code of a process that has hung up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.running.wait(timeout=1)
        return "unknown"

    def end(self):
        """End the process of the answers, and every process of its group."""
        if self.running is None:
            return
        if os.name == "nt":
            self.running.kill()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.running.pid, signal.SIGKILL)
        if user := os.environ.get(AS_USER):  # also the processes that have left the group
            ends = "import os; os.kill(-1, 9)"
            subprocess.run([sys.executable, "-c", ends], user=user, check=False)
        self.running.wait()
        self.sent.put(None)  # the last message: its thread ends
        # A process that has left the group may hold the pipe, and go on writing.
        deadline = time.monotonic() + 1
        with contextlib.suppress(queue.Empty):
            while time.monotonic() < deadline and self.received.get(timeout=0.5):
                pass
        self.folder.cleanup()
        self.running = None


def _process_options(user, folder):
    """Return the options of a process that belongs to a user, to whom the folder is given."""
    try:
        import pwd  # not on Windows

        group = pwd.getpwnam(user).pw_gid
        shutil.chown(folder, user, group)
        return {"user": user, "group": group, "extra_groups": []}
    except (ImportError, LookupError, OSError) as error:
        raise UserError(f"{AS_USER}={user}: there is no such user, or you are not root") from error


def _hide_memory():
    """Keep processes of the same user out of this one's memory and files, on Linux.

    Root can reach them all the same: see AS_USER.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no


def _write(process, sent, received):
    """Write messages until one is None."""
    with contextlib.suppress(OSError, ValueError), process.stdin:
        while message := sent.get():
            process.stdin.write(message)
            process.stdin.flush()


def _read(process, sent, received):
    """Read messages until the process has closed its output, or sends one that is too long."""
    with contextlib.suppress(OSError, ValueError), process.stdout:
        while message := process.stdout.readline(LONGEST):
            received.put(message)
    received.put(None)
