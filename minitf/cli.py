"""What all commands share: options and mistakes, how a program ends, and the progress of work."""

import argparse
import contextlib
import errno
import os
import re
import shlex
import signal
import stat
import sys
import threading
import time

from minitf.errors import UserError

__all__ = [
    "OptionParser",
    "Pace",
    "Progress",
    "complain",
    "counted",
    "exit_code",
    "is_terminal",
    "misspelt",
    "number",
    "piped",
    "plain_streams",
    "quoted",
    "say",
    "settle_streams",
    "signals_as_exceptions",
    "terminal_safe",
    "whole",
]

AFTER = 1.0  # seconds; shorter work shows no bar
EVERY = 0.2  # seconds between two drawings, so that they cost nothing
PAUSE = 10  # seconds before the first line; each later pause is longer by as much
LONGEST = 30  # seconds; the longest pause
ALIKE = 0.7  # from 0 to 1; how alike a misspelt option and the right one are, at least


def number(kind, least=None, most=None):
    """Return a function that reads a number, for the `type` of an argparse option.

    kind: float, or int, which may be written 100000, 100_000 or 1e5. least, most: both limits of
    the number, or neither.
    The function raises argparse.ArgumentTypeError, with a message that a beginner understands.
    """
    description = "a whole number" if kind is int else "a number"
    if least is not None:
        description += f" from {least} to {most}"

    def read(text):
        with contextlib.suppress(ValueError):
            value = whole(text) if kind is int else float(text)
            if least is None or least <= value <= most:
                return value
        raise argparse.ArgumentTypeError(f"must be {description}, not {text!r}")

    return read


def whole(number):
    """Return the int that a text or a number is, also 1e5; raise ValueError if it is none."""
    text = str(number)
    with contextlib.suppress(ValueError):
        return int(text)
    value = float(text)
    if not value.is_integer():  # nor are NaN and infinity
        raise ValueError(text)
    return int(value)


