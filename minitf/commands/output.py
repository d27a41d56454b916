"""Write the translations as lines of text or JSON, and at the end one line about what was lost."""

import contextlib
import errno
import json
import os
import re
import sys

from minitf.atomic import HINTS, atomic_file
from minitf.cli import say
from minitf.commands.arguments import PROGRAM
from minitf.errors import UserError
from minitf.text.vocabulary import LOST


@contextlib.contextmanager
def open_output(path, input_file):
    """Yield a function that writes text or bytes: to standard output, a device or a new file.

    A new file appears under its name when it is complete: after an error or a signal, what was
    there is unchanged. input_file: the file that is translated, which the output must not replace;
    None if there is none.
    """
    if path in (None, "-") or _is_same(sys.stdout, path):  # such as /dev/stdout
        if sys.stdout is None:
            raise UserError("standard output is closed: use --output FILE")
        with contextlib.suppress(OSError, ValueError):  # not a file of the operating system
            descriptor = sys.stdout.fileno()
            if input_file and os.path.isfile(descriptor) and _is_same(input_file, descriptor):
                raise UserError(
                    "the translation would be added to the text that is read: write it to another "
                    "file"
                )
            with contextlib.suppress(AttributeError):  # Windows has it since Python 3.12
                os.set_blocking(descriptor, True)  # another program may have changed that
        if hasattr(sys.stdout, "buffer"):
            yield lambda text: _write(sys.stdout.buffer, "standard output", text)
        else:  # as in a notebook
            yield lambda text: sys.stdout.write(text.decode() if isinstance(text, bytes) else text)
        return
    if input_file and os.path.isfile(path) and _is_same(input_file, path):
        raise UserError(
            f"{path}: the text would be replaced by its translation: give --output another name"
        )
    # No file must replace a device or a pipe, nor a file that /dev/stderr leads to.
    if path.startswith("/dev/") or (os.path.exists(path) and not os.path.isfile(path)):
        with _mistake_about(path):
            device = open(path, "ab", buffering=0)  # noqa: SIM115
        with device:
            yield lambda text: _write(device, path, text)
        return
    path = os.path.realpath(path)  # a link stays a link
    try:
        # Unbuffered: a full disk refuses a write, and does not refuse the rest of it in close().
        with atomic_file(path, buffering=0) as file:
            yield lambda text: _write(file, path, text)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: nothing was written to {path}") from None


def _is_same(file, path):
    """Return whether an open file is the one at a path, or of a file descriptor."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except (AttributeError, OSError, ValueError):  # not an open file of the operating system
        return False


def _write(file, name, text):
    rest = memoryview(text if isinstance(text, bytes) else text.encode())
    with _mistake_about(name):
        while rest:  # without a buffer, as under python -u, a pipe may take less than all of it
            rest = rest[file.write(rest) or 0 :]
        file.flush()


@contextlib.contextmanager
def _mistake_about(name):
    """Turn an OSError into one line about the file, or BrokenPipeError if nobody reads it."""
    try:
        yield
    except OSError as error:
        # Windows reports EINVAL for a pipe that nobody reads any more.
        if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
            raise BrokenPipeError from None
        hint = HINTS.get(error.errno, "choose another file")
        raise UserError(f"{name}: cannot be written ({error.strerror}): {hint}") from None


def render(lines, number, translations, options):
    """Return the output for some lines of the input. number: the first line's."""
    if options.format == "json":
        return "".join(map(_json, lines, translations))
    if options.nbest > 1:
        return "".join(
            f"{i} ||| {_field(each.text)} ||| {each.score:.4f}\n"
            for i, best in enumerate(translations, number)
            for each in best
        )
    scores = [f"{best.score:.4f}\t" if options.scores else "" for best, *_ in translations]
    return "".join(f"{s}{best[0].text}\n" for s, best in zip(scores, translations, strict=True))


def _field(text):
    """Return a text without |||, which separates the fields: each | is written as Moses does."""
    return text.replace("|", "&#124;") if "|||" in text else text


def _json(line, translations):
    nbest = [
        {
            "translation": t.text,
            "score": round(t.score, 6),
            "log_probability": round(t.log_probability, 6),
        }
        for t in translations
    ]
    text = json.dumps({"source": line, **nbest[0], "nbest": nbest}, ensure_ascii=False)
    # json.dumps escapes only the control characters up to U+001F.
    text = re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)
    return text + "\n"


# What was lost ------------------------------------------------------------------------------------


class LostText:
    """Collects what was lost in a text, and reports it in one line at the end, by line numbers."""

    MOST = 5  # numbers that are named; an endless pipe may have endlessly many

    def __init__(self, unit="line"):
        self.unit = unit  # what is translated by itself
        self._lines = {}  # (unit, what): [the first numbers], how many

    def note(self, translations, before):
        """Note what the translations of some units lack. before: how many units came before."""
        for number, (best, *_) in enumerate(translations, before + 1):
            for problem in best.problems:
                self._add(self.unit, number, problem)

    def _add(self, unit, number, problem):
        first, count = self._lines.get((unit, problem), ([], 0))
        if count < self.MOST:
            first.append(number)
        self._lines[unit, problem] = first, count + 1

    def watch(self, batches):
        """Yield the lists of lines of a text, and note what the text has lost already."""
        before = 0
        for lines in batches:
            for number, line in enumerate(lines, before + 1):
                for pattern, problem in _DAMAGE.items():
                    if pattern.search(line):
                        self._add("line", number, problem)
            before += len(lines)
            yield lines

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Write the line at the end of the block, also if Ctrl-C ends it."""
        if self._lines and kind in (None, KeyboardInterrupt):
            mistakes = [
                f"{unit}{_numbers(*numbers)}: {problem}"
                for (unit, problem), numbers in self._lines.items()
            ]
            say(f"{PROGRAM}: check {'; '.join(mistakes)}")


_DAMAGE = {
    LOST: "bytes that are not UTF-8 are lost",
    # As cp1252 is after  iconv -f latin1. U+0085 is a line end, too.
    re.compile("[\x80-\x84\x86-\x9f]"): (
        "control characters are lost (if they were Windows' quotes or dashes, convert "
        "the original with  iconv -f cp1252)"
    ),
}


def _numbers(first, count):
    """Return what follows the name of a unit: the first numbers, and how many more there are.

    >>> _numbers([3], 1), _numbers([3, 4], 2), _numbers([3, 4], 9)
    (' 3', 's 3 and 4', 's 3, 4 and 7 more')
    """
    *names, last = [f"{number:,}" for number in first]
    if count > len(first):
        names, last = [*names, last], f"{count - len(first):,} more"
    names = f"{', '.join(names)} and {last}" if names else last
    return f"{'s' * (count > 1)} {names}"
