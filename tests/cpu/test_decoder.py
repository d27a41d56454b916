"""The fused decoder: which models it decodes, its copy of their weights, and its cache.

tests/engine/test_forms.py compares its results with those of the equation.
"""

import pickle

import numpy as np
import pytest
from decoding import assert_same, likely_end
from models import each_switch, random_batch, small_config, small_model

from minitf import decode, forms
from minitf import functions as F
from minitf.backend import to_numpy, xp
from minitf.common.decoder import FusedDecoder, FusedDecoding, Layout
from minitf.cpu import packed
from minitf.cpu.packed import in_panels, product
from minitf.cpu.threads import libraries
from minitf.decode import Decoding, beam_search, greedy
from minitf.errors import UserError
from minitf.nn import LayerNorm, Linear
from minitf.transformer import MultiHeadAttention, Positions, Transformer


def decoding_of(model):
    """Return what a program with forms decodes a model by."""
    with forms.on():
        return decode.fastest_decoding(model)


def is_fused(model):
    return type(decoding_of(model)) is FusedDecoding


# Which models it decodes --------------------------------------------------------------------------


def with_two_heads(model, _):
    attention = MultiHeadAttention(small_config(n_heads=2), np.random.default_rng(5))
    model.decoder.layers[1].self_attention = attention.astype("float64")


def with_wider_values(model, _):
    attention = MultiHeadAttention(small_config(d_v=10), np.random.default_rng(5))
    model.decoder.layers[0].source_attention = attention.astype("float64")


def with_a_pre_norm(model, _):
    model.decoder.layers[0].source_residual.post = False


def with_another_norm(model, _):
    class Halved(LayerNorm):
        def __call__(self, x):
            return super().__call__(x) * 0.5

    model.decoder.layers[0].self_residual.norm.__class__ = Halved


