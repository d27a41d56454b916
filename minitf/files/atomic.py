"""Files that survive a crash: each is on the disk completely or not at all.

A file is written under another name beside its own, brought to the disk, and only then renamed.
A process that is killed at any moment leaves the old file or the new one, never half of either.
"""

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path

from minitf.errors import UserError

__all__ = ["clean_leftovers", "install", "save_text", "sha256", "staged", "writing"]

ASIDE = re.compile(r".+\.[0-9a-f]{8}\.tmp(\.tmp)?")


def save_text(path: str | Path, text: str) -> None:
    """Write a text file completely or not at all, with line feeds on every system.

    Raises UserError.
    """
    path = Path(path)
    content = text.encode(errors="replace")
    with staged({path: lambda aside: aside.write_bytes(content)}) as files:
        install(files, path)


def clean_leftovers(folder: str | Path, minutes: float = 10) -> None:
    """Remove the half-written files that killed processes left in a folder.

    Only files older than `minutes` go, because another process may be writing a younger
    one this moment.
    """
    newest = time.time() - 60 * minutes
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if ASIDE.fullmatch(entry.name) and entry.stat().st_mtime <= newest:
                os.unlink(entry.path)


@contextlib.contextmanager
def staged(writers):
    """Bring each file to the disk under a temporary name; one that is not installed in the
    block is removed.

    writers: {path: function that writes the file it is given}. Gives {path: its name for now}.
    """
    files = {}
    try:
        for path, write in writers.items():
            files[path] = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
            with writing(path):
                write(files[path])
                with open(files[path], "rb+") as file:
                    os.fsync(file.fileno())
        yield files
    finally:
        for aside in files.values():
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def install(files, path):
    """Give a staged file its name."""
    with writing(path):
        os.replace(files[path], path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def writing(path):
    """Turn an error of the disk in this block into one line about the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path}: could not be written ({reason}): free some space or choose another folder; "
            "the existing file is unchanged"
        ) from error


def _sync_folder(folder):
    # A rename is on the disk when its folder is. Windows cannot open a folder, some systems
    # cannot sync one.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sha256(path):
    """Return the hash of a file's content, as text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
