"""The command translate.py for tests: run inside the test's process, which takes no time to start,
or as its own.
"""

import functools
import io
import os
import re
import subprocess
import sys
from unittest import mock

from paths import ROOT

from minitf import cli
from minitf.commands import translate
from minitf.translation import Translator

SCRIPT = ROOT / "examples" / "translate.py"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # but the line feed and the tab
SOONER = """import sys
from minitf import cli
from minitf.commands import translate
cli.BAR_AFTER = {}
sys.exit(translate.main())"""
QUICK = ("--beam", "1", "--max-extra", "3")

load = functools.cache(Translator.load)  # reading a model costs more than most tests


class Stream(io.TextIOWrapper):
    """Standard input or output."""

    def __init__(self, content=b"", terminal=False):
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode()


def is_well(code, err, content):
    """Return whether a command did its work, and said just what it had to give up, in one line."""
    lost = re.search("[\0\ufffd]", content.decode(errors="replace"))
    said = re.fullmatch(r"(translate\.py: check (lines?|paragraphs?) .*\n)?", err)
    return code == 0 and said and ("bytes that are not UTF-8 are lost" in err) == bool(lost)


class Command:
    """translate.py with a model."""

    def __init__(self, model):
        self.model, self.started = str(model), []

    def __call__(self, *arguments, stdin=b"", stderr=None):
        """Run it here: (exit code, output, messages)."""
        out, err = Stream(), stderr or Stream()
        streams = {"stdin": stdin if stdin is None else Stream(stdin), "stdout": out, "stderr": err}
        with mock.patch.multiple(sys, **streams), mock.patch.object(Translator, "load", load):
            try:
                code = translate.main(self._with_model(arguments))
            except SystemExit as end:
                code = end.code
        return code, out.text(), err.text()

    def start(self, *arguments, environment=None, bar_after=cli.BAR_AFTER, python=(), **streams):
        """Start it as a process of its own, with every warning an error.

        python: options of Python.
        """
        script = [str(SCRIPT)] if bar_after == cli.BAR_AFTER else ["-c", SOONER.format(bar_after)]
        command = [sys.executable, "-W", "error", *python, *script, *self._with_model(arguments)]
        changes = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **(environment or {})}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.started.append(
            subprocess.Popen(command, env={**os.environ, **changes}, **{**pipes, **streams})
        )
        return self.started[-1]

    def _with_model(self, arguments):
        arguments = [str(argument) for argument in arguments]
        return arguments if "--model" in arguments else ["--model", self.model, *arguments]

    def stop(self):
        """End what a failed test left running."""
        for process in self.started:
            process.kill()
            process.communicate()


def lines_of(output):
    """The lines of an output, each of which must have its line feed."""
    assert output == "" or output.endswith("\n")
    return output.removesuffix("\n").split("\n") if output else []


def is_refused(result, reason):
    """Exit code 2, nothing translated, and one line that names the program and holds the reason."""
    code, out, err = result
    assert (code, out) == (2, ""), result
    assert err.startswith("translate.py: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert reason in err, err
    return True
