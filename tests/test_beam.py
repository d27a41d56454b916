"""Beam search against a plain program of its rule, and against the list of all texts there are."""

import itertools
import math

import numpy as np
import pytest
from models import Table, fixed_table, random_table, small_model, sources
from plain import BOS, EOS, PAD, log_softmax, penalty, plain_beam_search

from minitf.decode import beam_search, greedy


def assert_found(found, expected):
    assert [h.ids for h in found] == [ids for ids, _, _ in expected]
    assert np.allclose([h.log_probability for h in found], [total for _, total, _ in expected], rtol=1e-10)
    assert np.allclose([h.score for h in found], [score for _, _, score in expected], rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam, n_best", [(1, 1), (2, 1), (3, 3), (4, 2), (9, 9)])
def test_beam_search_follows_the_rule(alpha, beam, n_best):
    """On made-up distributions with early, late and no ends, three sentences of different limits at a time."""
    lengths_found = set()
    for seed, end in itertools.product(range(4), (-2.0, 0.0, 1.0, 3.0)):
        model = random_table(seed, 9, end)
        found = beam_search(model, sources(1, 4, 2), beam, alpha, max_extra=4, n_best=n_best, cached=False)
        for sentence, limit, hypotheses in zip((4, 5, 6), (5, 8, 6), found, strict=True):

            def ln_p(ids, model=model, sentence=sentence):
                return log_softmax(model.scores(sentence, ids))

            assert_found(hypotheses, plain_beam_search(ln_p, 9, limit, beam, alpha, n_best))
            lengths_found |= {len(h.ids) for h in hypotheses}
    assert {0, 5} <= lengths_found


def test_the_end_mark_finishes_only_among_the_best():
    """Of 2 * 1 candidates the end is the second: it is not finished, though it would have been the best in the end."""
    model = fixed_table({(): {4: 0.5, EOS: 0.4}, (4,): {EOS: 0.3, 5: 0.2}})
    (found,) = beam_search(model, sources(2), beam=1, alpha=0.0, cached=False)[0]
    assert found.ids == [4]
    assert found.log_probability == pytest.approx(math.log(0.5 * 0.3))
    (wider,) = beam_search(model, sources(2), beam=2, alpha=0.0, cached=False)[0]
    assert wider.ids == []
    assert wider.log_probability == pytest.approx(math.log(0.4))


LATE = {(): {EOS: 0.5, 4: 0.45}, (4,): {4: 0.99}, (4, 4): {4: 0.99}, (4, 4, 4): {EOS: 0.99}}


def test_the_search_goes_on_while_a_living_one_can_win():
    """One is finished at once; the penalty lets the longer one win, as long as its length can ever be reached."""
    model = fixed_table(LATE)
    (found,) = beam_search(model, sources(2), beam=1, alpha=1.0, max_extra=8, cached=False)[0]
    total = math.log(0.45 * 0.99**3)
    assert found.ids == [4, 4, 4]
    assert found.log_probability == pytest.approx(total)
    assert found.score == pytest.approx(total / (9 / 6))


@pytest.mark.parametrize("alpha, max_extra", [(0.0, 8), (1.0, 0)])
def test_the_search_stops_when_none_can_win(alpha, max_extra):
    """ln 0.45 is below ln 0.5 without a penalty, and also with that of the two words that are allowed at most."""
    model = fixed_table({**LATE, (): {EOS: 0.5, 4: 0.42}})
    (found,) = beam_search(model, sources(2), beam=1, alpha=alpha, max_extra=max_extra, cached=False)[0]
    assert found.ids == []
    assert model.steps == 1


def test_a_sentence_that_is_done_is_not_computed_any_more():
    """The first of two sentences ends at once; afterwards only the rows of the other are decoded."""
    rows = []

    def scores(sentence, ids):
        rows.append(sentence)
        drawn = np.zeros(9)
        drawn[EOS] = 20 if sentence == 4 or len(ids) == 5 else -20
        return drawn

    greedy(Table(scores, 9), sources(1, 1), cached=False)
    assert rows == [4, 5] + [5] * 5
    rows.clear()
    beam_search(Table(scores, 9), sources(1, 1), beam=2, alpha=0.0, cached=False)
    assert rows.count(4) < 2 * 4 < rows.count(5)


# The whole space --------------------------------------------------------------------------------------------


def every_text(model, source, longest):
    """List all (ids, ln P) of up to `longest` words, the end mark included, as the model scores them."""
    texts, writable = [], [w for w in range(model.config.vocabulary_size) if w not in (PAD, BOS, EOS)]
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
    """Four words can be written (six ids, but no padding and no start) and four words are allowed: 40 texts."""
    model = small_model(seed=seed, vocabulary_size=6)
    source = sources(2)
    texts = every_text(model, source, longest=4)
    assert len(texts) == 1 + 3 + 9 + 27
    ranked = sorted(((ids, t, t / penalty(len(ids) + 1, alpha)) for ids, t in texts), key=lambda text: -text[2])
    (best,) = beam_search(model, source, beam=27, alpha=alpha, max_extra=2)
    assert_found(best, ranked[:1])
    (everything,) = beam_search(model, source, beam=4 * 27, alpha=alpha, max_extra=2, n_best=40)
    assert_found(everything, ranked)
