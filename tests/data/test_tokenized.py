"""A text on the disk gives the batches of a text in memory; it is encoded once, and completely."""

import os
import pickle
import re
import shutil
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from runs import prepare_folder, run, write_text

from minitf.data import corpora, tokenized
from minitf.data.corpora import Lines, Pairs
from minitf.data.dataset import Dataset, prepare, read_corpus
from minitf.data.rows import Rows
from minitf.data.tokenized import Encoded, encode_pairs
from minitf.errors import UserError
from minitf.text import Subwords, Words
from minitf.training.log import read_history
from minitf.training.settings import Settings

LETTERS = list("abcdefgh")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(tokenized, "_BLOCK", 37)
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
    assert held.encoded is None and len(files(data)) == 1
    assert held.subwords.contents() == filed.subwords.contents() and held.longest == filed.longest
    for mine, theirs in ((held.sources, filed.sources), (held.targets, filed.targets)):
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


def test_a_line_of_blanks_is_an_empty_line_on_the_disk_as_well(data, rng):
    lines = [f"the cat sat on {i} mats" for i in range(200)]
    subwords = Subwords.train(lines, 300, log=lambda line: None)
    plain, space = (
        encode_pairs("x", pairs, subwords, 40, lambda line: None)
        for pairs in (
            Pairs(*(Lines(write(data, name, lines)) for name in ("a", "b"))),
            Pairs(
                Lines(write(data, "c", [*lines, " ", "a cat"])),
                Lines(write(data, "d", [*lines, "a cat", "\u00a0\t"])),
            ),
        )
    )
    assert space.counts == plain.counts | {"empty": 2} and space.counts["kept"] == 200
    assert space.digest == plain.digest


def test_any_number_of_threads_and_any_block_give_the_same_files(data, monkeypatch, rng):
    lines = [f"{'the cat ' * int(rng.integers(4))}sat on {i} mats" for i in range(500)]
    subwords = Subwords.train(lines, 300, log=lambda line: None)
    pairs = Pairs(*(Lines(write(data, name, lines)) for name in ("a", "b")))
    contents = set()
    for threads, block in ((1, 37), (2, 37), (3, 100), (0, 10_000)):
        monkeypatch.setattr(tokenized, "_BLOCK", block)
        encode_pairs("x", pairs, subwords, 40, lambda line: None, threads)
        (path,) = files(data)
        contents.add(tuple(content(path).items()))
        shutil.rmtree(path)
    assert len(contents) == 1


def test_another_process_maps_the_same_files(data, monkeypatch, pairs):
    for language in ("en", "de"):
        write(data, f"valid.{language}", ["a b"])
    held, filed = (made(data, monkeypatch, held, subwords="none")[0] for held in (True, False))
    for dataset in (held, filed):
        packed = pickle.dumps(dataset)
        again = pickle.loads(packed)
        assert again.fingerprint() == dataset.fingerprint() and again.longest == dataset.longest
        rows = dataset.plan(0, 100, 0)[3]
        assert np.array_equal(again.batch(rows).source, dataset.batch(rows).source)
    assert len(packed) < 2000 < len(pickle.dumps(held)) / 5  # the path of the folder, and the words
    ids = filed.encoded.folder / "ids.bin"
    right = ids.read_bytes()
    for wrong in (bytes([right[0] ^ 1]) + right[1:], right[:-2]):
        os.remove(ids)  # it is mapped
        ids.write_bytes(wrong)
        with pytest.raises(UserError, match="is damaged, or not that of rank 0: all machines"):
            pickle.loads(packed)
    packed = packed.replace(b"own-", b"gone")
    with pytest.raises(
        UserError, match=r"gone\w{16} cannot be read .*: all machines need the same data folder"
    ):
        pickle.loads(packed)


def test_a_folder_is_made_once_for_one_text_and_one_setting(data, monkeypatch, pairs):
    log, made = [], []
    make = tokenized._make
    monkeypatch.setattr(
        tokenized, "_make", lambda *arguments: (made.append(1), make(*arguments))[1]
    )
    added = [Lines(write(data, name, [line])) for name, line in (("more.s", "a"), ("more.t", "b"))]
    longer = Pairs(*(side + more for side, more in zip(pairs, added, strict=True)))
    first = encode_pairs("x", pairs, WORDS, 20, log.append)
    again = encode_pairs("x", pairs, WORDS, 20, log.append)
    assert len(made) == 1 and first.digest == again.digest and first.counts == again.counts
    assert log[0].startswith("encoded  ") and log[1].endswith(" exists already")
    encode_pairs("x", pairs, WORDS, 19, log.append)
    encode_pairs("x", pairs, Words(LETTERS[::-1]), 20, log.append)
    encode_pairs("x", longer, WORDS, 20, log.append)
    assert encode_pairs("x", Pairs(*pairs[::-1]), WORDS, 20, log.append).digest != first.digest
    assert len(made) == len(files(data)) == 5
    path = pairs.source.paths[0]
    lines = path.read_text().splitlines()
    write(path.parent, path.name, [*lines[1:], lines[0]])  # a text that has changed
    assert encode_pairs("x", pairs, WORDS, 20, log.append).digest != first.digest
    assert len(made) == 6


