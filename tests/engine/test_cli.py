"""The progress bar: only on a terminal, only for long work, and wiped in the end. And commands."""

import errno
import io
import os
import select
import subprocess
import sys
import time
import types

import pytest

from minitf import cli
from minitf.cli import Progress, exit_code, quote
from minitf.errors import UserError


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
    assert quote(*words) == r"--out 'runs\my run' 'C:\x' ''"
    monkeypatch.setattr(cli, "os", types.SimpleNamespace(name="nt"))
    assert quote(*words) == r'--out "runs\my run" C:\x ""'
    assert quote("O'Brien", "a&b", "$x") == '"O\'Brien" "a&b" "$x"'


LESS = "give less text, or use a smaller model or --beam"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (UserError("no such file"), 2, "name.py: no such file\n"),
        (MemoryError(), 2, f"name.py: out of memory: {LESS}\n"),
        (KeyboardInterrupt(), 130, ""),
        (KeyboardInterrupt("nothing was written"), 130, "name.py: nothing was written\n"),
        (BrokenPipeError(), 0, ""),
        (
            OSError(errno.ENOSPC, "full"),
            2,
            "name.py: the disk of the output is full: write it to another one\n",
        ),
    ],
)
def test_how_a_program_ends(error, code, said, capsys):
    def run():
        if error:
            raise error

    assert exit_code("name.py", run) == code
    assert capsys.readouterr().err == said


@pytest.mark.skipif(os.name == "nt", reason="about pipes of POSIX")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_nobody_reads_any_more_changes_no_exit_code(stream):
    """Python tries to write what is left when it ends; if it cannot, the code would be 120."""
    program = "import sys; from minitf.cli import exit_code\n"
    program += (
        f"exit_code('x', lambda: sys.{stream}.write('a bar, without an end of its line') and 0)"
    )
    reading, writing = os.pipe()
    os.close(reading)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen([sys.executable, "-c", program], env=buffered, **{stream: writing})
    os.close(writing)
    assert process.wait() == 0


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(cli, "BAR_AFTER", 0)
    monkeypatch.setattr(cli, "EVERY", 0)


def test_short_work_shows_no_bar(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("lines read", 4000) as progress:
        clock[0] += 0.9
        progress.update_to(1000)
        progress.wipe()
    assert sys.stderr.getvalue() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize(("what", "total"), [("text translated", 4000), ("x" * 99, 0)])
def test_a_bar_is_one_line_of_the_terminal(monkeypatch, at_once, columns, what, total):
    import termios

    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    with open(slave, "w", encoding="utf-8") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with Progress(what, total) as progress:
            for done in range(0, 4000, 500):
                progress.update_to(done)
        shown = b""
        while select.select([master], [], [], 0.2)[0]:
            shown += os.read(master, 1 << 16)
    os.close(master)
    *drawn, before, after = shown.decode().split("\r")
    assert b"\n" not in shown and max(map(len, drawn)) <= columns
    assert any(what[:5] in line for line in drawn) and before.strip() == after == ""


def test_a_bar_is_wiped_and_drawn_again(monkeypatch, at_once):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("updates", 100) as progress:
        progress.wipe()
        assert sys.stderr.getvalue() == "", "no bar to wipe"
        for done in (50, 51, 52):
            progress.update_to(done)
            progress.wipe()
            assert sys.stderr.getvalue().split("\r")[-2].strip() == ""
    assert "52%" in sys.stderr.getvalue() and sys.stderr.getvalue().count(" left") >= 3


def test_ctrl_c_leaves_no_bar_behind(monkeypatch, at_once):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyboardInterrupt), Progress("bytes") as progress:
        progress.update_to(5)
        progress.update_to(1234567)
        raise KeyboardInterrupt
    assert "bytes: 1,234,567" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_where_there_is_no_terminal(monkeypatch, clock, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("file", 10) as progress:
        clock[0] += 5
        progress.update_to(5)
    assert not (stream and stream.getvalue())
