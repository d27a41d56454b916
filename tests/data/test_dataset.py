"""From text to batches: pairs left out are counted, each pair is seen once an epoch in the order of
the seed.
"""

import bz2
import dataclasses
import gzip
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from runs import prepare_folder, run, write_text

from minitf.data import corpora
from minitf.data.corpora import Corpus, Pairs
from minitf.data.dataset import Dataset, prepare, read_corpus
from minitf.data.rows import EncodedPairs, in_memory
from minitf.errors import UserError
from minitf.text import Subwords, Words, make_batch
from minitf.training.settings import Settings

QUIET = []


def utf_16(text):
    return text.decode().encode("utf-16")


def utf_32(text):
    return text.decode().encode("utf-32")


def zstandard(text):
    return b"\x28\xb5\x2f\xfd" + text  # not compressed, but this is how such a file begins


def own(train, valid=(("a b",), ("c d",)), **more):
    train, valid = (Pairs(list(source), list(target)) for source, target in (train, valid))
    return Corpus("own", "source", "target", train, valid, {}, **more)


def made(corpus, subwords=None, log=QUIET.append, **settings):
    settings = {"subwords": "none", "batch_tokens": 50} | settings
    return prepare(Settings(**settings), corpus, log, subwords)


def random_text(rng, n, longest=8):
    letters = "abcdefgh"
    return [" ".join(rng.choice(list(letters), rng.integers(0, longest))) for _ in range(n)]


def test_rows_hold_what_lists_would(rng):
    pairs = Pairs(random_text(rng, 200), random_text(rng, 200))
    words = Words.train(pairs.source + pairs.target)
    kept = [pair for pair in zip(*map(words.encode, pairs), strict=True) if all(pair)]
    found = in_memory(pairs, words, 99)
    sides = ([ids.tolist() for ids in side] for side in (found.sources, found.targets))
    assert list(zip(*sides, strict=True)) == kept
    assert found.counts["kept"] == len(kept) and found.ids.dtype == np.uint16


def test_every_kept_pair_once_an_epoch_within_the_budget(rng):
    """A hundred random corpora: the counts add up, no pair is lost or doubled, the padded size
    keeps its limit.
    """
    for _ in range(100):
        n, budget = int(rng.integers(1, 40)), int(rng.integers(2, 60))
        max_length, seed = int(rng.integers(1, 10)), int(rng.integers(1000))
        sources, targets = random_text(rng, n), random_text(rng, n)
        pairs = [(s.split(), t.split()) for s, t in zip(sources, targets, strict=True)]
        longest = min(max_length, budget - 1)
        # No side is over 10 words, so none is of absurd ratio.
        fits = Counter(
            (" ".join(s), " ".join(t))
            for s, t in pairs
            if s and t and max(len(s), len(t)) <= longest
        )
        log = []
        corpus = own((sources, targets), ((sources[0] or "a",), ("b",)))
        try:
            data = made(corpus, log=log.append, batch_tokens=budget, max_length=max_length)
        except UserError as error:
            assert not fits or "no text" in str(error) or "validate" in str(error)
            continue
        n_empty = sum(not (s and t) for s, t in pairs)
        said = next(line for line in log if line.startswith("pairs"))
        assert said.startswith(f"pairs    {fits.total():,} to train on") and (
            f"{n_empty} empty" in said
        ) == (n_empty > 0)
        plan, seen = data.plan(0, budget, seed), Counter()
        assert sorted(np.concatenate(plan).tolist()) == list(range(fits.total()))
        for batch in map(data.batch, plan):
            assert batch.source.size <= budget and batch.target_out.size <= budget
            sides = map(data.subwords.decode, (batch.source, batch.target_out))
            seen.update(zip(*sides, strict=True))
        assert seen == fits


def test_the_order_differs_by_epoch_and_seed(rng):
    data = made(own((["a b c"] * 100, ["a b"] * 100)), batch_tokens=20)
    orders = [
        np.concatenate(data.plan(epoch, 20, seed)).tolist()
        for epoch, seed in ((0, 0), (1, 0), (0, 1), (0, 0))
    ]
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_what_is_left_out_is_counted():
    sources = ["a", "", "b " * 40, "a " * 12, "c d", " "]
    targets = ["b", "x", "b " * 40, "c", "d", "y"]
    log = []
    data = made(own((sources, targets)), log=log.append, max_length=30)
    assert log[1] == (
        "pairs    2 to train on; left out: 2 empty, 1 too long, 1 with sides of very different "
        "length"
    )
    assert data.subwords.decode(list(data.pairs.sources)) == ["a", "c d"]
    assert data.corpus.train.source == []  # the ids are enough: the text of WMT takes gigabytes


