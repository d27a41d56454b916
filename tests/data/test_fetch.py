"""Downloads: whatever a server does, the file is complete and right, or one line says why not."""

import hashlib
import shutil
import ssl
import sys
import time
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


def test_a_file_is_fetched_once(path):
    with serving(partial(reply, content=CONTENT)) as server:
        for _ in range(2):
            fetch(known(server.url), path, lambda line: None)
        assert path.read_bytes() == CONTENT and ranges(server) == [""]
    assert left(path) == ["file"]


@pytest.mark.parametrize("pinned", [True, False])
def test_a_download_resumes_after_a_broken_connection(path, pinned):
    with serving(partial(reply, content=CONTENT, tag='"1"', at_most=800)) as server:
        fetch(known(server.url) if pinned else Remote(f"{server.url}/file"), path)
    assert path.read_bytes() == CONTENT
    assert ranges(server) == ["", "bytes=800-", "bytes=1600-", "bytes=2400-"]


def test_a_server_that_dies_and_another_day(path):
    """The first bytes are kept, and a later call continues after them."""

    def die(handler):
        reply(handler, CONTENT, at_most=1000)
        handler.server.answer = lambda handler: handler.connection.close()

    with (
        serving(die) as server,
        pytest.raises(
            UserError,
            match=r"5 times in a row: try again later, which continues after the first 1,000",
        ),
    ):
        fetch(known(server.url), path)
    with pytest.raises(NoConnection, match=r"no connection to 127.0.0.1:\d+: Connection refused"):
        fetch(known(server.url), path)
    assert left(path) == ["file.part", "file.part.version"]
    with serving(partial(reply, content=CONTENT), server.server_port) as again:
        fetch(known(again.url), path)
    assert path.read_bytes() == CONTENT and ranges(again) == ["bytes=1000-"]


def test_missing_certificates(path, monkeypatch):
    """As on a Mac whose Python has none."""

    def refuse(*args, **kwargs):
        raise urllib.error.URLError(ssl.SSLCertVerificationError(1, "certificate verify failed"))

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(NoConnection, match=r"verify failed \(on a Mac, .*: run Install .*\)$"):
        fetch(known("https://127.0.0.1:1/"), path)


def test_a_server_that_cannot_go_on(path):
    with serving(partial(reply, content=CONTENT, ranges=False, at_most=800)) as server:
        with pytest.raises(UserError, match="the connection ended early, 5 times in a row"):
            fetch(known(server.url), path)
        assert len(server.requests) == 6 and not path.exists()
        server.answer = lambda handler: reply(handler, CONTENT, ranges=False)
        fetch(known(server.url), path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "pinned, claim, words",
    [
        (True, 4000, "is not the published file \\(4,000 bytes, not 3,000\\)"),
        (True, 2000, "is not the published file \\(2,000 bytes, not 3,000\\)"),
        (False, 4000, "the connection ended early, 5 times in a row"),
    ],
)
def test_a_server_that_lies_about_the_length(path, pinned, claim, words):
    answer = partial(reply, content=CONTENT, ranges=False, claim=claim)
    with serving(answer) as server, pytest.raises(UserError, match=words):
        fetch(known(server.url) if pinned else Remote(f"{server.url}/file"), path)
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


def changing(first, then, **how):
    """Send 1,000 bytes of one content, and after that only the other."""

    def answer(handler):
        reply(handler, first, **{**how, "tag": how.get("tag") and '"1"'}, at_most=1000)
        handler.server.answer = lambda handler: reply(
            handler, then, **{**how, "tag": how.get("tag") and '"2"'}
        )

    return answer


def test_a_new_version_is_downloaded_from_the_start(path):
    with serving(changing(OTHER, CONTENT, tag=True)) as server:
        fetch(Remote(f"{server.url}/file"), path)
    assert path.read_bytes() == CONTENT and ranges(server) == ["", "bytes=1000-"]


