"""Files and folders that survive a crash: each is written completely or not at all.

A file is written under a temporary name in the same folder, flushed to the disk, and only then
renamed. A process that is killed at any moment leaves the old file or the new one. A folder is
filled under a temporary name, and renamed when it is complete.
"""

import contextlib
import errno
import glob
import hashlib
import mmap
import os
import re
import shutil
import time
from pathlib import Path

from minitf.errors import UserError

__all__ = [
    "clean_leftovers",
    "complete",
    "filling",
    "install",
    "save_bytes",
    "save_text",
    "sha256",
    "staged",
    "temporary_name",
    "writing",
]

# Our temporary names, and those of safetensors.
TEMPORARY = re.compile(r".+\.minitf-[0-9a-f]{8}\.tmp(\.tmp)?|\.tmp[A-Za-z0-9]{6}")
_STALE_AFTER = 3600  # seconds without a change after which an unfinished folder is removed
_UNFINISHED = ".making"  # the end of the temporary name of a folder
HINTS = {  # what to do if a file cannot be written
    errno.ENOENT: "its folder does not exist: make it, or choose another folder",
    errno.ENOTDIR: "its folder is a file: choose another folder",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.EACCES: "you may not write there: choose another folder",
    errno.EPERM: "you may not write there: choose another folder",
    errno.EROFS: "you may not write there: choose another folder",
    errno.ENOSPC: "the disk is full: free some space, or choose another disk",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another disk",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def save_text(path: str | Path, text: str) -> None:
    """Write a text file completely or not at all, with line feeds on every system.

    Raises UserError if the disk refuses.
    """
    save_bytes(path, text.encode(errors="replace"))


def save_bytes(path: str | Path, content: bytes) -> None:
    """Write a file completely or not at all. Raises UserError if the disk refuses."""
    path = Path(path)
    with staged({path: lambda temporary: temporary.write_bytes(content)}) as files:
        install(files, path)


def temporary_name(path: str | Path) -> str:
    """Return a new name in the folder of a file, under which it can be written; see TEMPORARY."""
    return f"{path}.minitf-{os.urandom(4).hex()}.tmp"


def clean_leftovers(folder: str | Path, minutes: float = 10) -> None:
    """Remove the half-written files that killed processes left in a folder.

    Files younger than `minutes` are kept: another process may be writing them.
    """
    newest = time.time() - 60 * minutes
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                old = entry.is_file(follow_symlinks=False) and entry.stat().st_mtime <= newest
                if old and TEMPORARY.fullmatch(entry.name) and _is_ours(entry):
                    os.unlink(entry.path)


def _is_ours(entry):
    """Return whether a temporary file is minitf's: other programs have names like safetensors'."""
    if not entry.name.startswith(".tmp"):
        return True
    with open(entry.path, "rb") as file:
        start = file.read(9)  # the header's length, eight bytes, and where the header begins
        # safetensors makes the file as long as it will be, full of zeros, before it writes.
        return start[8:] in (b"", b"{") or not any(start)


@contextlib.contextmanager
def staged(writers):
    """Write files under temporary names, and yield {path: temporary path}.

    A file that is not installed when the block ends is removed.

    writers: {path: function that writes the file whose path it is given}.
    """
    files = {}
    try:
        for path, write in writers.items():
            files[path] = Path(temporary_name(path))
            with writing(path):
                write(files[path])
                with open(files[path], "rb+") as file:
                    os.fsync(file.fileno())
        yield files
    finally:
        for temporary in files.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def install(files, path):
    """Rename the staged file for `path` to that name."""
    with writing(path):
        os.replace(files[path], path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def writing(path):
    """Turn any OSError in this block into one line about the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        hint = HINTS.get(error.errno, "free some space or choose another folder")
        raise UserError(
            f"{path}: could not be written ({reason}): {hint}; an existing file is unchanged"
        ) from error


def _sync_folder(folder):
    # A rename survives a power failure once its folder is synced. Windows cannot open a folder, and
    # some file systems cannot sync one.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sha256(path):
    """Return the sha256 of a file as hexadecimal text.

    Of all of it in one piece: between two, a thread would have to wait for its turn.
    """
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:  # nothing can be mapped
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest()


# Folders ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def filling(folder):
    """Give a new folder beside `folder`, to be filled in a `with` block and renamed by `complete`.

    If it was not renamed, it is deleted when the block ends.
    Unfinished folders of killed processes are deleted first; another process may be making the same
    folder at this moment.
    Raises OSError if it cannot be made.
    """
    _remove_stale(folder)
    temporary = folder.with_name(f"{folder.name}.{os.urandom(4).hex()}{_UNFINISHED}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def complete(temporary, folder):
    """Give a filled folder its name; return False if there is a folder of that name already.

    Raises OSError if it cannot be renamed for any other reason.
    """
    try:
        os.replace(temporary, folder)
    except OSError:
        if not folder.is_dir():
            raise
        return False
    return True


def _remove_stale(folder):
    """Delete unfinished folders in which nothing was written for an hour."""
    for temporary in folder.parent.glob(f"{glob.escape(folder.name)}.*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            changed = max(path.stat().st_mtime for path in (temporary, *temporary.iterdir()))
            if time.time() - changed > _STALE_AFTER:
                shutil.rmtree(temporary)