def test_each_side_and_each_line_counts(data, pairs):
    """A change on one side, or of the end of a line, makes another text."""
    digests = [encode_pairs("x", pairs, WORDS, 20).digest]
    for added in ((["ab", "c"], ["a", "b"]), (["a", "bc"], ["a", "b"]), (["a", "b"], ["ca", "b"])):
        more = [Lines(write(data, f"more.{i}", side)) for i, side in enumerate(added)]
        longer = Pairs(*(side + lines for side, lines in zip(pairs, more, strict=True)))
        digests.append(encode_pairs("x", longer, WORDS, 20).digest)
    path = pairs.target.paths[0]
    lines = path.read_text().splitlines()
    write(path.parent, path.name, [*lines[1:], lines[0]])
    digests.append(encode_pairs("x", pairs, WORDS, 20).digest)
    assert len(set(digests)) == len(files(data)) == 5


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_damaged_folder_is_made_again(data, rng, pairs):
    log = []
    whole = encode_pairs("x", pairs, WORDS, 20, log.append)
    ids = whole.ids.tolist()
    del whole
    (folder,) = files(data)
    before = content(folder)
    assert list(before) == ["facts.json", "ids.bin", "lengths.bin"]
    damaged = []
    for name, right in before.items():
        places = [0, len(right) - 1, *rng.integers(len(right), size=12)]
        damaged += [
            (name, right[:place] + bytes([right[place] ^ 4]) + right[place + 1 :])
            for place in places
        ]
        damaged += [(name, wrong) for wrong in (b"", right[:100], right[:-1], right + b"x", None)]
    for name, wrong in [*damaged, ("facts.json", b"[]" + b" " * 500)]:
        if wrong is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(wrong)
        log.clear()
        assert encode_pairs("x", pairs, WORDS, 20, log.append).ids.tolist() == ids
        assert "is damaged and will be rebuilt" in log[0], (name, log)
        assert content(folder) == before
    assert files(data) == [folder]


def test_two_processes_make_the_same_folder(data, monkeypatch, pairs):
    """The later one finds the folder of the other, and leaves nothing behind."""
    replace = os.replace

    def another_was_first(temporary, folder):
        shutil.copytree(temporary, folder)
        replace(temporary, folder)

    monkeypatch.setattr(os, "replace", another_was_first)
    found = encode_pairs("x", pairs, WORDS, 20)
    (folder,) = files(data)
    assert len(found.ids) == folder.joinpath("ids.bin").stat().st_size // 2 > 0


def test_a_damaged_folder_that_cannot_be_removed_is_not_used(data, monkeypatch, pairs):
    """It belongs to another user, who shares a data folder."""
    encode_pairs("x", pairs, WORDS, 20, lambda line: None)
    (folder,) = files(data)
    ids = bytearray((folder / "ids.bin").read_bytes())
    ids[0] ^= 1
    (folder / "ids.bin").write_bytes(ids)
    rmtree = shutil.rmtree

    def refuse(path, **keywords):
        if path != folder:
            rmtree(path, **keywords)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(UserError, match="is damaged and cannot be replaced: ask its owner"):
        encode_pairs("x", pairs, WORDS, 20, lambda line: None)
    assert files(data) == [folder], "nothing unfinished is left"


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
    assert found.lengths.tolist() == [[72_000, 2], [72_000, 2]] and found.ends.tolist()[1] == [
        144_000,
        144_004,
    ]
    held = encode_pairs("x", long, WORDS, 65_534)
    assert held.lengths.dtype == np.uint16 and held.lengths.tolist() == [[2], [2]]
    assert encode_pairs("x", long, WORDS, 65_535).lengths.dtype == np.uint32, (
        "the end mark has to fit as well"
    )


def test_nothing_is_left_to_train_on(data, monkeypatch):
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        write(data, name, ["a"] if name.startswith("valid") else ["", " "])
    monkeypatch.setattr(Words, "train", lambda *arguments, **more: WORDS)
    for _ in range(2):
        with pytest.raises(UserError, match="no pair is left to train on; left out: 2 empty"):
            made(data, monkeypatch, held=False, subwords="none")
    for language in ("en", "de"):
        write(data, f"train.{language}", [])
    (data / "train.en").write_bytes(b"\n")
    with pytest.raises(UserError, match=r"has 1 line but .* has 0"):
        made(data, monkeypatch, held=False, subwords="none")


