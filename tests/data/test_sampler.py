"""Subword regularisation: other ids of the same text in each epoch, the same for the same seed."""

import numpy as np
import pytest

from minitf.data import sampling
from minitf.data.corpora import Corpus, Lines, Pairs
from minitf.data.dataset import prepare, vocabulary_size
from minitf.errors import UserError
from minitf.text import Subwords
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


def test_samples_decode_to_their_text_and_depend_on_the_seed_alone(subwords):
    first = subwords.sample(LINES, 0.3, seed=5)
    assert subwords.decode(first) == LINES
    assert first != subwords.encode(LINES), "some merges are left out"
    assert first != subwords.sample(LINES, 0.3, seed=6)
    assert first == subwords.sample(LINES, 0.3, seed=5)
    assert subwords.sample(LINES, 0.0, seed=5) == subwords.encode(LINES)


def test_each_epoch_has_its_own_rows_of_the_same_text(subwords):
    dataset = made(subwords)
    seen = []
    for epoch in (0, 1, 2):
        dataset.begin_epoch(epoch)
        seen.append(ids(dataset))
        for side, lines in zip(seen[-1], (LINES, LINES[::-1]), strict=True):
            assert subwords.decode(side) == lines
    assert seen[0] != seen[1] != seen[2] != seen[0]
    assert seen[0][0] != seen[0][1][::-1], "the sides are cut independently"
    for epoch in (1, 0, 2, 2):  # also in another order, as a resumed run may ask for them
        dataset.begin_epoch(epoch)
        assert ids(dataset) == seen[epoch]
    other = made(subwords, seed=1)
    other.begin_epoch(0)
    assert ids(other) != seen[0]


def test_each_block_has_its_own_seed(subwords, monkeypatch):
    monkeypatch.setattr(sampling, "_BLOCK", 2)
    dataset = made(subwords, lines=["the cat sits there"] * 6)
    dataset.begin_epoch(0)
    sources, _ = ids(dataset)
    blocks = [sources[i : i + 2] for i in (0, 2, 4)]
    assert blocks[0] != blocks[1] or blocks[1] != blocks[2]


def test_a_row_that_would_become_too_long_is_cut_as_usual(subwords):
    usual = subwords.encode(LINES)
    longest = max(map(len, usual)) + 1
    dataset = made(subwords, max_length=longest, sample_subwords=0.9)
    dataset.begin_epoch(0)
    found = ids(dataset)[0]
    assert max(map(len, found)) <= longest < max(map(len, subwords.sample(LINES, 0.9, seed=0)))
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


def test_an_error_on_the_thread_is_raised_where_the_rows_are_needed(subwords, monkeypatch):
    dataset = made(subwords)
    monkeypatch.setattr(Subwords, "sample", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dataset.begin_epoch(0)


def test_text_that_cannot_be_sampled_is_refused(tmp_path):
    with pytest.raises(UserError, match="--sample-subwords needs text that is not yet cut"):
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
