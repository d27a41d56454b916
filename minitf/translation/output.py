"""The translations: as lines of text or JSON, to standard output or into a file that appears when
it is complete.
"""

import contextlib
import errno
import io
import json
import os
import re
import shutil
import sys

from minitf.translation.console import Mistake

HINTS = {  # what to do where a file cannot be written
    errno.ENOENT: "its folder does not exist: make it, or choose another one",
    errno.ENOTDIR: "its folder is a file: choose another one",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.EACCES: "you may not write there: choose another folder",
    errno.EPERM: "you may not write there: choose another folder",
    errno.EROFS: "you may not write there: choose another folder",
    errno.ENOSPC: "the disk is full: make room, or choose another one",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another one",
    errno.ENAMETOOLONG: "choose a shorter name",
}


@contextlib.contextmanager
def opened_output(path, source):
    """Return the function that writes text: to standard output at once, to a file that appears when
    it is complete.
    """
    if path in (None, "-"):
        if sys.stdout is None:
            raise Mistake("standard output is closed: use --output FILE")
        yield lambda text: _write(sys.stdout.buffer, "standard output", text)
        return
    path = os.path.realpath(path)  # a link stays a link
    from_file = not isinstance(source, io.BytesIO) and os.path.isfile(path)
    if from_file and os.path.samestat(os.stat(path), os.fstat(source.fileno())):
        raise Mistake(
            f"{path}: the text would be replaced by its translation: give --output another name"
        )
    # A device or a pipe is not to be replaced by a file.
    is_device = os.path.exists(path) and not os.path.isfile(path)
    aside = path if is_device else f"{path}.{os.getpid()}.tmp"
    file = None
    try:  # from here on: a signal may come as soon as the file is there
        with _blame(path):
            file = open(aside, "wb")  # noqa: SIM115
        yield lambda text: _write(file, path, text)
        with _blame(path):
            file.close()
            if os.path.isfile(path):
                shutil.copymode(path, aside)
            if not is_device:
                os.replace(aside, path)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            *([] if is_device else [f"stopped: nothing was written to {path}"])
        ) from None
    finally:
        if file:
            with contextlib.suppress(OSError):
                file.close()
        if not is_device:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def _write(file, name, text):
    rest = memoryview(text.encode())
    with _blame(name):
        while rest:  # without a buffer, as under python -u, a pipe may take a part only
            rest = rest[file.write(rest) or 0 :]
        file.flush()


@contextlib.contextmanager
def _blame(name):
    try:
        yield
    except OSError as error:
        # Windows says EINVAL of a pipe that nobody reads any more.
        if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
            raise BrokenPipeError from None
        hint = HINTS.get(error.errno, "choose another file")
        raise Mistake(f"{name}: not written ({error.strerror}): {hint}") from None


def settle_stdout():
    """Drop output that standard output refuses, so that Python does not try it
    again when it ends.
    """
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def rendered(number, line, translations, options):
    """Return the line, or lines, of the output for one line of the input."""
    best = translations[0]
    if options.format == "json":
        found = [
            {
                "translation": t.text,
                "score": round(t.score, 6),
                "log_probability": round(t.log_probability, 6),
            }
            for t in translations
        ]
        text = json.dumps({"source": line, **found[0], "nbest": found}, ensure_ascii=False)
        # JSON escapes only the control characters up to U+001F itself.
        return (
            re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
        )
    if options.nbest > 1:
        return "".join(f"{number} ||| {t.text} ||| {t.score:.4f}\n" for t in translations)
    return (f"{best.score:.4f}\t" if options.scores else "") + best.text + "\n"
