"""Every kernel against the plain form of its operation, thread by thread, at odd sizes.

The kernels run in float32 on the simulator (tests/support/blocks.py), the plain forms in
float64 on NumPy.
"""

import functools

import blocks
import numpy as np
import pytest
import strict
from sizes import B, H, S, T, V

from minitf import functions as F
from minitf.backend import to_device, to_numpy, using
from minitf.cpu.loss import loss_and_gradient
from minitf.cpu.sums import add_segments
from minitf.gpu import fused, kernels
from minitf.gpu import loss as gpu_loss
from minitf.gpu.functions import adam_update, updates_only_if
from minitf.gpu.fused import numbers_of_mask
from minitf.nn import Parameter
from minitf.optim import Adam
from minitf.tensor import Tensor
from minitf.transformer import causal_mask, padding_mask

RATE, SEED, STEP, PLACE = 0.3, 2**63 + 5, 7, 3
slow = functools.partial(pytest.param, marks=pytest.mark.slow)  # many threads of the simulator
LONG = slow((2, 600))  # a row longer than 512 draws twice
SHAPES = [(3, 7), (1, 1), (2, 5, 12), (9, 33), LONG]


@pytest.fixture(params=["simulated", pytest.param("cupy", marks=pytest.mark.gpu)])
def kernels_on(request, monkeypatch):
    if request.param == "simulated":  # of the loss: the mutants take the full block
        monkeypatch.setattr(gpu_loss, "ROW_THREADS", 256)
    with using(strict.with_kernels if request.param == "simulated" else "cupy"):
        yield


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def close(got, expected, name="", rtol=2e-6):
    """Equal to rtol of the largest number: a sum of many has the error of its largest terms."""
    got, expected = to_numpy(got), np.asarray(expected)
    assert got.shape == expected.shape, name
    assert np.abs(got - expected).max() <= rtol * max(1, np.abs(expected).max()), name


def mask_numbers(shape, rate=RATE, first_row=0):
    """The five numbers of a dropout, and the mask that NumPy draws for it, with its factor."""
    numbers = numbers_of_mask(SEED, STEP, PLACE, first_row, shape, rate)
    with using("numpy"):
        mask = F.dropout_mask(SEED, STEP, PLACE, first_row, shape, rate)
    return numbers, mask * float(numbers.factor)


def plain_gradients(function, arrays, gy):
    """Run the engine's function in float64 on NumPy: its result and the gradients of the arrays."""
    with using("numpy"):
        tensors = [Tensor(array.astype(np.float64)) for array in arrays]
        y = function(*tensors)
        y.backward(gy.astype(np.float64))
        return y.data, [tensor.grad for tensor in tensors]


# Dropout and the feed-forward network -------------------------------------------------------------


@pytest.mark.parametrize("first_row", [0, 5])
@pytest.mark.parametrize("shape", [*SHAPES[:4], (2, 600), (13,), (512,), (4, 16), (2, 3, 4, 5)])
def test_dropout_draws_the_mask_of_numpy(kernels_on, shape, first_row):
    """Bit for bit, wherever the rows begin: the generator decides about 16 elements at a time."""
    x, gy = normal(*shape), normal(*shape, seed=1)
    numbers, mask = mask_numbers(shape, first_row=first_row)
    y, backward = fused.dropout(to_device(x), numbers)
    assert np.array_equal(to_numpy(y), x * mask.astype(np.float32))
    assert np.array_equal(to_numpy(backward(to_device(gy))), gy * mask.astype(np.float32))


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (33, 7), slow((300, 40))])
def test_column_sums(kernels_on, shape):
    """Of one slice, and of several whose sums are added up."""
    x = normal(*shape)
    close(fused.column_sums(to_device(x)), x.astype(np.float64).sum(axis=0))


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_relu_dropout(kernels_on, shape, rate):
    x, bias, gy = normal(*shape), normal(shape[-1]), normal(*shape, seed=1)
    numbers, mask = mask_numbers(shape, rate)
    expected, gradients = plain_gradients(lambda x, bias: F.relu(x + bias) * mask, [x, bias], gy)
    x = to_device(x)
    y, backward = fused.bias_relu_dropout(x, to_device(bias), numbers)
    close(y, expected)
    for got, wanted in zip(backward(to_device(gy)), gradients, strict=True):
        close(got, wanted)


def bits(x):
    """The numbers rounded to bfloat16, as 16-bit integers."""
    return strict._bfloat16(np.asarray(x, np.float32))


