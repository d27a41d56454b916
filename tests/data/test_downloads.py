"""Recipes: the pinned downloads, archives, and folders as a person would fill them by hand."""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import pytest
from saved_files import quiet
from server import reply, serving

from minitf.data import corpora, downloads
from minitf.data.downloads import DOWNLOADS, make, members
from minitf.data.fetch import NoConnection
from minitf.errors import UserError

REAL_DATA = os.environ.get("MINITF_DATA")
REAL = pytest.mark.skipif(not REAL_DATA, reason="MINITF_DATA is not set: no real corpora")
# Of each training text: one without a line feed at its end, one with an odd line.
LINES = {
    "europarl-v7": (b"Resumption\n\nRise\n", b"Wiederaufnahme\n\nErheben\n"),
    "commoncrawl": ("a\u2028b\r\nlast".encode(), b"a b\r\nletzte"),
    "news-commentary-v9": (b"$10,000\n", b"10.000\n"),
}


def write(path, entries, kind="tgz"):
    """entries: (name, content)."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries:
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w" if kind == "tar" else "w:gz") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def internet(data, monkeypatch):
    """Give {name of an archive: function that makes it}; `fetch` takes from there."""
    archives = {}

    def fetch(remote, path, say=print):
        if remote.name not in archives:
            raise NoConnection("no connection")
        path.parent.mkdir(exist_ok=True)
        archives[remote.name](path)

    monkeypatch.setattr(downloads, "fetch", fetch)
    sgm = (
        '<srcset setid="newstest2014">\n<doc id="1">\n<seg id="1">{}</seg>\n'
        '<seg id="2">R&amp;D</seg>\n</doc>\n'
    )
    tests = [
        (f"test-full/newstest2014-{name}.sgm", sgm.format(name).encode())
        for name in ("deen-src.en", "deen-ref.de", "deen-src.de", "fren-src.en", "fren-ref.fr")
    ]
    dev = [
        (f"dev/newstest2013.{language}", f"{language}\n".encode())
        for language in ("cs", "de", "en", "es", "fr")
    ]
    both = [entry for language in ("de", "fr") for entry in pair("training/europarl-v7", language)]
    crawled = [entry for language in ("de", "fr") for entry in pair("commoncrawl", language)]
    for name, entries in {
        "training-parallel-europarl-v7.tgz": both,
        "training-parallel-commoncrawl.tgz": crawled,
        "training-parallel-nc-v9.tgz": pair("training/news-commentary-v9", "de"),
        "dev.tgz": dev,
        "test-full.tgz": tests,
    }.items():
        archives[name] = partial(write, entries=entries)
    return archives


def pair(name, language):
    english, other = LINES[name.rpartition("/")[2]]
    return [(f"{name}.{language}-en.{language}", other), (f"{name}.{language}-en.en", english)]


@REAL
def test_every_published_checksum_is_pinned():
    """The table of downloads is the one that the project was given."""
    ours = {s.url: (s.size, s.digest) for download in DOWNLOADS.values() for s in download.remotes}
    ours = {url: facts for url, facts in ours.items() if not re.search("manythings|CRAFT", url)}
    _, *rows = Path(REAL_DATA, "downloads.tsv").read_text().splitlines()
    assert len(rows) == len(ours) == 16
    for url, size, sha256 in (row.split("\t") for row in rows):
        assert ours[url][0] == (0 if size == "-" else int(size)), url
        if sha256 == "-":
            assert not ours[url][1].startswith("sha256"), url
        else:
            assert ours[url][1] == f"sha256:{sha256}", url


def test_wmt_is_made_as_by_hand(data, internet, capsys):
    corpus = corpora.load("wmt14-en-de")
    # As by cat, with the last line of each text ended.
    for side, language in enumerate(("en", "de")):
        by_hand = b"".join(lines[side].removesuffix(b"\n") + b"\n" for lines in LINES.values())
        assert (data / f"wmt14-en-de/train.{language}").read_bytes() == by_hand
    assert corpus.train.source == ["Resumption", "", "Rise", "a\u2028b", "last", "$10,000"]
    assert corpus.valid == (["en"], ["de"])
    assert corpus.tests == {"newstest2014": (["deen-src.en", "R&D"], ["deen-ref.de", "R&D"])}
    said = capsys.readouterr().out
    assert f"GB in {data / 'downloads'} can be deleted, unless another" in said.splitlines()[-1]
    assert "read     training-parallel-commoncrawl.tgz: 2 pairs" in said
    assert f"made     {data / 'wmt14-en-de'}" in said
    internet.clear()
    assert corpora.load("wmt14-en-de") == corpus  # now nothing is fetched
    assert sorted(path.name for path in data.iterdir()) == [
        "downloads",
        "newstest2013",
        "newstest2014",
        "wmt14-en-de",
    ]


def test_en_fr_has_five_texts(data, internet):
    packed = [
        (f"giga-fren.release2.fixed.{each}.gz", gzip.compress(f"giga {each}\n".encode()))
        for each in ("fr", "en")
    ]
    internet["training-giga-fren.tar"] = partial(write, entries=packed, kind="tar")
    un = [(f"un/undoc.2000.fr-en.{each}", f"un {each}\n".encode()) for each in ("fr", "en")]
    internet["training-parallel-un.tgz"] = partial(write, entries=un)
    internet["training-parallel-nc-v9.tgz"] = partial(
        write, entries=pair("training/news-commentary-v9", "fr")
    )
    make(["wmt14-en-fr"], data, quiet)
    assert corpora.read_lines(data / "wmt14-en-fr/train.fr") == [
        *("Wiederaufnahme", "", "Erheben", "a b", "letzte", "un fr", "10.000", "giga fr")
    ]


def test_without_internet_one_line_says_what_to_fetch(data, internet):
    del internet["training-parallel-commoncrawl.tgz"]
    internet["training-parallel-europarl-v7.tgz"](data / "europarl.tgz")
    with pytest.raises(UserError) as caught:
        corpora.load("wmt14-en-de", quiet)
    assert str(caught.value) == (
        f"no connection, and {data / 'wmt14-en-de'} is not on this machine: go "
        "online and try again, set MINITF_DATA to the folder that contains wmt14-en-de, or put "
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz "
        "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz "
        "http://data.statmt.org/wmt19/translation-task/dev.tgz "
        f"http://www.statmt.org/wmt14/test-full.tgz into {data / 'downloads'}"
    )
    with pytest.raises(UserError, match=r"put 67 files, https\S+/penn/11532192.tree to \S+ into"):
        corpora.load("craft", quiet)


def test_an_impostor_is_refused(data, monkeypatch):
    """The real addresses, asked through a proxy that sends something else for all of them."""
    monkeypatch.setattr("urllib.request._opener", None)  # which remembers the proxies
    with serving(partial(reply, content=b"<html>Please log in</html>")) as server:
        monkeypatch.setenv("http_proxy", server.url)
        with pytest.raises(
            UserError,
            match=r"europarl-v7.tgz is not the published file \(26 bytes, not 657,632,379",
        ):
            corpora.load("wmt14-en-de", quiet)
        with pytest.raises(
            UserError,
            match=r"test-full.tgz is not the published file \(md5 \w+, not a8cd",
        ):
            make(["newstest2014/en-de"], data, quiet)
        assert [path for path, _ in server.requests] == [
            "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            "http://www.statmt.org/wmt14/test-full.tgz",
        ]
    assert list((data / "downloads").iterdir()) == []


# Tatoeba ------------------------------------------------------------------------------------------


def held_out(folder, **splits):
    """Write a list of sentences that are kept apart, as the ones of the package are."""
    lines = []
    for split, pairs in splits.items():
        lines += [f"# {split}", *(" ".join(map(downloads.sentence_hash, pair)) for pair in pairs)]
    (folder / "tatoeba-en-de.txt").write_text("".join(f"{line}\n" for line in lines))


def tatoeba(internet, *pairs):
    lines = "\n".join(
        [*("\t".join([*pair, "CC-BY 2.0"]) for pair in pairs), "no tab", "\tno", "one\t "]
    )
    entries = [("_about.txt", b""), ("deu.txt", lines.encode())]
    internet["deu-eng.zip"] = partial(write, entries=entries, kind="zip")


def test_everyone_has_the_same_sentences_of_tatoeba_to_test_on(
    data, internet, monkeypatch, tmp_path
):
    """In the order of the list, whatever else a newer collection has, and in whichever order."""
    held_out(tmp_path, val=[("Go.", "Geh.")], test=[("Stop!", "Halt!"), ("I know.", "Ich weiß.")])
    monkeypatch.setattr(downloads, "_HELD_OUT", tmp_path)
    other = [("stop", "stehenbleiben"), ("I KNOW!", "Weiß ich."), ("Go!", "Los!")]
    other += [("Halt!", "Halt!"), ("I do know.", "ich weiß")]  # tests of the other direction
    train = [("Run.", "Lauf."), ("Run.", "Renn."), ("I know Tom.", "Ich kenne Tom.")]
    kept = [("I know.", "Ich weiß."), ("Go.", "Geh."), ("Stop!", "Halt!"), ("Stop.", "Halt.")]
    tatoeba(internet, *other, *kept, *train)
    said = []
    corpus = corpora.load("tatoeba-en-de", said.append)

    def pairs(of):
        return list(zip(of.source, of.target, strict=True))

    assert pairs(corpus.train) == train and pairs(corpus.valid) == [("Go.", "Geh.")]
    assert pairs(corpus.tests["test"]) == [("Stop!", "Halt!"), ("I know.", "Ich weiß.")]
    assert said[0].startswith("split    3 train, 1 val, 2 test: ")


def test_what_a_newer_collection_lacks_is_said(data, internet, monkeypatch, tmp_path):
    held_out(tmp_path, val=[("Go.", "Geh.")], test=[("Stop!", "Halt!"), ("I know.", "Ich weiß.")])
    monkeypatch.setattr(downloads, "_HELD_OUT", tmp_path)
    tatoeba(internet, ("Run.", "Lauf."), ("Go.", "Geh."), ("I know.", "Ich weiß."))
    said = []
    assert corpora.load("tatoeba-en-de", said.append).tests["test"].source == ["I know."]
    assert said[0].startswith("split    1 train, 1 val, 1 test of 2: ")
    shutil.rmtree(data / "tatoeba-en-de")
    tatoeba(internet, ("Run.", "Lauf."), ("Go.", "Geh."))
    with pytest.raises(UserError, match=r"deu-eng\.zip has none of the 2 sentences of "):
        corpora.load("tatoeba-en-de", quiet)


# CRAFT --------------------------------------------------------------------------------------------


def craft(internet):
    """Every article has the same three trees."""
    for split in ("train", "dev"):
        for remote in DOWNLOADS[f"craft/{split}"].remotes:
            internet[remote.name] = lambda path: path.write_text(
                "( (S (NP (NN a)) (VP (VBZ is))) )\n" * 3, encoding="utf-8"
            )


def test_craft(data, internet, monkeypatch):
    craft(internet)
    monkeypatch.setattr(corpora, "_LEAST_HELD_OUT", 5)
    said = []
    corpus = corpora.load("craft", said.append)
    assert [len(list((data / "craft" / split).iterdir())) for split in ("train", "dev")] == [60, 7]
    assert len(corpus.train.source) == 58 * 3 and len(corpus.tests["dev"].source) == 7 * 3
    fetched = [line for line in said if line.startswith("fetch")]
    assert len(fetched) == 1, "not a line for each"
    assert "67 files, https://" in fetched[0] and fetched[0].endswith(", 9.2 MB")
    said.clear()
    corpora.load("craft-words", said.append)
    assert not said, "nothing is downloaded twice"


def test_trees_of_ones_own_are_not_replaced(data, internet, monkeypatch):
    craft(internet)
    monkeypatch.setattr(corpora, "_LEAST_HELD_OUT", 5)
    (data / "craft" / "dev").mkdir(parents=True)
    (data / "craft" / "dev" / "own.tree").write_text("( (NP (NN b)) )", encoding="utf-8")
    assert corpora.load("craft", quiet).tests["dev"].source == ["b"]


@REAL
def test_the_trees_of_craft_are_those_that_were_trained_on():
    for split in ("train", "dev"):
        folder = Path(REAL_DATA, "craft", split)
        remotes = DOWNLOADS[f"craft/{split}"].remotes
        assert sorted(path.name for path in folder.iterdir()) == [each.name for each in remotes]
        for remote in remotes:
            content = (folder / remote.name).read_bytes()
            assert len(content) == remote.size
            assert remote.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"


# Multi30k -----------------------------------------------------------------------------------------


def test_multi30k(data, internet):
    text = "Two young, White males.\nIt's \u201chere\u201d.\n"
    for remote in DOWNLOADS["multi30k"].remotes:
        internet[remote.name] = lambda path: path.write_bytes(gzip.compress(text.encode()))
    corpus = corpora.load("multi30k", quiet)
    assert corpus.train.source == ["Two young, White males.", "It's \u201chere\u201d."]
    assert len(list((data / "multi30k").iterdir())) == 9


# Archives -----------------------------------------------------------------------------------------

WANTED = {"dir/a.en": b"one\ntwo\n", "dir/a.de": b"eins\nzwei\n"}


def read(path, names=WANTED):
    with members(path, names) as found:
        return {name: file.read() for name, file in found}


@pytest.mark.parametrize("kind", ["tgz", "tar", "zip"])
def test_members_are_read_and_nothing_is_written(tmp_path, kind):
    beside = [("../evil", b"evil"), ("/etc/evil", b"evil"), ("dir/other", b"x" * 10_000)]
    entries = [*beside, ("./dir/a.en", WANTED["dir/a.en"]), ("dir/a.de", WANTED["dir/a.de"])]
    (tmp_path / "deep").mkdir()
    path = write(tmp_path / "deep" / f"archive.{kind}", entries, kind)
    assert read(path) == WANTED
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]
    words = rf"archive.{kind} does not contain nowhere: delete it, and it"
    with pytest.raises(UserError, match=words):
        read(path, ["dir/a.en", "nowhere"])


def test_a_link_in_place_of_a_file_is_no_member(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("dir/a.en")
        link.type, link.linkname = tarfile.SYMTYPE, "../secret"
        archive.addfile(link)
    with pytest.raises(UserError, match=r"does not contain dir/a\.en"):
        read(tmp_path / "a.tgz", ["dir/a.en"])


def test_files_packed_by_gzip(tmp_path):
    packed = {f"{name}.gz": gzip.compress(text) for name, text in WANTED.items()}
    inside = write(tmp_path / "giga.tar", packed.items(), "tar")
    assert read(inside, packed) == {f"{name}.gz": text for name, text in WANTED.items()}


@pytest.mark.parametrize(
    "content", [b"", b"<html>Please log in</html>\n" * 90, b"\x1f\x8b", b"PK\3\4" + bytes(90)]
)
@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_files_that_are_not_archives(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"is not a complete archive|does not contain"):
        read(tmp_path / name)
