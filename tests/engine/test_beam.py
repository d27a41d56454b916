"""Beam search against a plain program of its rule, and against the list of all texts there are."""

import itertools
import math

import numpy as np
import pytest
from decoding import likely_end
from models import Table, fixed_table, random_table, small_model, sources
from plain import BOS, EOS, PAD, UNK, log_softmax, penalty, plain_beam_search

from minitf import forms
from minitf.backend import xp
from minitf.decode import Decoding, beam_search, continuations, greedy


def assert_found(found, expected):
    assert [h.ids for h in found] == [ids for ids, _, _ in expected]
    assert np.allclose(
        [h.log_probability for h in found], [total for _, total, _ in expected], rtol=1e-10
    )
    assert np.allclose([h.score for h in found], [score for _, _, score in expected], rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.6, pytest.param(2.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("beam, n_best", [(1, 1), (2, 1), (3, 3), (4, 2), (9, 9)])
@pytest.mark.parametrize("like", ["paper", "marian"])
def test_beam_search_follows_the_rule(like, alpha, beam, n_best):
    """With early, late and no ends, three sentences of different limits at a time."""
    lengths_found = set()
    for seed, end in itertools.product(range(4), (-2.0, 0.0, 1.0, 3.0)):
        model = random_table(seed, 9, end)
        found = beam_search(
            Decoding(model, cached=False), sources(1, 4, 2), beam, alpha, 4, n_best, like=like
        )
        for sentence, limit, hypotheses in zip((4, 5, 6), (5, 8, 6), found, strict=True):

            def ln_p(ids, model=model, sentence=sentence):
                return log_softmax(model.scores(sentence, ids))

            assert_found(hypotheses, plain_beam_search(ln_p, 9, limit, beam, alpha, n_best, like))
            lengths_found |= {len(h.ids) for h in hypotheses}
    assert {0, 5} <= lengths_found


def test_a_sentence_that_is_done_is_not_computed_any_more():
    """The first of two sentences ends at once; afterwards only the rows of the
    other are decoded.
    """
    rows = []

    def scores(sentence, ids):
        rows.append(sentence)
        drawn = np.zeros(9)
        drawn[EOS] = 20 if sentence == 4 or len(ids) == 5 else -20
        return drawn

    greedy(Decoding(Table(scores, 9), cached=False), sources(1, 1))
    assert rows == [4, 5] + [5] * 5
    rows.clear()
    beam_search(Decoding(Table(scores, 9), cached=False), sources(1, 1), beam=2, alpha=0.0)
    assert rows.count(4) < 2 * 4 < rows.count(5)


# The limit ----------------------------------------------------------------------------------------


def test_what_is_cut_off_comes_after_all_that_finished():
    """Though its score is better: it is no translation yet."""
    model = fixed_table({(): {4: 0.9, EOS: 0.09}, (4,): {4: 0.9, EOS: 0.04}})
    first, second, third = beam_search(
        Decoding(model, cached=False), sources(1), 3, 0.0, max_extra=1, n_best=3
    )[0]
    assert [first.ids, second.ids, third.ids] == [[], [4], [4, 4]]
    assert third.log_probability == pytest.approx(math.log(0.9**2))
    assert third.score > first.score > second.score
    for n_best in (1, 2):
        (found,) = beam_search(
            Decoding(model, cached=False), sources(1), 3, 0.0, max_extra=1, n_best=n_best
        )
        assert found == [first, second, third][:n_best]


@pytest.mark.parametrize("size", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 9))])
def test_fewer_are_the_first_of_more(size):
    """Whatever the beam, the penalty and the limit; with so few words many are cut
    off, and many end.
    """
    kinds = set()
    for seed, end, alpha, max_extra in itertools.product(
        range(4), (-2.0, 0.5, 2.0), (0.0, 0.6, 2.0), (0, 1, 4)
    ):
        model, beam = random_table(seed, size, end), 2 + seed
        every = beam_search(
            Decoding(model, cached=False), sources(1, 3), beam, alpha, max_extra, beam
        )
        for n_best in range(1, beam):
            found = beam_search(
                Decoding(model, cached=False), sources(1, 3), beam, alpha, max_extra, n_best
            )
            assert found == [hypotheses[:n_best] for hypotheses in every]
        for limit, hypotheses in zip((1 + max_extra, 3 + max_extra), every, strict=True):
            scores = [h.score for h in hypotheses]
            kinds.add(
                (
                    any(len(h.ids) == limit for h in hypotheses),
                    scores == sorted(scores, reverse=True),
                )
            )
    assert {(True, False), (False, True)} <= kinds


# The selection ------------------------------------------------------------------------------------


def best_of_all(scores, totals, count):
    """Sort all continuations of each sentence, in float64; among equals the lower place first."""
    n, beams = totals.shape
    every = (scores.astype(np.float64).reshape(n, beams, -1) + totals[:, :, None]).reshape(n, -1)
    best = np.argsort(-every, axis=-1, kind="stable")[:, :count]
    size = scores.shape[-1]
    return best % size, best // size, np.take_along_axis(every, best, axis=-1)


def assert_selected(scores, totals, count):
    for share, which in itertools.product((1, 0.9, 0.002), (forms.on, forms.off)):
        allowed = np.random.default_rng(len(scores)).random(scores.shape) < share
        given = xp.asarray(scores.copy()), totals, count, (), allowed
        with which():
            *found, sums = continuations(*given)
        *expected, best = best_of_all(np.where(allowed, scores, -np.inf), totals, count)
        assert np.array_equal(sums, best)  # which impossible ones there are does not matter
        assert np.array_equal(*(np.where(best > -np.inf, x, 0) for x in (found, expected)))


