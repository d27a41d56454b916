"""The text to translate: from the command line, a file, a pipe or a prompt, in lists of lines."""

import contextlib
import io
import os
import queue
import re
import stat
import sys
import threading
import time
from pathlib import Path

from minitf.translation.console import Mistake, is_terminal, printable, say
from minitf.translation.languages import languages_of

LINES, BYTES = 500, 1 << 20  # the most text that is sorted by length and translated together
PATIENCE = 0.05  # seconds for which a line from a pipe waits for others to share a batch with
NOT_TEXT = {  # the first bytes of files that are not plain text
    rb"PK\x03\x04": "a Word, LibreOffice or zip file",
    rb"\xd0\xcf\x11\xe0": "an old Word file",
    rb"%PDF-": "a PDF",
    rb"\{\\rtf": "an RTF file",
    rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]": "in UTF-16",
}


@contextlib.contextmanager
def opened_input(options):
    """Return an unbuffered binary file: a read returns the bytes that have come, and does not
    wait for more.
    """
    if options.text:
        lines = (line if line.endswith("\n") else line + "\n" for line in options.text)
        yield io.BytesIO("".join(lines).encode(errors="surrogatepass"))
    elif options.input not in (None, "-"):
        try:
            file = open(options.input, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise Mistake(
                f"{options.input}: cannot be read ({error.strerror}): name a text file"
            ) from None
        with file:
            _check_is_text(file, options.input)
            yield file
    elif sys.stdin is None:
        raise Mistake("standard input is closed: give TEXT or --input FILE")
    else:
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)


def _check_is_text(file, name):
    """Refuse the file of a word processor: all of its bytes would be translated."""
    start = b""
    if size_of(file) is not None:
        with contextlib.suppress(OSError):  # the reader of the text will say so
            start = file.read(8)
            file.seek(0)
    for pattern, kind in NOT_TEXT.items():
        if re.match(pattern, start, re.DOTALL):
            raise Mistake(f"{name}: is {kind}: save it as plain text, in UTF-8")


def size_of(file):
    """Return the size of the file in bytes, None for a pipe or a terminal."""
    if isinstance(file, io.BytesIO):
        return len(file.getbuffer())
    info = os.fstat(file.fileno())
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def batches(file):
    """Yield lists of lines, without their line feeds, to be translated together.

    A thread reads ahead. From a file the lists are full; lines from a pipe are not kept
    waiting for more.
    """
    chunks = queue.Queue(4)
    threading.Thread(target=_read, args=(file, chunks), daemon=True).start()
    patience = PATIENCE if size_of(file) is None else None
    lines, size, chunk = [], 0, ()
    while chunk is not None:
        try:
            chunk = chunks.get(timeout=patience if lines else None)
        except queue.Empty:
            yield lines
            lines, size = [], 0
            continue
        if isinstance(chunk, Exception):
            if lines:
                yield lines
            raise chunk
        for line in chunk or ():
            lines.append(line)
            size += len(line)
            if len(lines) == LINES or size >= BYTES:
                yield lines
                lines, size = [], 0
    if lines:
        yield lines


def _read(file, chunks):
    """Put lists of complete lines into the queue, and None at the end of the file."""
    begun = []  # of a line whose end has not come yet
    try:
        while (data := file.read(1 << 16)) != b"":
            if data is None:  # a pipe that does not wait, and has nothing at the moment
                time.sleep(PATIENCE)
                continue
            lines, feed, rest = data.rpartition(b"\n")
            if feed:
                chunks.put(b"".join([*begun, lines]).split(b"\n"))
                begun = []
            begun.append(rest)
        if last := b"".join(begun):
            chunks.put([last])
        chunks.put(None)
    except OSError as error:
        chunks.put(Mistake(f"the input cannot be read ({error.strerror}): name a text file"))
    except Exception as error:
        # No memory for a line, say: whoever waits at the other end must hear of it.
        chunks.put(error)


def typed(file, options):
    """Greet the user, prompt, and yield lists of the lines that are typed."""
    source, target = languages_of(options.model)
    languages = f"{source} to {target}, " if source and target else ""
    unit = "an empty line ends a paragraph" if options.paragraphs else "one sentence per line"
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    say(printable(f"{languages}model {Path(options.model).resolve().name}; {unit}, {end} ends"))
    yield from _edited() if file.fileno() == 0 and is_terminal(sys.stdout) else _prompted(file)
    say("")  # the shell's own prompt comes next


def _edited():
    """Read lines with the arrow keys and a history, where the platform has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() uses it; imported here, because it writes to the terminal
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # any bytes can be typed
    with contextlib.suppress(EOFError):
        while True:  # pasted text may be several lines
            yield input("> ").encode(errors="surrogateescape").split(b"\n")


def _prompted(file):
    """Read lines as they come, where the terminal shows the prompt but not the translations."""
    say("> ", end="")
    for lines in batches(file):
        yield lines
        say("> ", end="")


def decoded(batches):
    """Yield pairs: lists of lines as bytes, and as text.

    A carriage return before the line feed and a byte order mark are not part of a line.
    """
    for raw in batches:
        lines = [
            line.removesuffix(b"\r").decode(errors="replace").removeprefix("\ufeff") for line in raw
        ]
        yield raw, lines


def joined_paragraphs(pairs):
    """Join the lines of each paragraph, at most BYTES characters or little more; an empty
    line stays a line.

    Yields pairs like those it takes: the lines as they were read, and the paragraphs
    that end in them.
    """
    begun, size = [], 0
    for raw, lines in pairs:
        texts = []
        for line in map(str.strip, lines):
            if line:
                begun.append(line)
                size += len(line)
            if begun and (not line or size >= BYTES):
                texts.append(" ".join(begun))
                begun, size = [], 0
            if not line:
                texts.append("")
        yield raw, texts
    if begun:
        yield [], [" ".join(begun)]
