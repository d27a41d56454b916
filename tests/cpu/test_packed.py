"""Packed weights: the same products, and the same translations."""

from typing import NamedTuple

import numpy as np
import pytest
import strict
from models import SWITCHES, each_switch, random_batch, small_config, small_model
from seam import forms_on
from sizes import V
from tiny_translator import TEXT, make_model, make_subwords

from minitf import forms
from minitf import functions as F
from minitf.backend import using
from minitf.cpu import packed
from minitf.cpu.decoder_steps import for_decoding
from minitf.cpu.packed import PackedParameter, in_panels, packed_copy, product
from minitf.decode import beam_search, greedy
from minitf.nn import Linear, Module, Parameter
from minitf.tensor import Tensor, no_grad
from minitf.text import make_batch
from minitf.transformer import FeedForward, MultiHeadAttention, Transformer
from minitf.translation import Translator


def copied(module):
    return packed_copy(module, module)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 13, 29, 64, 100])
@pytest.mark.parametrize("shape", [(5, 7), (64, 64), (12, 130), (300, 65)])
@pytest.mark.parametrize("cut", [True, False])
def test_products(cut, rows, shape, rng, monkeypatch):
    monkeypatch.setattr(packed, "_CUT", cut)
    monkeypatch.setattr(packed, "_FEW", 10_000)  # so that there are parts of four rows and more
    x, matrix = rng.normal(size=(rows, shape[0])), rng.normal(size=shape)
    y = product(x, in_panels(matrix), shape[1])
    assert y.shape == (rows, shape[1])
    np.testing.assert_allclose(y, x @ matrix, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n, slices", [(5, [4, 2]), (1, [2]), (2, [2])])
def test_no_slice_of_a_product_is_a_single_row(n, slices, rng, monkeypatch):
    """A single row has other last bits: OpenBLAS computes it by another program."""
    monkeypatch.setattr(packed, "_CUT", True)
    monkeypatch.setattr(packed, "_FEW", 1)  # slices of four rows
    x, panels = rng.normal(size=(n, 6)), in_panels(rng.normal(size=(6, 70)))
    rows, own = [], np.matmul
    monkeypatch.setattr(np, "matmul", lambda x, y, out: rows.append(len(x)) or own(x, y, out=out))
    found = product(x, panels, 70)
    assert rows == slices
    np.testing.assert_allclose(found, (x @ panels).swapaxes(0, 1).reshape(n, -1)[:, :70])


def test_where_the_panels_do_not_serve_a_packed_matrix_is_a_matrix(rng):
    """With other axes, with a gradient, beside another dtype, and as a class of its own."""
    matrix, x = rng.normal(size=(5, 5)), np.ones((2, 5), np.float32)
    weight = PackedParameter(matrix, copy=False).cut()
    weight.packed_transpose = PackedParameter(matrix.T, copy=False).cut()
    with forms_on(), no_grad():
        assert weight.transpose() is weight.packed_transpose
        assert np.array_equal(weight.transpose(0, 1).data, matrix)
        y = F.linear(x, weight)
        assert y.dtype == np.float64
        np.testing.assert_allclose(y.numpy(), x @ matrix, rtol=1e-12)
        with pytest.raises(TypeError, match="linear mixes float32 and float64"):
            F.linear(Tensor(x), weight)
    weight.transpose().sum().backward()
    assert np.array_equal(weight.grad, np.ones((5, 5)))

    class Own(Parameter):
        pass

    layer = Linear(3, 4, rng)
    layer.weight = Own(layer.weight)
    assert type(packed_copy(layer, layer).weight) is Own


def test_on_a_gpu_nothing_is_packed():
    with using(strict.module):
        assert not any(
            isinstance(p, PackedParameter) for p in for_decoding(small_model()).parameters()
        )


@pytest.mark.parametrize(
    "changes", [SWITCHES["paper"], SWITCHES["untied"]], ids=["paper", "untied"]
)
def test_each_product_of_a_step_is_one_with_panels(changes, rng, monkeypatch):
    """Also with the output embedding, which is transposed; while something is recorded, none is."""
    model, seen = copied(small_model(**changes)), []
    monkeypatch.setattr(
        packed, "product", lambda x, *more: seen.append(len(x)) or product(x, *more)
    )
    memory, mask = model.encode(np.array([[5, 3]]))

    def step():
        return model.logits(
            model.decode(np.array([[2], [5]]), memory[[0, 0]], mask[[0, 0]])
        ).numpy()

    with forms_on():
        recorded = step()
        assert not seen
        with no_grad():
            found = step()
    linears = [module for module in model.decoder.modules() if isinstance(module, Linear)]
    assert len(seen) == len(linears) + 1 == 2 * (4 + 4 + 2) + 1
    np.testing.assert_allclose(found, recorded, rtol=1e-9)


def test_a_shared_matrix_is_packed_once(rng):
    """In both directions, if it is multiplied by in both."""
    model = small_model()
    layer = model.decoder.layers[0].self_attention
    layer.key.weight = layer.query.weight
    layer.special = Linear(V, 12, rng)
    layer.special.weight = model.output_embedding.weight
    found = copied(model)
    attention = found.decoder.layers[0].self_attention
    assert attention.key.weight is attention.query.weight is not layer.query.weight
    table = attention.special.weight
    assert table is found.output_embedding.weight is found.embedding.weight
    assert np.array_equal(table.panels[0, :, :12], layer.special.weight.data)
    x = rng.normal(size=(2, 12))
    with no_grad(), forms_on():
        np.testing.assert_allclose(found.logits(x).numpy(), model.logits(x).numpy(), rtol=1e-9)
    assert [name for name, _ in found.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]


@each_switch("paper", "all")
def test_the_copy_decodes_as_the_model(changes, rng):
    model, source = small_model(**changes).eval(), random_batch(rng, 5).source
    found, expected = (beam_search(m, source, 3, max_extra=4) for m in (for_decoding(model), model))
    assert [[h.ids for h in row] for row in found] == [[h.ids for h in row] for row in expected]
    scores = [[[h.score for h in row] for row in rows] for rows in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-9)


def test_the_copy_leaves_the_model_alone(rng):
    model = small_model()
    names = [name for name, _ in model.named_parameters()]
    copy = copied(model)
    assert [name for name, _ in model.named_parameters()] == names
    assert all(module.training for module in model.modules())
    assert not any(
        module.training for stack in (copy.encoder, copy.decoder) for module in stack.modules()
    )

    def logits():
        with no_grad(), forms_on():
            return copy.logits(
                copy.decode(np.array([[2]]), *copy.encode(np.array([[5, 3]])))
            ).numpy()

    before = logits()
    for parameter in model.parameters():
        if parameter.ndim == 2 and parameter.shape[0] != V:
            parameter.data[...] = 0
    assert np.array_equal(before, logits())


# Changed models ----------------------------------------------------------------------------------


class Lora(Linear):
    """A Linear with the product of two thin matrices added to its own."""

    def __init__(self, linear, rng):
        self.weight, self.bias = linear.weight, linear.bias
        n_in, n_out = linear.weight.shape
        self.a, self.b = (
            Parameter(rng.normal(0, 1, shape).astype("float32"))
            for shape in ((n_in, 2), (2, n_out))
        )

    def __call__(self, x):
        return super().__call__(x) + F.linear(F.linear(x, self.a), self.b)


class Negated(Transformer):
    def logits(self, hidden):
        return -super().logits(hidden)


class Squared(FeedForward):
    """With the square of the ReLU; the outer matrix is used without a call of its layer."""

    def __call__(self, x):
        inner = F.relu(self.inner(x)) ** 2
        return F.linear(inner, self.outer.weight, self.outer.bias)


class Cool(MultiHeadAttention):
    """With queries of a tenth of the length."""

    def __init__(self, attention):
        vars(self).update(vars(attention))

    def __call__(self, x, memory, mask=None, cache=None):
        return super().__call__(x * 0.1, memory, mask, cache)


def with_lora(model, monkeypatch):
    rng = np.random.default_rng(3)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) is Linear:
                setattr(module, name, Lora(value, rng))


