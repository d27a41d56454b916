"""The answers in an exercise sheet, judged by the checks of the lesson, for a program that grades.

Each answer is checked in a process of its own, so an answer that prints, loops, or ends Python
spoils no other. The checks come from the lesson, not from the sheet: what a student changes in the
checks changes no result. This is no sandbox: an answer runs with the rights of whoever grades it.
"""

import json
import re
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from minitf.course.lesson import state_of

__all__ = ["exercises", "grade", "main"]

SECONDS = 60.0  # for one answer, with what the sheet does before
READ, LOADED = "reads the sheet", "runs the check"  # what a process does, as its file says


def exercises(sheet: str) -> list[str]:
    """Return the names of the exercises of a sheet, in their order."""
    return re.findall(r"^def check_(\w+)\(", sheet, re.MULTILINE)


def grade(lesson: str, sheet: str, answers: Path, seconds: float = SECONDS) -> dict:
    """Check the answers of a file; return the result as a dictionary for JSON.

    lesson: its name, such as "04_layers". sheet: the lesson's empty sheet, with the checks.
    answers: the filled sheet. seconds: the time limit of each exercise.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "sheet.py")
        empty.write_text(sheet, encoding="utf-8")
        unread = ""  # why the file cannot be read at all: then no other exercise is tried
        for number, name in enumerate(exercises(sheet), 1):
            begun = time.perf_counter()
            state, message = (
                ("wrong", unread) if unread else _checked(empty, answers, name, seconds)
            )
            if state == "unread":
                state, unread = "wrong", message
            spent = round(time.perf_counter() - begun, 2)
            found.append(
                {"number": number, "name": name, "state": state, "message": message}
                | {"seconds": spent}
            )
    right = sum(one["state"] == "right" for one in found)
    return {"lesson": lesson, "exercises": found, "right": right, "total": len(found)}


def _checked(empty, answers, name, seconds):
    """Check one answer in a process; return (state, message)."""
    result = empty.with_name(f"{name}.json")
    result.write_text(json.dumps([READ]), encoding="utf-8")
    command = [sys.executable, "-m", "minitf.course.grading", empty, answers, name, result]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    try:
        code = subprocess.run(
            command, **quiet, stderr=subprocess.DEVNULL, timeout=seconds, check=False
        ).returncode
        ended = f"Python ended (exit code {code}) while it "
    except subprocess.TimeoutExpired:
        ended = f"no end after {seconds:g} seconds, while Python "
    stage, *said = json.loads(result.read_text(encoding="utf-8"))
    if said:
        return stage, said[0]
    return ("unread" if stage == READ else "wrong"), ended + stage


def main(arguments: list[str]) -> None:
    """Check one answer, and write its state and message to a file: `_checked` calls this.

    arguments: the empty sheet, the answers, the name of the exercise, and the file.
    """
    empty, answers, name, file = arguments
    result = Path(file)
    sys.path.insert(0, str(Path(answers).resolve().parent))  # a sheet may import a file beside it
    checks = runpy.run_path(empty, run_name="sheet")
    try:
        own = runpy.run_path(answers, run_name="answers")
    except Exception as error:
        result.write_text(json.dumps(["unread", _where(error, answers)]), encoding="utf-8")
        return
    result.write_text(json.dumps([LOADED]), encoding="utf-8")
    check = checks[f"check_{name}"]
    names = exercises(Path(empty).read_text(encoding="utf-8"))
    check.__globals__.update({other: own.get(other) for other in names})
    state, message = state_of(own.get(name), check)
    result.write_text(json.dumps([state, message]), encoding="utf-8")


def _where(error, answers):
    """Return an error of the sheet itself in one line, with the line of the sheet."""
    line = getattr(error, "lineno", None)
    trace = error.__traceback__
    while trace and line is None:
        if trace.tb_frame.f_code.co_filename == str(answers):
            line = trace.tb_lineno
        trace = trace.tb_next
    place = f" (line {line})" if line else ""
    text = getattr(error, "msg", None) or " ".join(str(error).split())
    return f"the sheet cannot be read{place}: {type(error).__name__}: {text}"


if __name__ == "__main__":
    main(sys.argv[1:])
