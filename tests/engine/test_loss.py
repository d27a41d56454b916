"""Label smoothing in tensor2tensor's form, its gradient p - q, padding, and the fused form."""

import functools
import math

import numpy as np
import pytest
from sizes import B, D, T, V

from minitf import forms
from minitf import loss as loss_module
from minitf.backend import to_numpy
from minitf.cpu import loss as cpu_loss
from minitf.tensor import Tensor

# In the targets of these tests 0 is padding, as in the Transformer's.
label_smoothed_cross_entropy = functools.partial(loss_module.label_smoothed_cross_entropy, pad_id=0)
projected_cross_entropy = functools.partial(loss_module.projected_cross_entropy, pad_id=0)


def smoothed(target, smoothing, size):
    """The target distributions q, written out: (..., V)."""
    q = np.full((*np.shape(target), size), smoothing / (size - 1))
    np.put_along_axis(q, np.asarray(target)[..., None], 1 - smoothing, axis=-1)
    return q


def softmax(z):
    e = np.exp(z)
    return e / e.sum(-1, keepdims=True)


@pytest.fixture
def case(rng):
    """Logits, and targets: the last two of the first row are padding."""
    target = rng.integers(1, V, (B, T))
    target[0, -2:] = 0
    return rng.normal(size=(B, T, V)), target


def test_smoothed_targets_by_hand():
    assert np.allclose(smoothed([2], 0.1, 5), [[0.025, 0.025, 0.9, 0.025, 0.025]])
    assert np.allclose(smoothed([1, 3], 0.1, 5).sum(-1), 1)
    # uniform p: every ln p is -ln 5, whatever q is; a p that is q has the entropy of q as its loss
    q = smoothed([[2]], 0.1, 5)
    entropy = -(0.9 * math.log(0.9) + 4 * 0.025 * math.log(0.025))
    assert float(label_smoothed_cross_entropy(np.zeros((1, 1, 5)), [[2]], 0.1)) == pytest.approx(
        math.log(5)
    )
    assert float(label_smoothed_cross_entropy(np.log(q), [[2]], 0.1)) == pytest.approx(entropy)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_value_and_gradient_by_the_definition(case, smoothing):
    logits, target = case
    q, p = smoothed(target, smoothing, V), softmax(logits)
    real = target != 0
    x = Tensor(logits)
    loss = label_smoothed_cross_entropy(x, target, smoothing)
    loss.backward()
    assert float(loss) == pytest.approx(
        -(q * np.log(p)).sum(-1)[real].sum() / real.sum(), rel=1e-12
    )
    assert np.allclose(x.grad, (p - q) * real[..., None] / real.sum(), rtol=1e-10, atol=1e-15)


def test_mass_of_tensor2tensor_and_of_pytorch(case):
    """PyTorch's eps/V on every id is our form with eps' = eps (V-1) / V."""
    logits, target = case
    real = target != 0
    log_p = np.log(softmax(logits))
    pytorch = -(
        0.9 * np.take_along_axis(log_p, target[..., None], -1)[..., 0] + 0.1 * log_p.mean(-1)
    )
    ours = label_smoothed_cross_entropy(logits, target, smoothing=0.1 * (V - 1) / V)
    assert float(ours) == pytest.approx(pytorch[real].mean(), rel=1e-12)
    assert float(label_smoothed_cross_entropy(logits, target, 0.1)) != pytest.approx(
        pytorch[real].mean(), rel=1e-6
    )


def test_padding_drops_out(case, rng):
    logits, target = case
    other = logits.copy()
    other[target == 0] = rng.normal(0, 100, (2, V))
    values = [float(label_smoothed_cross_entropy(z, target)) for z in (logits, other)]
    assert values[0] == values[1]
    x = Tensor(other)
    label_smoothed_cross_entropy(x, target).backward()
    assert not x.grad[target == 0].any()
    assert x.grad[target != 0].all()