def with_negated_logits(model, monkeypatch):
    model.__class__ = Negated


def with_logits_of_its_own(model, monkeypatch):
    model.logits = lambda hidden: -Transformer.logits(model, hidden)


def with_patched_logits(model, monkeypatch):
    plain = Transformer.logits
    monkeypatch.setattr(Transformer, "logits", lambda self, hidden: -plain(self, hidden))


def with_a_patched_linear(model, monkeypatch):
    plain = Linear.__call__
    monkeypatch.setattr(Linear, "__call__", lambda self, x: plain(self, x) * 1.5)


def with_a_patched_feed_forward(model, monkeypatch):
    monkeypatch.setattr(
        FeedForward, "__call__", lambda self, x: self.outer(self.dropout(F.exp(self.inner(x))))
    )


def with_another_dropout(model, monkeypatch):
    model.decoder.layers[0].feed_forward.dropout = F.exp


def with_another_feed_forward(model, monkeypatch):
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward.__class__ = Squared


def with_another_attention(model, monkeypatch):
    for layer in model.decoder.layers:
        layer.self_attention = Cool(layer.self_attention)


CHANGES = [change for name, change in sorted(globals().items()) if name.startswith("with_")]


@pytest.fixture(scope="module")
def subwords():
    return make_subwords()


