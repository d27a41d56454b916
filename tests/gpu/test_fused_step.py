"""A training step with kernels, thread by thread, equals one without: losses, gradients, Adam.

More of the engine runs on the simulated kernels wherever a test takes the fixture `library` (slow).
"""

from unittest import mock

import numpy as np
import pytest
import strict
from models import PUBLIC, random_batch, small_model

from minitf import decode, forms
from minitf import functions as F
from minitf.backend import to_device, to_numpy, using
from minitf.common.decoder import FusedDecoder
from minitf.config import Config
from minitf.gpu.functions import multi_head_attention
from minitf.gpu.matmul import use_precision
from minitf.loss import projected_cross_entropy
from minitf.nn import Dropout, Linear, Parameter
from minitf.optim import Adam, Flat
from minitf.tensor import Tensor, no_grad
from minitf.transformer import FeedForward, MultiHeadAttention, Residual, feed_forward_network

DROPOUT = {"dropout": 0.2, "attention_dropout": 0.1, "feed_forward_dropout": 0.3}
DEVICES = {"simulated": strict.with_kernels, "cupy": "cupy"}
on_cupy = pytest.param("cupy", marks=pytest.mark.gpu)
ONE_SIZE = {"d_k": 4, "d_v": 4}  # of all heads: then one form computes all of an attention
OTHER_WAYS = {"norm": "pre", "tie": False, "positions": "learned", "max_length": 16}


def train(changes, steps, dtype="float32"):
    """Take some steps from fixed weights: the losses, the last gradients, and the weights after."""
    model, rng = small_model(dtype, n_layers=1, **changes), np.random.default_rng(3)
    optimizer, losses = Adam(model.named_parameters()), []
    for step in range(steps):
        batch = random_batch(rng)
        optimizer.zero_grad()
        with F.dropout_state(seed=2**40, step=step, first_row=4):
            loss, _ = model.train().loss(
                batch.source, batch.target_in, batch.target_out, batch.n_tokens
            )
        loss.backward()
        losses.append(float(loss))
        gradients = {
            name: to_numpy(p.grad).copy()
            for name, p in model.named_parameters()
            if p.grad is not None
        }
        optimizer.step(1e-4)
    return np.array(losses), gradients, model.state()


def same_training(changes, steps=1, tolerance=1e-5, library=strict.with_kernels):
    losses, gradients, weights = train(changes, steps, "float64")
    with using(library):
        got_losses, got_gradients, got_weights = train(changes, steps)
    assert np.allclose(got_losses, losses, rtol=tolerance)
    assert got_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        if name.endswith("key.bias"):
            continue  # the softmax ignores it: its gradient is 0, but for rounding
        assert (
            np.abs(got_gradients[name] - gradient).max() < 10 * tolerance * np.abs(gradient).max()
        ), name
    for name, weight in weights.items():
        # A gradient near 0 has an unsure sign.
        assert np.abs(got_weights[name] - weight).max() < 2.1e-4 * steps, name


@pytest.fixture
def launched(monkeypatch):
    """Which kernels have run."""
    names, (launch, gemm) = set(), strict.with_kernels.kernels

    def noted(kernel, *rest):
        names.add(kernel.__name__)
        launch(kernel, *rest)

    monkeypatch.setattr(strict.with_kernels, "kernels", (noted, gemm))
    return names


def test_the_modules_of_a_layer_are_computed_by_the_fused_ops(launched, rng):
    """With the same numbers of dropout as the equations."""
    config = Config(11, d_model=12, d_ff=16, n_heads=3, dropout=0.2, feed_forward_dropout=0.3)
    with using(strict.with_kernels), forms.on():
        residual, network = Residual(config), FeedForward(config, rng)
        x = Tensor(to_device(rng.normal(size=(2, 5, 12)).astype(np.float32)))
        norm, maps = residual.norm, (network.inner, network.outer)
        with F.dropout_state(seed=2**40, step=1):
            found = residual(x, network)
        assert launched == {"bias_relu_dropout", "add_norm"}
        with F.dropout_state(seed=2**40, step=1):
            (w_1, b_1), (w_2, b_2) = ((linear.weight, linear.bias) for linear in maps)
            added = F.linear(F.dropout(F.relu(F.linear(x, w_1, b_1)), 0.3), w_2, b_2)
            expected = F.layer_norm(x + F.dropout(added, 0.2), norm.gain, norm.bias, norm.eps)
        assert np.allclose(to_numpy(found.data), to_numpy(expected.data), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False], ids=["its own text", "another text"])
