"""Sheets that try to be graded as right without a right answer, to stop the grading, to outlive it.

Each is graded as a class is, in a process of its own. None of them may get the points.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
import time

import pytest
from lesson_files import ROOT

from minitf.course import answering, grading
from minitf.errors import UserError

LESSON = '''"""Exercises. Lesson 00. Two"""

import numpy as np
from minitf.check import grad_check, same
from minitf.tensor import record


def double(x):
    """Return 2 x."""
    ...


def square(x):
    """Return x**2, by record."""
    ...


def check_double():
    x = np.random.default_rng(0).standard_normal(3)
    found = double(x)
    assert len(found) == 3, "give three numbers"
    same("double", found, 2 * x)


def check_square():
    x = np.random.default_rng(0).standard_normal(3)
    grad_check(square, x)
'''
WRONG = """
import atexit, builtins, ctypes, gc, itertools, os, shutil, signal, subprocess, sys, threading, time
import numpy as np
from minitf.tensor import Tensor, record
def double(x):
    return x + 7
def square(x):
    return record(x.data**2, (x,), lambda gy: gy)
"""
DESCRIPTORS = "for fd in range(50):\n    try: os.write(fd, {})\n    except OSError: pass\n"
CHANNEL = "(channel,) = [x for x in gc.get_objects() if type(x).__name__ == 'Channel']\n"
# A sheet adds one of these to its wrong answers. The first word of its name is its kind.
HOSTILE = {
    # It ends Python, or does not.
    "exit at import": "os._exit(0)",
    "exit in an answer": "def double(x): os._exit(0)",
    "signal that stops": "def double(x): os.kill(os.getpid(), signal.SIGSTOP)",
    "loop at import": "while True: pass",
    "loop in an answer": "def double(x):\n    while True: pass",
    # It looks for the result and the checks.
    "__main__ answers": "sys.modules['__main__'].Answers._state = lambda *a: 'right'",
    "library: state_of": "import minitf.course.lesson as l\nl.state_of = lambda *a: ('right', '')",
    "numpy: everything is close": "np.allclose = np.array_equal = lambda *a, **b: True",
    "gc finds the checks": """
        for f in gc.get_objects():
            if getattr(f, "__name__", "").startswith("check_"):
                f.__code__ = (lambda *a: None).__code__""",
    "gc finds the line": CHANNEL + "type(channel)._packed = lambda *a: True",
    "check of its own": "def check_double(): pass\ndef check_exercises(names): sys.exit(0)",
    # It sends messages of its own.
    "message on every descriptor": DESCRIPTORS.format(rb"b'{\"result\": true, \"states\": []}\n'"),
    "message of an object array": DESCRIPTORS.format(
        rb"b'{\"result\": [\"array\", [\"|O\", [1], \"AAAAAAAAAAA=\"]], \"states\": []}\n'"
    ),
    "message without an end": DESCRIPTORS.format("b'x' * 10**6"),
    "message of pickle": CHANNEL
    + "import base64, pickle\nclass Evil:\n    def __reduce__(self):\n"
    "        return open, ('FOLDER/forged', 'w')\n"
    "evil = base64.b64encode(pickle.dumps([Evil()])).decode()\n"
    "def double(x): channel._write({'call': 0, 'options': [], 'pickle': evil}); return x",
    "message that asks": CHANNEL + "def double(x): return channel.ask(-1, [x])",
    # It returns what claims to be equal, or too much.
    "equal object": """
        class Same:
            __eq__ = __le__ = __lt__ = __ge__ = lambda *a: True
            __len__ = lambda self: 3
            __sub__ = __rsub__ = __mul__ = __abs__ = lambda self, *a: self
        def double(x): return Same()""",
    "equal array": """
        class Same(np.ndarray):
            __eq__ = lambda *a: np.ones(3, bool)
            __array_ufunc__ = lambda *a, **b: np.zeros(3)
        def double(x): return np.zeros(3).view(Same)""",
    "equal tensor": """
        class Same(Tensor):
            __eq__ = lambda *a: True
            __array__ = lambda *a, **b: np.zeros(3)
        def double(x): return Same(np.zeros(3))""",
    "equal because the argument changes": "def double(x):\n    x[:] = 0\n    return x",
    "large memory": "def double(x): return [np.empty(2**27) for _ in range(100)]",
    # It has children.
    "fork that stays": "if not os.fork():\n    open('FOLDER/pid', 'w').write(str(os.getpid()))\n"
    "    time.sleep(1000)",
    "child that stays": "child = subprocess.Popen([sys.executable, '-c', 'import time; "
    "time.sleep(1000)'])\nopen('FOLDER/pid', 'w').write(str(child.pid))",
    "atexit": "atexit.register(open, 'FOLDER/forged', 'w')",
    # It says much.
    "flood in an error": "def double(x): raise ValueError('x' * 10**6)",
    "error of strange signs": r"def double(x): raise ValueError('\x1b[2J\ud800\n=cmd()')",
    "error that cannot be told": """
        class Silent(Exception):
            def __str__(self): raise self
        def double(x): raise Silent""",
    "error of a check": "def double(x): raise AssertionError('right')",
    "child of no group that writes on": """
        if not os.fork():
            os.setsid()
            end = time.time() + 10
            while time.time() < end:
                for fd in range(3, 50):
                    try: os.write(fd, b"x\\n")
                    except OSError: pass
            os._exit(0)""",
}  # fmt: skip
QUICK = "exit at import", "message of pickle", "equal object", "gc finds the checks"


def graded(text, seconds=20):
    return grading.grade("00_two", LESSON, [[answering.SHEET, text, False]], seconds=seconds)


@pytest.mark.skipif(os.name == "nt", reason="the sheets fork and send signals")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in HOSTILE]
)
def test_a_hostile_sheet_gets_no_points(name, tmp_path):
    code = textwrap.dedent(HOSTILE[name]).replace("FOLDER", str(tmp_path))
    result = graded(f"{WRONG}\n{code}\n", seconds=2 if re.search("loop|fork|stops", name) else 20)
    assert [one["state"] for one in result["exercises"]] == ["wrong", "wrong"], result
    assert result["points"] == 0 and all(one["message"] for one in result["exercises"])
    text = json.dumps(result, ensure_ascii=False)
    assert text.encode("utf-8") and len(text) < 20_000 and "\x1b" not in text
    assert not (tmp_path / "forged").exists()
    if (tmp_path / "pid").exists():
        assert ended(int((tmp_path / "pid").read_text()))


def ended(process):
    """Return whether a process is gone, after the moment that its end may take."""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{process}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return True
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


# What the rights of another user prevent. Each says in a word what it could do.
FREE = """
def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"
reading, writing = os.pipe()
if not os.fork():
    os.setsid()  # it leaves its group
    os.write(writing, str(os.getpid()).encode())
    time.sleep(1000)