QUICK = with_lora, with_patched_logits, with_another_attention  # a module, the model, a layer


@pytest.mark.parametrize(
    "change",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in CHANGES],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_translator_translates_as_the_changed_model(change, beam, monkeypatch, subwords):
    lines = [f"{line} {n}" for line in TEXT for n in range(2)]
    model = make_model(subwords)
    unchanged = [
        best.text
        for (best,) in Translator(model, subwords).translate(
            lines, beam, max_extra=5, wellformed=False
        )
    ]
    change(model, monkeypatch)
    translator = Translator(model, subwords, max_subwords=100, max_unsplit=100)
    found = translator.translate(lines, beam, max_extra=5, wellformed=False)
    found = [best.text for (best,) in found]
    assert found != unchanged
    source = make_batch(subwords.encode(lines), [[]] * len(lines), len(subwords)).source
    for cached in (True, False):
        if beam == 1:
            expected = greedy(model, source, 5, cached)
        else:
            expected = [
                best for (best,) in beam_search(model, source, beam, max_extra=5, cached=cached)
            ]
        assert found == [text.strip() for text in subwords.decode([best.ids for best in expected])]


class Pair(NamedTuple):
    first: Linear
    second: list


class Odd(Module):
    def __init__(self, rng):
        linear, inner = Linear(3, 3, rng), Module()
        self.shared, self.table = linear, {"again": linear, "deeper": [{"inner": inner}]}
        self.pair, self.number = Pair(Linear(3, 3, rng), [self, 7]), 5
        inner.outer, inner.own = self, Lora(Linear(3, 3, rng), rng)


def test_what_a_module_holds_is_copied_once(rng):
    """In dicts, lists and tuples; what is shared stays shared, and a circle a circle."""
    odd = Odd(rng)
    held = {name: id(value) for name, value in vars(odd).items()}
    found = copied(odd)
    assert type(found) is Odd and found is not odd and found.number == 5
    assert type(found.shared) is Linear and type(found.shared.weight) is PackedParameter
    assert found.table["again"] is found.shared
    inner = found.table["deeper"][0]["inner"]
    assert inner.outer is found and inner is not odd.table["deeper"][0]["inner"]
    assert type(inner.own) is Lora and inner.own.a is odd.table["deeper"][0]["inner"].own.a
    assert type(inner.own.weight) is PackedParameter and type(inner.own.a) is Parameter
    assert type(found.pair) is Pair and found.pair.second[0] is found
    assert type(found.pair.first.weight) is PackedParameter
    assert {name: id(value) for name, value in vars(odd).items()} == held
    assert type(odd.shared.weight) is Parameter


def test_a_linear_keeps_the_attributes_of_somebody_else(rng):
    layer = FeedForward(small_config(), rng)
    layer.inner.scale = scale = [2.0]
    copy = copied(layer)
    assert copy.inner.scale == scale and type(copy.inner) is Linear


@pytest.mark.parametrize("bias", [np.ones((1, 1)), np.ones(4), np.ones(1), np.float64(1)], ids=str)
def test_a_bias_of_another_shape_is_refused_as_by_the_equation(bias, rng):
    holder = Module()
    holder.layer = Linear(3, 5, rng).astype("float64")
    weight, x = copied(holder).layer.weight, rng.normal(size=(2, 3))
    for which in (forms_on, forms.off):
        with no_grad(), which(), pytest.raises(ValueError, match="bias"):
            F.linear(x, weight, bias)
