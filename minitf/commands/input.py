"""The text to translate: from the command line, a file, a pipe or a prompt, in batches of lines."""

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from minitf.cli import blank_unprintable, is_terminal, quote, say
from minitf.errors import UserError
from minitf.text.vocabulary import valid_unicode
from minitf.translation.reading import join_texts

BATCH_LINES = 500  # lines that are sorted by length and translated together, at most
BATCH_BYTES = 1 << 20  # bytes; a batch of lines that has as many is complete
CHUNK_BYTES = 1 << 16  # bytes that are read at once
POLL_SECONDS = 0.05  # seconds between two looks at a pipe that is empty


class Source(NamedTuple):
    """A text, as lists of lines that are translated together.

    file: where it comes from, None for the command line. size: its bytes in UTF-8, None if unknown.
    typed: whether somebody types it at the terminal.
    """

    batches: Iterator[list[str]]
    file: BinaryIO | None = None
    size: int | None = None
    typed: bool = False


@contextlib.contextmanager
def open_input(options):
    """Yield the Source that the options name; that of a document has no lines."""
    is_document = bool(getattr(options, "format_in", None))
    if options.text:
        for text in options.text:  # what the user may have meant
            if os.path.isfile(text):
                say(blank_unprintable(f"{text} is also a file: --input {text} reads it"))
        n, words = len(options.text), [text for text in options.text if len(text.split()) == 1]
        ends = [text.endswith((".", "?", "!")) for text in options.text[:-1]]
        if n > 1 and len(words) == n and not any(ends):
            say(f"{n} single words, each taken as a line: put a sentence in quotes")
        # A line feed at the end of an argument begins no other line.
        lines = [line for text in options.text for line in text.removesuffix("\n").split("\n")]
        lines = [_strip(valid_unicode(line)) for line in lines]
        yield Source(
            lines[start : start + BATCH_LINES] for start in range(0, len(lines), BATCH_LINES)
        )
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
            yield _source_of(file, options.input, is_document)
    elif sys.stdin is None:
        raise UserError("standard input is closed: give TEXT or --input FILE")
    else:
        yield _source_of(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer), "", is_document)


def _source_of(file, path, is_document):
    """Return the Source of an open file. path: its name, "" for standard input."""
    if is_document:
        return Source(iter(()), file)
    if file.isatty() and is_terminal(sys.stderr):
        return Source(_read_terminal(file), file, typed=True)
    size = _size_of(file)
    if size is None:
        return Source(_decode(file, path), file)
    if path and not size:
        say(blank_unprintable(f"{path} is empty"))
    begin = file.tell()  # a file can be read twice: it is refused before anything is translated
    size = sum(len(line.encode()) + 1 for lines in _decode(file, path) for line in lines)
    file.seek(begin)
    return Source(_decode(file, path), file, size)


