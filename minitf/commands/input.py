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

from minitf.cli import is_terminal, quoted, say, terminal_safe
from minitf.cpu.threads import without_signals
from minitf.errors import UserError
from minitf.text.encoding import Damage, as_utf8, refusal
from minitf.text.vocabulary import valid
from minitf.translation.cutting import join
from minitf.translation.languages import languages_of

LINES = 500  # lines that are sorted by length and translated together, at most
BYTES = 1 << 20  # bytes; a batch of lines that is as large is complete
PATIENCE = 0.05  # seconds for which a line from a pipe waits for others to share a batch with
CHUNK = 1 << 16  # bytes that are read at once
NAME = re.compile(r"\S*[\w)-]\.[a-z]\w{1,3}")  # of a file, such as letter.txt and my.en


class Source(NamedTuple):
    """A text, as lists of lines that are translated together.

    file: where it comes from, None for the command line. size: in bytes of UTF-8, None if unknown.
    typed: whether somebody types it at the terminal.
    """

    batches: Iterator[list[str]]
    file: BinaryIO | None = None
    size: int | None = None
    typed: bool = False


@contextlib.contextmanager
def opened_input(options):
    """Yield the Source that the options name."""
    if options.text:
        _hint(options.text)
        # A line feed at the end of an argument begins no other line.
        lines = [line for text in options.text for line in text.removesuffix("\n").split("\n")]
        lines = [_stripped(valid(line)) for line in lines]
        batches = (lines[start : start + LINES] for start in range(0, len(lines), LINES))
        yield Source(batches)
    elif options.input not in (None, "-"):
        try:
            # Unbuffered: a read returns the bytes that have come, and does not wait for more.
            file = open(options.input, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            hint = "name a text file"
            if isinstance(error, PermissionError):
                hint = "give yourself permission to read it, or name another file"
            raise UserError(f"{options.input}: cannot be read ({error.strerror}): {hint}") from None
        with file:
            if _size_of(file) == 0:
                say(terminal_safe(f"{options.input} is empty"))
            yield _source_of(file, options, options.input)
    elif sys.stdin is None:
        raise UserError("standard input is closed: give TEXT or --input FILE")
    else:
        file = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        yield _source_of(file, options)


def _hint(arguments):
    """Say what the user may have meant, if the arguments look like a file's name or a sentence."""
    for text in arguments:
        if os.path.isfile(text):
            say(terminal_safe(f"{text} is also a file: --input {text} reads it"))
        elif NAME.fullmatch(text):
            say(terminal_safe(f"{text}: no such file; treating it as text"))
    is_word = [len(text.split()) == 1 for text in arguments]
    ends = [text.endswith((".", "?", "!")) for text in arguments[:-1]]
    if len(arguments) > 1 and all(is_word) and not any(ends):
        say(f"{len(arguments)} single words, each taken as a line: put a sentence in quotes")


def _source_of(file, options, path=""):
    """Return the Source of an open file; path: its name, "" for standard input."""
    if file.isatty() and is_terminal(sys.stderr):
        return Source(map(_decoded, _typed(file, options)), file, typed=True)
    name = path or "the input"
    if _size_of(file) is None:
        return Source(_not_refused(read_batches(file, name), name), file)
    # A file can be read twice: it is refused before anything is translated.
    begin, damage, size = file.tell(), Damage(), 0
    for lines in read_batches(file, name):
        damage.see(_decoded(lines))
        size += sum(map(len, lines)) + len(lines)
    file.seek(begin)
    if damage.is_other_encoding():
        raise UserError(refusal(name, file.read(), quoted(path) if path else ""))
    return Source(map(_decoded, read_batches(file, name)), file, size)


def _not_refused(batches, name):
    """Yield the lines of a pipe as text, and refuse it as soon as it is seen to be no UTF-8."""
    damage = Damage()
    for lines in batches:
        decoded = _decoded(lines)
        damage.see(decoded)
        if damage.is_other_encoding():
            raise UserError(refusal(name, b"\n".join(lines)))
        yield decoded


def _size_of(file):
    """Return the size of a file in bytes, None for a pipe or a terminal."""
    try:
        info = os.fstat(file.fileno())
    except OSError:  # not a file of the operating system
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None


# Lines from a file or a pipe ----------------------------------------------------------------------


def read_batches(file, name="the input"):
    """Yield lists of lines as bytes in UTF-8, without their line feeds, to be translated together.

    Lines from a file fill their lists; lines from a pipe are not kept waiting for more. The lines
    before an error are yielded before it is raised.
    """
    chunks, is_pipe = _chunks(file, name), _size_of(file) is None
    if is_pipe:
        chunks = _read_ahead(chunks)
    lines, size, since = [], 0, 0.0
    try:
        for chunk in chunks:
            if not lines:
                since = time.monotonic()
            for line in chunk:
                lines.append(line)
                size += len(line)
                if len(lines) == LINES or size >= BYTES:
                    yield lines
                    lines, size = [], 0
            # Nothing more has come for a moment, or the first of the lines has waited for so long.
            if lines and (not chunk or (is_pipe and time.monotonic() - since > PATIENCE)):
                yield lines
                lines, size = [], 0
    except Exception:
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def _chunks(file, name):
    """Yield lists of complete lines as bytes; an empty list if nothing has come for a moment.

    A line feed ends a line; in a text without any, as old Macs wrote it, a carriage return does.
    """
    begun, has_feeds = [], False  # the slices of a line whose end has not come yet
    try:
        for data in as_utf8(lambda: file.read(CHUNK), name):
            if data is None:  # a pipe that does not wait, and is empty at the moment
                time.sleep(PATIENCE)
                yield []
                continue
            lines, feed, rest = data.rpartition(b"\n")
            if feed:
                yield b"".join([*begun, lines]).split(b"\n")
                begun, has_feeds = [], True
            begun.append(rest)
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}): name a text file") from None
    if last := b"".join(begun):
        yield [last] if has_feeds else last.removesuffix(b"\r").split(b"\r")