def test_a_disk_that_is_full(data, monkeypatch, pairs):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            UserError,
            match=r"x-\w{16} cannot be written \(No space left on device\): .* or set MINITF_DATA",
        ):
            encode_pairs("x", pairs, WORDS, 20)
    assert files(data) == []


def test_unfinished_folders_of_killed_processes_are_removed(data, pairs):
    name = f"x-{tokenized._key(pairs, WORDS, 20)[:16]}"
    encoded = data / "data" / "encoded"
    names = "x-1234567890123456.77", f"{name}.78", f"{name}.79"
    other, stale, busy = (encoded / f"{each}.making" for each in names)
    for folder in (other, stale, busy):
        folder.mkdir(parents=True)
        (folder / "ids.bin").write_bytes(b"half")
        os.utime(folder, (time.time() - 4000,) * 2)
    os.utime(stale / "ids.bin", (time.time() - 4000,) * 2)
    encode_pairs("x", pairs, WORDS, 20)
    assert {path.name for path in files(data)} == {other.name, busy.name, name}


def test_the_folder_of_encoded_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert corpora.encoded_folder() == tmp_path / "data" / "encoded"
    monkeypatch.setattr(os, "access", lambda path, mode: "cache" in str(path))
    assert corpora.encoded_folder() == tmp_path / "cache" / "minitf" / "encoded"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match="set MINITF_DATA to another folder"):
        corpora.encoded_folder()


def test_a_run_on_the_disk_is_the_run_in_memory_and_resumes(tmp_path, monkeypatch):
    """The losses are the same in each step; a resumed run finds its pairs without encoding."""
    folder = prepare_folder(tmp_path, monkeypatch)
    monkeypatch.setenv("MINITF_DATA", str(folder / "data"))
    assert run("held") == 0
    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 0)
    assert run("filed", "--steps", "6") == 0 and run("filed", "--resume", "--steps", "13") == 0
    losses = [
        [(row["step"], row["loss"]) for row in read_history(out) if "loss" in row]
        for out in ("held", "filed")
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 13
    assert len(list((folder / "data" / "encoded").iterdir())) == 1


def test_other_pairs_are_noticed_by_a_resumed_run(tmp_path, monkeypatch, capsys):
    folder = prepare_folder(tmp_path, monkeypatch)
    monkeypatch.setenv("MINITF_DATA", str(folder / "data"))
    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 0)
    assert run("out", "--steps", "2") == 0 and run("out", "--resume", "--steps", "3") == 0
    assert "training pairs" not in capsys.readouterr().out
    write_text("train", 60, seed=3)
    assert run("out", "--resume", "--steps", "4") == 0
    assert "the training pairs are not those of the checkpoint" in capsys.readouterr().out


# Memory -------------------------------------------------------------------------------------------


def fake(folder, n, rng):
    """Write the files of n pairs of about 30 ids a side, without a text; return Encoded."""
    lengths = rng.integers(5, 56, (2, n)).astype(np.uint16)
    folder.mkdir()
    with open(folder / "ids.bin", "wb") as file:
        file.truncate(2 * int(lengths.sum()))  # a hole: zeros that occupy no space
    lengths.tofile(folder / "lengths.bin")
    facts = {"counts": {"kept": n}, "unknown": 0, "content": "c"}
    return folder, facts | {"type": "<u2", "length_type": "<u2"}


def memory_of(n, tmp_path, rng):
    """Return the bytes that n pairs take while there is a plan, and the most while planning."""
    folder, facts = fake(tmp_path / f"x{n}", n, rng)
    tracemalloc.start()
    try:
        encoded = Encoded(folder, facts)
        sides = map(Rows.mapped, (encoded.ids, encoded.ids), encoded.lengths, encoded.ends)
        data = Dataset(None, WORDS, *sides, Pairs([], []), encoded)
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which pages are in memory")
def test_pages_that_a_batch_has_read_are_released(tmp_path, rng):
    folder, facts = fake(tmp_path / "x", 100_000, rng)
    encoded = Encoded(folder, facts)

    def resident():
        maps = re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
        sizes = [int(re.search(r"Rss: +(\d+)", each)[1]) for each in maps if "ids.bin" in each]
        return 1024 * sum(sizes)

    assert int(encoded.ids.max()) == 0 and resident() >= encoded.ids.nbytes
    encoded.release()
    assert resident() == 0 and int(encoded.ids[-1]) == 0
    encoded.ids[: len(encoded.ids) // 2].max()
    sides = map(Rows.mapped, (encoded.ids, encoded.ids), encoded.lengths, encoded.ends)
    data = Dataset(None, WORDS, *sides, Pairs([], []), encoded)
    with pytest.raises(ValueError, match="id 0"):  # of the hole
        data.batch(np.arange(0, 100_000, 97))
    assert resident() == 0


def test_cutting_a_text_takes_hardly_more_memory_for_more_of_it(data, rng, monkeypatch):
    monkeypatch.setattr(tokenized, "_BLOCK", 500)
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