def test_an_impossible_word(library):
    """A logit of -inf makes the loss infinite if it is that of the target; else its q is 0."""
    logits = np.array([[1.0, -np.inf, 2.0, 0.5]], np.float32)
    p = softmax(logits.astype(np.float64))
    for target, smoothing, expected in (
        (2, 0.0, -np.log(p[0, 2])),
        (2, 0.1, -(0.9 * np.log(p[0, 2]) + 0.1 / 2 * np.log(p[0, 0] * p[0, 3]))),
        (1, 0.0, np.inf),
        (1, 0.1, np.inf),
    ):
        x = Tensor(logits)
        loss = label_smoothed_cross_entropy(x, [target], smoothing)
        loss.backward()
        assert float(loss) == pytest.approx(expected, rel=1e-6)
        q = np.full((1, 4), smoothing / 2)  # three of four are possible
        q[0, 1] = 0
        q[0, target] = 1 - smoothing
        assert np.allclose(to_numpy(x.grad), p - q, atol=1e-6)


@pytest.mark.parametrize("n_tokens", [0, -3, np.int64(0), float("nan")])
def test_a_loss_is_not_divided_by_nothing(case, rng, n_tokens):
    with pytest.raises(ValueError, match=r"n_tokens is .*more than 0"):
        label_smoothed_cross_entropy(*case, n_tokens=n_tokens)
    with pytest.raises(ValueError, match=r"n_tokens is .*more than 0"):
        projected_cross_entropy(
            rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), case[1], n_tokens=n_tokens
        )


@pytest.mark.parametrize("smoothing", [-0.1, 10, math.nan])
@pytest.mark.parametrize("program", [forms.on, forms.off])
def test_the_smoothing_is_a_probability(case, rng, smoothing, program):
    with program(), pytest.raises(ValueError, match=r"smoothing must be at least 0 and at most 1"):
        projected_cross_entropy(
            rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), case[1], smoothing
        )


def test_a_single_word(library):
    x = Tensor(np.array([[3.0], [5.0]], np.float32))
    loss = loss_module.label_smoothed_cross_entropy(x, [0, 0], smoothing=0.0)
    loss.backward()
    assert float(loss) == 0 and not to_numpy(x.grad).any()
    with pytest.raises(
        ValueError, match="at least 2 ids in the vocabulary, not 1: label smoothing"
    ):
        loss_module.label_smoothed_cross_entropy(x, [0, 0], smoothing=0.1)
    with pytest.raises(ValueError, match="at least 1 ids in the vocabulary, not 0"):
        loss_module.label_smoothed_cross_entropy(np.zeros((0, 0)), [], smoothing=0.0)


@pytest.mark.parametrize("target", [[[1.0, 2.0]], [[True, False]], [["a", "b"]]])
def test_targets_are_integers(target):
    with pytest.raises(TypeError, match="targets must be integers, not"):
        label_smoothed_cross_entropy(np.zeros((1, 2, V)), target)


def test_features_that_do_not_fit_the_vocabulary_are_named(case, rng):
    with pytest.raises(ValueError, match=r"not the shapes \(2, 5, 12\) and \(11, 13\)"):
        projected_cross_entropy(rng.normal(size=(B, T, D)), rng.normal(size=(V, D + 1)), case[1])


@pytest.mark.parametrize("n_tokens", [None, 4, 1000])
def test_the_sum_is_divided_by_n_tokens(case, rng, n_tokens):
    logits, target = case
    hidden, weight = rng.normal(size=(B, T, D)), rng.normal(size=(V, D))
    n = int((target != 0).sum())
    mean = float(label_smoothed_cross_entropy(logits, target))
    divided = float(label_smoothed_cross_entropy(logits, target, n_tokens=n_tokens))
    assert divided == pytest.approx(mean * n / (n_tokens or n), rel=1e-12)
    _, nll = projected_cross_entropy(hidden, weight, target, n_tokens=n_tokens)
    assert float(nll) * (n_tokens or n) == pytest.approx(
        float(label_smoothed_cross_entropy(hidden @ weight.T, target, smoothing=0.0)) * n, rel=1e-12
    )


def test_no_more_logits_than_a_chunk(case, rng, monkeypatch):
    """Also, rows of padding never reach the product with the vocabulary."""
    monkeypatch.setattr(cpu_loss, "CHUNK_ROWS", 3)
    sizes, work = [], cpu_loss.loss_and_gradient

    def watch(logits, *arguments):
        sizes.append(len(logits))
        return work(logits, *arguments)

    monkeypatch.setattr(cpu_loss, "loss_and_gradient", watch)
    with forms.on():
        projected_cross_entropy(rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), case[1])
    assert sizes == [3, 3, 2]