def _read_ahead(chunks):
    """Yield the chunks that a thread reads, and an empty one if the next does not come at once."""
    ready = queue.Queue(4)
    with without_signals():  # else they would be handled there while the main thread defers them
        threading.Thread(target=_put_all, args=(chunks, ready), daemon=True).start()
    timeout = None
    while True:
        try:
            chunk = ready.get(timeout=timeout)
        except queue.Empty:
            chunk = []
        if isinstance(chunk, Exception):
            raise chunk
        if chunk is None:
            return
        yield chunk
        timeout = PATIENCE if chunk else None  # after an empty chunk no line waits for others


def _put_all(chunks, ready):
    """Put all chunks into the queue, and at the end None or the error that ended them."""
    try:
        for chunk in chunks:
            ready.put(chunk)
        ready.put(None)
    except Exception as error:  # such as no memory for a line: the other thread must hear of it
        ready.put(error)


def _decoded(lines):
    """Return lines of bytes as text."""
    return [_stripped(line.decode(errors="replace")) for line in lines]


def _stripped(line):
    """Return a line without a byte order mark and the carriage return before the line feed."""
    return line.removesuffix("\r").removeprefix("\ufeff")


# Lines from the terminal --------------------------------------------------------------------------


def _typed(file, options):
    """Greet the user, prompt, and yield lists of the lines that are typed."""
    source, target = languages_of(options.model)
    languages = f"{source} to {target}, " if source and target else ""
    program = f"{languages}model {Path(options.model).resolve().name}"
    unit = "an empty line ends a paragraph" if options.paragraphs else "one sentence per line"
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    say(terminal_safe(f"{program}; {unit}, {end} ends"))
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


_HYPHEN = re.compile(r"[^\W\d_][-\xad\u2010]$")
_AND = re.compile(r"(und|oder|bzw|bis|and|or|to)\b")


def joined_paragraphs(batches):
    """Yield, for each list of lines, the paragraphs that end in it; an empty line stays a line.

    A word that is hyphenated at the end of a line is joined. A paragraph of BYTES characters is
    cut at the end of a line.
    """
    begun, length = [], 0
    for lines in batches:
        paragraphs = []
        for line in map(str.strip, lines):
            if line:
                begun.append(line)
                length += len(line)
            if begun and (not line or length >= BYTES):
                paragraphs.append(join(_without_hyphens(begun)))
                begun, length = [], 0
            if not line:
                paragraphs.append("")
        yield paragraphs
    if begun:
        yield [join(_without_hyphens(begun))]


def _without_hyphens(lines):
    """Return lines without hyphenated words at their ends: the next line is added to such a line.

    The hyphen goes before a small letter (infor-mation), and stays before a capital or a digit
    (Nord-Süd); nothing is joined in "Haus- und Gartenarbeit".

    >>> _without_hyphens(["He needs infor-", "mation on North-", "South trains", "and - well -"])
    ['He needs information on North-South trains', 'and - well -']
    """
    joined = []
    for line in lines:
        if joined and _HYPHEN.search(joined[-1][-1]) and line[0].isalnum() and not _AND.match(line):
            if line[0].islower():
                joined[-1][-1] = joined[-1][-1][:-1]
            joined[-1].append(line)
        else:
            joined.append([line])
    return ["".join(each) for each in joined]
