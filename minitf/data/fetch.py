"""Downloads: resumed after an interruption, and verified."""

import contextlib
import hashlib
import http.client
import os
import posixpath
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from minitf.cli import Progress, terminal_safe
from minitf.errors import UserError

__all__ = ["NoConnection", "NotAllowed", "NotFound", "Remote", "fetch"]

TRIES = 5  # attempts in a row without a new byte
WAIT = 2.0  # seconds before the second attempt; doubled before each further one
TIMEOUT = 60  # seconds without a byte
CERTIFICATES = " (on a Mac, with Python from python.org: run Install Certificates.command)"
RECORD = "SHA256SUMS"  # in the folder of the files, for `sha256sum -c`
_CHUNK = 1 << 18  # bytes
# Some servers refuse Python's default user agent.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; minitf)"}


class NoConnection(UserError):
    """The server cannot be reached."""


class NotFound(UserError):
    """The server has no such file."""


class NotAllowed(UserError):
    """The server gives the file to those with an account only, or does not say that it has none."""


class Remote(NamedTuple):
    """A file on the internet, with its published size and digest.

    size: in bytes, 0 if unknown. digest: "sha256:..." or "md5:...", "" if none is published.
    """

    url: str
    size: int = 0
    digest: str = ""

    @property
    def name(self):
        return posixpath.basename(self.url)

    @property
    def host(self):
        return self.url.split("/")[2]


def fetch(remote, path, say=print):
    """Download a remote file to `path`, or check the existing file.

    An interrupted download is resumed, by this process or a later one; `path` appears when the file
    is complete and verified. If no sha256 is published, that of the first download is recorded and
    checked later.
    Raises NoConnection if the server cannot be reached, NotFound if it has no such file, NotAllowed
    if it wants an account, and UserError for every other failure.
    """
    path = Path(path)
    exists = path.exists()
    if not exists:
        _download(remote, path, say)
    elif reason := _difference(remote, path):
        raise UserError(
            f"{path} differs from the published {remote.url} ({reason}): delete it, and it will "
            "be downloaded again"
        )
    if remote.digest.startswith("sha256:"):
        return
    sha256, recorded = _hash(path, "sha256"), _records(path.parent).get(path.name)
    if exists and recorded not in (None, sha256):
        raise UserError(
            f"{path} has changed since it was downloaded (see {RECORD}): delete it, "
            "and it will be downloaded again"
        )
    if recorded != sha256:
        known = "only an md5 is published" if remote.digest else "none is published"
        before = f"the previous file had {recorded}" if recorded else "nothing to do"
        say(
            f"checksum {path.name}: {known}, so this file's sha256 ({sha256}) is recorded and "
            f"checked from now on; {before}"
        )
        _record(path, sha256)


_REFUSALS = {404: NotFound, 410: NotFound, 401: NotAllowed, 403: NotAllowed}

# Downloading --------------------------------------------------------------------------------------


def _download(remote, path, say):
    part = path.with_name(path.name + ".part")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free + _size(part)
    if remote.size > free:
        sizes = f"has {free / 1e9:.1f} GB free, {remote.name} needs {remote.size / 1e9:.1f} GB"
        raise UserError(
            f"{path.parent} {sizes}: free some space, or set MINITF_DATA to another folder"
        )
    size = f"{remote.size / 1e6:,.1f} MB" if remote.size else "unknown size"
    resumed = f", from byte {_size(part):,} on" if _size(part) else ""
    say(f"fetch    {remote.url} ({size}{resumed})")
    for last in (False, True):
        replies = _fetch_all(remote, part)
        reason = _difference(remote, part)
        if not reason:
            break
        _forget(part)
        if replies == 1 or last:
            raise UserError(f"{remote.url} is not the published file ({reason}): {_advice(path)}")
        say(
            f"fetch    {remote.name}: the file changed on the server during the download "
            f"({reason}); starting again"
        )
    with _writing(path):
        os.replace(part, path)
    _forget(part)


def _fetch_all(remote, part):
    """Download until the file is complete; return at least how many replies it came from."""
    replies, tries, most, reached = int(_size(part) > 0), 0, _size(part), False
    while True:
        try:
            complete = _fetch_rest(remote, part)
            replies, reached, reason = replies + 1, True, "the connection ended early"
            if complete:
                return replies
        except urllib.error.HTTPError as error:
            reached, reason = True, _one_line(f"{error.code} {error.reason}")
            if error.code < 500 and error.code not in (408, 429):
                kind = _REFUSALS.get(error.code, UserError)
                raise kind(f"cannot download {remote.url} ({reason}): {_advice(part)}") from None
        # ValueError: a redirect to what is no URL, for example.
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            hint = CERTIFICATES if isinstance(reason, ssl.SSLCertVerificationError) else ""
            reason = getattr(reason, "strerror", None) or str(reason)
            reason = _one_line(reason) or type(error).__name__
            if isinstance(error, urllib.error.URLError) and not reached:
                raise NoConnection(f"no connection to {remote.host}: {reason}{hint}") from None
        tries = 0 if _size(part) > most else tries + 1
        most = max(most, _size(part))
        if tries == TRIES:
            advice = "try again later"
            if _size(part):
                advice += f", which continues after the first {_size(part):,} bytes"
            raise UserError(f"{remote.url}: {reason}, {TRIES} times in a row: {advice}")
        time.sleep(WAIT * 2 ** (tries - 1) if tries else 0)


