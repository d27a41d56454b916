"""Greedy decoding and beam search with real models: the cache against none, batches,
limits, backends.
"""

import inspect
import math

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import SWITCHES, Table, each_switch, random_batch, small_model, sources
from plain import BOS, EOS, PAD, log_softmax, penalty

from minitf import decode, forms
from minitf.backend import using
from minitf.decode import Decoding, beam_search, greedy, length_penalty
from minitf.errors import UserError
from minitf.tensor import is_recording

MORE = {"one layer": {"n_layers": 1}, "three layers": {"n_layers": 3}}
MORE["d_k 2, d_v 9"] = {"d_k": 2, "d_v": 9}
switches = each_switch("paper", "learned positions", "ssru", "all", "d_k 2, d_v 9", **MORE)


# Real models --------------------------------------------------------------------------------------


@switches
def test_the_cache_changes_nothing(rng, changes):
    model = likely_end(small_model(seed=12, **changes))
    source = random_batch(rng, rows=6).source
    ways = [Decoding(model, cached) for cached in (False, True)]
    plain, cached = ([[h] for h in greedy(way, source, 5)] for way in ways)
    assert_same(cached, plain)
    assert len({len(h.ids) for (h,) in plain}) > 1, "rows end at different steps"
    for beam, n_best in ((2, 1), (4, 3), (5, 5)):
        plain, cached = (beam_search(way, source, beam, 0.6, 5, n_best) for way in ways)
        assert_same(cached, plain)
        assert all(len(hypotheses) == n_best for hypotheses in plain)


@switches
def test_batching_changes_nothing(rng, changes):
    model = likely_end(small_model(**changes))
    source = random_batch(rng, rows=6).source
    alone = [row[row != PAD][None] for row in source]
    assert_same([[h] for h in greedy(model, source, 5)], [greedy(model, row, 5) for row in alone])
    together = beam_search(model, source, 4, 0.6, 5, n_best=2)
    assert_same(together, [beam_search(model, row, 4, 0.6, 5, n_best=2)[0] for row in alone])


@switches
def test_greedy_takes_the_best_word_each_time(rng, changes):
    model = likely_end(small_model(**changes))
    for row in random_batch(rng, rows=4).source:
        row = row[row != PAD][None]
        ids, total = [], 0.0
        while len(ids) < row.size - 1 + 5:
            ln_p = log_softmax(model(row, [[BOS, *ids]]).numpy()[0, -1])
            ln_p[[PAD, BOS]] = -np.inf
            total += ln_p.max()
            if ln_p.argmax() == EOS:
                break
            ids.append(int(ln_p.argmax()))
        (found,) = greedy(model, row, max_extra=5)
        assert found.ids == ids
        assert found.log_probability == pytest.approx(total)


@switches
def test_a_beam_of_one_is_greedy(rng, changes):
    """With the plain ln P; with a length penalty it may go on after the greedy text, and
    find a better one.
    """
    model = likely_end(small_model(**changes))
    source = random_batch(rng, rows=8).source
    expected = greedy(model, source, 5)
    for found, best in zip(beam_search(model, source, 1, 0.0, 5), expected, strict=True):
        assert found[0].ids == best.ids
        assert found[0].score == found[0].log_probability == pytest.approx(best.log_probability)
    limits = (source > EOS).sum(axis=1) + 5
    for found, best, limit in zip(
        beam_search(model, source, 1, 0.6, 5), expected, limits, strict=True
    ):
        length = min(len(best.ids) + 1, limit)  # with the end mark, unless the text was cut off
        assert found[0].score >= best.log_probability / penalty(length, 0.6) - 1e-9


def test_hypotheses_hold_what_the_model_says_of_them(rng):
    """Their ln P is that of the model reading them; the score is ln P by the penalty of
    ids and end mark.
    """
    model = likely_end(small_model())
    source = random_batch(rng, rows=5).source
    found = beam_search(model, source, beam=5, alpha=0.6, max_extra=50, n_best=5)
    for row, hypotheses in zip(source, found, strict=True):
        assert len({tuple(h.ids) for h in hypotheses}) == 5, "all different"
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert not {PAD, BOS, EOS} & set(h.ids)
            ln_p = log_softmax(model(row[row != PAD][None], [[BOS, *h.ids]]).numpy()[0])
            assert h.log_probability == pytest.approx(
                ln_p[range(len(h.ids) + 1), [*h.ids, EOS]].sum()
            )
            assert h.score == pytest.approx(h.log_probability / penalty(len(h.ids) + 1, 0.6))


# Limits -------------------------------------------------------------------------------------------


def never_ends(sentence, ids):
    scores = np.random.default_rng([sentence, *ids]).normal(size=9)
    scores[EOS] = -1000
    return scores


@pytest.mark.parametrize("max_extra", [0, 1, 6])
def test_at_most_max_extra_words_more_than_the_source(max_extra):
    lengths = (1, 5, 3)
    expected = [n + max_extra for n in lengths]
    assert [
        len(h.ids)
        for h in greedy(Decoding(Table(never_ends, 9), cached=False), sources(*lengths), max_extra)
    ] == expected
    found = beam_search(
        Decoding(Table(never_ends, 9), cached=False), sources(*lengths), 3, 0.6, max_extra, n_best=3
    )
    assert [[len(h.ids) for h in hypotheses] for hypotheses in found] == [[n] * 3 for n in expected]