said = [tried(os.kill, os.getppid(), 0), tried(open, grading, "a"), tried(open, "FOLDER/x", "w")]
raise ValueError(" ".join([*said, os.read(reading, 9).decode()]))
"""


def python_of_nobody():
    """Return a Python that the user nobody can run, with this Python's packages, or None."""
    if os.name == "nt" or os.geteuid() != 0:
        return None
    for python in sys.executable, "/usr/bin/python3":
        command = f"import sys, numpy; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        with contextlib.suppress(OSError, LookupError, subprocess.SubprocessError):
            subprocess.run(
                [python, "-c", command], user="nobody", extra_groups=[], check=True, cwd="/",
                env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True,
            )  # fmt: skip
            return python
    return None


@pytest.mark.slow
def test_answers_of_another_user_reach_no_process_and_no_file_and_leave_none(tmp_path, monkeypatch):
    python = python_of_nobody()
    if python is None:
        pytest.skip("needs root, and a Python that the user nobody can run")
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv(grading.AS_USER, "nobody")
    code = FREE.replace("FOLDER", str(tmp_path)).replace("grading", repr(grading.__file__))
    result = graded(WRONG + code, seconds=5)
    assert result["notes"][0].count("PermissionError") == 3, result
    assert ended(int(result["notes"][0].split()[-1]))
    monkeypatch.setenv(grading.AS_USER, "no such user")
    with pytest.raises(UserError, match="there is no such user, or you are not root"):
        graded(WRONG)


MEMORY = """
from minitf.course import answering, grading
import test_hostile_sheets as own
sheet = own.WRONG + "open(f'/proc/{os.getppid()}/mem', 'r+b')\\n"
print(grading.grade("00_two", own.LESSON, [[answering.SHEET, sheet, False]])["notes"])
"""


@pytest.mark.slow
def test_no_answer_reaches_the_memory_of_its_grader(tmp_path):
    """Of anybody but root, whom nothing keeps out."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    user = {}
    python = sys.executable
    if os.geteuid() == 0:
        python, user = python_of_nobody(), {"user": "nobody", "group": "nogroup"}
    if python is None:
        pytest.skip("needs a Python that the user nobody can run")
    done = subprocess.run(
        [python, "-c", MEMORY], **user, cwd="/", env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "PermissionError" in done.stdout and "/mem" in done.stdout, done


def test_right_answers_below_the_wrong_ones_are_right():
    right = (
        "def double(x): return 2 * x\n"
        "def square(x): return record(x.data**2, (x,), lambda gy: gy * 2 * x.data)\n"
    )
    result = graded(WRONG + right)
    assert [one["state"] for one in result["exercises"]] == ["right", "right"], result


def test_an_answer_that_ends_python_spoils_no_other():
    text = "def double(x): os._exit(3)\ndef square(x): return x * x\n"
    double, square = graded(WRONG + text)["exercises"]
    assert double["message"] == "Python ended (exit code 3) while it runs the check"
    assert square["state"] == "right"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "variable", "graded"), [(["-O"], "", True), ([], "1", True), (["-OO"], "", False)]
)
def test_python_without_asserts_is_refused_in_one_line(flags, variable, graded, tmp_path):
    script = str(ROOT / "lessons" / "exercise.py")
    (tmp_path / "sheet.py").write_text(
        LESSON + "from minitf.course.lesson import check_exercises\ncheck_exercises(globals())\n"
    )
    command = [script, "--json", "sheet.py"] if graded else ["sheet.py"]
    done = subprocess.run(
        [sys.executable, *flags, *command], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONOPTIMIZE": variable}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "take the checks away" in done.stderr and done.stderr.count("\n") == 1
