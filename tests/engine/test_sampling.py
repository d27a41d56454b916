"""Drawn texts: the probabilities of the draws, what can be drawn, seeds, and language models."""

import math

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import Table, random_batch, random_table, small_model, sources
from plain import BOS, EOS, PAD, log_softmax, penalty
from tiny_translator import TEXT, make_model, make_subwords

from minitf.beyond.sampling import generate, sample
from minitf.cpu import processes
from minitf.decode import Decoding, greedy
from minitf.errors import UserError
from minitf.translation import Translator

SCORES = np.array([0.3, -1.0, 2.0, 0.5, 1.4, 1.4, -0.7, 0.0, 0.9])


def draws(rows, scores=SCORES, **settings):
    """Draw one word after each of so many equal prompts."""
    found = generate(
        lambda ids: np.tile(scores, (len(ids), 1)), np.zeros((rows, 1), int), 1, **settings
    )
    return [hypothesis.ids[0] for hypothesis in found]


def probabilities(scores, temperature=1.0, top_k=0, top_p=1.0):
    """Sort the words, and add them up one by one."""
    weights = np.exp(scores / temperature) / np.exp(scores / temperature).sum()
    order = sorted(range(len(scores)), key=lambda word: (-weights[word], word))[
        : top_k or len(scores)
    ]
    total, kept, reached = sum(weights[word] for word in order), [], 0.0
    for word in order:
        if reached < top_p * total - 1e-12:
            kept.append(word)
        reached += weights[word]
    chosen = np.zeros(len(scores))
    chosen[kept] = weights[kept] / weights[kept].sum()
    return chosen


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_k": 4},
    {"top_p": 0.6},
    {"top_p": 0.9, "temperature": 2.0},
    {"top_k": 5, "top_p": 0.5, "temperature": 1.5},
    {"top_k": 100},
]


@pytest.mark.parametrize("n", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_words_are_drawn_with_their_probabilities(settings, n):
    """Chi-square of n draws: for 8 degrees of freedom it is below 26.1 in 999 of 1,000 cases."""
    expected = n * probabilities(SCORES, **settings)
    counts = np.bincount(draws(n, seed=11, **settings), minlength=len(SCORES))
    possible = expected > 0
    assert not counts[~possible].any()
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square < 26.1
    assert 1 < possible.sum() <= len(SCORES)


@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {"temperature": 1e-6}, {"top_k": 1}, {"top_p": 1e-9}], ids=str
)
def test_without_a_choice_it_is_greedy(rng, settings):
    model, source = likely_end(small_model()), random_batch(rng, rows=6).source
    for cached in (True, False):
        decoding = Decoding(model, cached)
        found = sample(decoding, source, **settings, max_extra=5, alpha=0.6)
        assert found == greedy(decoding, source, 5, alpha=0.6)


def test_draws_are_those_of_the_next_word_at_each_step():
    """A text of a made-up model comes up as often as the product of its probabilities says,
    ended or cut off.
    """
    model, counts, n = random_table(5, 6, 1.0), {}, 4000
    for hypothesis in sample(
        Decoding(model, cached=False), np.tile(sources(1), (n, 1)), max_extra=1, seed=3
    ):
        counts[tuple(hypothesis.ids)] = counts.get(tuple(hypothesis.ids), 0) + 1

    def p(ids):  # the model never writes padding and start marks, and the rest share what they had
        scores = model.scores(4, ids).copy()
        scores[[PAD, BOS]] = -np.inf
        return np.exp(log_softmax(scores))

    writable = [word for word in range(6) if word not in (PAD, BOS, EOS)]
    expected = {(): p(())[EOS]}
    for a in writable:
        expected[(a,)] = p(())[a] * p((a,))[EOS]
        expected |= {(a, b): p(())[a] * p((a,))[b] for b in writable}
    assert sum(expected.values()) == pytest.approx(1)
    chi_square = sum(
        (counts.get(ids, 0) - n * share) ** 2 / (n * share) for ids, share in expected.items()
    )
    assert set(counts) <= set(expected) and chi_square < 32.9  # 12 degrees of freedom, 999 of 1,000


def test_ln_p_is_the_models(rng):
    """Whatever the temperature: of what was written the model says so."""
    model, source = likely_end(small_model()), random_batch(rng, rows=5).source
    for row, best in zip(
        source, sample(model, source, 2.0, top_k=6, max_extra=60, alpha=0.6), strict=True
    ):
        ln_p = log_softmax(model(row[row != PAD][None], [[BOS, *best.ids]]).numpy()[0])
        assert best.log_probability == pytest.approx(
            ln_p[range(len(best.ids) + 1), [*best.ids, EOS]].sum()
        )
        assert best.score == pytest.approx(best.log_probability / penalty(len(best.ids) + 1, 0.6))


# Seeds --------------------------------------------------------------------------------------------