def _one_line(text):
    """Return what a server said as a short line that is safe for a terminal."""
    return " ".join(terminal_safe(text).split())[:100]


def _fetch_rest(remote, part):
    """Request the missing bytes and append them; return whether the file is complete.

    A file of unknown size is complete when the reply ends.
    """
    start, tag = _size(part), _tag(part).read_text() if _tag(part).exists() else ""
    if remote.size and start == remote.size:
        return True
    if (remote.size and start > remote.size) or not (remote.digest or tag):
        start = 0  # without either, parts of two versions could be joined without being noticed
    headers = (
        _HEADERS
        | ({"Range": f"bytes={start}-"} if start else {})
        | ({"If-Range": tag} if start and tag else {})
    )
    try:
        reply = urllib.request.urlopen(
            urllib.request.Request(remote.url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the server has no bytes from `start` on
            raise
        if _content_range(error)[1] == start:
            return True
        _forget(part)
        return False
    with reply:
        start, total = _start_and_total(reply, start)
        if start is None:
            _forget(part)
            raise http.client.HTTPException("the server sent other bytes than requested")
        if remote.size and total not in (0, remote.size):
            raise UserError(
                f"{remote.url} is not the published file ({total:,} bytes, not {remote.size:,}): "
                f"{_advice(part)}"
            )
        with _writing(part):
            part.touch()
            if not start:
                _tag(part).write_text(_version(reply))
        return _append(reply, part, start, remote.size or total)


def _append(reply, part, start, total):
    """Write a reply from byte `start` on; return whether the file is complete."""
    # Unbuffered: on a full disk, a buffer would be written again when the file is closed.
    with open(part, "r+b", buffering=0) as file, Progress(part.stem, total) as progress:
        size = file.seek(start)
        file.truncate()
        while not total or size < total:
            chunk = reply.read1(min(_CHUNK, total - size) if total else _CHUNK)
            if not chunk:
                break
            if _size(part) != size:
                raise UserError(f"another process is writing {part} too: wait until it is done")
            with _writing(part):
                while chunk:
                    written = file.write(chunk)
                    chunk, size = chunk[written:], size + written
            progress.update_to(size)
    return not total or size == total


def _start_and_total(reply, start):
    """Return the first byte of a reply, None if it is not the requested one, and the file's size.

    The size is 0 if it is unknown.
    """
    if reply.status != 206:
        return 0, reply.length or 0
    begins, total = _content_range(reply)
    return (start if begins == start else None), total


def _content_range(reply):
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", reply.headers.get("Content-Range", ""))
    begins, total = match.groups() if match else (None, "*")
    return None if begins is None else int(begins), 0 if total == "*" else int(total)


def _version(reply):
    """Return the server's name for this version of the file, which it checks before resuming."""
    tag = reply.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified", "")


@contextlib.contextmanager
def _writing(path):
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path} cannot be written ({reason}): free some space, or set MINITF_DATA to another "
            "folder"
        ) from None


def _advice(path):
    return f"try again later, or put the file into {path.parent} yourself"


def _tag(part):
    return part.with_name(part.name + ".version")


def _forget(part):
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)


def _size(path):
    return path.stat().st_size if path.exists() else 0


# Checking -----------------------------------------------------------------------------------------


def _difference(remote, path):
    """Return how a file differs from the published size and digest, "" if it does not."""
    size = _size(path)
    if remote.size and size != remote.size:
        return f"{size:,} bytes, not {remote.size:,}"
    algorithm, _, known = remote.digest.partition(":")
    if known and (digest := _hash(path, algorithm)) != known:
        return f"{algorithm} {digest}, not {known}"
    return ""


def _hash(path, algorithm):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _records(folder):
    """Return the recorded hashes of a folder: {name: sha256}."""
    path = folder / RECORD
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}


def _record(path, sha256):
    records, temporary = _records(path.parent) | {path.name: sha256}, path.parent / f"{RECORD}.tmp"
    with _writing(temporary):
        temporary.write_text(
            "".join(f"{sha256}  {name}\n" for name, sha256 in records.items()), encoding="utf-8"
        )
        os.replace(temporary, path.parent / RECORD)
