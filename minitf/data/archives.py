"""Archives from the internet, opened with suspicion: tar, tar.gz, zip, and gz.

Nothing is written here, and no name from an archive becomes a path.
"""

import contextlib
import gzip
import io
import posixpath
import re
import stat
import tarfile
import zipfile
from pathlib import Path

from minitf.errors import UserError

__all__ = ["members"]

# Times its own size: text packs to a quarter or a tenth, so what grows to more is not text.
MOST = 100
_CHUNK = 1 << 18  # bytes


def members(path, names):
    """Yield (name, file to read) for the members of an archive with these names, in the
    archive's order.

    tar, tar.gz, zip, or a gz that holds one file. A member that is itself packed by gzip is
    read unpacked.

    Raises UserError for an archive that has a path outside of it, or a link where a file is wanted,
    for one that grows to more than a hundred times its size, for a damaged one, and for one
    that lacks a name.
    """
    path, left = Path(path), set(names)
    with _opening(path):
        most = MOST * path.stat().st_size + (1 << 20)
        for name, file in _opened(path, left, most):
            left.discard(name)
            file = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
            yield name, io.BufferedReader(_Suspected(file, path, most))
    if left:
        raise UserError(f"{path} does not hold {' and '.join(sorted(left))}: is it the right file?")


def _opened(path, wanted, most):
    with open(path, "rb") as file:
        if zipfile.is_zipfile(file):
            yield from _from_zip(file, path, wanted)
            return
        file.seek(0)
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        # All bytes are counted, not only those that are wanted: a bomb may be in a header or in
        # a member that is skipped.
        stream = _Suspected(gzip.GzipFile(fileobj=file) if packed else file, path, most)
        if packed and path.suffix == ".gz" and not path.stem.endswith(".tar"):
            if path.stem in wanted:
                yield path.stem, stream
        else:
            yield from _from_tar(stream, path, wanted)
            while stream.read(_CHUNK):  # to the checksum at its end
                pass


def _from_tar(stream, path, wanted):
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = _inside(member.name, path)
            if name not in wanted:
                continue
            if not member.isreg() or member.issparse():
                raise UserError(f"{path} is not to be trusted: {name} is not a plain file in it")
            yield name, archive.extractfile(member)


def _from_zip(file, path, wanted):
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = _inside(member.filename, path)
            if name not in wanted:
                continue
            if stat.S_ISLNK(member.external_attr >> 16):
                raise UserError(f"{path} is not to be trusted: {name} is not a plain file in it")
            yield name, archive.open(member)


def _inside(name, path):
    """Return the name of a member, which must be inside the archive's own folder."""
    plain = posixpath.normpath(name.replace("\\", "/"))
    if plain == ".." or plain.startswith(("/", "../")) or re.match("[A-Za-z]:", plain):
        raise UserError(f"{path} is not to be trusted: it names {name}, outside of its own folder")
    return plain


@contextlib.contextmanager
def _opening(path):
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        # Python's readers raise nearly anything, such as ValueError for a name that is not text.
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise UserError(f"{path} cannot be read ({error.strerror or error})") from None
        raise UserError(
            f"{path} is not a complete archive ({error}): delete it, and it is fetched again"
        ) from None


class _Suspected(io.RawIOBase):
    """A file from an archive: damage is one line, and a file without end is refused."""

    def __init__(self, file, path, most):
        self.file, self.path, self.most, self.left = file, path, most, most

    def readable(self):
        return True

    def readinto(self, buffer):
        with _opening(self.path):
            content = self.file.read(len(buffer))
        self.left -= len(content)
        if self.left < 0:
            raise UserError(
                f"{self.path} is not to be trusted: it unpacks to more than {self.most:,} bytes"
            )
        buffer[: len(content)] = content
        return len(content)
