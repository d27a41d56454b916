"""Figure 1 as a whole: equal to a plain program of the paper's equations, no leak, no
effect of padding.
"""

import functools
import math

import numpy as np
import pytest
from models import SWITCHES, random_batch, small_config, small_model
from plain import Plain, position
from sizes import B, D, H, S, T, V

from minitf import dropout, forms
from minitf import functions as F
from minitf.backend import to_numpy
from minitf.errors import UserError
from minitf.tensor import Tensor
from minitf.transformer import (
    FeedForward,
    MultiHeadAttention,
    Residual,
    Transformer,
    causal_mask,
    padding_mask,
    sinusoid,
)

switches = pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES)


@switches
def test_the_model_is_the_paper(rng, changes):
    model = small_model(**changes)
    plain = Plain(model.config, model.state())
    batch = random_batch(rng, rows=4)
    logits = model(batch.source, batch.target_in).numpy()
    for row, source, target in zip(logits, batch.source, batch.target_in, strict=True):
        source, target = source[source != 0], target[target != 0]
        assert np.allclose(row[: len(target)], plain(source, target), rtol=1e-9, atol=1e-9)


# Positions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("base", ["paper", "t2t"])
def test_sinusoids_by_the_formula(layout, base):
    config = small_config(sinusoid_layout=layout, sinusoid_base=base)
    table = sinusoid(50, D, layout, base)
    assert table.dtype == np.float32
    assert np.allclose(table, [position(pos, config) for pos in range(50)], atol=1e-6)


