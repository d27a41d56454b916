"""What all commands share: options, error messages, exit codes and the progress bar."""

import argparse
import contextlib
import errno
import os
import re
import shlex
import signal
import sys
import threading
import time

from minitf.errors import UserError

BAR_AFTER = 1.0  # seconds; shorter work shows no bar
EVERY = 0.2  # seconds between two drawings, so that they cost nothing


def number(kind, least, most):
    """Return a function that reads a number, for the `type` of an argparse option.

    kind: float, or int, which may be written 100000, 100_000 or 1e5. least, most: its limits.
    The function raises argparse.ArgumentTypeError, with a message that a beginner understands.
    """

    def read(text):
        with contextlib.suppress(ValueError):
            value = whole_number(text) if kind is int else float(text)
            if least <= value <= most:
                return value
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {what} from {least} to {most}, not {text!r}")

    return read


def whole_number(number):
    """Return a text or a number as an int, also 1e5; raise ValueError if it is no whole number."""
    text = str(number)
    with contextlib.suppress(ValueError):
        return int(text)
    value = float(text)
    if not value.is_integer():  # nor are NaN and infinity
        raise ValueError(text)
    return int(value)


class OptionParser(argparse.ArgumentParser):
    """Reports a mistake in one line, in plain words, as a UserError."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message):
        typed = message.removeprefix("unrecognized arguments: ")
        if typed != message:
            message = spelling_hint(self, typed.split()) or f"unknown option: {typed}"
        message = message.removeprefix("argument ")  # "argument --beam: expected one argument"
        raise UserError(f"{message} (--help lists all options)")


def spelling_hint(parser, arguments):
    """Return a message about the first unknown argument that resembles an option, or nothing."""
    import difflib  # here, because few command lines have a mistake

    for name in (argument.partition("=")[0] for argument in arguments):
        for meant in difflib.get_close_matches(name, parser._option_string_actions, 1, cutoff=0.7):
            return f"unknown option {name}: did you mean {meant}?"
    return ""


# How a program ends -------------------------------------------------------------------------------


def report_error(program, message, code=2):
    """Write one line about a mistake; return the exit code."""
    say(blank_unprintable(f"{program}: {message}"))
    return code


def exit_code(program, run, report_error=report_error):
    """Run a command; return its exit code, and say in one line why it could not do its work.

    That is what run() returns, or 0; 2 after a UserError, which the user can mend; 130 after
    Ctrl-C (what a KeyboardInterrupt says is printed). report_error: writes the line.
    """
    for stream in sys.stdout, sys.stderr:
        if hasattr(stream, "reconfigure"):  # not in a notebook
            stream.reconfigure(errors="backslashreplace")  # what the terminal cannot encode
    try:
        with quiet_when_closed():
            return run() or 0
        return 0  # nobody reads the output any more
    except UserError as error:
        return report_error(program, error)
    except MemoryError:
        return report_error(
            program, "out of memory: give less text, or use a smaller model or --beam"
        )
    except KeyboardInterrupt as stop:
        if is_terminal(sys.stderr):
            say("")  # the terminal has written ^C
        return report_error(program, stop, 130) if stop.args else 130
    finally:
        drop_unwritten()


def say(message, end="\n"):
    """Write to standard error, if it is open; ignore a full disk or a lost terminal."""
    if sys.stderr:
        with contextlib.suppress(OSError):
            print(message, end=end, file=sys.stderr, flush=True)


def blank_unprintable(text):
    """Return the text with a space for each character that a terminal could misunderstand."""
    return "".join(c if c.isprintable() else " " for c in text)


def is_terminal(stream):
    """Return whether a standard stream is open and a terminal."""
    return bool(stream) and stream.isatty()


@contextlib.contextmanager
def quiet_when_closed():
    """End the block quietly if nobody reads its output: after ... | head."""
    try:
        yield
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_unwritten()
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename:
            raise
        raise UserError("the disk of the output is full: write it to another one") from error


def drop_unwritten():
    """Discard unwritable output, which Python would otherwise try to flush at exit."""
    for stream in sys.stdout, sys.stderr:
        try:
            if stream:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def signals_as_exceptions():
    """Turn SIGTERM and SIGHUP into SystemExit, or they would leave half a file."""
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


def quote(*words):
    """Return words as one types them in a shell, quoted where necessary.

    On Windows in double quotes: cmd would make single ones a part of the word.
    """
    if os.name == "nt":
        plain = re.compile(r"[\w.:\\/+=@-]+")
        return " ".join(word if plain.fullmatch(word) else f'"{word}"' for word in words)
    return shlex.join(words)


# Progress -----------------------------------------------------------------------------------------


class Progress:
    """A progress bar on the terminal for a `with` block, which removes it at its end.

    desc: the text beside the bar, such as "lines read". total: the amount of work, 0 if unknown.
    Short work shows no bar; without a terminal, nothing is written.
    """

    def __init__(self, desc, total=0):
        self.desc, self.total = desc, total
        self.possible, self.began = is_terminal(sys.stderr), time.monotonic()
        self._bar = None  # made when the work takes long

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._bar is not None:
            self._bar.close()

    def update_to(self, done):
        """Show the amount that is done."""
        if not self.possible or time.monotonic() - self.began < BAR_AFTER:
            return
        if self._bar is None:
            from tqdm import tqdm  # here: importing it takes longer than to translate a sentence

            # No monitor thread and no multiprocessing lock: processes are forked beside the bar.
            tqdm.monitor_interval = 0
            tqdm.set_lock(threading.RLock())
            shape = "{l_bar}{bar}| {remaining} left" if self.total else "{desc}{n:,}{bar}"
            options = {"leave": False, "dynamic_ncols": True, "miniters": 1, "mininterval": EVERY}
            self._bar = tqdm(
                total=self.total or None, initial=done, bar_format=shape, position=0, **options
            )
        self._bar.set_description(self.desc, refresh=False)
        self._bar.update(done - self._bar.n)

    def wipe(self):
        """Remove the bar, so that a line can be written; a later `update_to` draws it again."""
        if self._bar is not None:
            self._bar.clear()


def amount(number, noun):
    """Return a number and its noun, which is in the plural unless the number is 1.

    >>> amount(1, "update"), amount(2_000, "update")
    ('1 update', '2,000 updates')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
