"""Every `pytest` command in a document is run by a shell, and selects the promised tests."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lesson_files import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "minitf/README.md", "setup.cfg", ".ci/run")),
    *sorted((ROOT / "lessons").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
COMMAND = re.compile(r'\bpytest(?: -m (?:\w+|"[^"]+")| -[\w=-]+| tests/\S+\b)*')
IN_TWO_PROCESSES = re.compile(" -n 2(?: --dist worksteal)?")  # they select the same tests as one


def commands_of(page):
    return COMMAND.findall(IN_TWO_PROCESSES.sub("", page.read_text(encoding="utf-8")))


EVERY = sorted({command for page in DOCUMENTS for command in commands_of(page)})
FOR_STUDENTS = [command for command in EVERY if "lesson0" in command]
OTHERS = [command for command in EVERY if "lesson0" not in command]
QUICK = ("<Function test_form[0{}_", "<Function test_right_answers_pass[0{}_")
SLOW = ("<Function test_lesson_proves_itself[0{}_", "<Function test_a_broken_library_is_noticed[")


def in_a_shell(command):
    """Run the command as a person would, in the repository, with this Python's pytest."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    return subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )


def selected_by(command):
    """Return the tree of the tests that the command would run, as text."""
    # No assertion is run, so none is made wordy.
    done = in_a_shell(f"{command} --collect-only --assert=plain")
    assert done.returncode == 0 and "<Function" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_the_documents_have_commands_for_students():
    assert {"pytest -m lesson04", 'pytest -m "lesson04 and slow"'} <= set(FOR_STUDENTS)
    assert {"pytest", 'pytest -m "slow and not gpu"', "pytest -m gpu"} <= set(OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",  # to collect all tests takes seconds: one command is enough by default
    [
        pytest.param(each, marks=[] if each == "pytest -m lesson04" else pytest.mark.slow)
        for each in FOR_STUDENTS
    ],
)
def test_a_command_for_a_lesson_selects_its_tests_and_no_others(command):
    selected = selected_by(command)
    number = re.search(r"lesson0(\d)", command)[1]
    wanted, unwanted = (SLOW, QUICK) if "slow" in command else (QUICK, SLOW)
    assert all(test.format(number) in selected for test in wanted)
    assert not any(test.format(number) in selected for test in unwanted)
    assert not re.search(r"\bcupy\b", selected)
    assert not re.search(rf"test_form\[0[^{number}]_", selected)


@pytest.mark.slow
@pytest.mark.parametrize("command", OTHERS)
def test_any_other_command_selects_some_tests(command):
    selected = selected_by(command)
    if "tests/" not in command:  # it selects among all tests
        slow = re.search(r"-m (slow|\"slow)", command) is not None
        assert (SLOW[1] in selected) == slow
    assert re.search(r"\[cupy\b|-cupy\]", selected) is None or command == "pytest -m gpu"


@pytest.mark.slow
def test_the_command_of_a_lesson_ends_well():
    done = in_a_shell("pytest -m lesson04 -q")
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^\d+ passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout[-500:]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize(
    ("options", "ends"),
    [
        (
            "tests/engine/test_dropout.py::test_the_masks_are_the_same_everywhere",
            "3 passed, 1 skipped in",
        ),
        pytest.param(
            "tests/engine/test_dropout.py -k the_masks_are", "2 passed in", marks=pytest.mark.slow
        ),
        pytest.param(
            'tests/engine/test_dropout.py -k the_masks_are -m "slow or gpu"',
            "1 passed, 1 skipped in",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_slow_tests_run_if_named_and_those_for_a_gpu_are_skipped_without_one(options, ends):
    done = in_a_shell(f"pytest -q {options}")
    assert done.returncode == 0, done.stdout
    assert re.sub(r", \d+ deselected", "", done.stdout).splitlines()[-1].startswith(ends)
