"""What pages and messages tell a reader to type works; the numbers of REPRODUCE.md are right."""

import functools
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from lesson_files import ROOT
from threadpoolctl import threadpool_limits

from minitf import __main__
from minitf.__main__ import OVERVIEW
from minitf.config import Config
from minitf.training.planning import fill_in
from minitf.training.settings import model_changes, parse

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
PAGES = [
    *(ROOT / name for name in ("README.md", "minitf/README.md", "setup.cfg", ".ci/run")),
    *sorted((ROOT / "lessons").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def in_a_shell(command):
    """Run a command as a person would, in the repository, with this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    return subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


# The commands of minitf ---------------------------------------------------------------------------

COMMANDS = re.findall(r"^ +(python -m minitf \w+|python \S+\.py)", OVERVIEW, re.MULTILINE)


def test_the_overview_is_short_and_names_what_there_is():
    done = in_a_shell("python -m minitf")
    assert (done.returncode, done.stdout, done.stderr) == (0, OVERVIEW + "\n", "")
    assert all(len(line) < 80 for line in OVERVIEW.splitlines())
    assert {f"python -m minitf {name}" for name in ("train", "data", "public", "toy")} < {*COMMANDS}
    assert all((ROOT / page).exists() for page in re.findall(r"[\w/]+\.(?:md|py)", OVERVIEW))


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_a_command_of_the_overview_has_help(command):
    done = in_a_shell(f"{command} --help")
    assert done.returncode == 0 and done.stdout.strip() and not done.stderr


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("python -m minitf nonsense", 2, "minitf: 'nonsense' is no command: type  minitf  to list"),
        ("python -m minitf train", 2, "minitf train: say what to train, such as --quick"),
        ("python -m minitf translate", 2, "minitf translate: name a trained model with --model"),
        slow("python -m minitf parse", 2, "minitf parse: no model: name the folder of a parser"),
        slow("python -m minitf train --steps 0", 2, "minitf train: --steps must be at least"),
        slow("python -m minitf train --help", 0, "usage: python -m minitf train "),
        slow("python -m minitf translate --help", 0, "usage: python -m minitf translate "),
        slow("python -m minitf parse --help", 0, "usage: python -m minitf parse "),
        slow("python -m minitf public x", 2, "minitf public: the following arguments are required"),
        slow("python -m minitf data", 2, "minitf data: name a corpus"),
        slow("python -m minitf data toy", 0, "toy: train 60,000 pairs"),
        slow("python -m minitf toy 2", 0, "\t"),
        slow("python -m minitf toy many", 2, "minitf toy: N: must be a whole number"),
        slow("python lessons/debugging.py nonsense", 2, "unknown symptom nonsense: choose one of"),
        slow("python -m minitf | true", 0, ""),  # nobody reads it
    ],
)
def test_what_commands_say(command, code, said):
    done = in_a_shell(command)
    assert done.returncode == code and said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_a_command_is_imported(monkeypatch):
    """The imports take most of a second; a signal then ended in a traceback."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("minitf.data.toy.main", interrupted)
    monkeypatch.setattr("sys.argv", ["minitf", "toy"])
    assert __main__.main() == 130


# Commands of pytest -------------------------------------------------------------------------------

_PYTEST = re.compile(r'\bpytest(?: -m (?:\w+|"[^"]+")| -(?!k)[\w=-]+| tests/\S+\b)*')
_IN_TWO = re.compile(" -n 2(?: --dist worksteal)?")  # they select the same tests as one process
OF_PYTEST = sorted(
    {each for page in PAGES for each in _PYTEST.findall(_IN_TWO.sub("", page.read_text("utf-8")))}
)


def test_the_pages_have_the_commands_of_pytest():
    assert {"pytest", "pytest -m gpu", 'pytest -m "slow and not gpu"'} <= set(OF_PYTEST)
    assert {"pytest -m lesson04", 'pytest -m "lesson04 and slow"'} <= set(OF_PYTEST)


@pytest.mark.slow
@pytest.mark.parametrize("command", OF_PYTEST)
def test_a_command_of_pytest_selects_tests(command):
    """One for a lesson selects that lesson's and no other, quick ones or slow ones."""
    # No assertion is run, so none is made wordy.
    done = in_a_shell(f"{command} --collect-only --assert=plain")
    assert done.returncode == 0 and "<Function" in done.stdout, done.stdout + done.stderr
    if number := re.search(r"lesson0(\d)", command):
        proves = "test_lesson_proves_itself[0" in done.stdout
        assert proves == ("slow" in command)
        kind = "test_lesson_proves_itself" if proves else "test_form"
        assert {*re.findall(rf"{kind}\[0(\d)", done.stdout)} == {number[1]}
    assert re.search(r"\[cupy\b|-cupy\]", done.stdout) is None or command == "pytest -m gpu"


# REPRODUCE.md and the examples --------------------------------------------------------------------

REPRODUCE = (ROOT / "lessons" / "REPRODUCE.md").read_text(encoding="utf-8")
TRAININGS = re.findall(r"^.*09_train_wmt\.py (--corpus wmt14-en-.*)$", REPRODUCE, re.MULTILINE)


@pytest.mark.parametrize("command", TRAININGS)
def test_each_command_asks_for_what_the_paper_did(command):
    settings, _ = fill_in(parse(shlex.split(command))[0], 5_000)  # 4.5 million pairs of 28 tokens
    big, french = settings.preset == "big", settings.corpus.endswith("fr")
    config = Config.preset(settings.preset, settings.vocabulary_size, **model_changes(settings.set))
    sizes = config.n_layers, config.d_model, config.d_ff, config.n_heads
    assert sizes == ((6, 1024, 4096, 16) if big else (6, 512, 2048, 8))  # Table 3
    assert config.vocabulary_size == (32000 if french else 37000)  # 5.1
    assert config.dropout == (0.3 if big and not french else 0.1)  # 6.1
    assert config.label_smoothing == 0.1  # 5.4
    assert settings.batch_tokens * settings.accumulate == 25_000  # 5.1
    assert (settings.learning_rate, settings.warmup_steps, settings.clip) == (1, 4000, 0)  # 5.3
    assert settings.steps == (300_000 if big else 100_000)  # 5.2
    assert not settings.minutes and not settings.patience
    seconds = (settings.save_every or settings.valid_every) * (1.0 if big else 0.4)
    assert seconds == 600 and settings.average == (20 if big else 5)  # 6.1: ten minutes apart
    assert settings.valid_every % (settings.save_every or settings.valid_every) == 0
    assert (settings.beam, settings.alpha, settings.max_extra) == (4, 0.6, 50)  # 6.1


def test_there_is_one_for_each_model_language_and_machine():
    settings = [parse(shlex.split(command))[0] for command in TRAININGS]
    runs = {(each.preset, each.corpus) for each in settings}
    assert len(TRAININGS) == 8 and len(runs) == 4


def test_what_is_said_on_paper():
    for size, steps in (("base", 1e5), ("big", 3e5)):
        count = Config.preset(size, 37_000).count_parameters()
        assert size == "big" or f"{count / 1e6:.1f} million parameters" in REPRODUCE
        update = 6 * count * 25_000
        for operations in (update, update * steps):
            assert f"{operations:.1e}".replace("e+", "e") in REPRODUCE
        hours = f"{update * steps / 1e14 / 3600:.2g}"
        assert f"take {hours} hours for {size}" in REPRODUCE or f"{hours} for {size}" in REPRODUCE
    for hours, said in ((12, "3.3e18"), (3.5 * 24, "2.3e19")):
        assert f"{hours * 3600 * 8 * 9.5e12:.1e}".replace("e+", "e") == said and said in REPRODUCE
    assert f"about {math.log(37_000) + 0.5:.1f} for 37,000 subwords" in REPRODUCE


def test_the_shortest_translation_is_that_of_the_translator(capsys):
    runpy.run_path(ROOT / "examples" / "translate_plain.py", run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith(" Die Kinder spielen im Garten.") and len(printed) == 2


@pytest.mark.slow
def test_rotary_positions(capsys):
    """The model learns, and decodes alike with the cache and without."""
    with threadpool_limits(1, "blas"):  # on a busy machine two threads would wait for each other
        runpy.run_path(ROOT / "examples" / "rotary.py", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    greedily, beam, uncached = (
        int(line.split()[-6]) for line in lines if line.endswith("lines are right")
    )
    assert greedily == uncached > 180 and beam > 180


@pytest.mark.slow
def test_the_language_model(capsys):
    """The loss falls to less than half, and nearly all of the output is words of the text."""
    with threadpool_limits(1, "blas"):
        names = runpy.run_path(ROOT / "examples" / "language_model.py", run_name="__main__")
    losses, text = capsys.readouterr().out.split("It writes:\n")
    losses = [float(line.split()[2]) for line in losses.splitlines()]
    assert losses[-1] < losses[0] / 2
    written, known = text.split()[:-1], set(names["TEXT"].split())  # the last word may be cut off
    assert len(written) > 20 and sum(word in known for word in written) > 0.9 * len(written)