@pytest.mark.parametrize("program", [forms.on, forms.off])
def test_second_result_is_the_plain_negative_log_likelihood(case, rng, program):
    """Reported perplexity must not contain the smoothing, and nothing is learnt from it."""
    hidden, weight, target = rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), case[1]
    p = softmax(hidden @ weight.T)
    expected = -np.log(np.take_along_axis(p, target[..., None], -1))[target != 0].mean()
    x = Tensor(hidden)
    with program():
        loss, nll = projected_cross_entropy(x, Tensor(weight), target, smoothing=0.3)
    assert float(nll) == pytest.approx(expected, rel=1e-12)
    assert float(loss) != pytest.approx(expected, rel=1e-3)
    with pytest.raises(RuntimeError, match="has no graph"):
        nll.backward()


def test_nothing_but_padding(rng):
    hidden, weight = Tensor(rng.normal(size=(B, T, D))), Tensor(rng.normal(size=(V, D)))
    loss, nll = projected_cross_entropy(hidden, weight, np.zeros((B, T), int))
    loss.backward()
    assert float(loss) == float(nll) == 0
    assert not hidden.grad.any()
    assert not weight.grad.any()
    assert (
        float(label_smoothed_cross_entropy(rng.normal(size=(B, T, V)), np.zeros((B, T), int))) == 0
    )


def test_huge_logits_do_not_overflow():
    logits = np.array([[[1e4, 0.0, -1e4, 3e4]]], dtype=np.float32)
    x = Tensor(logits)
    loss = label_smoothed_cross_entropy(x, [[1]], smoothing=0.0)
    loss.backward()
    assert float(loss) == 30000
    assert np.array_equal(x.grad, [[[0, -1, 0, 1]]])


def test_logits_and_hidden_states_are_left_alone(case, rng):
    logits, target = case
    hidden, weight = rng.normal(size=(B, T, D)), rng.normal(size=(V, D))
    copies = logits.copy(), hidden.copy(), weight.copy()
    label_smoothed_cross_entropy(Tensor(logits), target)
    projected_cross_entropy(Tensor(hidden), Tensor(weight), target)
    assert all(np.array_equal(*pair) for pair in zip((logits, hidden, weight), copies, strict=True))


def test_the_smoothing_is_the_papers_unless_told_otherwise(case, rng):
    logits, target = case
    hidden, weight = rng.normal(size=(B, T, D)), rng.normal(size=(V, D))
    default, expected = ({"pad_id": 0, **given} for given in ({}, {"smoothing": 0.1}))
    plain = [label_smoothed_cross_entropy(logits, target, **given) for given in (default, expected)]
    fused = [
        projected_cross_entropy(hidden, weight, target, **given)[0] for given in (default, expected)
    ]
    assert float(plain[0]) == float(plain[1]) and float(fused[0]) == float(fused[1])


@pytest.mark.parametrize("shape", [(B, T - 1), (T, B), (1, T), (B * T,), (B, T, 1)])
def test_targets_of_another_shape_are_refused(rng, shape):
    target = np.full(shape, 3)
    with pytest.raises(ValueError, match=r"targets have shape .*, but the predictions need"):
        label_smoothed_cross_entropy(rng.normal(size=(B, T, V)), target)
    with pytest.raises(ValueError, match=r"targets have shape .*, but the predictions need"):
        projected_cross_entropy(rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), target)


def test_a_target_that_is_no_word_is_refused(rng, library):
    """On a GPU it would be read from some other place, without a word."""
    for wrong in (V, -1):
        target = np.full((B, T), 3)
        target[1, 2] = wrong
        with pytest.raises(IndexError, match="targets must be from 0 to 10, but range from"):
            label_smoothed_cross_entropy(rng.normal(size=(B, T, V)), target)
        with pytest.raises(IndexError, match="targets must be from 0 to 10, but range from"):
            projected_cross_entropy(rng.normal(size=(B, T, D)), rng.normal(size=(V, D)), target)