def test_a_draw_depends_on_seed_row_and_step_alone(rng):
    model, source = likely_end(small_model()), random_batch(rng, rows=6).source
    together = sample(model, source, seed=5, max_extra=9)
    assert together == sample(model, source, seed=5, max_extra=9)
    alone = [
        sample(model, row[row != PAD][None], seed=5, max_extra=9, rows=[i])[0]
        for i, row in enumerate(source)
    ]
    assert_same([[h] for h in together], [[h] for h in alone])
    reverse = sample(model, source[::-1], seed=5, max_extra=9, rows=range(5, -1, -1))
    assert_same([[h] for h in together[::-1]], [[h] for h in reverse])
    assert_same(
        [[h] for h in together],
        [[h] for h in sample(Decoding(model, cached=False), source, seed=5, max_extra=9)],
    )
    assert [h.ids for h in sample(model, source, seed=6, max_extra=9)] != [h.ids for h in together]
    same = sample(model, np.tile(source[:1], (8, 1)), seed=5)
    assert len({tuple(h.ids) for h in same}) > 4, "rows are drawn independently"
    assert len({word for h in same for word in h.ids}) > 3, "and so are steps"


@pytest.fixture(scope="module")
def translator():
    subwords = make_subwords()
    return Translator(make_model(subwords), subwords, max_subwords=20)


@pytest.mark.slow
def test_lines_are_drawn_alike_in_any_batch_and_on_any_number_of_cores(translator, monkeypatch):
    lines = [
        *(f"{line} {n}" for n in range(5) for line in TEXT),
        "",
        " ".join(TEXT),
        "the dog",
        "the dog",
    ]
    settings, results = {"temperature": 0.9, "top_k": 50, "seed": 4, "max_extra": 5}, []
    for count, batch_tokens in ((1, 3000), (3, 3000), (1, 50), (1, 1)):
        monkeypatch.setattr(processes, "cores", lambda count=count: count)
        found = translator.sample(lines, batch_tokens=batch_tokens, **settings)
        results.append([best.text for (best,) in found])
    assert results[0] == results[1] == results[2] == results[3]
    assert results[0][-1] != results[0][-2] and results[0][-4] == ""
    parts = [
        translator.sample(lines[i : i + 7], first=i, **settings) for i in range(0, len(lines), 7)
    ]
    assert [best.text for part in parts for (best,) in part] == results[0]
    assert [
        best.text for (best,) in translator.sample(lines, **{**settings, "seed": 5})
    ] != results[0]
    with pytest.raises(TypeError, match="list of lines"):
        translator.sample("one line")


# What is given ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"temperature": -0.1}, "temperature must be a number of at least 0, not -0.1"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperature": math.inf}, "temperature must be"),
        ({"top_k": -1}, "top_k must be at least 1, or 0 for all tokens, not -1"),
        ({"top_p": 0.0}, "top_p must be more than 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "top_p must be"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        sample(small_model(), sources(2), **settings)
    with pytest.raises(ValueError, match=message):
        draws(2, **settings)


def test_no_sentences_and_wrong_shapes():
    assert sample(small_model(), np.zeros((0, 4), int)) == []
    assert generate(lambda ids: pytest.fail("nothing to score"), np.zeros((0, 4), int), 3) == []
    with pytest.raises(ValueError, match=r"source must be ids \(B, S\)"):
        sample(small_model(), [5, 6, 3])
    with pytest.raises(ValueError, match=r"prompts are ids of the shape \(R, t\)"):
        generate(lambda ids: SCORES, [5, 6, 3], 3)
    with pytest.raises(ValueError, match="rows has 2 keys, but source has 1 rows: give one key"):
        sample(small_model(), sources(3), rows=[4, 5])
    with pytest.raises(
        ValueError, match=r"next_logits must return logits \(R, V\) for ids \(1, 2\), not \(1, 2,"
    ):
        generate(lambda ids: np.zeros((*ids.shape, 9)), [[5, 6]], 1)
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        generate(lambda ids: SCORES, [[5]], 0)


# Language models ----------------------------------------------------------------------------------


def test_generate_goes_on_after_the_prompt():
    """Each text is read up to its end; the end mark ends it, or the length does."""
    seen = []

    def count(ids):  # after n comes n + 1
        seen.append(ids.tolist())
        return np.where(np.arange(9) == ids[:, -1:] + 1, 50.0, 0.0)

    found = generate(count, [[1, 2], [4, 4]], length=4, end_id=7)
    assert [h.ids for h in found] == [[3, 4, 5, 6], [5, 6]]
    assert seen == [
        [[1, 2], [4, 4]],
        [[1, 2, 3], [4, 4, 5]],
        [[1, 2, 3, 4], [4, 4, 5, 6]],
        [[1, 2, 3, 4, 5]],
    ]
    assert [h.ids for h in generate(count, [[1, 2]], length=2)] == [[3, 4]]


def test_generate_is_sample_for_a_translator(rng):
    """The same draws from a Table, which knows the sentence by its number: the start mark
    is the prompt.
    """

    def scores(sentence, ids):
        return np.random.default_rng([1, *ids]).normal(size=9)

    def next_logits(ids):
        logits = np.array([scores(4, tuple(row[1:])) for row in ids])
        logits[:, [PAD, BOS]] = -np.inf
        return logits

    expected = sample(
        Decoding(Table(scores, 9), cached=False),
        sources(2, 2, 2),
        0.8,
        top_k=4,
        seed=8,
        max_extra=4,
    )
    found = generate(next_logits, np.full((3, 1), BOS), 6, 0.8, top_k=4, seed=8, end_id=EOS)
    assert [h.ids for h in found] == [h.ids for h in expected]


def test_a_language_model_that_computes_nan_is_named():
    with pytest.raises(UserError, match="NaN"):
        generate(lambda ids: np.full((len(ids), 5), np.nan), [[1, 2]], 3)
