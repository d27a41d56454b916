"""The progress bar: only on a terminal, only for long work, and wiped in the end. And commands."""

import io
import sys
import time
import types

import pytest

from minitf import terminal
from minitf.errors import UserError
from minitf.terminal import Pace, Progress, exit_code, quoted


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_command_is_quoted_as_its_system_reads_it(monkeypatch):
    words = "--out", r"runs\my run", r"C:\x", ""
    assert quoted(*words) == r"--out 'runs\my run' 'C:\x' ''"
    monkeypatch.setattr(terminal, "os", types.SimpleNamespace(name="nt"))
    assert quoted(*words) == r'--out "runs\my run" C:\x ""'
    assert quoted("O'Brien", "a&b", "$x") == '"O\'Brien" "a&b" "$x"'


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (UserError("no such file"), 2, "name.py: no such file\n"),
        (MemoryError(), 2, "name.py: the text does not fit the memory: give a part of it\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_how_a_program_ends(error, code, said, capsys):
    def run():
        if error:
            raise error

    assert exit_code("name.py", run) == code
    assert capsys.readouterr().err == said


def test_a_bar_on_a_terminal(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("file", 4000) as progress:
        clock[0] += 0.9  # to open the file, which tells nothing about the time left
        progress.to(1000)
        assert sys.stderr.getvalue() == ""  # so early there is nothing to see
        clock[0] += 10
        progress.to(2000)  # 1,000 of them in ten seconds
        assert sys.stderr.getvalue() == f"\r[{'#' * 15:<30}]  50%  file  0:00:20 left"
        clock[0] += 0.1
        progress.to(2001)  # it does not flicker
        assert sys.stderr.getvalue().count("\r") == 1
    assert sys.stderr.getvalue().endswith("\r" + " " * 57 + "\r")


def test_the_first_of_slow_steps_does_not_tell_the_time_left(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("steps", 1000) as progress:
        clock[0] += 60
        progress.to(1)
        assert sys.stderr.getvalue() == f"\r[{'':<30}]   0%  steps"
        clock[0] += 1
        progress.to(2)
        assert sys.stderr.getvalue().endswith("steps  0:16:38 left")


def test_ctrl_c_while_the_bar_is_drawn_leaves_nothing_behind(monkeypatch, clock):
    class Interrupted(Terminal):
        def flush(self):
            if self.getvalue() == "\rbytes  5":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stderr", Interrupted())
    with pytest.raises(KeyboardInterrupt), Progress("bytes") as progress:
        clock[0] += 2
        progress.to(5)
    assert sys.stderr.getvalue().endswith("\r" + " " * 8 + "\r")


def test_without_a_total(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("bytes") as progress:
        clock[0] += 2
        progress.to(1234567)
    assert sys.stderr.getvalue().startswith("\rbytes  1,234,567\r")


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_where_there_is_no_terminal(monkeypatch, clock, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("file", 10) as progress:
        clock[0] += 5
        progress.to(5)
    assert not (stream and stream.getvalue())


def test_lines_where_there_is_no_terminal(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    lines = []
    for total, expected in ((1000, "working  300 of 1,000 pairs"), (0, "working  300 pairs")):
        with Progress("pairs", total, say=lines.append) as progress:
            clock[0] += 9.9
            progress.to(200)
            assert lines == []
            clock[0] += 0.1
            progress.to(300)
            progress.to(301)
            assert lines.pop() == expected and lines == []
    assert sys.stderr.getvalue() == ""


def test_a_bar_is_wiped_and_drawn_again(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    lines = []
    with Progress("file", 100, say=lines.append) as progress:
        progress.wipe()
        assert sys.stderr.getvalue() == "", "no bar to wipe"
        clock[0] += 20
        progress.to(50, left=3723.9)
        progress.wipe()
        bar = f"[{'#' * 15:<30}]  50%  file  1:02:03 left"
        assert sys.stderr.getvalue() == f"\r{bar}\r{' ' * len(bar)}\r"
        clock[0] += 1
        progress.to(50, left=3723.9)
        assert sys.stderr.getvalue().endswith(f"\r{bar}")
    assert lines == [], "on a terminal there are no lines"


def test_pauses_grow_up_to_thirty_seconds(clock):
    pace, due = Pace(), []
    for second in range(1, 151):
        clock[0] += 1
        if pace.due():
            due.append(second)
    assert due == [10, 30, 60, 90, 120, 150]
    assert Pace(pause=0).due() and not Pace().due()


def test_a_pause_restarts_after_another_line(clock):
    pace = Pace()
    clock[0] += 9
    pace.restart()
    clock[0] += 9
    assert not pace.due()
    clock[0] += 1
    assert pace.due()