SPACES = [" ", "\t", "  \t ", "\u00a0", "\u3000"]


def test_a_line_of_blanks_is_an_empty_line():
    lines = [f"the cat sat on {i} mats" for i in range(200)]
    subwords = Subwords.train(lines, 300, log=QUIET.append)
    sources = [*lines[:9], *SPACES, *["a cat"] * len(SPACES)]
    targets = [*lines[:9], *["a cat"] * len(SPACES), *SPACES]
    log, texts = [], ((lines[:9], lines[:9]), (sources, targets))
    plain, space = (made(own(pairs, pairs), subwords, log.append) for pairs in texts)
    assert "pairs    9 to train on; left out: 10 empty" in log
    assert "valid    9 pairs; left out: 10 empty" in log
    assert space.pairs.fingerprint() == plain.pairs.fingerprint() and space.valid == plain.valid


@pytest.mark.parametrize(
    "corpus, words",
    [
        (own(([], [])), "the training text is empty"),
        (own((["", " "], ["", ""])), "no text"),
        (own((["a", ""], ["", "b"])), "no pair is left to train on; left out: 2 empty"),
        (own((["a"], ["b"]), ([], [])), "the validation text is empty"),
        (
            own((["a"], ["b"]), (["", "c"], ["d", ""])),
            "no pair is left to validate on; left out: 2 empty",
        ),
    ],
)
def test_nothing_to_train_or_validate_on(corpus, words):
    with pytest.raises(UserError, match=words):
        made(corpus)


def test_the_validation_text_is_the_first_thousand_that_fit():
    lines = [f"a {'b ' * (i % 60)}" for i in range(3000)]
    log = []
    data = made(own((["a b"], ["a"]), (lines, lines)), log=log.append, max_length=50)
    assert log[2] == "valid    824 pairs (of the first 1,000 of 3,000); left out: 176 too long"
    assert data.valid.source == [line for line in lines[:1000] if len(line.split()) <= 49]
    # An absurd ratio stays: a test is a test.
    short = made(own((["a b"], ["a"]), (["a b", "a " * 30], ["a", "b"])))
    assert len(short.valid.source) == 2


def test_a_vocabulary_of_too_few_words():
    corpus = own((["a b c d e f g"], ["h i j k"]))
    with pytest.raises(UserError, match=r"in the vocabulary: raise --vocabulary-size"):
        made(corpus, vocabulary_size=6)


def test_words_that_the_vocabulary_lacks():
    words = Words.train(["a b c d"])
    log = []
    made(own((["a b x"], ["c d a"])), words, log.append)
    assert "unknown  16.67% of the tokens of the training text" in log
    with pytest.raises(UserError, match="60% of the tokens are not in the vocabulary"):
        made(own((["x y"], ["z d a"])), words)


