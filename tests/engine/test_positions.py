"""Attention that looks at positions, decoded with a cache and without one; and models that
have no cache.
"""

import contextlib
import sys

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import each_switch, random_batch, small_model
from paths import EXAMPLES

from minitf import decode
from minitf import functions as F
from minitf.backend import to_device
from minitf.decode import beam_search, greedy
from minitf.nn import Module, Parameter
from minitf.transformer import DecoderLayer, FeedForward, MultiHeadAttention, Positions, Transformer

sys.path.insert(0, str(EXAMPLES))

import rotary


class Relative(MultiHeadAttention):
    """Shaw et al. 2018, eq. 5: a learned vector for each distance, up to `far`, is
    added to the key.
    """

    far = 4

    def attend(self, queries, keys, values, mask, positions):
        of_queries, of_keys = positions
        distances = (
            np.clip(of_keys[:, None, :] - of_queries[:, :, None], -self.far, self.far) + self.far
        )
        added = F.embedding(self.distances, distances)  # (B or 1, T, S, K)
        by_distance = (queries.transpose(0, 2, 1, 3) @ added.transpose(0, 1, 3, 2)).transpose(
            0, 2, 1, 3
        )
        scores = (queries @ keys.transpose(0, 1, 3, 2) + by_distance) / queries.shape[-1] ** 0.5
        return F.softmax(scores if mask is None else F.where(mask, scores, -1e9)) @ values


class Biased(MultiHeadAttention):
    """Press et al. 2022: what is far away gets a lower score.

    Written for a whole text, against the old methods.
    """

    def __call__(self, x, memory, mask=None, cache=None):
        keys, values = self.keys_and_values(memory) if cache is None else cache(self, memory)
        queries = self.query(x)
        queries = self.split_heads(queries.reshape(keys.shape[0], -1, queries.shape[-1]))
        far = abs(np.arange(queries.shape[2])[:, None] - np.arange(keys.shape[2]))
        scores = queries @ keys.transpose(0, 1, 3, 2) - to_device(3.0 * far, x.dtype)
        weights = F.softmax(scores if mask is None else F.where(mask, scores, -1e9))
        return self.output((weights @ values).transpose(0, 2, 1, 3).reshape(*x.shape[:-1], -1))


own_keys_and_values = MultiHeadAttention.keys_and_values


def turned_keys_and_values(attention, memory):
    """Rotary positions put where the keys are made, which is not told where they are."""
    keys, values = own_keys_and_values(attention, memory)
    return rotary.rotate(keys, np.arange(keys.shape[2])[None]), values


class TurnedKeys(MultiHeadAttention):
    keys_and_values = turned_keys_and_values


class TurnedHeads(MultiHeadAttention):
    def split_heads(self, x):
        heads = super().split_heads(x)
        return rotary.rotate(heads, np.arange(heads.shape[2])[None])


class TurnedOutput(MultiHeadAttention):
    def merge_heads(self, heads):
        return super().merge_heads(rotary.rotate(heads, np.arange(heads.shape[2])[None]))


def with_attention(model, kind, everywhere=False):
    """Make all self-attentions of this kind, and those to the source as well; d_k is even in
    all models here.
    """
    rng = np.random.default_rng(7)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        for name in ("self_attention", "source_attention")[: 1 + everywhere]:
            if isinstance(getattr(layer, name, None), MultiHeadAttention):
                attention = getattr(layer, name)
                attention.__class__ = kind
                attention.distances = Parameter(
                    to_device(rng.normal(0, 1, (9, 6)), attention.query.weight.dtype)
                )
    return model


def assert_decoded_alike(model, rows, cached=True):
    """By the cache and by the whole prefix; and the cache is used, or is not."""
    ways = decode.fastest_decoding(model), decode.Decoding(model, cached=False)
    for beam in (None, 1, 2, 5):
        if beam:
            found = [beam_search(way, rows, beam, 0.6, 12, beam) for way in ways]
        else:
            found = [[[best] for best in greedy(way, rows, 12)] for way in ways]
        assert_same(*found)
    assert ways[0].cached == cached


@each_switch("paper", "all")
@pytest.mark.parametrize("kind", [rotary.RotaryAttention, Relative])
def test_positions_come_with_the_cache(rng, kind, changes, everywhere=True):
    """On random weights beams end and go on as several all the time, so slots are out of order,
    and are dropped.
    """
    model = with_attention(
        likely_end(small_model(**{**changes, "max_length": 40})), kind, everywhere
    )
    assert_decoded_alike(model, random_batch(rng, rows=4).source)