@pytest.mark.parametrize("device", ["simulated", on_cupy])
def test_an_attention_in_bfloat16_rounds_what_its_ops_round(device, own, rng):
    """A sum that ends between two rounded numbers may go either way, so few bits are the same.

    And all is near the attention in float32.
    """
    config, found = Config(11, d_model=24, n_heads=3), []
    arrays = [rng.normal(size=(2, n, 24)).astype(np.float32) for n in (5, 7)]
    gy = rng.normal(size=(2, 5, 24)).astype(np.float32)
    with using(DEVICES[device]), forms.on():
        for precision, by_ops in (("float32", False), ("bfloat16", False), ("bfloat16", True)):
            use_precision(precision)
            try:
                module = MultiHeadAttention(config, np.random.default_rng(3))
                module.keep_weights = by_ops  # to keep them for a picture, the ops are called
                x, memory = (Tensor(to_device(array)) for array in arrays)
                y = module(x, x if own else memory)
                y.backward(to_device(gy))
            finally:
                use_precision("float32")
            tensors = [x, *([] if own else [memory]), *module.parameters()]
            found.append([to_numpy(array) for array in (y.data, *(t.grad for t in tensors))])
    for exact, got, by_ops in zip(*found, strict=True):
        largest = np.abs(exact).max()
        assert np.abs(got - by_ops).max() <= 8e-3 * largest
        assert 0 < np.abs(got - exact).max() <= 3e-2 * largest


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_and_a_loss_in_bfloat16(bias, rng):
    """The hidden layer and the gradient of the logits are written rounded; nothing else changes."""
    shapes = (2, 5, 12), (12, 16), (16,), (16, 12), (12,), (30, 12), (30,)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    target, found = rng.integers(0, 30, (2, 5)), []
    for library, precision in (("numpy", "float32"), (strict.with_kernels, "bfloat16")):
        with using(library):
            use_precision(precision)
            try:
                tensors = [Tensor(to_device(array)) for array in arrays]
                x, w_1, b_1, w_2, b_2, table, of_words = tensors
                with F.dropout_state(seed=2**40, step=1):
                    layers = Linear(12, 16, None), Linear(16, 12, None)
                    (layers[0].weight, layers[0].bias), layers[1].weight = (w_1, b_1), w_2
                    layers[1].bias = b_2 if bias else None
                    network = layers[0], F.relu, Dropout(0.3), layers[1]
                    y = feed_forward_network(x, *network) * 0.1
                options = {"bias": of_words} if bias else {}
                loss, _ = projected_cross_entropy(y, table, target, **options)
                loss.backward()
                used = [t for t in tensors if bias or (t is not b_2 and t is not of_words)]
                found.append([to_numpy(a) for a in (y.data, loss.data, *(t.grad for t in used))])
            finally:
                use_precision("float32")
    for i, (expected, got) in enumerate(zip(*found, strict=True)):
        assert np.abs(got - expected).max() <= 2e-2 * np.abs(expected).max(), i


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_a_plain_model_is_decoded_with_one_kernel_for_an_attention(launched, changed):
    """A changed one, whose methods have to be called, is decoded by its modules."""
    with using(strict.with_kernels):
        model = small_model("float32", **ONE_SIZE)
        if changed:
            model.decoder.layers[1].self_attention.attend = lambda queries, *_: queries * 0.0
        with forms.on(), no_grad():
            scorer = decode.fastest_decoding(model).start(np.array([[4, 5, 2], [6, 2, 0]]))
        if not changed:
            launched.clear()
            scorer(np.full((2, 1), 1))
            used = {"attend_newest", "bias_relu_dropout", "add_norm"}
            assert launched == used
    assert isinstance(scorer, decode.TokenScorer if changed else FusedDecoder)


class _Doubled(Linear):
    def __call__(self, x):
        return super().__call__(x) * 2


