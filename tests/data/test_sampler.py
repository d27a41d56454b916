"""Subword regularisation: other ids of the same text in each epoch, the same for the same seed."""

import hashlib
import random
import subprocess
import sys

import numpy as np
import pytest

from minitf.data import sampling
from minitf.data.corpora import Corpus, Lines, Pairs
from minitf.data.dataset import prepare, vocabulary_size
from minitf.errors import UserError
from minitf.text import Subwords
from minitf.text.merges import Merges, words_of
from minitf.text.normalise import normalise
from minitf.text.vocabulary import SPECIALS
from minitf.training.settings import Settings

LINES = [f"the {a} {b} sits near the {a}" for a in ("cat", "hat", "rat") for b in ("here", "there")]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train(LINES, 320, log=lambda notice: None)


def made(cut_by=None, lines=LINES, **settings):
    corpus = Corpus("own", "s", "t", Pairs(lines, lines[::-1]), Pairs(lines[:1], lines[:1]), {})
    settings = {"sample_subwords": 0.3, "batch_tokens": 80, "max_length": 70} | settings
    return prepare(Settings(**settings), corpus, lambda line: None, cut_by)


def ids(dataset):
    return [[row.tolist() for row in side] for side in (dataset.sources, dataset.targets)]


def test_merges_cut_words_as_sentencepiece_does(subwords):
    merges = subwords.merges()
    lines = [*LINES, "", "a  b ", "Ωmega \U0001f408 cats 12", "thethethe catcat\u00a0hat"]
    for line, ids in zip(lines, subwords.encode(lines), strict=True):
        words = words_of(normalise(line)) if line else []
        assert [i for word in words for i in merges.cut(word)] == ids, line


def test_a_merge_is_left_out_with_its_probability():
    merges = Merges([*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), "ab", "a", "b"])
    draw = random.Random(0).random
    cuts = [len(merges.cut("ab", 0.3, draw)) - 1 for _ in range(10_000)]
    assert np.mean(cuts) == pytest.approx(0.3, abs=0.015)
    # Of aab, the pair ab is merged, or left out each time that it is seen, which is once.
    cuts = [merges.cut("aab", 0.3, draw) for _ in range(10_000)]
    assert np.mean([len(cut) == 3 for cut in cuts]) == pytest.approx(0.3, abs=0.015)
    # The least and the greatest that a generator draws.
    assert merges.cut("ab", 0.0, lambda: 0.0) == [260]
    assert merges.cut("ab", 1.0, lambda: 1 - 2.0**-53) == [261, 262]


def test_of_equal_pairs_the_first_is_merged():
    merges = Merges([*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), "aa", "a"])
    assert merges.cut("aaa") == [260, 261]


def test_the_sides_are_cut_independently(subwords):
    lines = LINES * 5
    corpus = Corpus("own", "s", "t", Pairs(lines, lines), Pairs(lines[:1], lines[:1]), {})
    settings = Settings(sample_subwords=0.3, batch_tokens=80, max_length=70)
    dataset = prepare(settings, corpus, lambda line: None, None)
    dataset.begin_epoch(0)
    sources, targets = ids(dataset)
    assert sources != targets


@pytest.mark.slow
def test_another_process_cuts_alike(subwords, tmp_path):
    """SentencePiece's own sampling does not: not even with a seed and on one thread."""
    program = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