def number(upper):
    """The numbers for which 16-bit integers stand."""
    return (upper.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def nearest(got, expected):
    """The 16-bit integers of the expected numbers: half of the last of their 8 digits away."""
    assert to_numpy(got).dtype == np.uint16
    error = np.abs(number(to_numpy(got)) - expected)
    assert (error <= 1.001 * 2**-8 * np.abs(expected) + 1e-9).all()


@pytest.mark.parametrize("rate", [0.0, RATE])
def test_bias_relu_dropout_of_rounded_numbers(kernels_on, rate):
    """Only what is written is rounded: the gradient of the bias is the sum of exact numbers."""
    x, bias, gy = bits(normal(9, 33)), normal(33), bits(normal(9, 33, seed=1))
    numbers, mask = mask_numbers((9, 33), rate)
    arrays = [number(x), bias]
    expected, gradients = plain_gradients(lambda x, b: F.relu(x + b) * mask, arrays, number(gy))
    y, backward = fused.bias_relu_dropout(to_device(x), to_device(bias), numbers)
    nearest(y, expected)
    g_x, g_bias = backward(to_device(gy))
    nearest(g_x, gradients[0])
    close(g_bias, gradients[1])


# Residual, dropout and layer norm -----------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("shape", SHAPES[:1] + SHAPES[2:])
def test_add_norm(kernels_on, shape, rate):
    arrays = [
        normal(*shape) * 3 + 1,
        normal(*shape, seed=2),
        normal(shape[-1], seed=3),
        normal(shape[-1], seed=4),
    ]
    numbers, mask = mask_numbers(shape, rate)
    gy = normal(*shape, seed=1)
    expected, gradients = plain_gradients(
        lambda x, added, gain, bias: F.layer_norm(x + added * mask, gain, bias, 1e-3), arrays, gy
    )
    y, backward = fused.add_norm(*map(to_device, arrays), 1e-3, numbers)
    close(y, expected)
    for name, got, wanted in zip(
        ["x", "added", "gain", "bias"], backward(to_device(gy)), gradients, strict=True
    ):
        close(got, wanted, name, rtol=4e-6)


def test_layer_norm(kernels_on):
    arrays, gy = [normal(9, 33) - 5, normal(33, seed=3), normal(33, seed=4)], normal(9, 33, seed=1)
    expected, gradients = plain_gradients(F.layer_norm, arrays, gy)
    y, backward = fused.layer_norm(*map(to_device, arrays), 1e-6)
    close(y, expected)
    for name, got, wanted in zip(
        ["x", "gain", "bias"], backward(to_device(gy)), gradients, strict=True
    ):
        close(got, wanted, name, rtol=4e-6)


def test_sums_over_more_rows_than_one_block_takes(kernels_on):
    """33 rows are two slices of at most 32, and the last slice is a single row."""
    gy, x = normal(33, 3, seed=1), normal(33, 3)
    _, backward = fused.layer_norm(
        to_device(x), to_device(np.ones(3, np.float32)), to_device(normal(3)), 1e-6
    )
    close(backward(to_device(gy))[2], gy.astype(np.float64).sum(axis=0))
    _, backward = fused.bias_relu_dropout(to_device(x), to_device(np.zeros(3, np.float32)))
    close(backward(to_device(gy))[1], (gy * (x > 0)).sum(axis=0))


# Attention ----------------------------------------------------------------------------------------

# The second sentence ends in padding.
SOURCE = np.array([[4, 5, 6, 4, 5, 6, 2], [4, 2, 0, 0, 0, 0, 0]])
MASKS = {
    "none": None,
    "padding": padding_mask(SOURCE),
    "causal": causal_mask(S)[:, :, :T],
    "causal and padding": padding_mask(SOURCE) & causal_mask(S)[:, :, 2:],
    "a query with no key": np.arange(T)[:, None] != np.full(S, 3),
}


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("name", MASKS)
def test_attention(kernels_on, name, rate):
    """Heads are views into (B, T, H, K), as the model makes them, and K and V may differ."""
    mask = MASKS[name]
    arrays = [
        normal(B, n, H, k, seed=k + n).transpose(0, 2, 1, 3) for n, k in ((T, 4), (S, 4), (S, 6))
    ]
    gy = normal(B, H, T, 6, seed=1)
    numbers, keep = mask_numbers((B, H, T, S), rate)

    def plain(query, key, value):
        weights = F.attention_weights(query, key, mask)
        return weights * keep @ value

    expected, gradients = plain_gradients(plain, arrays, gy)
    device = [to_device(array.copy()).swapaxes(0, 1) for array in arrays]
    y, backward = fused.attention(*device, None if mask is None else to_device(mask), numbers)
    close(y.swapaxes(0, 1), expected)
    found = backward(to_device(gy).swapaxes(0, 1))
    for which, got, wanted in zip(["query", "key", "value"], found, gradients, strict=True):
        close(got.swapaxes(0, 1), wanted, which)


@pytest.mark.parametrize("shape", [(5, 3, 4), (1, 1, 1), (2, 9, 33), (3, 2, 6)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_swap_first_axes(kernels_on, shape, dtype):
    """Of numbers, and of operands rounded to 16 bits, also where they do not fill words."""
    x = (normal(*shape) * 99).astype(np.int32).astype(dtype)
    assert np.array_equal(to_numpy(fused.swap_first_axes(to_device(x))), x.swapaxes(0, 1))


WIDTH, CAPACITY = 3, 40  # texts of a sentence, tokens for which its cache has room


def attended(queries, keys, values, mask):
    """Attention in float64: (B, W, H, K) to (B, H, n, K), hidden by (B, W, n)."""
    scores = np.einsum("bwhk,bhnk->bwhn", queries, keys) / np.sqrt(queries.shape[-1])
    weights = np.where(mask[:, :, None], np.exp(scores), 0)
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("bwhn,bhnk->bwhk", weights / np.where(total > 0, total, 1), values)


@pytest.mark.parametrize(("tokens", "size"), [(7, 4), slow(35, 33)])
def test_a_step_of_attention_to_the_own_text(kernels_on, tokens, size):
    """The newest keys and values are written to the cache; what is hidden may be anything."""
    rng = np.random.default_rng(tokens)
    projected = normal(B * WIDTH, 3 * H * size)
    cache = normal(B, 4 * H, CAPACITY, size)[:, H : 3 * H]  # a view, as that of one layer
    mask = rng.random((B, WIDTH, tokens)) < 0.4
    mask[:, :, -WIDTH:] = np.eye(WIDTH, dtype=bool)  # each text sees its own newest token
    newest = projected.reshape(B, WIDTH, 3, H, size).transpose(2, 0, 3, 1, 4)  # (3, B, H, W, K)
    filled = cache.astype(np.float64)
    filled[:, :, tokens - WIDTH : tokens] = np.concatenate(newest[1:], axis=1)
    keys, values = np.split(filled[:, :, :tokens], 2, axis=1)
    cache = to_device(cache.copy())
    y = fused.attend_newest(to_device(projected), cache, to_device(mask), first=tokens - WIDTH)
    queries = newest[0].transpose(0, 2, 1, 3).astype(np.float64)
    expected = attended(queries, keys, values, mask)
    close(y, expected.reshape(B * WIDTH, H * size))
    close(cache, filled)


def test_a_step_of_attention_to_the_source(kernels_on):
    """Nothing is written; a source of padding alone gives zeros."""
    projected, source = normal(B * WIDTH, H * 4), normal(B, S, 2 * H, 4).swapaxes(1, 2)
    mask = np.ones((B, 1, S), dtype=bool)
    mask[0, 0, 4:], mask[1] = False, False
    cache = to_device(source)
    shown = np.broadcast_to(mask, (B, WIDTH, S))
    y = fused.attend_newest(to_device(projected), cache, to_device(shown))
    queries = projected.reshape(B, WIDTH, H, 4).astype(np.float64)
    expected = attended(
        queries, *source.astype(np.float64).reshape(B, 2, H, S, 4).swapaxes(0, 1), shown
    )
    close(y, expected.reshape(B * WIDTH, H * 4))
    assert not to_numpy(y)[WIDTH:].any()
    close(cache, source)


@pytest.mark.parametrize(
    ("size", "count"), [(V, 3), (1, 1), slow(40, 33), slow(300, 9), slow(1100, 2)]
)
def test_best_of_rows(kernels_on, size, count):
    """Equals in the order of their ids, whatever threads have them; too few end with -infinity."""
    logits = normal(5, size) * 30
    logits[0] = 300
    logits[1] = np.round(logits[1] / 30)  # many equals
    logits[2, 1:] = -np.inf
    logits[3, ::2] = -1000
    logits[4] = -(np.arange(size) % 512)  # equals of one thread
    greatest = logits.max(axis=1).astype(np.float64)
    expected = np.log(np.exp(logits - greatest[:, None]).sum(axis=1)) + greatest
    after = logits.copy()
    after[:, [0, 5 % size]] = -np.inf
    given = to_device(logits)
    sums, values, tokens = fused.best_of_rows(given, (0, 5 % size), count)
    close(sums, expected)
    assert np.array_equal(to_numpy(given), after)
    order = np.argsort(-after, axis=1, kind="stable")[:, :count]
    best = np.take_along_axis(after, order, axis=1)
    assert np.array_equal(values[:, :size], best)
    assert np.array_equal(tokens[:, :size], np.where(np.isneginf(best), size, order))
    for wrong in (np.nan, np.inf):
        logits[2, size // 2] = wrong
        assert not np.isfinite(fused.best_of_rows(to_device(logits), (0, 1), 0)[0][2])


# The loss, Adam, the embedding --------------------------------------------------------------------


@pytest.mark.parametrize("impossible", [(), (1, 9)], ids=["all ids", "impossible ids"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [V, 2, slow(300), slow(1500)])
def test_cross_entropy(kernels_on, size, smoothing, impossible):
    """1,500 words are more than the threads of a block, so that some threads take two."""
    logits, target = normal(5, size) * 5, np.arange(5) * 3 % size
    logits[:, [i for i in impossible if i < size and i not in target]] = -np.inf
    gradient = logits.astype(np.float64)
    with using("numpy"):
        expected = loss_and_gradient(gradient, target, smoothing)
    logits = to_device(logits)
    got = gpu_loss.loss_and_gradient(logits, to_device(target), smoothing)
    close(logits, gradient)
    close(got[0], expected[0])
    close(got[1], expected[1])


def test_cross_entropy_writes_a_rounded_gradient(kernels_on):
    logits, target = normal(5, 300) * 5, np.arange(5) * 3
    expected = logits.astype(np.float64)
    with using("numpy"):
        losses, nlls = loss_and_gradient(expected, target, 0.1)
    gradient = to_device(np.zeros(logits.shape, np.uint16))
    given = to_device(logits), to_device(target), 0.1
    got = gpu_loss.loss_and_gradient(*given, gradient=gradient)
    # A difference of two numbers has the error of the larger one.
    assert np.abs(number(to_numpy(gradient)) - expected).max() < 2**-8
    nearest(to_numpy(gradient)[np.abs(expected) > 1e-3], expected[np.abs(expected) > 1e-3])
    close(got[0], losses)
    close(got[1], nlls)


def test_adam(kernels_on):
    rng = np.random.default_rng(0)
    with using("numpy"):
        parameter = Parameter(normal(300).astype(np.float64))
        optimizer = Adam([("x", parameter)])
    plain = optimizer.data, optimizer.gradients, optimizer.m, optimizer.v
    arrays = [to_device(array.astype(np.float32)) for array in plain]
    for step in range(1, 4):
        gradient = rng.normal(size=300).astype(np.float32)
        arrays[1][...] = to_device(gradient)
        with using("numpy"):
            parameter.grad = None
            parameter._receive(gradient)
            optimizer.step(0.01)
        assert adam_update(*arrays, step, np.float64(0.01)) is None
    arrays[1][...] = np.nan
    for no in (False, to_device(np.array(False))):
        with updates_only_if(no):
            assert adam_update(*arrays, 4, 0.01) is None  # changes nothing
    for name, got, expected in zip(["data", "gradients", "m", "v"], arrays, plain, strict=True):
        if name != "gradients":
            close(got, expected, name)


IDS = {
    "one": [3],
    "all equal": [2] * 21,
    "all different": [4, 0, 3, 1],
    "some": [5, 1, 5, 5, 0, 1] * 4,
}


@pytest.mark.parametrize("columns", [1, 33])
@pytest.mark.parametrize("name", IDS)
def test_add_segments(kernels_on, name, columns):
    ids = np.array(IDS[name])
    rows, before = normal(len(ids), columns), normal(7, columns, seed=1)
    expected, out = before.astype(np.float64), to_device(before)
    add_segments(ids, rows.astype(np.float64), expected)
    fused.add_segments(ids, to_device(rows), out)
    close(out, expected)


def test_round_to_bfloat16():
    """To the nearest of the two neighbours; ties go to the even one."""
    x = np.concatenate(
        [normal(200) * 10.0 ** np.arange(-20, 20).repeat(5), [0, -0.0, 1 + 2**-8]]
    ).astype(np.float32)
    bits = x.view(np.uint32)
    y = np.zeros(len(x), np.uint16)
    blocks.launch(kernels.round_to_bfloat16, (2,), (32,), bits, y)

    def number(upper):
        return (upper.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    below, above = number(bits >> 16), number((bits >> 16) + 1)
    to_below, to_above = np.abs(below - x), np.abs(above - x)
    tied = to_below == to_above
    assert np.array_equal(number(y)[~tied], np.where(to_below < to_above, below, above)[~tied])
    assert tied.sum() == 1
    assert not (y[tied] & 1).any()
    infinite = np.array([np.inf, -np.inf], np.float32)
    blocks.launch(kernels.round_to_bfloat16, (1,), (2,), infinite.view(np.uint32), y)
    assert np.array_equal(number(y[:2]), infinite)
    # The NaN that a GPU makes, its negative, and one whose bits are all below the upper 16.
    nan = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32)
    blocks.launch(kernels.round_to_bfloat16, (1,), (3,), nan, y)
    assert np.isnan(number(y[:3])).all()