@pytest.mark.parametrize("kind", [rotary.RotaryAttention, Relative])
def test_a_wrong_position_would_be_noticed(rng, kind, monkeypatch):
    """Each key one position further, or all at the same:
    then the texts of these models are others.
    """
    source, model = (
        random_batch(rng, rows=6).source,
        with_attention(likely_end(small_model()), kind),
    )
    expected = [[h.ids for h in row] for row in beam_search(model, source, 4, 0.6, 12, 4)]
    plain = kind.attend
    for wrong in (lambda of_keys: of_keys + 1, np.zeros_like, lambda of_keys: of_keys[:, ::-1]):

        def attend(self, queries, keys, values, mask, positions, wrong=wrong):
            return plain(self, queries, keys, values, mask, (positions[0], wrong(positions[1])))

        monkeypatch.setattr(kind, "attend", attend)
        assert [
            [h.ids for h in row] for row in beam_search(model, source, 4, 0.6, 12, 4)
        ] != expected


# Without a cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        Biased,
        *(pytest.param(k, marks=pytest.mark.slow) for k in (TurnedKeys, TurnedHeads)),
        TurnedOutput,
    ],
)
def test_a_method_that_the_cache_relies_on_turns_it_off(rng, kind):
    """Written before there were positions, or without a thought of a cache: slower, and right."""
    model = with_attention(likely_end(small_model()), kind)
    assert_decoded_alike(model, random_batch(rng, rows=5).source, cached=False)


class Shifted(FeedForward):
    """Half of the features come from the position before."""

    def __call__(self, x):
        half = x.shape[-1] // 2
        before = F.concatenate([x[:, :1] * 0, x[:, :-1]], axis=1) if x.shape[1] > 1 else x * 0
        return super().__call__(F.concatenate([x[..., :half], before[..., half:]]))


class Swapped(DecoderLayer):
    """Asks the source first."""

    def __call__(self, x, memory, target_mask, source_mask, cache=(None, None)):
        x = self.source_residual(x, lambda x: self.source_attention(x, memory, source_mask))
        x = self.self_residual(x, lambda x: self.self_attention(x, x, target_mask))
        return self.feed_forward_residual(x, self.feed_forward)


class FromTheStart(Positions):
    def __call__(self, x, start=0):
        return super().__call__(x)


class Mean(Module):
    """Averages what may be attended to, instead of attention."""

    def __call__(self, x, memory, mask=None, cache=None):
        weights = (
            np.ones((x.shape[1], memory.shape[1])) if mask is None else mask[:, 0].astype(float)
        )
        return to_device(weights / weights.sum(-1, keepdims=True), x.dtype) @ memory


class Old(Transformer):
    """With the decode of a model that has no cache."""

    def decode(self, target, memory, source_mask):
        return super().decode(target, memory, source_mask) * -0.5


def shift(model, monkeypatch):
    model.decoder.layers[0].feed_forward.__class__ = Shifted


def say_so(model, monkeypatch):
    """The model itself has a wrong cache, and says that it has none."""
    monkeypatch.setattr(
        decode.Cache, "__call__", lambda *arguments: pytest.fail("the cache was used")
    )
    model.can_cache = False


def swap(model, monkeypatch):
    model.decoder.layers[1].__class__ = Swapped


def start_again(model, monkeypatch):
    model.target_positions.__class__ = FromTheStart


def average(model, monkeypatch):
    model.decoder.layers[0].self_attention = Mean()


def decode_as_before(model, monkeypatch):
    model.__class__ = Old


def replace_in_one_object(model, monkeypatch):
    attention = model.decoder.layers[1].self_attention
    attention.keys_and_values = lambda memory: turned_keys_and_values(attention, memory)


def replace_in_the_class(model, monkeypatch):
    monkeypatch.setattr(MultiHeadAttention, "keys_and_values", turned_keys_and_values)


WITHOUT = [
    shift,
    say_so,
    swap,
    start_again,
    average,
    decode_as_before,
    replace_in_one_object,
    replace_in_the_class,
]


QUICK = shift, say_so, replace_in_one_object


@pytest.mark.parametrize(
    "change",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in WITHOUT],
    ids=lambda change: change.__name__,
)
def test_a_model_without_a_cache_is_decoded_without_one(rng, change, monkeypatch):
    model, source = likely_end(small_model()), random_batch(rng, rows=5).source
    change(model, monkeypatch)
    assert_decoded_alike(model, source, cached=False)
    expected = greedy(model, source, 12)
    monkeypatch.setattr(decode, "has_logits_of_modules", lambda *_: True)
    for module in model.modules():
        module.can_cache = True
    # With the cache it is wrong, or ends in an error.
    with contextlib.suppress(Exception, pytest.fail.Exception):
        assert [h.ids for h in greedy(model, source, 12)] != [h.ids for h in expected]
