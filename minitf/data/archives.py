"""Archives from the internet, read without trusting them: tar, tar.gz, zip, and gz.

Nothing is written here. Members are read by the names that the caller asks for, so no name in an
archive can become a path.
"""

import contextlib
import gzip
import io
import posixpath
import stat
import tarfile
import zipfile
from pathlib import Path

from minitf.errors import UserError

__all__ = ["members"]

# Times the size of the archive: text is compressed to a quarter or a tenth, never to a hundredth.
MAX_GROWTH = 100
AGAIN = "delete it, and it will be downloaded again; if it is your own, copy it again"
_CHUNK = 1 << 18  # bytes


def members(path, names):
    """Yield (name, file to read) for each member with one of these names, in the archive's order.

    path: a tar, tar.gz or zip archive, or a gz file, which has one member. A member whose name ends
    in .gz is unpacked.

    Raises UserError for an archive that is damaged, that unpacks to more than a hundred times its
    size, that lacks a name, or that has a link or a folder of that name.
    """
    path, missing = Path(path), set(names)
    with _reading(path):
        limit = MAX_GROWTH * path.stat().st_size + (1 << 20)
        for name, file in _opened(path, missing, limit):
            missing.discard(name)
            file = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
            yield name, io.BufferedReader(_Limited(file, path, limit))
    if missing:
        raise UserError(f"{path} does not contain {' and '.join(sorted(missing))}: {AGAIN}")


def _opened(path, wanted, limit):
    with open(path, "rb") as file:
        if zipfile.is_zipfile(file):
            yield from _from_zip(file, path, wanted)
            return
        file.seek(0)
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        # All bytes are counted, because a header or a skipped member may be the one that grows.
        stream = _Limited(gzip.GzipFile(fileobj=file) if packed else file, path, limit)
        if packed and path.suffix == ".gz" and not path.stem.endswith(".tar"):
            if path.stem in wanted:
                yield path.stem, stream
        else:
            yield from _from_tar(stream, path, wanted)
            while stream.read(_CHUNK):  # up to the checksum at the end
                pass


def _from_tar(stream, path, wanted):
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if name not in wanted:
                continue
            if not member.isreg() or member.issparse():
                raise UserError(
                    f"{path} looks wrong or unsafe ({name} in it is not a plain file): {AGAIN}"
                )
            yield name, archive.extractfile(member)


def _from_zip(file, path, wanted):
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = posixpath.normpath(member.filename)
            if name not in wanted:
                continue
            if member.is_dir() or stat.S_ISLNK(member.external_attr >> 16):
                raise UserError(
                    f"{path} looks wrong or unsafe ({name} in it is not a plain file): {AGAIN}"
                )
            # Of other compressions the first few bytes can already unpack to gigabytes.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UserError(
                    f"{path} looks wrong or unsafe ({name} in it has an unusual compression): "
                    f"{AGAIN}"
                )
            yield name, archive.open(member)


@contextlib.contextmanager
def _reading(path):
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        # Python's readers raise almost any exception, such as ValueError for a name in a tar.
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise UserError(
                f"{path} cannot be read ({error.strerror or error}): check its permissions, or "
                f"{AGAIN}"
            ) from None
        raise UserError(f"{path} is not a complete archive ({error}): {AGAIN}") from None


class _Limited(io.RawIOBase):
    """A file from an archive; UserError for damage, and for more than `limit` bytes."""

    def __init__(self, file, path, limit):
        self.file, self.path, self.limit, self.remaining = file, path, limit, limit

    def readable(self):
        return True

    def readinto(self, buffer):
        with _reading(self.path):
            content = self.file.read(len(buffer))
        self.remaining -= len(content)
        if self.remaining < 0:
            raise UserError(
                f"{self.path} looks wrong or unsafe (it unpacks to more than {self.limit:,} "
                f"bytes): {AGAIN}"
            )
        buffer[: len(content)] = content
        return len(content)
