"""The fused decoder: which models it decodes, and its copy of their weights.

tests/engine/test_forms.py compares its results with those of the equation.
"""

import pickle

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import each_switch, random_batch, small_config, small_model
from seam import forms_on
from threadpoolctl import threadpool_info

from minitf import decode, forms
from minitf.cpu.decoder import FusedDecoder
from minitf.cpu.decoder_steps import for_decoding
from minitf.decode import beam_search, greedy
from minitf.errors import UserError
from minitf.nn import LayerNorm, Linear, Parameter
from minitf.tensor import no_grad
from minitf.transformer import FeedForward, MultiHeadAttention, Positions, Transformer


def with_two_heads(model):
    rng = np.random.default_rng(5)
    attention = MultiHeadAttention(small_config(n_heads=2), rng)
    model.decoder.layers[1].self_attention = attention.astype("float64")


def with_wider_values(model):
    rng = np.random.default_rng(5)
    attention = MultiHeadAttention(small_config(d_v=10), rng)
    model.decoder.layers[0].source_attention = attention.astype("float64")


def with_a_pre_norm(model):
    model.decoder.layers[0].source_residual.post = False


def with_another_norm(model):
    class Halved(LayerNorm):
        def __call__(self, x):
            return super().__call__(x) * 0.5

    model.decoder.layers[0].self_residual.norm.__class__ = Halved


