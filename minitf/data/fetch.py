"""Downloads: resumed after an interruption, and verified."""

import hashlib
import http.client
import os
import posixpath
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from minitf.atomic import writing
from minitf.cli import Progress, blank_unprintable
from minitf.errors import UserError

TRIES = 5  # attempts in a row without a new byte
WAIT = 2.0  # seconds before the second attempt; doubled before each further one
TIMEOUT = 60  # seconds without a byte
CERTIFICATES = " (on a Mac, with Python from python.org: run Install Certificates.command)"
_CHUNK = 1 << 18  # bytes
# Some servers refuse Python's default user agent.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; minitf)"}


class NoConnection(UserError):
    """The server cannot be reached."""


class NotFound(UserError):
    """The server has no such file."""


class NotAllowed(UserError):
    """The server gives the file only to those with an account, or hides that it has none."""


_REFUSALS = {404: NotFound, 410: NotFound, 401: NotAllowed, 403: NotAllowed}


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


def fetch(remote, path, say=print):
    """Download a remote file to `path`, or check the existing file.

    An interrupted download is resumed, also by a later process if size or digest are published;
    `path` appears when the file is complete and verified.
    Raises NoConnection if the server cannot be reached, NotFound if it has no such file, NotAllowed
    if it wants an account, and UserError for every other failure.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    if path.exists():
        if reason := _difference(remote, path):
            raise UserError(
                f"{path} differs from the published {remote.url} ({reason}): delete it, and it "
                "will be downloaded again"
            )
        return
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (remote.size or remote.digest):  # parts of two versions would make one file
            part.unlink(missing_ok=True)
    size = f"{remote.size / 1e6:,.1f} MB" if remote.size else "unknown size"
    resumed = f", from byte {_size(part):,} on" if _size(part) else ""
    say(f"fetch    {remote.url} ({size}{resumed})")
    _complete(remote, part)
    if resumed and (reason := _difference(remote, part)):
        say(f"fetch    {remote.name}: parts of two versions ({reason}); starting again")
        part.unlink()
        _complete(remote, part)
    if reason := _difference(remote, part):
        part.unlink(missing_ok=True)
        raise UserError(f"{remote.url} is not the published file ({reason}): {_advice(path)}")
    with writing(path):
        os.replace(part, path)


def _complete(remote, part):
    """Append what is missing until the file is complete."""
    reached, tries, most = False, 0, _size(part)
    while not (remote.size and _size(part) >= remote.size):
        try:
            if _request(remote, part, _size(part)):
                return
            reached, reason = True, "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the server has no bytes from there on
                return
            reached, reason = True, _one_line(f"{error.code} {error.reason}")
            if error.code < 500 and error.code not in (408, 429):
                kind = _REFUSALS.get(error.code, UserError)
                raise kind(f"cannot download {remote.url} ({reason}): {_advice(part)}") from None
        # ValueError: a redirect to what is no URL, for example.
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            hint = CERTIFICATES if isinstance(cause, ssl.SSLCertVerificationError) else ""
            reason = _one_line(getattr(cause, "strerror", None) or cause) or type(error).__name__
            if isinstance(error, urllib.error.URLError) and not reached:
                host = remote.url.split("/")[2]
                raise NoConnection(f"no connection to {host}: {reason}{hint}") from None
        tries = 0 if _size(part) > most else tries + 1
        most = max(most, _size(part))
        if tries == TRIES:
            advice = "try again later"
            if _size(part) and (remote.size or remote.digest):
                advice += f", which continues after the first {_size(part):,} bytes"
            raise UserError(f"{remote.url}: {reason}, {TRIES} times in a row: {advice}")
        time.sleep(WAIT * 2 ** (tries - 1) if tries else 0)


def _request(remote, part, start):
    """Request the bytes from `start` on and write them; return whether the file is complete.

    A file of unknown size is complete when the reply ends.
    """
    headers = _HEADERS | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        if reply.status != 206:
            start = 0
        elif not reply.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.unlink(missing_ok=True)
            raise http.client.HTTPException("the server sent other bytes than requested")
        total = start + reply.length if reply.length is not None else remote.size
        if remote.size and total != remote.size:
            raise UserError(
                f"{remote.url} is not the published file ({total:,} bytes, not {remote.size:,}): "
                f"{_advice(part)}"
            )
        with writing(part):
            # Unbuffered: on a full disk, a buffer would be written again when the file is closed.
            file = open(part, "ab" if start else "wb", buffering=0)  # noqa: SIM115
        with file, Progress(part.stem, total) as progress:
            done = start
            while not total or done < total:
                chunk = reply.read1(min(_CHUNK, total - done) if total else _CHUNK)
                if not chunk:
                    break
                done += len(chunk)
                with writing(part):
                    while chunk:
                        chunk = chunk[file.write(chunk) :]
                progress.update_to(done)
    return not total or done == total


def _one_line(said):
    """Return what a server said as a short line that is safe for a terminal."""
    return " ".join(blank_unprintable(str(said)).split())[:100]


def _advice(path):
    return f"try again later, or put the file into {path.parent} yourself"


def _size(path):
    return path.stat().st_size if path.exists() else 0


def _difference(remote, path):
    """Return how a file differs from the published size and digest, "" if it does not."""
    size = _size(path)
    if remote.size and size != remote.size:
        return f"{size:,} bytes, not {remote.size:,}"
    algorithm, _, known = remote.digest.partition(":")
    if not known:
        return ""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, algorithm).hexdigest()
    return f"{algorithm} {digest}, not {known}" if digest != known else ""
