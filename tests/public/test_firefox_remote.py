"""Firefox's models by name: from a server with Mozilla's index and files, also where it fails."""

import copy
import gzip
import hashlib
import json
import re
from urllib.parse import quote

import pytest
from firefox_files import firefox
from paths import ROOT
from saved_files import message, quiet
from server import reply_of, serving

from minitf.commands import translate
from minitf.files.models import read_notes
from minitf.public import firefox as listed
from minitf.public import model_folder
from minitf.public.binary import read_decompressed
from minitf.public.commandline import main

KINDS = {"lex": "lexicalShortlist", "srcvocab": "srcVocab", "trgvocab": "trgVocab"}
MODELS = {  # name: the release, and the length of a remark, which makes the file larger
    "en-de tiny": ("Release", 1),
    "en-de base": ("Release Desktop", 99),
    "en-de base-memory": ("Nightly", 999),
    "en-de large": ("Release Android", 999),
    "en-ja base": (None, 1),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return {path: content} of what Mozilla publishes, and the entries of its index."""
    published, models = {}, {"en-de": [], "en-ja": []}
    for name, (status, length) in MODELS.items():
        (pair, architecture), folder = name.split(), tmp_path_factory.mktemp(name)
        firefox(folder, pair == "en-ja", True, {"remark": "x" * length})
        files = {}
        for path in folder.iterdir():
            content, place = read_decompressed(path), path.name.removesuffix(".gz")
            kind, place = path.name.partition(".")[0], f"models/{name}/exported/{place}.gz"
            files[KINDS.get(kind, kind)] = {"path": place}
            published[f"/{quote(place)}"] = gzip.compress(content)
            if kind == "model":
                digest = hashlib.sha256(content).hexdigest()
                files[kind] |= {"uncompressedSize": len(content), "uncompressedHash": digest}
        entry = {"architecture": architecture, "releaseStatus": status, "files": files}
        models[pair].append(entry)
    return published, models


@pytest.fixture
def bucket(published, monkeypatch):
    """A server: its files and its index may be changed, and how it replies."""
    files, models = copy.deepcopy(published)
    index, how = {"baseUrl": "https://bucket.invalid", "models": models}, {}

    def answer(handler):
        reply_of({"/db/models.json": json.dumps(index).encode()} | files, handler, **how)

    with serving(answer) as server:
        monkeypatch.setenv(listed.MIRROR, server.url + "/")
        server.files, server.index, server.how = files, index, how
        yield server


def entry(bucket, name):
    """Return the entry of the index that a name of MODELS has."""
    pair, architecture = name.split()
    entries = bucket.index["models"][pair]
    return next(each for each in entries if each["architecture"] == architecture)


def test_the_name_of_a_pair_translates_and_downloads_once(bucket, capsys):
    command = ["--model", "firefox-en-de", "--max-extra", "2", "the dog"]
    assert translate.main(command) == 0
    out, err = capsys.readouterr()
    assert "model    firefox-en-de-base: 0 MB, unpacked; licence: MPL-2.0" in err
    requests = [path for path, _ in bucket.requests]
    assert len(requests) == 4 and requests[0] == "/db/models.json"
    assert all(path.startswith("/models/en-de%20base/exported/") for path in requests[1:])
    notes = read_notes(model_folder("firefox-en-de"))
    assert (notes["source_language"], notes["target_language"]) == ("en", "de")
    assert notes["licence"].startswith("MPL-2.0") and "Mozilla" in notes["credit"]
    assert notes["source"].endswith("/exported/model.ende.intgemm.alphas.bin.gz")
    assert translate.main(command) == 0 and len(bucket.requests) == 4
    assert capsys.readouterr().out == out


def test_the_best_of_a_pair(bucket, tmp_path, capsys):
    """What Firefox uses on computers, the largest; or else on phones; or else what it tries out."""
    for best in ("base", "tiny", "large", "base-memory"):
        assert listed.firefox_models(quiet)["firefox-en-de"].name == f"firefox-en-de-{best}"
        bucket.index["models"]["en-de"].remove(entry(bucket, f"en-de {best}"))
    # One of two vocabularies, from a server that unpacks what it sends, as Google's sometimes does.
    bucket.files |= {path: gzip.decompress(content) for path, content in bucket.files.items()}
    assert main(["firefox-en-ja", str(tmp_path / "out")]) == 0
    assert "Firefox has not released this model" in capsys.readouterr().out


def test_the_list_has_a_line_for_each_model(bucket, capsys, monkeypatch):
    model_folder("firefox-en-de-tiny", quiet)
    capsys.readouterr()
    here = ["examples/models/de-en", "examples/models/en-de", "firefox-en-de-tiny"]
    there = [f"firefox-en-{name}" for name in ("de", "de-base-memory", "de-large", "ja")]
    monkeypatch.chdir(ROOT)
    for offline in (False, True):
        with pytest.raises(SystemExit) as ended:
            translate.main(["--list-models"], ROOT / here[1])
        out, err = capsys.readouterr()
        assert not ended.value.code and out.count("English to German") == 5 - 3 * offline
        assert [line.split()[0] for line in out.splitlines()] == here + there * (not offline)
        assert ("not listed: no connection to 127.0.0.1" in err) == offline
        monkeypatch.setenv(listed.MIRROR, "http://127.0.0.1:9")


# What goes wrong ----------------------------------------------------------------------------------


def refused(tmp_path, name="firefox-en-de"):
    """Return the line that says why a model cannot be had, and the names of the files here."""
    text = message(model_folder, name, quiet)
    kept = {path.name for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert "config.json" not in kept
    return text, kept


def test_an_unknown_name_an_index_that_is_gone_and_no_network(bucket, tmp_path, monkeypatch):
    text, _ = refused(tmp_path, "firefox-en-dd")
    assert "Mozilla's list has no firefox-en-dd; it has firefox-en-de, " in text
    bucket.answer = lambda handler: handler.send_error(404)
    assert "list of models is no longer at http://127" in refused(tmp_path)[0]
    monkeypatch.setenv(listed.MIRROR, "http://127.0.0.1:9")
    assert "firefox-en-de is not complete on this machine: go online" in refused(tmp_path)[0]


@pytest.mark.parametrize(
    "index", [b"[]", b"{}", b'{"models": 3}', b"\x00", b"[" * 10**5, b'{"models": {"en-de": [3]}}']
)
def test_a_damaged_index(bucket, index, tmp_path):
    bucket.files["/db/models.json"] = index
    text, kept = refused(tmp_path)
    assert re.search("json: (damaged|it has no model)", text) and not kept


@pytest.mark.parametrize("size", [10**15, -1, "17", None])
def test_what_is_absurd_or_lacks_something_is_no_model(bucket, size):
    """Such as a digest or a vocabulary; neither is a name that a terminal would obey."""
    entry(bucket, "en-de base")["files"]["model"]["uncompressedSize"] = size
    del entry(bucket, "en-de large")["files"]["vocab"]
    entry(bucket, "en-ja base")["files"]["model"]["uncompressedHash"] = "0" * 63
    entry(bucket, "en-de base-memory")["architecture"] = "\x1b[2J"
    assert list(listed.firefox_models(quiet)) == ["firefox-en-de", "firefox-en-de-tiny"]


def test_files_are_at_https_unless_a_mirror_is_named(bucket, tmp_path, monkeypatch):
    """Whatever the index says: a digest is published of the model alone."""
    monkeypatch.setattr(listed, "BUCKET", bucket.url)
    monkeypatch.delenv(listed.MIRROR)
    assert listed.firefox_models(quiet)["firefox-en-ja"].files["lex.bin.gz"].startswith("https://")
    bucket.index["baseUrl"] = bucket.url
    text, kept = refused(tmp_path)
    assert "its files are not at https://" in text and not kept


@pytest.mark.parametrize(
    "case", ["model cut", "model another", "vocab cut", "vocab changed", "vocab without-end"]
)
def test_a_damaged_file_is_not_kept(bucket, case, tmp_path):
    """Later it is downloaded again, and what was right is not."""
    kind, damage = case.split()
    path = "/" + quote(entry(bucket, "en-de base")["files"][kind]["path"])
    right = bucket.files[path]
    bucket.files[path] = {
        "cut": right[:-20],
        "changed": right[:-8] + bytes(8),  # the sum and the length of gzip
        "another": gzip.compress(gzip.decompress(right)[:-1] + b"x"),
        "without-end": gzip.compress(bytes(10**6)),
    }[damage]
    text, kept = refused(tmp_path)
    assert f"{path} is not the published file (" in text and "deleted here; try again" in text
    assert not any(name.startswith(listed._NAMES[kind]) for name in kept)
    bucket.files[path] = right
    model_folder("firefox-en-de", quiet)
    asked = [path for path, _ in bucket.requests]
    assert asked.count(path) == 2 and len(asked) == len(set(asked)) + 2
