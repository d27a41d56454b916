"""A text on the disk gives the batches of a text in memory; it is encoded once, and completely."""

import json
import os
import pickle
import shutil
import tracemalloc
from unittest import mock

import numpy as np
import pytest

from minitf.data import corpora
from minitf.data import rows as encoding
from minitf.data.corpora import Lines, Pairs
from minitf.data.dataset import Dataset, prepare, read_corpus
from minitf.data.rows import EncodedPairs, encode_pairs
from minitf.errors import UserError
from minitf.text import Subwords, Words
from minitf.training.settings import Settings

LETTERS = list("abcdefgh")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(encoding, "_BLOCK", 37)
    return tmp_path


def write(folder, name, lines):
    (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder / name


def text(rng, n, longest=30):
    return [" ".join(rng.choice(LETTERS, rng.integers(0, longest))) for _ in range(n)]


@pytest.fixture
def pairs(data, rng):
    return Pairs(*(Lines(write(data, name, text(rng, 400))) for name in ("train.en", "train.de")))


WORDS = Words(LETTERS)


def files(data):
    folder = data / "data" / "encoded"
    return sorted(folder.iterdir()) if folder.exists() else []


def made(data, monkeypatch, held, **settings):
    """Return the Dataset of train.* and valid.*, in memory or on the disk, and the log."""
    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 1 << 30 if held else 0)
    train, valid = (
        [str(data / f"{name}.{language}") for language in ("en", "de")]
        for name in ("train", "valid")
    )
    settings = Settings(train=train, valid=valid, batch_tokens=100, **settings)
    log = []
    return prepare(settings, read_corpus(settings), log.append), log


@pytest.mark.parametrize("more", [{}, {"add": True}, {"max_length": 12}])
@pytest.mark.parametrize("subwords", ["none", "sentencepiece"])
def test_a_text_on_the_disk_is_the_text_in_memory(data, monkeypatch, rng, pairs, more, subwords):
    for language in ("en", "de"):
        write(data, f"valid.{language}", ["a b"])
    if "add" in more:
        more = {"add": [str(write(data, name, text(rng, 50))) for name in ("more.en", "more.de")]}
    (held, said), (filed, also) = (
        made(
            data,
            monkeypatch,
            held,
            subwords=subwords,
            vocabulary_size=10 if subwords == "none" else 300,
            **more,
        )
        for held in (True, False)
    )
    assert [line for line in also if not line.startswith("encoded")] == said
    assert held.pairs.folder is None and len(files(data)) == 1
    assert held.subwords.contents() == filed.subwords.contents() and held.longest == filed.longest
    for side in ("sources", "targets"):
        mine, theirs = (getattr(each.pairs, side) for each in (held, filed))
        assert [ids.tolist() for ids in mine] == [ids.tolist() for ids in theirs]
    for epoch in (0, 1):
        plan, other = held.plan(epoch, 100, 7), filed.plan(epoch, 100, 7)
        assert [rows.tolist() for rows in plan] == [rows.tolist() for rows in other]
        assert [rows.tolist() for rows in held.largest(plan)] == [
            rows.tolist() for rows in filed.largest(other)
        ]
        for rows in plan:
            batch, same = held.batch(rows), filed.batch(rows)
            assert np.array_equal(batch.source, same.source) and np.array_equal(
                batch.target_out, same.target_out
            )


def test_any_block_gives_the_same_files(data, monkeypatch, rng):
    lines = [f"{'the cat ' * int(rng.integers(4))}sat on {i} mats" for i in range(500)]
    subwords = Subwords.train(lines, 300, log=lambda line: None)
    pairs = Pairs(*(Lines(write(data, name, lines)) for name in ("a", "b")))
    contents = set()
    for block in (37, 100, 10_000):
        monkeypatch.setattr(encoding, "_BLOCK", block)
        encode_pairs("x", pairs, subwords, 40, lambda line: None)
        (path,) = files(data)
        contents.add(tuple(each.read_bytes() for each in sorted(path.iterdir())))
        shutil.rmtree(path)
    assert len(contents) == 1


def test_another_process_maps_the_same_files(data, monkeypatch, pairs):
    for language in ("en", "de"):
        write(data, f"valid.{language}", ["a b"])
    held, filed = (made(data, monkeypatch, held, subwords="none")[0] for held in (True, False))
    for dataset in (held, filed):
        packed = pickle.dumps(dataset)
        again = pickle.loads(packed)
        assert (
            again.pairs.fingerprint() == dataset.pairs.fingerprint()
            and again.longest == dataset.longest
        )
        rows = dataset.plan(0, 100, 0)[3]
        assert np.array_equal(again.batch(rows).source, dataset.batch(rows).source)
    assert len(packed) < 2000 < len(pickle.dumps(held)) / 5  # the path of the folder, and the words
    ids = filed.pairs.folder / "ids.bin"
    whole = ids.read_bytes()
    os.remove(ids)  # it is mapped
    ids.write_bytes(whole[:-2])
    with pytest.raises(UserError, match=r"is too short or too long\): delete it, and it is made"):
        pickle.loads(packed)
    packed = packed.replace(b"own-", b"gone")
    with pytest.raises(UserError, match=r"gone\w{16} cannot be read .* need the same data folder"):
        pickle.loads(packed)