class OptionParser(argparse.ArgumentParser):
    """Tells a mistake in one line, in plain words, as a UserError."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message):
        typed = message.removeprefix("unrecognized arguments: ")
        if typed != message:
            message = misspelt(self, typed.split()) or f"unknown option: {typed}"
        message = message.removeprefix("argument ")  # of argument --beam: expected one argument
        raise UserError(f"{message} (--help lists all options)")


def misspelt(parser, arguments):
    """Return a message about the first unknown argument that resembles an option, or nothing."""
    import difflib  # here, because few command lines have a mistake

    for name in (argument.partition("=")[0] for argument in arguments):
        for meant in difflib.get_close_matches(name, parser._option_string_actions, 1, ALIKE):
            return f"unknown option {name}: did you mean {meant}?"
    return ""


# How a program ends -------------------------------------------------------------------------------


def complain(program, message, code=2):
    """Write one line about a mistake; return the exit code."""
    say(terminal_safe(f"{program}: {message}"))
    return code


def exit_code(program, run, complain=complain):
    """Run a command; return its exit code, and say in one line why it could not do its work.

    That is what run() returns, or 0; 2 after a UserError, which the user can mend; 130 after
    Ctrl-C (what a KeyboardInterrupt says is printed). complain: writes the line.
    """
    plain_streams()
    try:
        with piped():
            return run() or 0
        return 0  # nobody reads the output any more
    except UserError as error:
        return complain(program, error)
    except MemoryError:
        return complain(program, "out of memory: give less text, or use a smaller model or --beam")
    except KeyboardInterrupt as stop:
        if is_terminal(sys.stderr):
            say("")  # the terminal has written ^C
        return complain(program, stop, 130) if stop.args else 130
    finally:
        settle_streams()


def say(message, end="\n"):
    """Write to standard error, if it is open; a full disk or a lost terminal ends no work."""
    if sys.stderr:
        with contextlib.suppress(OSError):
            print(message, end=end, file=sys.stderr, flush=True)


def terminal_safe(text):
    """Return the text with a space for each character that a terminal could misunderstand."""
    return "".join(c if c.isprintable() else " " for c in text)


def is_terminal(stream):
    """Return whether a standard stream is open and a terminal."""
    return bool(stream) and stream.isatty()


def plain_streams():
    """Let no name that the terminal cannot show end the program."""
    for stream in sys.stdout, sys.stderr:
        if hasattr(stream, "reconfigure"):  # not in a notebook
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def piped():
    """End the block quietly if nobody reads its output: after ... | head, or a closed terminal."""
    try:
        yield
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        settle_streams()
    except OSError as error:
        if error.errno == errno.EIO and not error.filename and _terminal_is_gone():
            settle_streams()
            return
        if error.errno != errno.ENOSPC or error.filename:
            raise
        raise UserError("the disk of the output is full: write it to another one") from error


def _terminal_is_gone():
    """Return whether standard output was a terminal that has been closed."""
    try:
        device = stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False
    return device and not sys.stdout.isatty()


def settle_streams():
    """Drop what standard output or error refuse, or Python would try again when it ends."""
    for stream in sys.stdout, sys.stderr:
        try:
            if stream:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def signals_as_exceptions():
    """Let SIGTERM and SIGHUP raise SystemExit, or they would leave half a file."""
    received = []

    def end(number, frame):
        received.append(number)
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup ignores SIGHUP, and so does a program under it.
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    except Exception:
        if not received:
            raise
        # An extension module that is being imported turns SystemExit into ImportError.
        raise SystemExit(128 + received[0]) from None
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def quoted(*words):
    """Return words as they are typed in a command: in the quotes of this system where needed.

    On Windows these are double quotes: cmd would make single ones a part of the word.
    """
    if os.name == "nt":
        plain = re.compile(r"[\w.:\\/+=@-]+")
        return " ".join(word if plain.fullmatch(word) else f'"{word}"' for word in words)
    return shlex.join(words)


# Progress -----------------------------------------------------------------------------------------


class Pace:
    """The pauses between progress lines, each longer than the one before.

    pause: seconds; the first one.
    """

    def __init__(self, pause=PAUSE):
        self.pause = pause
        self.restart()

    def due(self):
        """Return whether the pause is over; if so, begin the next one."""
        if time.monotonic() - self.last < self.pause:
            return False
        self.pause = min(self.pause + PAUSE, LONGEST)
        self.restart()
        return True

    def restart(self):
        """Begin the pause again because another line was written."""
        self.last = time.monotonic()


class Progress:
    """A progress bar for a `with` block, which removes it at its end: tqdm, in one line.

    desc: the text beside the bar, such as "lines read". total: the amount of work, 0 if unknown.
    say: if there is no terminal, this function is called with a line of text now and then; without
    it, nothing is written.
    """

    def __init__(self, desc, total=0, *, say=None):
        self.desc, self.total, self.say = desc, total, say
        self.possible = bool(sys.stderr and sys.stderr.isatty())
        self.pace, self.began = Pace(), time.monotonic()
        self._bar = None  # made when the work takes long

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._bar is not None:
            self._bar.close()

    def update_to(self, done, left=None):
        """Show the amount that is done. left: seconds, if the caller knows better than the bar."""
        if not self.possible:
            if self.say and self.pace.due():
                total = f"of {self.total:,} " if self.total else ""
                self.say(f"working  {done:,} {total}{self.desc}")
        elif self._bar is not None or time.monotonic() - self.began >= AFTER:
            if self._bar is None:
                self._bar = _bar(self.total, done)
            self._bar.set_description(self.desc, refresh=False)
            if left is not None:
                left = self._bar.format_interval(left)
                self._bar.bar_format = f"{{l_bar}}{{bar}}| {left} left"
            self._bar.update(done - self._bar.n)

    def wipe(self):
        """Remove the bar, so that a line can be written; a later `update_to` draws it again."""
        if self._bar is not None:
            self._bar.clear()


def _bar(total, done):
    from tqdm import tqdm  # here: importing it takes longer than the translation of a sentence

    class Bar(tqdm):
        monitor_interval = 0  # no thread that watches: processes are forked beside the bar

    Bar.set_lock(threading.RLock())  # tqdm's own would import multiprocessing
    bar = Bar(
        total=total or None,
        initial=done,
        file=sys.stderr,
        position=0,  # also of a bar inside the block of another
        bar_format=" ",  # what is drawn here would stay on the screen after Ctrl-C
        leave=False,
        dynamic_ncols=True,
        mininterval=EVERY,
        miniters=1,
    )
    bar.bar_format = "{l_bar}{bar}| {remaining} left" if total else "{desc}{n:,}{bar}"
    return bar


def counted(number, noun):
    """Return a number and its noun, which is in the plural unless the number is 1.

    >>> counted(1, "update"), counted(2_000, "update")
    ('1 update', '2,000 updates')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