def _decode(file, path):
    """Yield lists of lines as text. Raises UserError as soon as a text is seen to be no UTF-8."""
    from minitf.text.encoding import Damage, refusal  # lazily: text in quotes needs neither

    name, damage = path or "the input", Damage()
    for lines in read_batches(file, name):
        text = _as_text(lines)
        damage.see(text)
        if damage.is_other_encoding():
            raise UserError(refusal(name, b"\n".join(lines), quote(path) if path else ""))
        yield text


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

    Lines from a file fill their lists. Lines from a pipe wait for no others: what comes while they
    are translated is the next list. The lines before an error are yielded before it is raised.
    """
    lines, size, is_pipe = [], 0, _size_of(file) is None
    try:
        for chunk in _chunks(file, name):
            for left, line in enumerate(chunk, 1 - len(chunk)):
                lines.append(line)
                size += len(line)
                if len(lines) == BATCH_LINES or size >= BATCH_BYTES or (is_pipe and not left):
                    yield lines
                    lines, size = [], 0
    except Exception:
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def _chunks(file, name):
    """Yield lists of complete lines as bytes.

    A line feed ends a line; in a text without any, as old Macs wrote it, a carriage return does.
    """
    from minitf.text.encoding import as_utf8

    def read():
        while (data := file.read(CHUNK_BYTES)) is None:  # a pipe that does not wait, and is empty
            time.sleep(POLL_SECONDS)
        return data

    begun, has_feeds = [], False  # the slices of a line whose end has not come yet
    try:
        for data in as_utf8(read, name):
            lines, feed, rest = data.rpartition(b"\n")
            if feed:
                yield b"".join([*begun, lines]).split(b"\n")
                begun, has_feeds = [], True
            begun.append(rest)
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}): name a text file") from None
    if last := b"".join(begun):
        yield [last] if has_feeds else last.removesuffix(b"\r").split(b"\r")


def _as_text(lines):
    """Return lines of bytes as text."""
    return [_strip(line.decode(errors="replace")) for line in lines]


def _strip(line):
    """Return a line without a byte-order mark and the carriage return before the line feed."""
    return line.removesuffix("\r").removeprefix("\ufeff")


# Lines from the terminal --------------------------------------------------------------------------


def greet(folder, notes, hint=None):
    """Tell a user at the terminal which model reads what is typed, and how to end.

    hint: how to type (default: one sentence per line).
    """
    from minitf.translation.languages import direction  # lazily: few texts are typed

    model = ", ".join(filter(None, (direction(notes), f"model {Path(folder).resolve().name}")))
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    say(blank_unprintable(f"{model}; {hint or 'one sentence per line'}, {end} ends"))


def _read_terminal(file):
    """Prompt, and yield lists of the lines that are typed."""
    edited = file.fileno() == 0 and is_terminal(sys.stdout)
    yield from map(_as_text, _read_with_history() if edited else _read_with_prompt(file))
    say("")  # the shell's own prompt comes next


def _read_with_history():
    """Yield typed lines, with the arrow keys and a history where the platform has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() uses it; imported here, because it writes to the terminal
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # any bytes can be typed
    with contextlib.suppress(EOFError):
        while True:  # pasted text may be several lines
            yield input("> ").encode(errors="surrogateescape").split(b"\n")


def _read_with_prompt(file):
    """Yield lines as they come, where the terminal shows the prompt but not the translations."""
    say("> ", end="")
    for lines in read_batches(file):
        yield lines
        say("> ", end="")


# Paragraphs ---------------------------------------------------------------------------------------

_HYPHEN = r"[^\W\d_][-\xad\u2010]$"
_SECOND_HALF = r"(?!(?:und|oder|bzw|bis|and|or|to)\b)[^\W_]"


def join_paragraphs(batches):
    """Yield, for each list of lines, the paragraphs that end in it; an empty line stays a line.

    A word that is hyphenated at the end of a line is joined. A paragraph of BATCH_BYTES characters
    is cut at the end of a line.
    """
    begun, length = [], 0
    for lines in batches:
        paragraphs = []
        for line in map(str.strip, lines):
            if line:
                begun.append(line)
                length += len(line)
            if begun and (not line or length >= BATCH_BYTES):
                paragraphs.append(join_texts(_without_hyphens(begun)))
                begun, length = [], 0
            if not line:
                paragraphs.append("")
        yield paragraphs
    if begun:
        yield [join_texts(_without_hyphens(begun))]


def _without_hyphens(lines):
    """Return lines without hyphenated words at their ends: the next line is added to such a line.

    The hyphen is dropped before a small letter (infor-mation), and stays before a capital or a
    digit (Nord-Süd); nothing is joined in "Haus- und Gartenarbeit".

    >>> _without_hyphens(["He needs infor-", "mation on North-", "South trains", "and - well -"])
    ['He needs information on North-South trains', 'and - well -']
    """
    joined = []
    for line in lines:
        if joined and re.search(_HYPHEN, joined[-1][-1]) and re.match(_SECOND_HALF, line):
            if line[0].islower():
                joined[-1][-1] = joined[-1][-1][:-1]
            joined[-1].append(line)
        else:
            joined.append([line])
    return ["".join(each) for each in joined]
