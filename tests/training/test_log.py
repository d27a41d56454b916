"""The log of a run and its clock: what is written, what survives, and signs of life."""

import errno
import io
import json
import shlex
import sys
import time

import pytest
from runs import SMALL, prepare_folder, run

import minitf
from minitf.errors import UserError
from minitf.training import commandline
from minitf.training import log as runlog
from minitf.training.evaluation import Validator
from minitf.training.log import RunLog, entry_line, read_history, versions
from minitf.training.settings import parse
from minitf.training.signals import Interrupted
from minitf.training.trainer import Trainer
from minitf.translation import Translator

ENTRY = {
    "step": 1500,
    "epoch": 1.826,
    "loss": 3.22161,
    "perplexity": 10.054,
    "tokens_per_second": 12410.4,
    "learning_rate": 1.13e-3,
    "gradient_norm": 0.905,
    "seconds_left": 3866.2,
}


def test_an_entry_is_a_line_of_text_and_a_line_of_json(tmp_path):
    lines = []
    log = RunLog(tmp_path, write=lines.append)
    log.say("model")
    log.add(ENTRY)
    assert entry_line(ENTRY | {"seconds_left": 3599.0}).endswith("  1h00 left")
    log.add({"step": 1500, "valid_perplexity": 9.6434, "valid_bleu": 24.416})
    assert lines == [
        "model",
        "step  1,500  epoch  2  loss 3.222  perplexity  10.1  12,410 tokens/s  1h04 left",
        "step  1,500  validation: perplexity 9.643  BLEU 24.42",
    ]
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert entries == log.history
    assert {key: entries[0][key] for key in ENTRY} == ENTRY and entries[0]["time"] > 1.7e9


def test_a_resumed_log_drops_entries_after_the_checkpoint(tmp_path):
    log = RunLog(tmp_path, write=print)
    for step in (10, 20, 30):
        log.add(ENTRY | {"step": step})
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 40, "lo')  # killed here
    assert [entry["step"] for entry in read_history(tmp_path)] == [10, 20, 30]
    again = RunLog(tmp_path, after=20, write=print)
    again.add(ENTRY | {"step": 21})
    assert (
        [entry["step"] for entry in read_history(tmp_path)]
        == [10, 20, 21]
        == [e["step"] for e in again.history]
    )


def test_lines_that_are_not_entries_are_skipped(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(
        b'{"step": 1}\n5\n[]\nnull\n{}\n{"step": "x"}\n\xff\n\n{"step": 2}'
    )
    assert read_history(tmp_path) == [{"step": 1}, {"step": 2}]
    assert read_history(tmp_path / "nowhere") == []


def test_a_log_that_cannot_be_read(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(UserError, match=r"log.jsonl: cannot be read \(Is a directory\)"):
        RunLog(tmp_path, after=3)


def test_a_full_disk_costs_only_entries(tmp_path, monkeypatch):
    lines = []
    log = RunLog(tmp_path, write=lines.append)

    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", full)
        log.add(ENTRY)
        log.add(ENTRY)
    assert [line for line in lines if "entries" in line] == [
        f"notice   {tmp_path / 'log.jsonl'}: entries from here on are missing (No space left on "
        "device); training continues"
    ]
    assert len(log.history) == 2


@pytest.mark.parametrize("code", [errno.EPIPE, errno.EIO, errno.ENOSPC])
def test_a_closed_output_is_noticed(tmp_path, code):
    """A full disk costs lines, and does not end the run."""

    def write(text):
        if "two" in text:
            raise OSError(code, "gone")

    log = RunLog(tmp_path, write=write)
    log.say("one")
    assert not log.closed
    log.say("two")
    assert log.closed == (code != errno.ENOSPC)
    log.say("two")
    log.add(ENTRY)
    assert len(read_history(tmp_path)) == 1


def test_lines_are_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr("builtins.print", lambda text, flush=False: flushed.append(flush))
    RunLog(tmp_path).say("one")
    assert flushed == [True]


def test_curves_are_drawn_at_intervals(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "minitf.plot.curves", lambda history, path: drawn.append((len(history), path.name))
    )
    lines = []
    log = RunLog(tmp_path, write=lines.append)
    log.draw()
    assert drawn == []  # there is nothing to draw
    log.add(ENTRY)
    log.draw(60)
    assert drawn == []
    log.draw()
    assert drawn == [(1, "curves.png")]
    clock = runlog.time.monotonic() + 61
    monkeypatch.setattr(runlog.time, "monotonic", lambda: clock)
    log.draw(60)
    log.draw(60)
    assert len(drawn) == 2


def test_a_failed_drawing_does_not_stop_the_run(tmp_path):
    lines = []
    log = RunLog(tmp_path, write=lines.append)
    log.history.append({"step": 1})  # no figures
    log.draw()
    assert len(lines) == 1 and lines[0].startswith("notice   curves.png could not be drawn: ")


def test_versions():
    found = versions()
    assert found["python"].count(".") == 2
    assert found["minitf"] == minitf.__version__
    assert {"numpy", "sentencepiece", "sacrebleu"} <= found.keys()


# Signs of life ------------------------------------------------------------------------------------


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
    """After the first update, and then after 30 seconds without one."""
    assert run("here", *RARELY) == 0
    assert steps(capsys) == [1, 4, 7, 10, 13, 16]
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
    monkeypatch.setattr("minitf.cli.BAR_AFTER", 0)
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
    monkeypatch.setattr("minitf.cli.BAR_AFTER", 0)
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