def with_another_linear(model, _):
    class Doubled(Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

    model.decoder.layers[0].self_attention.output.__class__ = Doubled


def with_a_patched_linear(_, monkeypatch):
    own = Linear.__call__
    monkeypatch.setattr(Linear, "__call__", lambda self, x: own(self, x) * 1.5)


def with_a_replaced_function(_, monkeypatch):
    own = F.layer_norm
    monkeypatch.setattr(F, "layer_norm", lambda *arguments: own(*arguments) * 2)


def with_a_function_for_dropout(model, _):
    model.decoder.layers[0].feed_forward.dropout = lambda x: x * x


def with_functions_for_layers(model, _):
    model.decoder.layers[0].feed_forward = lambda x: x * x
    model.decoder.layers[1].self_residual.norm = lambda x: x * 2


def with_a_layer_of_another_kind(model, _):
    model.decoder.layers[0].feed_forward = model.decoder.layers[0].self_residual.norm


def with_positions_that_no_cache_knows(model, _):
    class FromTheEnd(Positions):
        can_cache = False

    model.target_positions.__class__ = FromTheEnd


def with_no_layers(model, _):
    model.decoder.layers = []


def with_other_logits(model, _):
    model.logits = lambda hidden: -Transformer.logits(model, hidden)


def with_kept_weights(model, _):
    model.decoder.layers[1].source_attention.keep_weights = True


CHANGES = [change for name, change in sorted(globals().items()) if name.startswith("with_")]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_is_decoded_by_its_modules(change, rng, monkeypatch):
    model, source = likely_end(small_model()), random_batch(rng, rows=4).source
    assert is_fused(model)
    change(model, monkeypatch)
    assert not is_fused(model)
    expected = beam_search(Decoding(model, cached=False), source, 3, max_extra=6)
    assert_same(beam_search(decoding_of(model), source, 3, max_extra=6), expected)


@each_switch("paper", "public models", "ssru", "all")
def test_it_decodes_as_the_modules(changes, rng):
    """Also one sentence alone, and shorter sentences beside it, which are padded."""
    model, source = likely_end(small_model(**changes)), random_batch(rng, rows=5).source
    assert is_fused(model)
    fused = decoding_of(model)
    for rows in (source, source[1:2]):
        found = greedy(fused, rows, 6)
        expected = greedy(Decoding(model, cached=False), rows, 6)
        assert_same([[h] for h in found], [[h] for h in expected])
        found = beam_search(fused, rows, 3, max_extra=6)
        assert_same(found, beam_search(Decoding(model, cached=False), rows, 3, max_extra=6))


LIBRARIES = "numpy", "strict", pytest.param("kernels", marks=pytest.mark.slow)


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_it_takes_what_can_be_cached(library, rng):
    """The stand-in without kernels has no forms, and kernels take values as wide as keys."""
    model = small_model("float32")
    assert is_fused(model) == (library == "numpy")
    model.can_cache = False
    assert not decoding_of(model).cached


def test_a_row_of_padding_alone_is_left_to_the_modules(rng):
    model, source = small_model(), random_batch(rng, rows=3).source
    source[1] = model.config.pad_id
    found = beam_search(decoding_of(model), source, 2, max_extra=4)
    assert_same(found, beam_search(Decoding(model, cached=False), source, 2, max_extra=4))


def test_one_that_fails_says_so(monkeypatch, rng, capsys):
    """Not only one that computes other logits. But an error of memory is one of the machine."""
    model, source = small_model(), random_batch(rng).source

    def failing(*_):
        raise error

    monkeypatch.setattr(FusedDecoder, "__call__", failing)
    forms.say_once.cache_clear()
    error = MemoryError()
    with forms.on(), pytest.raises(MemoryError):
        greedy(model, source, 3)
    error = IndexError("a bug")
    with forms.on():
        found = greedy(model, source, 3), greedy(small_model(), source, 3)
    assert found[0] == found[1]
    said = capsys.readouterr().err
    assert said.startswith("minitf: fast_decoding computes other numbers: the layers decode")
    assert said.count("\n") == 1, "once for all models"


@pytest.mark.filterwarnings("ignore:.*encountered in matmul")
def test_of_a_broken_model_only_its_error_is_said(capsys):
    """Not that its modules and the faster program disagree."""
    model = small_model("float32").eval()
    for parameter in model.parameters():
        parameter.data *= np.float32(1e30)
    with pytest.raises(UserError, match="its weights are broken"), forms.on():
        beam_search(model, [[5, 6, 2]])
    assert capsys.readouterr().err == ""


# Its weights --------------------------------------------------------------------------------------


def test_its_weights_are_one_array_which_does_not_follow_the_model(rng):
    """Only the tables are the model's own."""
    model, source = small_model(attention_bias=True, output_bias=True), random_batch(rng).source
    for parameter in model.parameters():
        parameter.data += rng.normal(size=parameter.shape) / 10
    fused = decoding_of(model)
    affines = fused.vocabulary, *(layer.inner for layer in fused.layers)
    assert len({id(each.multiply.keywords["panels"].base) for each in affines}) == 1
    before = greedy(fused, source, 5)
    for parameter in (*model.decoder.parameters(), model.output_bias):
        parameter.data += rng.normal(size=parameter.shape)
    assert greedy(fused, source, 5) == before


@pytest.mark.parametrize("activation", ["relu", "swish"])
def test_it_can_be_sent_to_another_process(activation, rng):
    """As that of a Translator, which multiprocessing pickles."""
    model, source = small_model(activation=activation), random_batch(rng).source
    fused = decoding_of(model)
    again = pickle.loads(pickle.dumps(fused))
    assert greedy(again, source, 5) == greedy(fused, source, 5)


def test_a_decoder_of_two_dtypes_is_refused():
    model = small_model("float32")
    model.decoder.layers[0].feed_forward.astype("float64")
    with pytest.raises(TypeError, match="mixes float32 and float64"):
        decoding_of(model)


def test_a_sentence_has_the_same_bits_alone_and_among_others(rng):
    """Of few features, no product, sum or maximum of a row depends on other rows.

    With OpenBLAS's kernels for AVX-512, that is. Those for older processors compute rows in groups,
    and sum the rows that are left over in another order.
    """
    model, source = small_model("float32"), random_batch(rng, rows=6).source
    source[:, :] = np.where(source == 0, 5, source)  # of equal lengths, so that none is padded
    fused = decoding_of(model)
    together = greedy(fused, source, 5)
    alone = [greedy(fused, row[None], 5)[0] for row in source]
    reversed_order = greedy(fused, source[::-1], 5)[::-1]
    kernels = {library.get("architecture") for library in libraries.info()}
    if kernels & {"SkylakeX", "Cooperlake", "SapphireRapids"}:
        assert together == reversed_order == alone
    else:
        for found in (reversed_order, alone):
            assert_same([[h] for h in found], [[h] for h in together], rel=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 13, 29, 64, 100])