def test_parts_of_two_versions_do_not_become_one_file(path):
    said = []
    with serving(changing(OTHER, CONTENT)) as server:
        fetch(known(server.url), path, said.append)
    assert path.read_bytes() == CONTENT and ranges(server) == ["", "bytes=1000-", ""]
    assert "the file changed on the server during the download (sha256" in said[-1]


def test_without_checksum_and_version_nothing_is_resumed(path):
    with serving(changing(OTHER, CONTENT)) as server:
        fetch(Remote(f"{server.url}/file"), path)
    assert path.read_bytes() == CONTENT and ranges(server) == ["", ""]


@pytest.mark.parametrize("at_most", [None, 1700])
def test_another_content_than_published_is_refused(path, at_most):
    words = r"is not the published file \(sha256 [0-9a-f]{64}, not "
    with (
        serving(partial(reply, content=OTHER, at_most=at_most)) as server,
        pytest.raises(UserError, match=words),
    ):
        fetch(known(server.url), path)
    assert left(path) == []


def test_bytes_that_were_not_requested_are_not_appended(path):
    def shifted(handler):
        asked = handler.headers.get("Range")
        if not asked:
            return reply(handler, CONTENT, at_most=1000)
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 500-2999/3000")
        handler.end_headers()
        handler.wfile.write(CONTENT[500:])
        handler.server.answer = lambda handler: reply(handler, CONTENT)

    with serving(shifted) as server:
        fetch(known(server.url), path)
    assert path.read_bytes() == CONTENT and ranges(server) == ["", "bytes=1000-", ""]


def test_a_part_that_is_as_long_as_the_file_or_longer(path):
    path.parent.mkdir()
    part = path.with_name("file.part")
    with serving(partial(reply, content=CONTENT, tag='"1"')) as server:
        part.write_bytes(CONTENT)
        fetch(known(server.url), path)
        assert path.read_bytes() == CONTENT and not server.requests
        for content in (CONTENT + b"more", OTHER):
            path.unlink()
            part.write_bytes(content)
            fetch(known(server.url), path)
            assert path.read_bytes() == CONTENT and ranges(server)[-1] == ""
        for content, asked in (
            (CONTENT, ["bytes=3000-"]),
            (CONTENT + b"more", ["bytes=3004-", ""]),
        ):
            path.unlink()
            part.write_bytes(content)
            path.with_name("file.part.version").write_text('"1"')
            server.requests.clear()
            # Of unknown length: the server says that there is no more.
            fetch(Remote(f"{server.url}/file"), path)
            assert path.read_bytes() == CONTENT and ranges(server) == asked


def test_answers_that_are_no_file(path):
    def answer(code, **headers):
        def send(handler):
            handler.send_response(code)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()

        return send

    with serving(answer(404)) as server:
        with pytest.raises(
            UserError, match=r"cannot download \S+/file \(404 Not Found\): try again later, or put"
        ):
            fetch(known(server.url), path)
        assert len(server.requests) == 1
        server.answer = answer(503)
        with pytest.raises(
            UserError, match="503 Service Unavailable, 5 times in a row: try again later"
        ):
            fetch(known(server.url), path)
        server.answer = answer(200, **{"Content-Length": "many"})
        with pytest.raises(
            UserError,
            match=r"is not the published file \(0 bytes, not 3,000\)|ended early",
        ):
            fetch(known(server.url), path)
        server.answer = answer(302, Location="file:///etc/passwd")
        with pytest.raises(UserError, match="cannot download"):
            fetch(known(server.url), path)
        server.answer = answer(302, Location=f"{server.url}/elsewhere")
        with pytest.raises(UserError, match="cannot download"):  # round and round
            fetch(known(server.url), path)

        def moved(handler):
            server.answer = lambda handler: reply(handler, CONTENT)
            answer(302, Location=f"{server.url}/elsewhere")(handler)

        server.answer = moved
        fetch(known(server.url), path)
    assert path.read_bytes() == CONTENT


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


