"""`allowed` of greedy decoding and beam search: only that is written, and the best of it."""

import itertools

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import each_switch, random_batch, small_model
from plain import BOS, EOS, PAD, log_softmax, penalty
from sizes import V

from minitf import forms
from minitf.backend import using
from minitf.decode import beam_search, greedy

switches = each_switch("paper", "all")


class Alternating:
    """Odd and even ids take turns; the sentence's number says with which it begins.

    A text ends after an odd number of tokens, of every other sentence after `longer` more. All
    calls are kept.
    """

    def __init__(self, longer=0):
        self.longer, self.calls = longer, []

    def __call__(self, texts, rows, left):
        self.calls.append((texts.copy(), rows.copy(), left.copy()))
        place = texts.shape[1] - 1
        allowed = np.arange(V) % 2 == (rows[:, None] + place) % 2
        allowed[:, EOS] = (place % 2 == 1) & (place > self.longer * (rows % 2))
        return allowed

    @staticmethod
    def accepts(ids, row):
        return len(ids) % 2 == 1 and all(id % 2 == (row + i) % 2 for i, id in enumerate(ids))


def ln_p(model, row, ids):
    """Return ln P of a text with its end mark, from one reading of the model."""
    steps = log_softmax(model(row, [[BOS, *ids]]).numpy()[0])
    return sum(steps[i, id] for i, id in enumerate([*ids, EOS]))


class Nothing:
    """Allows nothing. Its length is 0, as that of a container that is false may be."""

    def __len__(self):
        return 0

    def __call__(self, texts, rows, left):
        return np.zeros((len(texts), V), bool)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_where_nothing_is_allowed_the_search_says_so(rng, search):
    with pytest.raises(ValueError, match="no token is allowed"):
        search(small_model(), random_batch(rng, rows=2).source, max_extra=5, allowed=Nothing())


@switches
def test_everything_allowed_changes_nothing(rng, changes):
    model = likely_end(small_model(**changes))
    source = random_batch(rng, rows=5).source
    everything = lambda texts, rows, left: np.ones((len(texts), V), bool)  # noqa: E731
    found = [[h] for h in greedy(model, source, 5, allowed=everything)]
    assert_same(found, [[h] for h in greedy(model, source, 5)])
    found = beam_search(model, source, 4, 0.6, 5, 3, allowed=everything)
    assert_same(found, beam_search(model, source, 4, 0.6, 5, 3))


@switches
def test_greedy_takes_the_best_allowed_word(rng, changes):
    model = likely_end(small_model(**changes))
    source = random_batch(rng, rows=4).source
    for row, found in enumerate(greedy(model, source, 5, allowed=Alternating())):
        sentence = source[row][source[row] != PAD][None]
        ids, total = [], 0.0
        while len(ids) < sentence.size - 1 + 5:
            steps = log_softmax(model(sentence, [[BOS, *ids]]).numpy()[0, -1])
            steps[[PAD, BOS]] = -np.inf
            steps[~Alternating()(np.array([[BOS, *ids]]), np.array([row]), np.ones(1))[0]] = -np.inf
            total += steps.max()
            if steps.argmax() == EOS:
                break
            ids.append(int(steps.argmax()))
        assert found.ids == ids
        assert found.log_probability == pytest.approx(total), "not normalised over the allowed"


def test_a_wide_beam_finds_the_best_of_all_allowed_texts(rng):
    model = likely_end(small_model(), by=3.0)
    source = random_batch(rng, rows=3).source
    source[:, 2:] = PAD
    source[:, 1] = EOS  # one word: a text has at most 1 + 2 tokens, the end mark included
    found = beam_search(model, source, beam=V * V, alpha=0.6, max_extra=2, allowed=Alternating())
    for row, (best,) in enumerate(found):
        texts = [
            list(ids)
            for length in (1, 2)
            for ids in itertools.product(range(V), repeat=length)
            if Alternating.accepts(ids, row) and not {PAD, BOS, EOS} & set(ids)
        ]
        scores = {
            tuple(ids): ln_p(model, source[row, :2][None], ids) / penalty(len(ids) + 1, 0.6)
            for ids in texts
        }
        assert tuple(best.ids) == max(scores, key=scores.get)
        assert best.score == pytest.approx(max(scores.values()))


@pytest.mark.parametrize("search", ["greedy", "beam"])
@switches
def test_only_allowed_texts_are_written_in_batches_and_with_forms(rng, changes, search):
    model = likely_end(small_model(**changes), by=3.0)
    source = random_batch(rng, rows=12).source

    def run(model, source, allowed):
        if search == "greedy":
            return [[h] for h in greedy(model, source, 6, allowed=allowed)]
        return beam_search(model, source, 4, 0.6, 6, 2, allowed=allowed)

    limits = (~np.isin(source, (PAD, EOS))).sum(axis=1) + 6
    for accelerated in (False, True):
        kept = Alternating(longer=2)
        with forms.on() if accelerated else forms.off():
            found = run(model, source, kept)
        for row, hypotheses in enumerate(found):
            for hypothesis in hypotheses:
                finished = len(hypothesis.ids) < limits[row]
                assert Alternating.accepts(hypothesis.ids, row) or not finished
        assert any(len(set(rows)) < len(source) for _, rows, _ in kept.calls), "some end earlier"
        for texts, rows, left in kept.calls:
            assert (left == limits[rows] - (texts.shape[1] - 1)).all()
            assert (left >= 1).all()
        expected = run(model, source, Alternating(longer=2))
        assert_same(found, expected, rel=1e-4)


def test_on_every_backend(rng, library):
    source = random_batch(rng, rows=4).source

    def run():
        model = likely_end(small_model("float32"))
        texts = greedy(model, source, 5, allowed=Alternating())
        return [[h] for h in texts], beam_search(model, source, 3, 0.6, 5, allowed=Alternating())

    found = run()
    with using("numpy"):
        expected = run()
    for texts, expected_texts in zip(found, expected, strict=True):
        assert_same(texts, expected_texts, rel=1e-4)