def test_a_folder_is_made_once_for_one_text_and_one_setting(data, monkeypatch, pairs):
    log, made = [], []
    write_pairs = encoding._write
    monkeypatch.setattr(
        encoding, "_write", lambda *arguments: (made.append(1), write_pairs(*arguments))
    )
    added = [Lines(write(data, name, [line])) for name, line in (("more.s", "a"), ("more.t", "b"))]
    longer = Pairs(*(side + more for side, more in zip(pairs, added, strict=True)))
    first = encode_pairs("x", pairs, WORDS, 20, log.append)
    again = encode_pairs("x", pairs, WORDS, 20, log.append)
    assert len(made) == 1 and first.counts == again.counts
    assert first.fingerprint() == again.fingerprint()
    assert log[0].startswith("encoded  ") and log[1] == log[0]
    encode_pairs("x", pairs, WORDS, 19, log.append)
    encode_pairs("x", pairs, Words(LETTERS[::-1]), 20, log.append)
    encode_pairs("x", longer, WORDS, 20, log.append)
    back = encode_pairs("x", Pairs(*pairs[::-1]), WORDS, 20, log.append)
    assert back.fingerprint() != first.fingerprint()
    assert len(made) == len(files(data)) == 5
    path = pairs.source.paths[0]
    lines = path.read_text().splitlines()
    write(path.parent, path.name, [*lines[1:], lines[0]])  # a text that has changed
    assert encode_pairs("x", pairs, WORDS, 20, log.append).fingerprint() != first.fingerprint()
    assert len(made) == 6


def test_ids_and_lengths_of_four_bytes(data):
    many = Words([f"w{i}" for i in range(70_000)])
    sides = [["w69999 w0", "", "w1", "w2"], ["w65532 w65533 w5", "w1", "w2", "w3 w4"]]
    found = encode_pairs(
        "x",
        Pairs(*(Lines(write(data, str(i), side)) for i, side in enumerate(sides))),
        many,
        9,
    )
    assert found.ids.tolist() == [70003, 4, 65536, 65537, 9, 5, 6, 6, 7, 8]
    assert found.counts == {"empty": 1, "too long": 0, "ratio": 0, "kept": 3}
    line = " ".join(LETTERS * 9000)
    long = Pairs(*(Lines(write(data, name, [line, "a b"])) for name in ("s", "t")))
    found = encode_pairs("x", long, WORDS, 80_000)
    assert [side.lengths.tolist() for side in (found.sources, found.targets)] == [[72_000, 2]] * 2
    assert found.targets.ends.tolist() == [144_000, 144_004]
    held = encode_pairs("x", long, WORDS, 65_534)
    assert held.sources.lengths.dtype == np.uint16 and held.targets.lengths.tolist() == [2]
    longer = encode_pairs("x", long, WORDS, 65_535)
    assert longer.sources.lengths.dtype == np.uint32, "the end mark has to fit as well"


def test_a_disk_that_is_full(data, monkeypatch, pairs):
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UserError, match=r"x-\w{16}: could not be written \(No space left"):
        encode_pairs("x", pairs, WORDS, 20)
    assert files(data) == []


# Memory -------------------------------------------------------------------------------------------


def fake(folder, n, rng):
    """Write the files of n pairs of about 30 ids a side, without a text; return its Dataset."""
    lengths = rng.integers(5, 56, (2, n)).astype(np.uint16)
    folder.mkdir()
    with open(folder / "ids.bin", "wb") as file:
        file.truncate(2 * int(lengths.sum()))  # a hole: zeros that occupy no space
    np.save(folder / "lengths.npy", lengths)
    (folder / "counts.json").write_text(json.dumps({"counts": {"kept": n}, "unknown": 0}))
    del lengths
    return Dataset(None, WORDS, EncodedPairs.load(folder, np.uint16), Pairs([], []))


def memory_of(n, tmp_path, rng):
    """Return the bytes that n pairs take while there is a plan, and the most while planning."""
    tracemalloc.start()
    try:
        data = fake(tmp_path / f"x{n}", n, rng)
        tracemalloc.reset_peak()
        plan = data.plan(0, 25_000, 0)
        data.largest(plan)
        assert data.longest == 55
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_a_pair_takes_few_bytes(tmp_path, rng):
    """For the 36 million pairs of en-fr: 0.6 GB, and 1.6 GB while planning."""
    few, many = (np.array(memory_of(n, tmp_path, rng)) for n in (100_000, 300_000))
    held, most = (many - few) / 200_000
    assert held < 17 and most < 45, (held, most)
    assert 36e6 * most < 4 * 2**30


def test_cutting_a_text_takes_hardly_more_memory_for_more_of_it(data, rng, monkeypatch):
    monkeypatch.setattr(encoding, "_BLOCK", 500)
    most = []
    for n in (1500, 4500):
        pairs = Pairs(*(Lines(write(data, f"{name}{n}", text(rng, n, 60))) for name in "st"))
        len(pairs.source), len(pairs.target)
        tracemalloc.start()
        encode_pairs("x", pairs, WORDS, 80, lambda line: None)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Bytes a pair; held as text one takes 200.
    assert (most[1] - most[0]) / 3000 < 40 < most[0] / 1500, most
