"""The log: the same figures as lines, as JSON and as curves; no error in it stops a run."""

import errno
import json

import pytest

import minitf
from minitf.errors import UserError
from minitf.training import log as runlog
from minitf.training.log import RunLog, read_history, step_line, versions

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
    log.step(ENTRY)
    assert step_line(ENTRY | {"seconds_left": 3599.0}).endswith("  1h00 left")
    log.step({"step": 1500, "valid_perplexity": 9.6434, "valid_bleu": 24.416})
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
        log.step(ENTRY | {"step": step})
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 40, "lo')  # killed here
    assert [entry["step"] for entry in read_history(tmp_path)] == [10, 20, 30]
    again = RunLog(tmp_path, after=20, write=print)
    again.step(ENTRY | {"step": 21})
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
        log.step(ENTRY)
        log.step(ENTRY)
    assert [line for line in lines if "entries" in line] == [
        f"notice   {tmp_path / 'log.jsonl'}: entries from here on are missing (No space left on "
        "device); training continues"
    ]
    assert len(log.history) == 2


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EIO, "Input/output error")])
def test_a_closed_output_is_noticed(tmp_path, error):
    def write(text):
        if "two" in text:
            raise error

    log = RunLog(tmp_path, write=write)
    log.say("one")
    assert not log.closed
    log.say("two")
    assert log.closed
    log.say("two")
    log.step(ENTRY)
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
    log.step(ENTRY)
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
