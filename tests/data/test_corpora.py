"""Corpora: files are read as they are, or refused in one line; the counts of cleaning add up."""

import os
import re
import signal

import numpy as np
import pytest

from minitf.data import corpora, downloads
from minitf.errors import UserError

REAL = pytest.mark.skipif(
    not os.environ.get("MINITF_DATA"), reason="MINITF_DATA is not set: no real corpora"
)


@pytest.mark.parametrize(
    "content, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\r\r\n", ["a\rb\r"]),
        ("a\u2028b\u0085c\x0bd\x1ce\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce"]),
        (b"\xff\xc3\n\xe4", ["\ufffd\ufffd", "\ufffd"]),
        (b"\xef\xbb\xbfa\n\x00", ["a", "\x00"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path, content, lines):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert corpora.read_lines(path) == lines
    again = corpora.Lines(path)
    assert list(again) == list(again) == lines and len(again) == len(lines)


def test_a_long_text_is_read_as_lines(tmp_path, monkeypatch):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("one\ntwo\n")
    held = corpora.open_pairs(*paths)
    assert held == corpora.read_pairs(*paths) == (["one", "two"], ["one", "two"])
    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 15)
    pairs = corpora.open_pairs(*paths)
    assert [type(side) for side in pairs] == [corpora.Lines] * 2 and [
        list(side) for side in pairs
    ] == list(held)
    paths[1].write_text("one\ntwo\nthree\n")
    with pytest.raises(UserError, match=r"a has 2 lines but .*b has 3"):
        corpora.open_pairs(*paths)
    with pytest.raises(UserError, match=r"nowhere cannot be read .*name an existing text file"):
        corpora.open_pairs(paths[0], tmp_path / "nowhere")
    with pytest.raises(UserError, match="is a folder: name a text file"):
        corpora.open_pairs(tmp_path, paths[0])
    a, b = pairs
    assert list(a + b) == ["one", "two"] * 2 + ["three"] and len(b + a + b) == 8
    assert (a + b).sha256() == f"{a.sha256()} {b.sha256()}" != (b + a).sha256()


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    for split, n in (("train", 3), ("val", 2), ("test", 1)):
        for language in ("en", "de"):
            path = tmp_path / "tatoeba-en-de" / f"{split}.{language}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{split} {language} {i}\n" for i in range(n)))
    return tmp_path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_text_from_a_pipe_cannot_be_streamed(tmp_path):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(UserError, match=r"a is a pipe, which can be read only once: name a file"):
        corpora.read_pairs(tmp_path / "a", tmp_path / "b", streamed=True)


def test_a_corpus_is_found_by_name(data):
    corpus = corpora.load("tatoeba-en-de")
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert corpus.train == (
        ["train en 0", "train en 1", "train en 2"],
        ["train de 0", "train de 1", "train de 2"],
    )
    assert corpus.valid.target == ["val de 0", "val de 1"]
    assert corpus.tests["test"].source == ["test en 0"]
    back = corpora.load("tatoeba-de-en")
    assert (back.source_language, back.target_language) == ("de", "en")
    assert [back.train, back.valid, back.tests["test"]] == [
        pairs[::-1] for pairs in (corpus.train, corpus.valid, corpus.tests["test"])
    ]
    (data / "tatoeba-en-de" / "val.de").write_text("only one\n")
    with pytest.raises(UserError, match="has 2 lines but"):
        corpora.load("tatoeba-en-de")
    (data / "tatoeba-en-de" / "val.de").unlink()
    with pytest.raises(UserError, match=r"val\.de cannot be read \(No such file or directory\)"):
        corpora.load("tatoeba-en-de")


def test_missing_and_unknown_corpora(data, monkeypatch):
    with pytest.raises(
        UserError, match=re.escape(f"{data / 'multi30k'} is not on this machine: go online")
    ):
        corpora.load("multi30k")
    with pytest.raises(UserError, match="unknown corpus 'tatoba': choose from toy, multi30k,"):
        corpora.load("tatoba")
    for named, reason in (
        ("~nobody-has-this-name/data", "this home folder does not exist"),
        ("x" * 300, "File name too long"),
    ):
        monkeypatch.setenv("MINITF_DATA", named)
        with pytest.raises(UserError, match=rf"{named}: cannot be read \({reason}\)"):
            corpora.data_folder()
    monkeypatch.delenv("MINITF_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(data / "cache"))
    with pytest.raises(
        UserError,
        match=re.escape(f"{data / 'cache' / 'minitf' / 'tatoeba-en-de'} is not on this machine"),
    ):
        corpora.load("tatoeba-en-de")
    monkeypatch.delenv("XDG_CACHE_HOME")
    for home in ("HOME", "USERPROFILE"):  # Unix, Windows
        monkeypatch.setenv(home, str(data))
    assert corpora.data_folder() == data / ".cache" / "minitf"


@pytest.mark.slow
@REAL
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("multi30k", (29_000, 1_014, 1_000)),
        ("tatoeba-en-de", (167_286, 985, 976)),
        ("tatoeba-en-fr", (164_596, 850, 861)),
    ],
)
def test_real_corpora(name, sizes):
    corpus = corpora.load(name)
    (test,) = corpus.tests.values()
    assert sizes == tuple(len(pairs.source) for pairs in (corpus.train, corpus.valid, test))


def test_clean_counts_add_up(rng):
    for _ in range(50):
        sides = rng.integers(0, 40, (2, 60))
        kept, counts = corpora.select(*sides, max_length=30, max_ratio=2)
        assert sum(counts.values()) == 60 and counts["kept"] == len(kept)
        assert kept.tolist() == sorted(set(kept))
        for i, (low, high) in enumerate(np.sort(sides.T)):
            assert (i in kept) == (low > 0 and high <= 30 and (high <= 10 or high <= 2 * low))


@pytest.mark.slow
@REAL
@pytest.mark.parametrize("name", ["tatoeba-en-de", "tatoeba-en-fr"])
def test_the_held_out_lists_are_those_of_the_corpus(name):
    corpus, listed = corpora.load(name), downloads._held_out(name)
    for split, pairs in (("val", corpus.valid), ("test", corpus.tests["test"])):
        hashes = list(zip(*(map(downloads.sentence_hash, side) for side in pairs), strict=True))
        assert hashes == [(key, row[1]) for key, row in listed.items() if row[0] == split]
    assert not any(downloads.sentence_hash(line) in listed for line in corpus.train.source)


def test_the_command_says_what_a_corpus_holds(data, capsys, monkeypatch):
    assert corpora.main(["tatoeba-en-de"]) == 0
    said = f"tatoeba-en-de: train 3 pairs, valid 2 pairs, test 1 pair; in {data}\n"
    assert capsys.readouterr().out == said
    for names, words in (
        ([], "name a corpus: toy, multi30k,"),
        (["nothing"], "unknown corpus 'nothing'"),
    ):
        assert corpora.main(names) == 2
        assert capsys.readouterr().err.startswith(f"minitf data: {words}")
    assert corpora.main(["--help"]) == 0
    assert re.fullmatch(
        r"usage: .* NAME ...\nDownload (.|\n)*\nNames: toy, multi30k, .*\n", capsys.readouterr().out
    )
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "load", lambda name: signal.raise_signal(signal.SIGINT))
        assert corpora.main(["multi30k"]) == 130
    assert capsys.readouterr().err == "minitf data: stopped; the same command continues from here\n"
