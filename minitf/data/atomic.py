"""Folders that are complete as soon as they exist: filled under another name, and renamed."""

import contextlib
import glob
import os
import shutil
import time

__all__ = ["filling", "install"]

_STALE_AFTER = 3600  # seconds without a change after which an unfinished folder is removed
_SUFFIX = ".making"


@contextlib.contextmanager
def filling(folder):
    """Give a new folder beside `folder`, to be filled and installed; it is deleted in the end.

    Unfinished folders of killed processes are deleted first; another process may be making the same
    folder at this moment.
    Raises OSError if it cannot be made.
    """
    _remove_stale(folder)
    temporary = folder.with_name(f"{folder.name}.{os.urandom(4).hex()}{_SUFFIX}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def install(temporary, folder):
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
    for temporary in folder.parent.glob(f"{glob.escape(folder.name)}.*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            changed = max(path.stat().st_mtime for path in (temporary, *temporary.iterdir()))
            if time.time() - changed > _STALE_AFTER:
                shutil.rmtree(temporary)