from test_sampler import Subwords, LINES, ids, made
dataset = made(Subwords.train(LINES, 320, log=lambda notice: None))
dataset.begin_epoch(1)
print(hashlib.sha256(repr(ids(dataset)).encode()).hexdigest())
"""
    command = [sys.executable, "-c", program, *sys.path]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in "ab"
    )
    dataset = made(subwords)
    dataset.begin_epoch(1)
    here = hashlib.sha256(repr(ids(dataset)).encode()).hexdigest()
    assert first.strip() == second.strip() == here


def test_each_epoch_has_its_own_rows_of_the_same_text(subwords):
    dataset = made(subwords)
    seen = []
    for epoch in (0, 1, 2):
        dataset.begin_epoch(epoch)
        seen.append(ids(dataset))
        for side, lines in zip(seen[-1], (LINES, LINES[::-1]), strict=True):
            assert subwords.decode(side) == lines
    assert seen[0] != seen[1] != seen[2] != seen[0]
    for epoch in (1, 0, 2, 2):  # also in another order, as a resumed run may ask for them
        dataset.begin_epoch(epoch)
        assert ids(dataset) == seen[epoch]
    other = made(subwords, seed=1)
    other.begin_epoch(0)
    assert ids(other) != seen[0]


def test_occurrences_of_a_word_are_cut_differently(subwords):
    dataset = made(subwords, lines=["the cat sits there"] * 200)
    dataset.begin_epoch(0)
    sources, _ = ids(dataset)
    different = {tuple(row) for row in sources}
    assert len(different) > 50
    usual = subwords.encode(["the cat sits there"])[0]
    assert 0 < sources.count(usual) < 60


def test_of_a_frequent_word_an_epoch_has_a_limited_number_of_cuts(subwords, monkeypatch):
    monkeypatch.setattr(sampling, "MOST_CUTS", 2)
    dataset = made(subwords, lines=["there"] * 100, sample_subwords=0.5)
    dataset.begin_epoch(0)
    assert len({tuple(row) for side in ids(dataset) for row in side}) == 2


def test_symbols_and_marks_are_never_cut_wherever_they_stand():
    lines = ["XXL the ①.", "(NPs (②)there"] * 10 + ["XX (NP the cat there ③④ ⑤hat XX"] * 10
    subwords = Subwords.train([*LINES, "①"], 350, symbols=["XX", "(NP"], log=lambda notice: None)
    assert len(subwords.encode(["XX (NP XX"])[0]) == 3  # each one with the space before it
    merges = subwords.merges()
    usual = subwords.encode(lines)
    for line, ids_of_line in zip(lines, usual, strict=True):
        assert [i for word in words_of(line) for i in merges.cut(word)] == ids_of_line, line
    dataset = made(subwords, lines=lines, sample_subwords=0.9)
    dataset.begin_epoch(0)
    sources, _ = ids(dataset)
    symbols = range(len(SPECIALS), subwords.vocabulary().index("<0x00>"))
    for row, before in zip(sources, usual, strict=True):
        assert row != before and subwords.decode([row]) == subwords.decode([before])
        assert [i for i in row if i in symbols] == [i for i in before if i in symbols] != []


def test_a_row_that_would_become_too_long_is_cut_without_sampling(subwords):
    usual = subwords.encode(LINES)
    longest = max(map(len, usual)) + 1
    dataset = made(subwords, max_length=longest, sample_subwords=0.9)
    dataset.begin_epoch(0)
    found = ids(dataset)[0]
    assert max(map(len, found)) <= longest
    free = made(subwords, sample_subwords=0.9)
    free.begin_epoch(0)
    assert max(map(len, ids(free)[0])) > longest
    assert any(row == fixed for row, fixed in zip(found, usual, strict=True))


def test_what_describes_the_text_does_not_depend_on_the_epoch(subwords):
    plain, dataset = made(subwords, sample_subwords=0.0), made(subwords)
    for epoch in (0, 1):
        dataset.begin_epoch(epoch)
        assert dataset.fingerprint() == plain.fingerprint()
        assert dataset.longest == plain.longest
    assert plain.sampler is None
    plain.begin_epoch(1)
    assert ids(plain)[0] == subwords.encode(LINES)


def test_text_that_cannot_be_sampled_is_refused(tmp_path):
    with pytest.raises(UserError, match="--sample-subwords needs one SentencePiece vocabulary"):
        made(subwords="none")
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("\n".join(LINES))
    corpus = Corpus("own", "s", "t", Pairs(*map(Lines, paths)), Pairs(LINES, LINES), {})
    with pytest.raises(UserError, match="--sample-subwords needs a text that fits into memory"):
        prepare(Settings(sample_subwords=0.1), corpus, lambda line: None)


def test_the_vocabulary_grows_with_the_root_of_the_text():
    sizes = [vocabulary_size(n) for n in (1, 10_000, 40_000, 10**9)]
    assert sizes == [1000, 1500, 3000, 32_000]
    assert np.all(np.diff(sizes) > 0)