def test_added_pairs_are_trained_on_and_nothing_else(tmp_path):
    """They are part of the ids and of the fingerprint, not of the subwords or the validation."""
    texts = {"s": "a b\n", "t": "c\n", "more.s": "b a\nx\n", "more.t": "c c\n\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    train, more = ([str(tmp_path / f"{stem}{side}") for side in "st"] for stem in ("", "more."))
    settings = Settings(train=train, valid=train, add=more, subwords="none")
    log = []
    data, plain = (
        prepare(each, read_corpus(each), log.append)
        for each in (settings, dataclasses.replace(settings, add=None))
    )
    assert f"added    2 pairs from {more[0]}" in log
    assert "pairs    2 to train on; left out: 1 empty" in log
    assert data.subwords.decode(data.pairs.sources) == ["a b", "b a"]
    assert data.subwords.decode(data.pairs.targets) == ["c", "c c"]
    assert data.subwords.contents() == plain.subwords.contents() and data.valid == plain.valid
    assert data.pairs.fingerprint() != plain.pairs.fingerprint()
    assert data.corpus.added == data.corpus.train == ([], [])
    (tmp_path / "more.t").write_text("c\n")
    with pytest.raises(UserError, match=r"more\.s has 2 lines but \S+more\.t has 1"):
        read_corpus(settings)


def test_a_resumed_run_reads_its_added_pairs_again(tmp_path, monkeypatch, capsys):
    prepare_folder(tmp_path, monkeypatch)
    write_text("more", 20, seed=5)
    assert run("here", "--steps", "2", "--add", "more.en", "more.de") == 0
    said = capsys.readouterr().out
    assert "corpus   train.en, train.de, more.en, more.de" in said
    assert "pairs    80 to train on" in said
    assert run("here", "--resume", "--steps", "3") == 0
    said = capsys.readouterr().out
    assert "pairs    80 to train on" in said and "training pairs" not in said
    write_text("more", 20, seed=6)
    assert run("here", "--resume", "--steps", "4") == 0
    assert "uninterrupted run: training pairs " in capsys.readouterr().out


def test_files_that_are_not_utf8_are_noticed(tmp_path):
    files = [str(tmp_path / side) for side in "st"]
    (tmp_path / "s").write_bytes(b"\xc3\xbc a\xff\n")
    (tmp_path / "t").write_text("b\n")
    settings = Settings(train=files, valid=files, add=files, subwords="none")
    log = []
    prepare(settings, read_corpus(settings), log.append)
    assert sum("1 line has bytes that are not UTF-8" in line for line in log) == 3


@pytest.mark.parametrize(
    ("own", "said"), [(range(3), "all pairs of"), (range(1, 4), "2 of 3 pairs of"), ((2, 3, 4), "")]
)
def test_validation_pairs_that_are_trained_on_are_noticed(tmp_path, own, said):
    for side in "st":
        (tmp_path / f"train.{side}").write_text("".join(f"{side} {i}\n" for i in range(3)))
        (tmp_path / f"valid.{side}").write_text("".join(f"{side} {i}\n" for i in own))
    names = [[str(tmp_path / f"{part}.{side}") for side in "st"] for part in ("train", "valid")]
    settings, log = Settings(train=names[0], valid=names[1], subwords="none"), []
    corpus = read_corpus(settings)
    assert corpus.source_language == "source"  # .s names no language
    prepare(settings, corpus, log.append)
    found = [line for line in log if "pairs of --valid are in --train" in line]
    assert len(found) == bool(said) and all(said in line for line in found)
    assert "notice   only 3 pairs: better adapt a trained model of these languages" in str(log)


def test_a_batch_is_made_of_arrays_as_of_lists(rng):
    words = Words.train(["a b c d"])
    lines = [" ".join(rng.choice(list("abcd"), n)) for n in rng.integers(1, 9, 50)]
    data = made(own((lines, lines[::-1])), words)
    for rows in (*data.plan(0, 50, 0), np.array([3, 1, 3])):
        sides = (
            [side[i].tolist() for i in rows] for side in (data.pairs.sources, data.pairs.targets)
        )
        batch, expected = data.batch(rows), make_batch(*sides, len(words))
        for name in ("source", "target_in", "target_out"):
            array, other = getattr(batch, name), getattr(expected, name)
            assert array.dtype == other.dtype == np.int32 and np.array_equal(array, other)
    data.pairs.sources.ids[0] = len(words)
    with pytest.raises(ValueError, match="id 8 is not in a vocabulary of 8"):
        data.batch([0])


def test_the_fingerprint_sees_every_pair_and_its_place():
    hashes = {
        made(own(train), Words.train(["a b c"])).pairs.fingerprint()
        for train in (
            (["a b", "c"], ["a", "b"]),
            (["a", "b c"], ["a", "b"]),
            (["c", "a b"], ["b", "a"]),
            (["a b", "c"], ["b", "a"]),
            (["a b", "c", "a"], ["a", "b", "a"]),
        )
    }
    assert len(hashes) == 5


def test_the_largest_batches_are_the_widest_and_the_fullest(rng):
    lengths = rng.integers(1, 30, (2, 80))
    pairs = EncodedPairs(np.ones(lengths.sum(), np.uint16), lengths, {}, 0)
    data = Dataset(own(([], [])), None, pairs, Pairs([], []))
    plan = data.plan(0, 70, 0)
    found = [rows.tolist() for rows in data.largest(plan)]

    def size(rows):
        source, target = (max(side[rows]) + 1 for side in lengths)
        return len(rows) * (source + target), len(rows) * (source**2 + target**2 + source * target)

    for i in range(2):
        assert max(size(rows)[i] for rows in plan) in [size(rows)[i] for rows in found]
    assert 1 <= len(found) <= 2


def test_the_longest_usual_source():
    lengths = np.array([5] * 5000 + [9] * 6 + [200] * 3)
    pairs = EncodedPairs(np.ones(2 * lengths.sum(), np.uint16), np.stack([lengths] * 2), {}, 0)
    assert Dataset(own(([], [])), None, pairs, Pairs([], [])).longest == 9


def test_references_are_joined_where_the_text_came_cut():
    cut = made(own((["a b@@ c"], ["a"])))
    assert cut.references(["klei@@ nes haus @@", "a@@ b@@"]) == ["kleines haus ", "ab"]
    subwords = Subwords.train(["the cat sat"], 280, log=QUIET.append)
    learnt = made(own((["the cat sat"] * 9, ["the hat"] * 9)), subwords)
    assert learnt.references(["an e-mail@@ host"]) == ["an e-mail@@ host"]


def test_the_vocabulary_size():
    corpus = own((["a b c d e f"] * 9, ["a b c"] * 9))
    assert len(made(corpus).subwords) == 10  # all words, and the four special ids
    assert len(made(corpus, vocabulary_size=7).subwords) == 7
    log = []
    made(corpus, log=log.append, subwords=None)
    assert isinstance(
        prepare(Settings(subwords="sentencepiece"), corpus, log.append).subwords, Subwords
    )
    assert any("subwords, not 1000; " in line for line in log)


def test_reading_what_the_user_named(tmp_path, monkeypatch):
    for name, text in (("s", "a b@@ c\n"), ("t", "d\n")):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / "s"), str(tmp_path / "t")]
    corpus = read_corpus(Settings(train=files, valid=files, subwords="none"))
    assert corpus.train == (["a b@@ c"], ["d"]) and corpus.tokenised
    assert not read_corpus(Settings(train=files, valid=files)).tokenised
    with pytest.raises(UserError, match="--train needs --valid"):
        read_corpus(Settings(train=files))
    monkeypatch.setattr(corpora, "load", lambda name: f"corpus {name}")
    assert read_corpus(Settings(corpus="multi30k")) == "corpus multi30k"


