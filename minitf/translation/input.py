"""The text to translate: from the command line, a file, a pipe or a prompt, in batches of lines."""

import contextlib
import os
import queue
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from minitf.text.vocabulary import valid
from minitf.translation.console import Mistake, is_terminal, say, terminal_safe
from minitf.translation.languages import languages_of

LINES = 500  # lines that are sorted by length and translated together, at most
BYTES = 1 << 20  # bytes; a batch of lines that is as large is complete
PATIENCE = 0.05  # seconds for which a line from a pipe waits for others to share a batch with
CHUNK = 1 << 16  # bytes that are read at once
NOT_TEXT = {  # the first bytes of files that are not plain text
    rb"PK\x03\x04": "a Word, LibreOffice or zip file",
    rb"\xd0\xcf\x11\xe0": "an old Word file",
    rb"%PDF-": "a PDF",
    rb"\{\\rtf": "an RTF file",
    rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]": "in UTF-16",
}


class Batch(NamedTuple):
    """Lines to translate together, and the size of the text that was read for them.

    size: in bytes, or characters if the text is on the command line; line feeds included.
    """

    lines: list[str]
    size: int


class Source(NamedTuple):
    """An opened text, as batches of lines.

    size: the sum of the sizes of its batches, None if unknown. file: None for text on the command
    line. typed: whether somebody types the text at the terminal.
    """

    batches: Iterator[Batch]
    size: int | None = None
    file: BinaryIO | None = None
    typed: bool = False


@contextlib.contextmanager
def opened_input(options):
    """Yield the Source that the options name."""
    if options.text:
        yield _source_of_arguments(options.text)
    elif options.input not in (None, "-"):
        try:
            # Unbuffered: a read returns the bytes that have come, and does not wait for more.
            file = open(options.input, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise Mistake(
                f"{options.input}: cannot be read ({error.strerror}): name a text file"
            ) from None
        with file:
            _check_is_text(file, options.input)
            yield _source_of(file, options)
    elif sys.stdin is None:
        raise Mistake("standard input is closed: give TEXT or --input FILE")
    else:
        yield _source_of(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer), options)


def _source_of(file, options):
    typed = file.isatty() and is_terminal(sys.stderr)
    batches = _typed(file, options) if typed else read_batches(file)
    return Source(map(_decoded, batches), _size_of(file), file, typed)


def _check_is_text(file, name):
    """Refuse the file of a word processor: all of its bytes would be translated."""
    start = b""
    if _size_of(file) is not None:
        with contextlib.suppress(OSError):  # the reader of the text will say so
            start = file.read(8)
            file.seek(0)
    for pattern, kind in NOT_TEXT.items():
        if re.match(pattern, start, re.DOTALL):
            raise Mistake(f"{name}: is {kind}: save it as plain text, in UTF-8")


def _size_of(file):
    """Return the size of a file in bytes, None for a pipe or a terminal."""
    try:
        info = os.fstat(file.fileno())
    except OSError:  # not a file of the operating system
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


# Lines from a file or a pipe ----------------------------------------------------------------------


def read_batches(file):
    """Yield lists of lines as bytes, without their line feeds, to be translated together.

    Lines from a file fill their lists; lines from a pipe are not kept waiting for more. The lines
    before an error are yielded before it is raised.
    """
    chunks = _chunks(file)
    if _size_of(file) is None:
        chunks = _read_ahead(chunks)
    lines, size = [], 0
    try:
        for chunk in chunks:
            for line in chunk:
                lines.append(line)
                size += len(line)
                if len(lines) == LINES or size >= BYTES:
                    yield lines
                    lines, size = [], 0
            if lines and not chunk:  # nothing more has come for a moment
                yield lines
                lines, size = [], 0
    except Exception:
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def _chunks(file):
    """Yield lists of complete lines as bytes; an empty list where nothing has come for a moment."""
    begun = []  # the slices of a line whose end has not come yet
    while (data := _read(file)) != b"":
        if data is None:  # a pipe that does not wait, and is empty at the moment
            time.sleep(PATIENCE)
            yield []
            continue
        lines, feed, rest = data.rpartition(b"\n")
        if feed:
            yield b"".join([*begun, lines]).split(b"\n")
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


def _read(file):
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise Mistake(f"the input cannot be read ({error.strerror}): name a text file") from None


def _read_ahead(chunks):
    """Yield the chunks that a thread reads, and an empty one where it waits for the next."""
    end = object()
    waiting = queue.Queue(4)

    def read():
        try:
            for chunk in chunks:
                waiting.put(chunk)
            waiting.put(end)
        except Exception as error:  # such as no memory for a line: the consumer must hear of it
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    timeout = None
    while True:
        try:
            chunk = waiting.get(timeout=timeout)
        except queue.Empty:
            chunk = []
        if chunk is end:
            return
        if isinstance(chunk, Exception):
            raise chunk
        timeout = PATIENCE if chunk else None  # after an empty chunk the consumer has no lines
        yield chunk


def _decoded(lines):
    """Return lines of bytes as a Batch of text.

    A carriage return before the line feed and a byte order mark are not part of a line.
    """
    return Batch([_stripped(line.decode(errors="replace")) for line in lines], _total(lines))


def _stripped(line):
    return line.removesuffix("\r").removeprefix("\ufeff")


def _total(lines):
    return sum(map(len, lines)) + len(lines)


# Lines from the command line and the terminal -----------------------------------------------------


def _source_of_arguments(texts):
    """Return the lines of all arguments; a line feed at the end of an argument makes no line."""
    lines = [line for text in texts for line in text.removesuffix("\n").split("\n")]
    slices = (lines[start : start + LINES] for start in range(0, len(lines), LINES))
    batches = (Batch([_stripped(valid(line)) for line in slice], _total(slice)) for slice in slices)
    return Source(batches, _total(lines))


def _typed(file, options):
    """Greet the user, prompt, and yield lists of the lines that are typed."""
    source, target = languages_of(options.model)
    languages = f"{source} to {target}, " if source and target else ""
    unit = "an empty line ends a paragraph" if options.paragraphs else "one sentence per line"
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    say(terminal_safe(f"{languages}model {Path(options.model).resolve().name}; {unit}, {end} ends"))
    yield from _edited() if file.fileno() == 0 and is_terminal(sys.stdout) else _prompted(file)
    say("")  # the shell's own prompt comes next


def _edited():
    """Yield typed lines, with the arrow keys and a history where the platform has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() uses it; imported here, because it writes to the terminal
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # any bytes can be typed
    with contextlib.suppress(EOFError):
        while True:  # pasted text may be several lines
            yield input("> ").encode(errors="surrogateescape").split(b"\n")


def _prompted(file):
    """Yield lines as they come, where the terminal shows the prompt but not the translations."""
    say("> ", end="")
    for lines in read_batches(file):
        yield lines
        say("> ", end="")


# Paragraphs ---------------------------------------------------------------------------------------


def joined_paragraphs(batches):
    """Join the lines of each paragraph; an empty line stays a line.

    A paragraph of BYTES characters is cut at the end of a line. Each Batch holds the paragraphs
    that end in the lines of one that was read.
    """
    begun, length = [], 0
    for lines, size in batches:
        paragraphs = []
        for line in map(str.strip, lines):
            if line:
                begun.append(line)
                length += len(line)
            if begun and (not line or length >= BYTES):
                paragraphs.append(" ".join(begun))
                begun, length = [], 0
            if not line:
                paragraphs.append("")
        yield Batch(paragraphs, size)
    if begun:
        yield Batch([" ".join(begun)], 0)
