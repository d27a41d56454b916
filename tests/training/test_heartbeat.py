"""A long run prints a sign of life: at once, and then at least every thirty seconds."""

import io
import shlex
import sys
import time

import pytest
from runs import SMALL, prepare_folder, run

from minitf.training import commandline
from minitf.training.evaluation import Validator
from minitf.training.log import Pace, read_history
from minitf.training.settings import parse
from minitf.training.signals import Interrupted
from minitf.training.trainer import Trainer
from minitf.translation import Translator


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a test moves it."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def slow_updates(clock, monkeypatch):
    """Each update takes ten seconds."""
    update = Trainer.update

    def slow(self):
        clock[0] += 10
        return update(self)

    monkeypatch.setattr(Trainer, "update", slow)


RARELY = ("--log-every", "100", "--valid-every", "100", "--steps", "16")


def steps(capsys):
    """The steps of the printed log lines that have a loss."""
    lines = capsys.readouterr().out.splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("step ") and "loss" in line]


def test_without_a_terminal_lines_appear_at_intervals(folder, slow_updates, capsys):
    """After the first update, and then after 10, 20, 30, 30 seconds without one."""
    assert run("here", *RARELY) == 0
    assert steps(capsys) == [1, 2, 4, 7, 10, 13, 16]
    assert [entry["step"] for entry in read_history("here")] == [16, 16], (
        "the log has no more entries than without"
    )


def test_the_speed_of_an_entry_is_that_of_its_updates(folder, monkeypatch):
    """Neither the trial of the largest batches nor a validation is part of it."""
    now, tokens = [0.0], []

    def takes(owner, name, seconds):
        original = getattr(owner, name)

        def slow(*given, **named):
            now[0] += seconds
            found = original(*given, **named)
            if name == "update":
                tokens.append(found[3])
            return found

        monkeypatch.setattr(owner, name, slow)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    takes(Trainer, "update", 10)
    takes(Trainer, "largest_batches", 1000)
    takes(Validator, "measure", 500)
    assert run("here", "--log-every", "2", "--steps", "8") == 0
    speeds = [entry["tokens_per_second"] for entry in read_history("here") if "loss" in entry]
    pairs = zip(tokens[::2], tokens[1::2], strict=True)
    assert speeds == pytest.approx([sum(pair) / 20 for pair in pairs])


def test_on_a_terminal_a_bar_with_the_loss(folder, slow_updates, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("minitf.cli.AFTER", 0)
    monkeypatch.setattr("minitf.cli.EVERY", 0)
    assert run("here", *RARELY) == 0
    assert steps(capsys) == [16], "no lines between those of the log"
    bars = [text for text in sys.stderr.getvalue().split("\r") if "loss" in text]
    assert any("50%" in text and "step 8" in text for text in bars)
    losses = {float(text.split("loss ")[1].split(":")[0]) for text in bars}
    assert len(losses) > 10 and all(1 < loss < 10 for loss in losses)


def test_a_line_wipes_the_bar(folder, slow_updates, monkeypatch):
    """Both are on one terminal: the line would begin behind the bar."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("minitf.cli.AFTER", 0)
    monkeypatch.setattr("minitf.cli.EVERY", 0)
    before = []
    monkeypatch.setattr(
        "minitf.training.log._print", lambda text: before.append((text, sys.stderr.getvalue()))
    )
    assert run("here", *RARELY[2:], "--log-every", "4") == 0
    lines = [written for text, written in before if text.startswith("step") and "loss" in text]
    for written in lines:
        *_, bar, space, rest = written.split("\r")
        assert bar.rstrip().endswith(" left") and len(space) >= len(bar.rstrip())
        assert space.strip() == rest == ""
    assert len(lines) == 4


def test_a_signal_interrupts_a_perplexity(folder, monkeypatch):
    """For a large model it takes a minute."""
    settings, _ = parse(
        [*shlex.split("--train train.en train.de --valid valid.en valid.de --out here"), *SMALL]
    )
    trainer = commandline.build(settings)
    translator = Translator(trainer.model, trainer.dataset.subwords)
    monkeypatch.setattr(
        Translator, "translate", lambda *_, **__: pytest.fail("it was to stop before")
    )
    trainer.stop.ask("a test asked")
    with pytest.raises(Interrupted):
        trainer.validator.measure(translator)


def test_pauses_grow_up_to_thirty_seconds_and_restart_after_another_line(clock):
    pace, due = Pace(), []
    for second in range(1, 151):
        clock[0] += 1
        if pace.due():
            due.append(second)
    assert due == [10, 30, 60, 90, 120, 150]
    clock[0] += 29
    pace.restart()
    clock[0] += 29
    assert not pace.due()