@pytest.mark.parametrize("shape", [(5, 7), (64, 64), (12, 130), (300, 65)])
@pytest.mark.parametrize("cut", [True, False])
def test_products_with_packed_weights(cut, rows, shape, rng, monkeypatch):
    monkeypatch.setattr(packed, "_CUT", cut)
    monkeypatch.setattr(packed, "_FEW", 10_000)  # so that there are parts of four rows and more
    x, matrix = rng.normal(size=(rows, shape[0])), rng.normal(size=shape)
    y = product(x, in_panels([matrix], [matrix.shape], matrix.dtype)[0], shape[1])
    assert y.shape == (rows, shape[1])
    np.testing.assert_allclose(y, x @ matrix, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n, slices", [(5, [4, 2]), (1, [2]), (2, [2])])
def test_no_slice_of_a_product_is_a_single_row(n, slices, rng, monkeypatch):
    """A single row has other last bits: OpenBLAS computes it by another program."""
    monkeypatch.setattr(packed, "_CUT", True)
    monkeypatch.setattr(packed, "_FEW", 1)  # slices of four rows
    x, (panels,) = rng.normal(size=(n, 6)), in_panels([rng.normal(size=(6, 70))], [(6, 70)], float)
    rows, own = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda x, y, out: rows.append(len(x)) or own(x, y, out=out))
    found = product(x, panels, 70)
    assert rows == slices
    np.testing.assert_allclose(found, (x @ panels).swapaxes(0, 1).reshape(n, -1)[:, :70])


# The search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, rel", [("float64", 1e-12), ("float32", 1e-6)])
def test_logsumexp(library, rng, dtype, rel):
    """Of large and of small scores, and beside words that are impossible."""
    logits = np.concatenate([rng.normal(size=(5, 300)), rng.normal(900, 50, (2, 300))]).astype(
        dtype
    )
    logits[3, 7:] = -np.inf
    largest = logits.max(axis=1)
    expected = np.log(np.exp(logits.astype("float64") - largest[:, None]).sum(axis=1)) + largest
    for which in (forms.on, forms.off):
        with which():
            given = xp.asarray(logits)
            found = decode.logsumexp(given)
        assert found.dtype == np.float64 and np.array_equal(to_numpy(given), logits)
        np.testing.assert_allclose(found, expected, rtol=rel)


def test_the_cache_drops_what_no_beam_continues(rng, monkeypatch):
    """Beams have a common beginning: the cache does not grow by one word of each at every step."""
    model, sizes, grow = likely_end(small_model(), by=-50), [], Layout.grow

    def watch(layout):
        kept = grow(layout)
        sizes.append((layout.length, 8 * layout.width * len(sizes)))  # it grows every 8 steps
        return kept

    monkeypatch.setattr(Layout, "grow", watch)
    source, fused = random_batch(rng, rows=3).source, decoding_of(model)
    found = beam_search(fused, source, beam=6, max_extra=40)
    assert_same(
        found, beam_search(Decoding(model, cached=False), source, beam=6, max_extra=40), rel=1e-9
    )
    assert len(found[0][0].ids) > 40 and len(sizes) > 4
    assert all(length < 0.7 * before for length, before in sizes[1:])
