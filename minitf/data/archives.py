"""Archives from the internet: tar, tar.gz, zip, and gz.

Nothing is written here. Members are read by the names that the caller asks for, so no name in an
archive can become a path.
"""

import contextlib
import gzip
import posixpath
import tarfile
import zipfile
import zlib
from pathlib import Path

from minitf.errors import UserError

__all__ = ["members"]

# What Python's readers raise for damage: ValueError for a name in a tar, for example.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)
_DAMAGE += (ValueError, RuntimeError)


@contextlib.contextmanager
def members(path, names):
    """Give a `with` block an iterator: (name, file to read) for each member with one of the names.

    They come in the archive's order; each file is read before the next one is asked for.
    path: a tar, tar.gz or zip archive, or a gz file, which has one member. A member whose name ends
    in .gz is unpacked.

    Raises UserError, at any moment of the block, for an archive that is damaged or lacks a name.
    """
    again = "delete it, and it will be downloaded again; if it is your own, copy it again"
    missing = set(names)

    def found():
        for name, file in _opened(Path(path), set(names)):
            missing.discard(name)
            yield name, gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        if missing:
            listed = " and ".join(sorted(missing))
            raise UserError(f"{path} does not contain {listed}: {again}")

    try:
        yield found()
    except _DAMAGE as error:
        raise UserError(f"{path} is not a complete archive ({error}): {again}") from None


def _opened(path, wanted):
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = posixpath.normpath(member.filename)
                if name in wanted and not member.is_dir():
                    yield name, archive.open(member)
        return
    with open(path, "rb") as file:
        packed = file.peek(2).startswith(b"\x1f\x8b")
        stream = gzip.GzipFile(fileobj=file) if packed else file
        if path.suffix == ".gz" and not path.stem.endswith(".tar"):
            if path.stem in wanted:
                yield path.stem, stream
            return
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = posixpath.normpath(member.name)
                if name in wanted and member.isreg():
                    yield name, archive.extractfile(member)
        while stream.read(1 << 18):  # up to the checksum at the end
            pass
