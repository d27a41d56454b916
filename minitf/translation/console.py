"""The messages of the command line, on standard error."""

import contextlib
import sys
from pathlib import Path

INSTALLED = "minitf-translate"  # the command of the installed package, which brings no model


def _program():
    """Return the name of the command that the user has typed, for messages."""
    path = Path(sys.argv[0])
    if path.stem == INSTALLED:
        return INSTALLED
    if path.name == "__main__.py" and path.parent.name in ("translation", "parsing"):
        return f"minitf.{path.parent.name}"
    return "parse.py" if path.name == "parse.py" else "translate.py"


PROGRAM = _program()
USAGE = f"python -m {PROGRAM}" if PROGRAM.startswith("minitf.") else PROGRAM  # as it is typed


class Mistake(Exception):
    """A mistake on the command line or in its files; its text is one line.

    The library's own is UserError.
    """


def complain(message):
    """Write one line about a mistake; returns the exit code."""
    say(terminal_safe(f"{PROGRAM}: {message}"))
    return 2


def terminal_safe(text):
    """Return the text with a blank for each character that a terminal could misunderstand."""
    return "".join(c if c.isprintable() else " " for c in text)


def say(message, end="\n"):
    """Write to standard error, if it is open; a full disk or a lost terminal ends no work."""
    if sys.stderr:
        with contextlib.suppress(OSError):
            print(message, end=end, file=sys.stderr, flush=True)


def is_terminal(stream):
    """Return whether a standard stream is open and a terminal."""
    return bool(stream) and stream.isatty()
