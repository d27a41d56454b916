"""Downloads: whatever a server does, the file is complete and right, or one line says why not."""

import hashlib
import ssl
import sys
import urllib.error
from functools import partial

import numpy as np
import pytest
from server import reply, serving

from minitf.data import fetch as download
from minitf.data.fetch import NoConnection, Remote, fetch
from minitf.errors import UserError

CONTENT = np.random.default_rng(0).bytes(3000)
OTHER = np.random.default_rng(1).bytes(3000)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "downloads" / "file"


def known(url, content=CONTENT):
    return Remote(f"{url}/file", len(content), "sha256:" + hashlib.sha256(content).hexdigest())


def ranges(server):
    return [asked for _, asked in server.requests]


def left(path):
    return sorted(each.name for each in path.parent.iterdir())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_download_resumes_after_a_broken_connection_and_is_made_once(path, is_known):
    with serving(partial(reply, content=CONTENT, at_most=400)) as server:
        for _ in range(2):
            fetch(known(server.url) if is_known else Remote(f"{server.url}/file"), path)
    assert path.read_bytes() == CONTENT and left(path) == ["file"]
    assert ranges(server) == ["", *(f"bytes={n}-" for n in range(400, 3000, 400))]


def test_a_server_that_dies_and_another_day(path):
    """The first bytes are kept, and a later call continues after them."""

    def die(handler):
        reply(handler, CONTENT, at_most=1000)
        handler.server.answer = lambda handler: handler.connection.close()

    words = r"5 times in a row: try again later, which continues after the first 1,000"
    with serving(die) as server, pytest.raises(UserError, match=words):
        fetch(known(server.url), path)
    with pytest.raises(NoConnection, match=r"no connection to 127.0.0.1:\d+: Connection refused"):
        fetch(known(server.url), path)
    assert left(path) == ["file.part"]
    with serving(partial(reply, content=CONTENT), server.server_port) as again:
        fetch(known(again.url), path)
    assert path.read_bytes() == CONTENT and ranges(again) == ["bytes=1000-"]


@pytest.mark.parametrize(
    ("is_known", "begun", "asked"),
    [
        (True, CONTENT[:1000], ["bytes=1000-"]),
        (True, CONTENT, []),
        (True, OTHER[:1000], ["bytes=1000-", ""]),  # of another version: one restart
        (True, OTHER, [""]),
        (True, CONTENT + b"more", [""]),
        (False, OTHER[:1000], [""]),  # nothing would tell that these are of another version
    ],
)
def test_what_another_process_has_begun(path, is_known, begun, asked):
    path.parent.mkdir()
    path.with_name("file.part").write_bytes(begun)
    with serving(partial(reply, content=CONTENT)) as server:
        fetch(known(server.url) if is_known else Remote(f"{server.url}/file"), path)
    assert path.read_bytes() == CONTENT and ranges(server) == asked


def test_missing_certificates(path, monkeypatch):
    """As on a Mac whose Python has none."""

    def refuse(*args, **kwargs):
        raise urllib.error.URLError(ssl.SSLCertVerificationError(1, "certificate verify failed"))

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(NoConnection, match=r"verify failed \(on a Mac, .*: run Install .*\)$"):
        fetch(known("https://127.0.0.1:1/"), path)


@pytest.mark.parametrize(
    ("is_known", "answer", "words"),
    [
        (True, {"claim": 4000}, r"is not the published file \(4,000 bytes, not 3,000\)"),
        (True, {"claim": 2000}, r"is not the published file \(2,000 bytes, not 3,000\)"),
        (False, {"claim": 4000}, "the connection ended early, 5 times in a row"),
        (True, {"content": OTHER}, r"is not the published file \(sha256 [0-9a-f]{64}, not "),
    ],
)
def test_another_content_or_length_than_published_is_refused(path, is_known, answer, words):
    answer = partial(reply, **{"content": CONTENT, "ranges": False} | answer)
    with serving(answer) as server, pytest.raises(UserError, match=words):
        fetch(known(server.url) if is_known else Remote(f"{server.url}/file"), path)
    assert not path.exists()


def test_more_than_was_published_is_not_read(path):
    """A server that gives no length sends forever: bytes over the published size are not read."""

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(CONTENT + b"x" * 10_000_000)

    with serving(endless) as server:
        fetch(known(server.url), path)
    assert path.read_bytes() == CONTENT


def test_bytes_that_were_not_requested_are_not_appended(path):
    def shifted(handler):
        if not handler.headers.get("Range"):
            return reply(handler, CONTENT, at_most=1000)
        handler.server.answer = partial(reply, content=CONTENT)  # before the client asks again
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 500-2999/3000")
        handler.end_headers()
        handler.wfile.write(CONTENT[500:])

    with serving(shifted) as server:
        fetch(known(server.url), path)
    assert path.read_bytes() == CONTENT and ranges(server) == ["", "bytes=1000-", ""]


@pytest.mark.parametrize(
    ("code", "headers", "words"),
    [
        (404, {}, r"cannot download \S+/file \(404 Not Found\): try again later, or put"),
        (503, {}, "503 Service Unavailable, 5 times in a row: try again later"),
        (302, {"Location": "file:///etc/passwd"}, "cannot download"),
        (302, {"Location": "/file"}, "cannot download"),  # round and round
        (200, {"Content-Length": "many"}, r"ended early, 5 times|\(0 bytes, not 3,000\)"),
    ],
)
def test_answers_that_are_no_file(path, code, headers, words):
    def answer(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    with serving(answer) as server, pytest.raises(UserError, match=words):
        fetch(known(server.url), path)
    assert not path.exists()


@pytest.mark.parametrize(
    "answered",
    [
        b"\x1b[2Jno\rHTTP\r\n\r\n",
        b"HTTP/1.1 404 no\x1b[2J\rsuch\x85file\r\n\r\n",
        b"HTTP/1.1 503 " + b"sorry " * 999 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[1\r\n\r\n",
    ],
)
def test_whatever_a_server_says_is_one_line(path, answered):
    def say(handler):
        handler.wfile.write(answered)
        handler.close_connection = True

    with serving(say) as server, pytest.raises(UserError) as caught:
        fetch(known(server.url), path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_a_file_put_there_by_hand_is_checked(path):
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    fetch(known("http://127.0.0.1:9"), path)
    for content, words in (
        (CONTENT[:-1], r"\(2,999 bytes, not 3,000\): delete it, and it will be downloaded"),
        (OTHER, r"\(sha256 \w{64}, not \w{64}\): delete it"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=words):
            fetch(known("http://127.0.0.1:9"), path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_no_room(path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(partial(reply, content=CONTENT)) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) - 100, before[1]))
        try:
            with pytest.raises(UserError, match=r"could not be written \(File too large\)"):
                fetch(known(server.url), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert len(server.requests) == 1  # another try would not help
