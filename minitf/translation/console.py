"""Messages on the terminal, and the progress of a long translation."""

import sys
import time
from pathlib import Path

INSTALLED = "minitf-translate"  # the command of the installed package, which brings no model
BAR_AFTER = 2  # seconds before the progress bar appears


def _program():
    """Return the name of the command that the user has typed, for messages."""
    path = Path(sys.argv[0])
    if path.stem == INSTALLED:
        return INSTALLED
    return (
        "minitf.translation"
        if path.parts[-2:] == ("translation", "__main__.py")
        else "translate.py"
    )


PROGRAM = _program()
USAGE = f"python -m {PROGRAM}" if PROGRAM == "minitf.translation" else PROGRAM  # as it is typed


class Mistake(Exception):
    """A mistake on the command line or in its files; its text is one line.

    The library's own is UserError.
    """


def complain(message):
    """Write one line about a mistake; returns the exit code."""
    say(printable(f"{PROGRAM}: {message}"))
    return 2


def printable(text):
    """Return the text with a blank for each character that a terminal could misunderstand."""
    return "".join(c if c.isprintable() else " " for c in text)


def say(message, end="\n"):
    """Write to standard error."""
    if sys.stderr:  # it may be closed
        print(message, end=end, file=sys.stderr, flush=True)


def is_terminal(stream):
    """Return whether a standard stream is a terminal."""
    return bool(stream) and stream.isatty()  # it may be closed


class Bar:
    """The progress of a long text in one line on the terminal; nothing where there is no terminal.

    total: the size of the text in bytes, None if unknown. possible: False where somebody types
    at the terminal.
    """

    def __init__(self, total, possible=True):
        self.total, self.bytes, self.lines, self.started = total, 0, 0, time.monotonic()
        self.possible = possible and is_terminal(sys.stderr)
        self.visible = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.clear()

    def over(self, batch):
        """Return the function that the translator calls with the parts done and all parts
        of this batch.
        """
        start, size = self.bytes, sum(map(len, batch)) + len(batch)
        self.bytes, self.lines = start + size, self.lines + len(batch)

        def show(done, parts):
            seconds = time.monotonic() - self.started
            if not self.possible or seconds < BAR_AFTER:
                return
            text = f"{self.lines:,} lines read"
            if self.total:
                share = min(1, (start + size * done / parts) / self.total)
                left = time.strftime("%H:%M:%S", time.gmtime(seconds / share - seconds))
                text = f"[{'#' * round(30 * share):<30}] {share:4.0%}  {left} left"
            self.visible = True  # before it is: Ctrl-C may come in between
            say("\r" + text, end="")

        return show

    def clear(self):
        """Make room for the translations."""
        if self.visible:
            say("\r" + " " * 60 + "\r", end="")
            self.visible = False
