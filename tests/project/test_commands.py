"""Each command that `python -m minitf` lists works, or names the command that does."""

import functools
import os
import re
import shlex
import subprocess
import sys

import pytest
from lesson_files import ROOT

from minitf.__main__ import OVERVIEW

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def run(command):
    words = [sys.executable, "-W", "error", *shlex.split(command)[1:]]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def commands():
    """The commands of the overview, without the tests."""
    return [
        command.strip()
        for command in re.findall(r"^ +(python \S.*?)(?:  |$)", OVERVIEW, re.MULTILINE)
    ]


def test_the_overview_is_short_and_names_what_there_is():
    done = run("python -m minitf")
    assert (done.returncode, done.stdout, done.stderr) == (0, OVERVIEW + "\n", "")
    assert all(len(line) < 80 for line in OVERVIEW.splitlines())
    assert len(commands()) >= 6 and all(
        (ROOT / page).exists() for page in re.findall(r"[\w/]+\.md", OVERVIEW)
    )


def test_the_overview_ends_quietly_when_nobody_reads_it():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "minitf"]
    with open(write, "w") as nobody:
        done = subprocess.run(command, cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_overview_has_help(command):
    words = command.split()
    done = run(" ".join(words[: 4 if words[1] == "-m" else 2]) + " --help")
    assert done.returncode == 0 and done.stdout.strip() and not done.stderr


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("python -m minitf nonsense", 2, "minitf: 'nonsense' is no command: type  minitf  to list"),
        ("python lessons/debugging.py nonsense", 2, "unknown symptom nonsense: choose one of"),
        slow("python lessons/debugging.py --help", 0, "python lessons/debugging.py NAME"),
        ("python -m minitf train", 2, "minitf train: say what to train, such as --quick"),
        slow("python -m minitf train --steps 0", 2, "minitf train: --steps must be at least"),
        slow("python -m minitf data", 2, "minitf data: name a corpus"),
        slow("python -m minitf data toy", 0, "toy: train 60,000 pairs"),
        slow("python -m minitf toy 2", 0, "\t"),
        slow("python -m minitf toy many", 2, "usage: python -m minitf toy [N]"),
        slow("python -m minitf train --help", 0, "usage: python -m minitf train "),
        slow("python -m minitf translate --help", 0, "usage: python -m minitf translate "),
        (
            "python -m minitf translate",
            2,
            "minitf translate: name a trained model with --model DIR",
        ),
    ],
)
def test_a_module_that_looks_like_a_command_is_not_silent(command, code, said):
    done = run(command)
    assert (
        done.returncode == code
        and said in done.stdout + done.stderr
        and "Traceback" not in done.stderr
    )