@pytest.mark.parametrize(
    "change",
    ["nothing", "bias", "output bias", "size of values", "heads", "output", "mask", "no sentence"],
)
def test_which_attentions_the_form_takes(change):
    """What it declines, it declines before a kernel runs."""
    with using(strict.with_kernels):
        config = Config(9, d_model=4, n_heads=2, d_v=3 if change == "size of values" else 2)
        attention = MultiHeadAttention(config, np.random.default_rng(0))
        if change == "bias":
            attention.key.bias = Parameter(np.ones(4))
        elif change == "output bias":
            attention.output.bias = Parameter(np.ones(4))
        elif change == "heads":
            attention.n_heads = 3
        elif change == "output":
            attention.output.__class__ = _Doubled
        x = Tensor(to_device(np.ones((0 if change == "no sentence" else 1, 2, 4), np.float32)))
        mask = to_device(np.ones((1, 1, 1, 3), bool)) if change == "mask" else None
        y = multi_head_attention(attention, x, x, mask)
        assert (y is NotImplemented) == (change != "nothing")


def test_a_bias_that_is_also_the_input_gets_both_gradients():
    with using(strict.with_kernels):
        bias, weight = Parameter(np.ones(3, np.float32)), Parameter(np.eye(3, dtype=np.float32) * 4)
        Flat([("bias", bias), ("weight", weight)])
        F.linear(bias, weight, bias).sum().backward()
        assert to_numpy(bias.grad).tolist() == [5, 5, 5]


LARGE = pytest.param(75, 4, marks=pytest.mark.slow)


@pytest.mark.parametrize("levels", [None, 2, 0], ids=["few equals", "many equals", "equal firsts"])
@pytest.mark.parametrize(("size", "width"), [(5, 4), (40, 1), LARGE])
def test_the_best_of_a_step_are_those_of_its_equations(size, width, levels):
    """Also with texts that are not there, equals at the border, and few words.

    Numbers near 1e-20 differ as logits; added to a total they are equal, and the lower id is first.
    """
    rng = np.random.default_rng(size)
    logits = rng.normal(size=(4 * width, size)).astype(np.float32)
    if levels:
        logits = np.round(logits * levels) / np.float32(levels)
    if levels == 0:  # those at the border differ
        logits[:, -2:] = 9
    else:
        logits[-width:] *= np.float32(1e-20)
    totals = -rng.integers(0, 3, (4, width)).astype(float)
    totals[0, 1:] = -np.inf
    with using(strict.with_kernels), forms.on():
        found = decode.continuations(to_device(logits.copy()), totals, 2 * width, (0, 2))
        sums = decode.logsumexp(to_device(logits))
    logits[:, [0, 2]] = -np.inf
    with mock.patch.object(decode, "logsumexp", lambda _: sums):  # whose last bits are another's
        expected = decode.continuations(logits, totals, 2 * width)
    for got, wanted in zip(found, expected, strict=True):
        assert np.array_equal(got, wanted)


def test_without_forms_no_kernel_runs(launched):
    with using(strict.with_kernels), forms.off():
        train({}, 1)
    assert not launched


@pytest.mark.parametrize(
    ("failure", "told"), [(RuntimeError("PTX"), True), (MemoryError("4 GB"), False)]
)
def test_a_kernel_that_fails_says_how_to_do_without(failure, told, monkeypatch):
    def fails(*arguments):
        raise failure

    def norm():
        F.layer_norm(*(Tensor(to_device(np.ones(3, "f4"))) for _ in range(3)))

    with using(strict.with_kernels):
        with forms.on():
            norm()  # one that fails while it proves itself is not used at all
            monkeypatch.setattr(strict.with_kernels, "kernels", (fails, fails))
            with pytest.raises(type(failure)) as caught:
                norm()
        assert any("MINITF_FORMS=off" in n for n in getattr(caught.value, "__notes__", [])) == told
        with forms.off():
            train({}, 1)


CHANGES = [{"dropout": 0.1}, {}, DROPOUT | ONE_SIZE, DROPOUT | OTHER_WAYS, PUBLIC]
each_device = pytest.mark.parametrize(
    "device", [pytest.param("simulated", marks=pytest.mark.slow), on_cupy]
)


@each_device
@pytest.mark.parametrize("changes", CHANGES)
def test_training_with_kernels_is_training_without(device, changes):
    same_training(changes, steps=2, library=DEVICES[device])


@each_device
@pytest.mark.parametrize("sizes", [{}, ONE_SIZE], ids=["two sizes", "one size"])
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 1e-3), ("bfloat16", 1e-2)])
def test_training_with_coarser_products(device, precision, tolerance, sizes):
    """It agrees to the 11 or 8 bits of the operands."""
    with using(DEVICES[device]):
        use_precision(precision)
    try:
        same_training({"dropout": 0.1} | sizes, tolerance=tolerance, library=DEVICES[device])
    finally:
        use_precision("float32")