@pytest.mark.parametrize("held", [True, False])
def test_each_side_is_cut_by_its_own_vocabulary(tmp_path, monkeypatch, held):
    """A public model cuts the source by one SentencePiece model and the target by another."""

    class Two(Words):
        def encode(self, lines, side="source"):
            shift = {"source": 0, "target": 1}[side]
            return [[7 + shift for _ in line.split()] for line in lines]

    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 1 << 30 if held else 0)
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    files = [str(tmp_path / side) for side in "st"]
    for file in files:
        Path(file).write_text("a b c\nd e\n")
    settings = Settings(train=files, valid=files)
    words = Two.train(["a b c d e"])
    data = prepare(settings, read_corpus(settings), print, words)
    assert (data.pairs.folder is None) == held
    assert {id for ids in data.pairs.sources for id in ids} == {7}
    assert {id for ids in data.pairs.targets for id in ids} == {8}


def test_a_text_for_a_model_of_words_is_cut_already(tmp_path):
    """So its BLEU is computed as for the model that --start-from names."""
    path = tmp_path / "text"
    path.write_text("the cat , a dog .\n" * 3)
    settings = Settings(train=[str(path)] * 2, valid=[str(path)] * 2)
    words = Words.train(["the cat , a dog ."])
    corpus = prepare(settings, read_corpus(settings), print, words).corpus
    assert corpus.tokenised


PACKED = [bz2.compress, gzip.compress, lzma.compress, zstandard, utf_16, utf_32]


@pytest.mark.parametrize("pack", PACKED)
def test_compressed_files_and_other_encodings_of_any_alphabet_are_refused(tmp_path, pack):
    path = tmp_path / "s"
    path.write_bytes(pack("Это кошка\n".encode()))
    name = pack.__name__.replace("_", "-")
    refusal = rf"is a compressed file: save it as|is in {name.upper()}: iconv -f {name} "
    with pytest.raises(UserError, match=refusal):
        corpora.read_lines(path)
