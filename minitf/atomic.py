"""Files and folders that survive a crash: each is written completely or not at all.

A file X is written as X.tmp beside it, flushed to the disk, and only then renamed. A process that
is killed at any moment leaves the old X or the new one, and perhaps an X.tmp, which the next writer
overwrites.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from pathlib import Path

from minitf.errors import UserError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_NOT_ALLOWED = "you may not write there: choose another folder"
HINTS = {  # what to do if a file cannot be written
    errno.ENOENT: "its folder does not exist: make it, or choose another folder",
    errno.ENOTDIR: "its folder is a file: choose another folder",
    errno.EEXIST: "there is a file of this name: choose another folder",
    errno.EISDIR: "it is a folder: name a file in it",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NOT_ALLOWED),
    errno.ENOSPC: "the disk is full: free some space, or choose another disk",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def save_text(path: str | Path, text: str) -> None:
    """Write a text file completely or not at all, with line feeds on every system.

    Raises UserError if the disk refuses.
    """
    save_bytes(path, text.encode(errors="replace"))


def save_bytes(path: str | Path, *parts) -> None:
    """Write a file completely or not at all. parts: bytes or arrays, one after the other.

    Raises UserError if the disk refuses.
    """
    with atomic_file(path) as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def atomic_file(path, buffering=-1):
    """Give a block a new file, which takes the name `path` at the end of the block.

    If the block fails, the old file is unchanged and the new one is removed.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with writing(path):
            with open(temporary, "wb", buffering) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if path.is_file():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    # A rename survives a power failure once its folder is synced. Windows cannot open a folder, and
    # some file systems cannot sync one.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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


def sha256(path):
    """Return the sha256 of a file as hexadecimal text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Folders ------------------------------------------------------------------------------------------


def check_empty(folder):
    """Raise UserError unless a folder is new or empty, so that nothing in it is overwritten."""
    with writing(folder):
        names = sorted(os.listdir(folder)) if os.path.exists(folder) else []
    if names:
        raise UserError(
            f"{folder} is not empty (it contains {names[0]}): choose a new or an empty folder"
        )


@contextlib.contextmanager
def atomic_folder(folder):
    """Give a new folder beside `folder`, to be filled by a block, and rename it afterwards.

    If the block fails, it is deleted. If there is a folder of the final name by then, that stays.
    Raises UserError if another process is filling the same folder, and if the disk refuses.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    with writing(folder):
        temporary.mkdir(parents=True, exist_ok=True)
        with locked(temporary):
            try:
                for path in temporary.iterdir():  # left by a killed process
                    path.unlink()
                yield temporary
                if not folder.is_dir():
                    os.replace(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def locked(folder):
    """Keep other processes out of a folder for a block. Raises UserError if one is in it.

    The operating system ends the lock with the process, however that ends. On Windows, and on file
    systems without locks, nothing is kept out.
    """
    if not fcntl:
        yield
        return
    with writing(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # no locks here
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another process is writing to {folder}: wait until it ends, or choose "
                    "another folder"
                ) from None
        yield
    finally:
        os.close(descriptor)