def with_another_linear(model):
    class Doubled(Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

    model.decoder.layers[0].self_attention.output.__class__ = Doubled


def with_another_network(model):
    class Negative(FeedForward):
        def __call__(self, x):
            return -self.outer(self.inner(x))

    model.decoder.layers[1].feed_forward.__class__ = Negative


def with_a_function_for_dropout(model):
    model.decoder.layers[0].feed_forward.dropout = lambda x: x * x


def with_positions_that_no_cache_knows(model):
    class FromTheEnd(Positions):
        can_cache = False

    model.target_positions.__class__ = FromTheEnd


def with_no_layers(model):
    model.decoder.layers = []


def with_other_logits(model):
    model.logits = lambda hidden: -Transformer.logits(model, hidden)


CHANGES = [change for name, change in sorted(globals().items()) if name.startswith("with_")]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_is_decoded_by_its_modules(change, rng):
    model, source = likely_end(small_model()), random_batch(rng, rows=4).source
    with forms_on():
        greedy(model, source, max_extra=0)  # by the fused decoder, before the change
    change(model)
    fast = for_decoding(model)
    with forms_on():
        for decoded in (model, fast):
            found = beam_search(decoded, source, 3, max_extra=6)
            assert_same(found, beam_search(model, source, 3, max_extra=6, cached=False))
            with no_grad():
                scorer = decode.token_scorer(decoded, source, 3, True)
            assert type(scorer) is decode.TokenScorer


def test_a_prepared_model_follows_a_method_that_is_replaced_later(rng, monkeypatch):
    model, source = small_model(), random_batch(rng).source
    fast, replaced = for_decoding(model), lambda self, x: -self.outer(self.inner(x))
    monkeypatch.setattr(FeedForward, "__call__", replaced)
    with forms_on():
        found = beam_search(fast, source, 3, max_extra=6)
    assert_same(found, beam_search(model, source, 3, max_extra=6, cached=False))


@pytest.mark.parametrize("way", ["subclass", "attribute"])
def test_a_module_that_only_watches_is_called(way, rng):
    """Its numbers do not tell that it is another one."""
    model, seen = small_model(), []

    class Watched(MultiHeadAttention):
        def attend(self, *arguments):
            seen.append(self)
            return super().attend(*arguments)

    attention = model.decoder.layers[0].self_attention
    if way == "subclass":
        attention.__class__ = Watched
    else:
        own = attention.attend
        attention.attend = lambda *arguments: seen.append(attention) or own(*arguments)
    with forms_on():
        decode.greedy(for_decoding(model), random_batch(rng).source, 3)
    assert len(seen) > 3


def test_kept_weights_are_those_of_the_modules(rng):
    model, source = small_model(), random_batch(rng).source
    attention = model.decoder.layers[1].source_attention
    attention.keep_weights = True
    with forms_on():
        greedy(model, source, 3)
    assert attention.weights.shape[1] == model.config.n_heads


def test_settings_of_a_class_count_as_those_of_its_objects(rng, monkeypatch):
    """Also after a model was decoded or trained without them."""
    model, batch = small_model(), random_batch(rng)
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    with forms_on():
        greedy(model, batch.source, 3)
        assert decode.how_to_decode(model) == "fused"
        monkeypatch.setattr(MultiHeadAttention, "keep_weights", True)
        greedy(model, batch.source, 3)
        assert all(hasattr(attention, "weights") for attention in attentions)
        for attention in attentions:
            del attention.weights
        model.loss(batch.source, batch.target_in, batch.target_out)
        assert all(hasattr(attention, "weights") for attention in attentions)
        monkeypatch.undo()
        assert decode.how_to_decode(model) == "fused"
        monkeypatch.setattr(MultiHeadAttention, "can_cache", False)
        assert decode.how_to_decode(model) == "uncached"


@each_switch("paper", "public models", "all")
def test_a_prepared_model_decodes_as_the_model(changes, rng):
    """Also one sentence alone, and shorter sentences beside it, which are padded."""
    model, source = likely_end(small_model(**changes)), random_batch(rng, rows=5).source
    fast = for_decoding(model)
    with forms_on(), no_grad():
        assert type(decode.token_scorer(fast, source, 2, True)) is FusedDecoder
    for rows in (source, source[1:2]):
        with forms_on():
            found = [[h] for h in greedy(fast, rows, 6)], beam_search(fast, rows, 3, max_extra=6)
        expected = greedy(model, rows, 6, cached=False)
        assert_same(found[0], [[h] for h in expected])
        assert_same(found[1], beam_search(model, rows, 3, max_extra=6, cached=False))


def test_a_sentence_has_the_same_bits_alone_and_among_others(rng):
    """No product, sum or maximum of a row depends on other rows.

    With OpenBLAS's kernels for AVX-512, that is. Those for older processors compute rows in groups,
    and sum the rows that are left over in another order.
    """
    fast, source = for_decoding(small_model("float32")), random_batch(rng, rows=6).source
    source[:, :] = np.where(source == 0, 5, source)  # of equal lengths, so that none is padded
    with forms_on():
        together = greedy(fast, source, 5)
        alone = [greedy(fast, row[None], 5)[0] for row in source]
        reversed_order = greedy(fast, source[::-1], 5)[::-1]
    kernels = {library.get("architecture") for library in threadpool_info()}
    if kernels & {"SkylakeX", "Cooperlake", "SapphireRapids"}:
        assert together == reversed_order == alone
    else:
        for found in (reversed_order, alone):
            assert_same([[h] for h in found], [[h] for h in together], rel=1e-6)


def test_a_row_of_padding_alone_is_left_to_the_modules(rng):
    model, source = small_model(), random_batch(rng, rows=3).source
    source[1] = model.config.pad_id
    with forms_on():
        found = beam_search(model, source, 2, max_extra=4)
    assert_same(found, beam_search(model, source, 2, max_extra=4, cached=False))


def test_the_weights_of_the_fused_decoder_are_one_array():
    weights = for_decoding(small_model()).decoder_weights
    affines = weights.vocabulary, *(layer.inner for layer in weights.layers)
    assert len({id(each.multiply.keywords["panels"].base) for each in affines}) == 1


def test_a_prepared_model_does_not_follow_the_weights(rng):
    """Only the tables, which are the model's own."""
    model, source = small_model(attention_bias=True, output_bias=True), random_batch(rng).source
    for parameter in model.parameters():
        parameter.data += rng.normal(size=parameter.shape) / 10
    fast = for_decoding(model)
    with forms_on():
        before = greedy(fast, source, 5)
        for parameter in (*model.decoder.parameters(), model.output_bias):
            parameter.data += rng.normal(size=parameter.shape)
        assert greedy(fast, source, 5) == before


def test_a_fused_decoder_that_fails_says_so(monkeypatch, rng, capsys):
    """Not only one that computes other logits. But an error of memory is one of the machine."""
    model, source = small_model(), random_batch(rng).source

    def failing(*_):
        raise error

    monkeypatch.setattr(FusedDecoder, "_embedded", failing)
    forms.forget()
    error = MemoryError()
    with forms_on(), pytest.raises(MemoryError):
        greedy(model, source, 3)
    error = IndexError("a bug")
    with forms_on():
        found = greedy(model, source, 3), greedy(small_model(), source, 3)
    assert found[0] == found[1]
    said = capsys.readouterr().err
    assert said.startswith("minitf: fused_decoder is computed by its equation")
    assert said.count("\n") == 1, "once for all models"
    forms.forget()


def add_an_average(model):
    """Add to each position 0 times the average of all, which a cache does not keep."""

    class Averaging(FeedForward):
        def __call__(self, x):
            return super().__call__(x) + self.gate * x.mean(axis=1, keepdims=True)

    layer = model.decoder.layers[0].feed_forward
    layer.__class__, layer.gate = Averaging, Parameter(np.zeros(1))


def test_what_was_found_out_holds_until_something_changes(monkeypatch):
    """It is not found out again for each batch. With other weights a cache may be outdated."""
    model, agrees, asked = small_model(), decode.agrees, []
    monkeypatch.setattr(decode, "agrees", lambda *given: asked.append(1) or agrees(*given))
    layer = model.decoder.layers[0]

    def change(name):
        if name == "layers":
            add_an_average(model)
        elif name == "weights":
            layer.feed_forward.gate.data += 1
        elif name == "setting":
            layer.self_residual.post = False
        elif name == "function":
            forms.forget()

    for name, expected in [
        ("nothing", "fused"),
        ("function", "fused"),
        ("layers", "cached"),
        ("weights", "uncached"),
        ("setting", "uncached"),
        ("function", "uncached"),
    ]:
        change(name)
        asked.clear()
        with forms_on():
            assert [decode.how_to_decode(model) for _ in range(3)] == [expected] * 3, name
        assert len(asked) == 1, name


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_model_that_was_broken_is_decoded_fast_when_it_is_mended():
    model = small_model()
    weight = model.target_embedding.weight
    good, weight.data = weight.data, np.full_like(weight.data, np.nan)
    with forms_on():
        assert decode.how_to_decode(model) == "uncached"
        weight.data = good
        assert decode.how_to_decode(model) == "fused"


@pytest.mark.parametrize("activation", ["relu", "swish"])
def test_a_prepared_model_can_be_sent_to_another_process(activation, rng):
    """As that of a Translator, which multiprocessing pickles."""
    fast, source = for_decoding(small_model(activation=activation)), random_batch(rng).source
    again = pickle.loads(pickle.dumps(fast))
    with forms_on():
        assert greedy(again, source, 5) == greedy(fast, source, 5)


def test_a_decoder_of_two_dtypes_is_refused():
    model = small_model("float32")
    model.decoder.layers[0].feed_forward.astype("float64")
    with pytest.raises(TypeError, match="mixes float32 and float64"):
        for_decoding(model)


@pytest.mark.filterwarnings("ignore:.*encountered in matmul")
def test_of_a_broken_model_only_its_error_is_said(capsys):
    """Not that its modules and the faster program disagree."""
    model = small_model("float32").eval()
    for parameter in model.parameters():
        parameter.data *= np.float32(1e30)
    with pytest.raises(UserError, match="its weights are broken"):
        beam_search(for_decoding(model), [[5, 6, 2]])
    assert capsys.readouterr().err == ""