def test_what_nobody_has_published_is_recorded(path):
    said = []
    with serving(partial(reply, content=CONTENT)) as server:
        remote = Remote(f"{server.url}/file")
        fetch(remote, path, said.append)
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        assert said[-1] == (
            f"checksum file: none is published, so this file's sha256 ({sha256}) is recorded and "
            "checked from now on; nothing to do"
        )
        assert (path.parent / "SHA256SUMS").read_text() == f"{sha256}  file\n"
        said.clear()
        fetch(remote, path, said.append)
        assert not said
        path.write_bytes(OTHER)
        with pytest.raises(
            UserError,
            match=r"file has changed since it was downloaded \(see SHA256SUMS\): delete it",
        ):
            fetch(remote, path)
        path.unlink()
        server.answer = lambda handler: reply(handler, OTHER)
        fetch(remote, path, said.append)
        assert said[-1].endswith(f"checked from now on; the previous file had {sha256}")
        other = remote._replace(digest="md5:" + hashlib.md5(OTHER).hexdigest())
        fetch(other, path.with_name("second"), said.append)
        assert "only an md5 is published" in said[-1]
    assert [line[66:] for line in (path.parent / "SHA256SUMS").read_text().splitlines()] == [
        "file",
        "second",
    ]


def test_a_file_put_there_by_hand_is_checked(path):
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    fetch(known("http://127.0.0.1:9"), path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(
        UserError, match=r"\(2,999 bytes, not 3,000\): delete it, and it will be downloaded"
    ):
        fetch(known("http://127.0.0.1:9"), path)
    path.write_bytes(OTHER)
    with pytest.raises(UserError, match=r"\(sha256 \w{64}, not \w{64}\): delete it"):
        fetch(known("http://127.0.0.1:9"), path)


def test_two_processes_at_one_file(path):
    """The later one continues the download; the other must not write to it any more."""

    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(CONTENT[:1000])
        while (
            not path.with_name("file.part").exists()
            or path.with_name("file.part").stat().st_size < 1000
        ):
            time.sleep(0.001)
        with open(path.with_name("file.part"), "ab") as file:
            file.write(b"of another process")
        handler.wfile.write(CONTENT[1000:])

    with (
        serving(answer) as server,
        pytest.raises(UserError, match=r"another process is writing .* too"),
    ):
        fetch(known(server.url), path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_no_room(path, monkeypatch):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(partial(reply, content=CONTENT)) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) - 100, before[1]))
        try:
            with pytest.raises(
                UserError, match=r"file.part cannot be written \(File too large\): free some space"
            ):
                fetch(known(server.url), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert len(server.requests) == 1  # another try would not help
        (path.parent / "file.part").unlink()
        monkeypatch.setattr(
            shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9, 9, 2000)
        )
        with pytest.raises(UserError, match=r"has 0.0 GB free, file needs 0.0 GB"):
            fetch(known(server.url), path)
        (path.parent / "file.part").write_bytes(CONTENT[:1000])
        fetch(known(server.url), path)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="downloads/file cannot be written"):
        fetch(known(server.url), path)


def test_any_mixture_of_mishaps_ends_well(tmp_path):
    """A hundred replies that are cut, refused, or other bytes than requested: the file is right."""
    rng = np.random.default_rng(0)

    def answer(handler):
        draw = rng.random()
        if draw < 0.2:
            handler.send_response(503)
            handler.end_headers()
        elif draw < 0.3:
            handler.connection.close()
        else:
            at_most = None if draw < 0.5 else int(rng.integers(2500))
            reply(handler, CONTENT, ranges=draw < 0.9, at_most=at_most)

    with serving(answer) as server:
        for i in range(25):
            path = tmp_path / str(i) / "file"
            for _ in range(40):
                try:
                    fetch(known(server.url), path, lambda line: None)
                    break
                except UserError as error:
                    assert "5 times in a row" in str(error)
            assert path.read_bytes() == CONTENT
            shutil.rmtree(path.parent)
    assert len(server.requests) > 75