def test_the_layouts_hold_the_same_numbers_and_the_bases_do_not():
    paper, halves, t2t = sinusoid(99, D), sinusoid(99, D, "halves"), sinusoid(99, D, base="t2t")
    assert np.array_equal(paper[:, 0::2], halves[:, : D // 2])
    assert np.array_equal(paper[:, 1::2], halves[:, D // 2 :])
    assert np.array_equal(paper[:, :2], t2t[:, :2])
    assert np.abs(paper[:, 2:] - t2t[:, 2:]).max() > 0.1


@pytest.mark.parametrize(
    "arguments", [(4, 6, "halfs"), (4, 6, "interleaved", "papr"), (4, 5), (4, 5, "halves")]
)
def test_sinusoids_that_do_not_exist_are_refused(arguments):
    with pytest.raises(UserError, match=r"(layout|base) must be|even d_model, not 5"):
        sinusoid(*arguments)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_a_shift_is_one_linear_map_of_the_sinusoids(layout):
    """PE(pos + k) = PE(pos) M with one matrix M, a rotation of each pair, for all
    positions: section 3.5.
    """
    table = sinusoid(300, D, layout)
    for k in (1, 5, 60):
        shift = np.zeros((D, D))
        for i in range(D // 2):
            even, odd = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, D // 2 + i)
            angle = k / 10000 ** (2 * i / D)
            shift[even, even] = shift[odd, odd] = math.cos(angle)
            shift[odd, even], shift[even, odd] = math.sin(angle), -math.sin(angle)
        assert np.allclose(table[:-k] @ shift, table[k:], atol=1e-6)


def test_sinusoids_go_as_far_as_the_text():
    """A model that has read short texts only can read a long one, and short ones afterwards."""
    long = np.full((1, 300), 5)
    texts = [long[:, :9], long, long[:, :9]]
    model = small_model()
    memories = [model.encode(text)[0].numpy() for text in texts]
    for text, memory in zip(texts, memories, strict=True):
        assert np.allclose(memory, small_model().encode(text)[0].numpy(), rtol=0, atol=1e-12)


def test_sinusoids_take_the_precision_of_the_model():
    """A table of float32 from an earlier call would lose half of the digits of float64."""
    config = small_config(dropout=0.0)
    one, other = (Transformer(config, seed=1) for _ in range(2))
    ids = np.full((1, 9), 5)
    one.encode(ids)
    found, expected = (model.astype("float64").encode(ids)[0].numpy() for model in (one, other))
    assert np.array_equal(found, expected)
    assert one.astype("float32").encode(ids)[0].dtype == np.float32


def test_learned_positions_end():
    model = small_model(positions="learned", max_length=9)
    model.encode(np.full((1, 9), 5))
    with pytest.raises(UserError, match=r"10 tokens .* max_length 9"):
        model.encode(np.full((1, 10), 5))


# Masks --------------------------------------------------------------------------------------------


def test_masks():
    assert causal_mask(3)[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert padding_mask([[5, 6, 0], [7, 0, 0]])[:, 0, 0].tolist() == [
        [True, True, False],
        [True, False, False],
    ]
    assert padding_mask([[5, 0]], pad_id=5).ravel().tolist() == [False, True]
    assert causal_mask(T).shape == (1, 1, T, T)
    assert padding_mask(np.ones((B, S), int)).shape == (B, 1, 1, S)


@pytest.mark.parametrize("program", [forms.on, forms.off])
def test_a_mask_without_an_axis_for_the_heads_is_refused(rng, program):
    """With as many sentences as heads it would hide from head i what it hides from sentence i."""
    attention = MultiHeadAttention(small_config(), rng)
    x, mask = Tensor(rng.normal(size=(H, T, D)).astype("float32")), rng.random((H, T, T)) < 0.5
    with program():
        with pytest.raises(ValueError, match=r"3 axes .* write mask\[:, None\]"):
            attention(x, x, mask)
        y = attention(x, x, mask[:, None]).numpy()
        for i in range(H):
            alone = attention(x[i : i + 1], x[i : i + 1], mask[i]).numpy()
            assert np.allclose(y[i], alone[0], rtol=0, atol=1e-6)


@switches
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_word_sees_the_words_after_it(rng, changes, dtype):
    model = small_model(dtype, **changes)
    source, target = rng.integers(4, V, (B, S)), rng.integers(4, V, (B, T))
    before = model(source, target).numpy()
    for t in range(T):
        changed = target.copy()
        changed[:, t] = 4 + (changed[:, t] - 3) % (V - 4)
        after = model(source, changed).numpy()
        assert np.array_equal(after[:, :t], before[:, :t]), f"word {t} reaches back"
        assert (after[:, t:] != before[:, t:]).any(axis=-1).all(), (
            f"word {t} is not seen from {t} on"
        )


def test_with_forms_the_future_and_other_sentences_change_no_bit(rng):
    model = small_model("float32")
    for name, p in model.named_parameters():
        if ".query." in name or ".key." in name:
            p.data *= 3  # until scores are about as large as those of a trained model
    source, target = rng.integers(3, V, size=(2, 4, 9))
    source[0, 6:] = model.config.pad_id
    with forms.on():
        before = model(source, target).numpy()
        for _ in range(20):
            source[1:], target[1:] = rng.integers(3, V, size=(2, 3, 9))
            target[0, -1] = rng.integers(3, V)
            assert np.array_equal(model(source, target).numpy()[0, :-1], before[0, :-1])


@switches
def test_padding_and_batching_change_nothing(rng, changes):
    model = small_model(**changes)
    batch = random_batch(rng, rows=5)
    together = model(batch.source, batch.target_in).numpy()
    loss, nll = model.loss(batch.source, batch.target_in, batch.target_out)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    losses = []
    for i in range(5):
        source, target_in, target_out = (
            ids[i][ids[i] != 0][None] for ids in (batch.source, batch.target_in, batch.target_out)
        )
        alone = model(source, target_in).numpy()
        assert np.allclose(together[i, : target_in.size], alone[0], rtol=0, atol=1e-12)
        losses.append(model.loss(source, target_in, target_out, batch.n_tokens))
        losses[-1][0].backward()
    assert float(loss) == pytest.approx(sum(float(part) for part, _ in losses), rel=1e-12)
    assert float(nll) == pytest.approx(sum(float(part) for _, part in losses), rel=1e-12)
    for name, p in model.named_parameters():
        assert np.allclose(gradients[name], p.grad, rtol=1e-9, atol=1e-12), name


@switches
def test_a_source_of_nothing_but_padding(rng, changes):
    """There is nothing to attend to: zeros, not NaN, and the other rows do not notice."""
    model = small_model(**changes)
    batch = random_batch(rng)
    with_empty = np.concatenate([batch.source, np.zeros((1, S), int)])
    targets = [np.concatenate([ids, ids[:1]]) for ids in (batch.target_in, batch.target_out)]
    memory, mask = model.encode(with_empty)
    attention = model.decoder.layers[0].source_attention
    heads = attention(memory, memory, mask)
    nothing = attention.output.bias.data if model.config.attention_bias else 0
    assert (heads.numpy()[-1] == nothing).all()
    assert (heads.numpy()[:-1] != nothing).all()
    logits = model(with_empty, targets[0]).numpy()
    never = np.isin(np.arange(V), model.config.suppressed_ids)
    assert np.array_equal(np.isfinite(logits), np.broadcast_to(~never, logits.shape))
    assert np.allclose(
        logits[:-1], model(batch.source, batch.target_in).numpy(), rtol=0, atol=1e-12
    )
    loss, _ = model.loss(with_empty, *targets)
    loss.backward()
    for name, p in model.named_parameters():
        assert np.isfinite(p.grad).all(), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_masked_row_passes_no_gradient(rng, dtype):
    """A query that may attend to nothing moves neither itself nor keys nor values."""
    draw = [Tensor(rng.normal(size=(B, H, n, 4)).astype(dtype)) for n in (T, S, S)]
    mask = rng.random((B, 1, T, S)) < 0.5
    mask[:, :, 2] = False
    y = F.attention(*draw, mask)
    assert not y.numpy()[:, :, 2].any()
    assert np.isfinite(y.numpy()).all()
    only_row_2 = np.zeros(y.shape, dtype)
    only_row_2[:, :, 2] = 1
    y.backward(only_row_2)
    for x in draw:
        assert not x.grad.any()


@switches
def test_padding_may_have_any_id(rng, changes):
    """It is hidden from attention and from the loss wherever the configuration puts it."""
    model = small_model(pad_id=5, **changes)
    source, target_in, target_out = ([6, 7, 3], [2, 6, 8], [6, 8, 3])
    alone = model(np.array([source]), np.array([target_in])).numpy()
    padded = [np.array([row + [5, 5]]) for row in (source, target_in, target_out)]
    assert np.allclose(model(*padded[:2]).numpy()[:, :3], alone, rtol=0, atol=1e-12)
    short = [np.array([row]) for row in (source, target_in, target_out)]
    for with_padding, without in zip(model.loss(*padded), model.loss(*short), strict=True):
        assert float(with_padding) == pytest.approx(float(without), rel=1e-12)
    zero = np.array([source + [0, 0]])
    assert not np.allclose(model(zero, padded[1]).numpy()[:, :3], alone), "0 is a word like others"


@pytest.mark.parametrize(
    "changes", [{}, SWITCHES["learned positions"]], ids=["sinusoid", "learned"]
)
def test_a_converted_model_has_positions_of_its_new_type(rng, changes):
    """The table that it keeps from its use in float32 would bring errors of 1e-8 into every
    gradient check.
    """
    batch = random_batch(rng)
    used, fresh = small_model("float32", **changes), small_model("float32", **changes)
    used(batch.source, batch.target_in)
    logits = [
        model.astype("float64")(batch.source, batch.target_in).numpy() for model in (used, fresh)
    ]
    assert np.array_equal(*logits)
    assert used.astype("float32")(batch.source, batch.target_in).dtype == np.float32


# What is no batch ---------------------------------------------------------------------------------


def test_each_source_needs_its_target(rng):
    """Attention would share the rows of one out over the other, as it does for beam search, and
    give an answer.
    """
    model = small_model()
    source, target = rng.integers(4, V, (2, 3)), rng.integers(4, V, (3, 2))
    for call in (
        lambda: model(source, target),
        lambda: model.loss(source, target, target),
        lambda: model.decode(target, *model.encode(source)),
        lambda: model(source[:1], target),
    ):
        with pytest.raises(
            ValueError,
            match=r"[12] rows of source, but 3 of target: give one target for each source",
        ):
            call()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            np.full(5, 4),
            (
                r"{} must be ids \(B, {}\), got shape \(5,\): one sentence is a batch of "
                r"one, ids\[None\]"
            ),
        ),
        (np.full((1, 2, 3), 4), r"{} must be ids \(B, {}\), got shape \(1, 2, 3\)"),
        (4, r"{} must be ids \(B, {}\), got shape \(\)"),
        ([[], []], r"{} has no tokens: its shape is \(2, 0\)"),
        (np.full((2, 3), 4.0), "{} must be integers, not float64"),
        ([[True, False], [True, True]], "{} must be integers, not bool"),
    ],
)
def test_ids_of_another_kind_are_refused(ids, message):
    model, good = small_model(), np.full((2, 3), 4)
    calls = [
        lambda: model(ids, good),
        lambda: model.loss(ids, good, good),
        lambda: model.encode(ids),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=message.format("source", "S")):
            call()
    for call in (lambda: model(good, ids), lambda: model.loss(good, ids, ids)):
        with pytest.raises((TypeError, ValueError), match=message.format("target", "T")):
            call()
    memory, mask = model.encode(good)
    with pytest.raises((TypeError, ValueError), match=message.format("target", "T")):
        model.decode(ids, memory, mask)
    with pytest.raises((TypeError, ValueError), match=message.format("ids", "S")):
        padding_mask(ids)


@pytest.mark.parametrize("program", [forms.on, forms.off])
def test_a_batch_of_no_sentences(program, library):
    model = small_model("float32")
    none = np.zeros((0, 4), int)
    with program():
        loss, _ = model.loss(none, none, none)
        loss.backward()
        assert model(none, none).shape == (0, 4, V)
        assert float(loss) == 0
        assert not any(to_numpy(p.grad).any() for p in model.parameters())


# Layers -------------------------------------------------------------------------------------------


def test_residual_around_a_sublayer_that_gives_zero(rng):
    x = Tensor(rng.normal(3, 2, (B, T, D)))
    pre, post = Residual(small_config(norm="pre")), Residual(small_config(norm="post"))
    for layer in (pre, post):
        layer.astype("float64")
    assert np.array_equal(pre(x, lambda x: x * 0.0).numpy(), x.numpy()), (
        "pre: the un-normed x goes by"
    )
    y = post(x, lambda x: x * 0.0).numpy()
    assert np.allclose(y, F.layer_norm(x, np.ones(D), np.zeros(D)).numpy())


def test_dropout_is_on_the_sublayer_and_not_on_the_residual(rng):
    x = Tensor(rng.normal(3, 2, (B, T, D)))
    pre, post = (
        Residual(small_config(norm=norm, dropout=0.4)).astype("float64") for norm in ("pre", "post")
    )
    with F.dropout_state(1, 2):
        found = pre(x, lambda x: x * 2.0).numpy()
    with F.dropout_state(1, 2):
        assert np.allclose(found, (x + F.dropout(pre.norm(x) * 2.0, 0.4)).numpy())
    with F.dropout_state(1, 2):
        found = post(x, lambda x: x * 2.0).numpy()
    with F.dropout_state(1, 2):
        assert np.allclose(found, post.norm(x + F.dropout(x * 2.0, 0.4)).numpy())


def test_what_the_sublayer_sees(rng):
    x = Tensor(rng.normal(3, 2, (B, T, D)).astype(np.float32))
    seen = {}

    def sublayer(norm, x):
        seen[norm] = x.numpy()
        return x

    for norm in ("pre", "post"):
        Residual(small_config(norm=norm))(x, functools.partial(sublayer, norm))
    assert np.array_equal(seen["post"], x.numpy())
    assert np.allclose(seen["pre"].mean(-1), 0, atol=1e-5)
    assert np.allclose(seen["pre"].var(-1), 1, atol=1e-4)


def test_eps_reaches_every_norm():
    model = Transformer(small_config(norm="pre", eps=0.123))
    norms = [m for m in model.modules() if type(m).__name__ == "LayerNorm"]
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    assert {m.eps for m in norms} == {0.123}


def test_kept_weights_are_those_of_the_attention(rng):
    attention = MultiHeadAttention(small_config(), rng).astype("float64")
    attention.keep_weights = True
    x, memory = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    mask = padding_mask(random_batch(rng).source)
    y = attention(Tensor(x), Tensor(memory), mask).numpy()
    weights = attention.weights
    assert weights.shape == (B, H, T, S)
    assert np.allclose(weights.sum(-1), 1)
    assert not weights[~np.broadcast_to(mask, weights.shape)].any()
    values = (memory @ attention.value.weight.data).reshape(B, S, H, 8).transpose(0, 2, 1, 3)
    heads = (weights @ values).transpose(0, 2, 1, 3).reshape(B, T, H * 8)
    assert np.allclose(y, heads @ attention.output.weight.data)


def places(rng, monkeypatch, **rates):
    """List the shapes and rates of the masks that one training pass draws, and say if it
    changed the output.
    """
    model = small_model("float32", **rates)
    batch = random_batch(rng)
    drawn, draw = [], dropout.dropout_mask

    def watch(seed, step, place, first_row, shape, rate):
        drawn.append((shape, rate))
        return draw(seed, step, place, first_row, shape, rate)

    monkeypatch.setattr(dropout, "dropout_mask", watch)
    still, moved = (model.train(on)(batch.source, batch.target_in).numpy() for on in (False, True))
    monkeypatch.undo()
    return sorted(drawn), not np.array_equal(still, moved)


def test_dropout_where_the_paper_has_it_and_nowhere_else(rng, monkeypatch):
    """2 sums of embeddings and positions, 2 sub-layers of each of 2 encoder layers, 3 of each
    decoder layer.
    """
    assert places(rng, monkeypatch) == ([], False)
    drawn, moved = places(rng, monkeypatch, dropout=0.1)
    assert moved
    assert drawn == sorted([((B, S, D), 0.1)] * (1 + 2 * 2) + [((B, T, D), 0.1)] * (1 + 2 * 3))
    learned, moved = places(rng, monkeypatch, dropout=0.1, positions="learned", max_length=16)
    assert moved and learned == drawn
    drawn, moved = places(rng, monkeypatch, attention_dropout=0.2)
    assert moved
    weights = [(B, H, S, S), (B, H, T, T), (B, H, T, S)]
    assert drawn == sorted([(shape, 0.2) for shape in weights] * 2)
    drawn, moved = places(rng, monkeypatch, feed_forward_dropout=0.3)
    assert moved
    assert drawn == sorted([((B, S, 16), 0.3), ((B, T, 16), 0.3)] * 2)
    drawn, moved = places(rng, monkeypatch, dropout=0.1, positions="learned", max_length=16)
    assert drawn == sorted([((B, S, D), 0.1)] * (1 + 2 * 2) + [((B, T, D), 0.1)] * (1 + 2 * 3))


def test_feed_forward_by_hand():
    layer = FeedForward(small_config(d_model=2, n_heads=1, d_ff=3), np.random.default_rng(0))
    layer.inner.weight.data[...] = [[1, 0, -1], [0, 1, -1]]
    layer.inner.bias.data[...] = [0, 1, 2]
    layer.outer.weight.data[...] = [[1, 2], [3, 4], [5, 6]]
    layer.outer.bias.data[...] = [10, 20]
    # x = (1, -3): inner (1, -2, 4), after the ReLU (1, 0, 4)
    assert layer(Tensor([[1.0, -3.0]])).numpy().tolist() == [[1 + 20 + 10, 2 + 24 + 20]]