@pytest.fixture
def plain_scores(monkeypatch):
    """Let scores be ln P, so that one may be -infinity, and the sums are those of `best_of_all`."""
    monkeypatch.setattr("minitf.decode.logsumexp", lambda logits: np.zeros(len(logits)))


@pytest.mark.usefixtures("plain_scores")
@pytest.mark.parametrize("size", [1, 7, 48, 1000, 1600])
def test_the_selection_is_that_of_a_sort(library, size):
    """Bit by bit, with many equals and with none, with beams that are dead, and with large
    totals in float32.
    """
    rng = np.random.default_rng(size)
    for beams, levels in itertools.product((1, 2, 5), (None, 2, 40)):
        scores = rng.normal(0, 3, (6 * beams, size)).astype(np.float32)
        if levels:
            scores = np.round(scores * levels / 10) / np.float32(levels)
        scores[:, rng.integers(size)] = -np.inf
        totals = (
            -rng.uniform(50, 400, (6, beams))
            if levels != 2
            else -rng.integers(0, 3, (6, beams)).astype(float)
        )
        totals[0, 1:] = -np.inf
        assert_selected(scores, totals, 2 * beams)


@pytest.mark.usefixtures("plain_scores")
def test_large_totals_do_not_hide_small_differences(rng):
    """In float32 a step between neighbours near 300 is 3e-5: many differ by less."""
    for _ in range(50):
        scores = rng.normal(0, 1e-4, (8, 800)).astype(np.float32)
        assert_selected(scores, -rng.uniform(300, 300.001, (2, 4)), 8)


# What is given ------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [np.zeros((0, 5), int), np.zeros((0, 0), int), []])
def test_no_sentences(empty):
    assert greedy(small_model(), empty) == beam_search(small_model(), empty) == []


@pytest.mark.parametrize("decode", [greedy, beam_search])
def test_wrong_arguments_are_named(decode):
    for source in ([5, 6, 3], np.array(5), np.ones((1, 2, 3), int)):
        with pytest.raises(ValueError, match=r"source must be ids \(B, S\)"):
            decode(small_model(), source)
    for alpha in (-0.1, math.nan, math.inf, 500):  # 500: the penalty would overflow
        with pytest.raises(ValueError, match="alpha must be at least 0 and at most 10"):
            decode(small_model(), sources(2), alpha=alpha)


# The whole space ----------------------------------------------------------------------------------


def every_text(model, source, longest):
    """List all (ids, ln P) of up to `longest` words, the end mark included, as the
    model scores them.
    """
    texts, writable = (
        [],
        [w for w in range(model.config.vocabulary_size) if w not in (PAD, BOS, EOS)],
    )
    for n in range(longest):
        ids = np.array(list(itertools.product(writable, repeat=n)), int)
        target = np.hstack([np.full((len(ids), 1), BOS), ids])
        ln_p = log_softmax(model(np.repeat(source, len(ids), axis=0), target).numpy())
        following = np.hstack([ids, np.full((len(ids), 1), EOS)])
        totals = np.take_along_axis(ln_p, following[:, :, None], -1).sum(axis=(1, 2))
        texts += [(row.tolist(), float(total)) for row, total in zip(ids, totals, strict=True)]
    return texts


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_the_space_is_exhaustive(seed, alpha):
    """Four words can be written (six ids, but no padding and no start) and four words are
    allowed: 40 texts.
    """
    model = small_model(seed=seed, vocabulary_size=6)
    source = sources(2)
    texts = every_text(model, source, longest=4)
    assert len(texts) == 1 + 3 + 9 + 27
    ranked = sorted(
        ((ids, t, t / penalty(len(ids) + 1, alpha)) for ids, t in texts), key=lambda text: -text[2]
    )
    (best,) = beam_search(model, source, beam=27, alpha=alpha, max_extra=2)
    assert_found(best, ranked[:1])
    (everything,) = beam_search(model, source, beam=4 * 27, alpha=alpha, max_extra=2, n_best=40)
    assert_found(everything, ranked)


def test_recording_changes_no_result_and_has_the_steps_of_each_sentence():
    """Of sentences that are done at different steps. From the steps all texts can be written, also
    if the first word is given, so that the end mark, as all others, is impossible there.
    """
    model, source = likely_end(small_model(seed=3)), sources(3, 1, 5)

    def unknown_first(texts, rows, left):
        return np.tile((np.arange(11) == UNK) | (texts.shape[1] > 1), (len(texts), 1))

    for allowed in (None, unknown_first):
        options, recorded = {"n_best": 4, "max_extra": 4, "allowed": allowed}, []
        found = beam_search(model, source, 4, trace=recorded, **options)
        assert found == beam_search(model, source, 4, **options)
        assert len({len(steps) for steps in recorded}) == len(recorded) == len(source)
        for steps, hypotheses in zip(recorded, found, strict=True):
            texts = set().union(*texts_of(steps))
            assert texts >= {(tuple(h.ids), h.log_probability) for h in hypotheses}


def texts_of(steps):
    """Return (ids, ln P) of the texts that ended, and of those that were there at the end."""
    alive, ended = [()] * 4, set()
    for step in steps:
        assert len(step.tokens) == 8 and len(step.kept) == 4
        texts = [(*alive[of], token) for of, token in zip(step.parents, step.tokens, strict=True)]
        ends = [rank for rank in range(4) if step.tokens[rank] == EOS]
        assert step.finished == [rank for rank in ends if step.log_probabilities[rank] > -np.inf]
        ended |= {(texts[rank][:-1], step.log_probabilities[rank]) for rank in step.finished}
        assert EOS not in [step.tokens[rank] for rank in step.kept]
        alive = [texts[rank] for rank in step.kept]
    return ended, {(texts[rank], step.log_probabilities[rank]) for rank in step.kept}
