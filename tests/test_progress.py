"""The bar: only on a terminal, only for work that takes long, and gone in the end."""

import io
import sys
import time

import pytest

from minitf.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_bar_on_a_terminal(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("file", 4000, begin=1000) as progress:
        progress.to(1100)
        assert sys.stderr.getvalue() == ""  # so early there is nothing to see
        clock[0] += 10
        progress.to(2000)  # 1,000 of them in ten seconds
        assert sys.stderr.getvalue() == f"\r[{'#' * 15:<30}]  50%  0:00:20 left  file"
        clock[0] += 0.1
        progress.to(2001)  # nor does it flicker
        assert sys.stderr.getvalue().count("\r") == 1
    assert sys.stderr.getvalue().endswith("\r" + " " * 57 + "\r")


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