def test_learned_positions_limit_the_text(rng):
    model = likely_end(small_model(positions="learned", max_length=7), by=-50)
    source = random_batch(rng, rows=3).source
    assert [len(h.ids) for h in greedy(model, source, max_extra=50)] == [7, 7, 7]
    assert [len(best[0].ids) for best in beam_search(model, source, 2, max_extra=50)] == [7, 7, 7]


def test_length_penalty_by_hand():
    assert length_penalty(1) == 1
    assert length_penalty(7, alpha=1.0) == 2
    assert length_penalty(7, alpha=0.5) == pytest.approx(math.sqrt(2))
    assert length_penalty(19) == pytest.approx(4**0.6)
    assert length_penalty(50, alpha=0.0) == 1


def test_impossible_n_best():
    for n_best in (0, 5):
        with pytest.raises(ValueError, match="n_best must be from 1 to the beam width 4"):
            beam_search(small_model(), sources(2), beam=4, n_best=n_best)


def test_the_defaults_are_those_of_the_paper():
    """Section 6.1: a beam of 4, alpha 0.6, and 50 words more than the source has at the most."""

    def ends_late(sentence, ids):
        return np.where(
            np.arange(9) == EOS, 0.5 * len(ids) - 30, np.sin(np.arange(9) * (len(ids) + 1))
        )

    (best,) = beam_search(Decoding(Table(ends_late, 9), cached=False), sources(3))
    late = Decoding(Table(ends_late, 9), cached=False)
    assert best == beam_search(late, sources(3), 4, 0.6, 50, 1)[0]
    assert best[0].score == pytest.approx(best[0].log_probability / penalty(3 + 50, 0.6))
    assert len(best[0].ids) == len(greedy(late, sources(3))[0].ids) == 3 + 50
    assert inspect.signature(beam_search).parameters["beam"].default == 4


def test_nothing_is_recorded():
    """Else the memory of all steps would be kept until the end."""
    recorded = []

    def scores(sentence, ids):
        recorded.append(is_recording())
        return np.zeros(9)

    greedy(Decoding(Table(scores, 9), cached=False), sources(2), max_extra=1)
    beam_search(Decoding(Table(scores, 9), cached=False), sources(2), max_extra=1)
    assert recorded and not any(recorded) and is_recording()


def test_dropout_is_off(rng):
    model = small_model(dropout=0.5, attention_dropout=0.5, feed_forward_dropout=0.5)
    source = random_batch(rng).source
    expected = greedy(model.eval(), source, 5)
    assert greedy(model.train(), source, 5) == expected
    model.train()
    assert beam_search(model, source, 3, max_extra=5) == beam_search(
        model.eval(), source, 3, max_extra=5
    )


def test_decoding_leaves_the_model_as_it_was(rng):
    """Who looks at a translation now and then, and trains on, trains with dropout; also
    after an error.
    """
    model, source = small_model(dropout=0.5).train(), random_batch(rng).source
    model.encoder.eval()
    before = [module.training for module in model.modules()]
    greedy(model, source, 5)
    beam_search(model, source, 2, max_extra=5)
    with pytest.raises(IndexError):
        greedy(model, source + 1000, 5)
    assert [module.training for module in model.modules()] == before and set(before) == {
        True,
        False,
    }


# The cache ----------------------------------------------------------------------------------------


def test_nothing_is_projected_twice(rng):
    """Keys and values of the source once, those of the text one word at a time."""
    model = small_model(n_layers=1)
    decoding = decode.fastest_decoding(model)
    layer, seen = model.decoder.layers[0], {"self": [], "source": []}
    for name in seen:
        attention = getattr(layer, f"{name}_attention")
        plain = attention.keys_and_values

        def watch(x, name=name, plain=plain):
            seen[name].append(x.shape[:2])
            return plain(x)

        attention.keys_and_values = watch
    source = random_batch(rng, rows=3).source
    likely_end(model, by=-50)
    beam_search(decoding, source, beam=4, max_extra=1)
    assert seen["source"] == [(3, source.shape[1])]
    # Of each sentence the start mark, and then the newest word of each of its 4 texts.
    assert seen["self"][:2] == [(3, 1), (12, 1)]
    assert {words for _, words in seen["self"]} == {1}
    assert len(seen["self"]) == source.shape[1] - 1 + 1


def test_a_model_of_few_positions_has_a_cache():
    assert decode.fastest_decoding(small_model(positions="learned", max_length=3)).cached


@pytest.mark.parametrize("changes", [SWITCHES["paper"], SWITCHES["all"]], ids=["paper", "all"])
def test_decoding_on_every_backend(rng, library, changes):
    source = random_batch(rng, rows=5).source

    def run():
        model = likely_end(small_model("float32", **changes))
        return greedy(model, source, 5), beam_search(model, source, 4, 0.6, 5, n_best=2)

    texts, beams = run()
    with using("numpy"):
        expected_texts, expected_beams = run()
    assert_same([[h] for h in texts], [[h] for h in expected_texts], rel=1e-4)
    assert_same(beams, expected_beams, rel=1e-4)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_a_model_that_computes_nan_is_refused(rng, search, library):
    """Among NaN the first id would be the most probable, and the beam would keep no text."""
    model = small_model("float32")
    model.encoder.layers[0].feed_forward.inner.bias.data[0] = np.nan
    for program in (forms.on, forms.off):
        with pytest.raises(UserError, match="the model outputs NaN"), program():
            search(model, random_batch(rng).source, max_extra=3)
