"""The gradient of a batch is the same, however it is cut into micro-batches or over cores."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from models import SWITCHES, random_batch, small_model
from sizes import V
from threadpoolctl import threadpool_info, threadpool_limits

from minitf import dropout
from minitf import functions as F
from minitf.nn import Linear, Module, Parameter
from minitf.optim import Adam, warmup_rate
from minitf.tensor import no_grad
from minitf.text import Batch
from minitf.training import update
from minitf.training.distributed import Ranks
from minitf.training.update import Updater, slices_of
from minitf.transformer import Transformer

RATES = {"dropout": 0.2, "attention_dropout": 0.3, "feed_forward_dropout": 0.1}
ROWS = 7
WORTH_IT = update._MIN_ACTIVATIONS
switches = pytest.mark.parametrize(
    "changes", [SWITCHES["paper"], SWITCHES["all"]], ids=["paper", "all"]
)


@pytest.fixture(autouse=True)
def small_batches_are_cut_too(monkeypatch):
    monkeypatch.setattr(update, "_MIN_ACTIVATIONS", 1)


def build(dtype="float64", **changes):
    model = small_model(dtype, **RATES, **changes)
    return model, Adam(model.named_parameters())


def updater(count, dtype="float64", **changes):
    """Return an Updater of so many replicas; the weights that its copies are built with are others.

    Its optimizer has the gradient.
    """
    model, optimizer = build(dtype, **changes)
    return Updater(
        model,
        optimizer,
        build=lambda: small_model(dtype, seed=9, **RATES, **changes),
        replicas=count,
        seed=5,
    )


def gradient(found, *batches, n_tokens=None):
    """Compute some batches; return the sums of loss and nll, and the flat gradient."""
    found.optimizer.zero_grad()
    n_tokens = n_tokens or sum(batch.n_tokens for batch in batches)
    figures = [found.backward(batch, n_tokens, step=6) for batch in batches]
    return np.sum(figures, axis=0), found.optimizer.gather_gradients()


def whole(batch, **changes):
    """Return the loss and the flat gradient of the uncut batch, computed without update.py."""
    model, optimizer = build(**changes)
    with F.dropout_state(seed=5, step=6):
        loss, nll = model.train().loss(
            batch.source, batch.target_in, batch.target_out, batch.n_tokens
        )
    loss.backward()
    return float(loss), float(nll), optimizer.gather_gradients().copy()


def assert_equal(found, expected):
    result, gradients = found
    assert result == pytest.approx(expected[:2], rel=1e-9)
    assert np.allclose(gradients, expected[2], rtol=1e-9, atol=1e-9 * np.abs(expected[2]).max())


@switches
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_cores_equal_one_core(rng, changes, count):
    batch = random_batch(rng, ROWS)
    expected = whole(batch, **changes)
    cores = updater(count, **changes)
    for _ in range(2):  # the first call leaves nothing behind
        assert_equal(gradient(cores, batch), expected)


class InTurn(Ranks):
    """One of two ranks that are threads of this process, of which one computes at a time."""

    sent, turn, meeting = [None, None], threading.Lock(), threading.Barrier(2, timeout=60)

    def all_gather(self, value):
        self.sent[self.rank] = value
        self.turn.release()
        self.meeting.wait()
        found = list(self.sent)
        self.meeting.wait()
        self.turn.acquire()
        return found

    def broadcast(self, value):
        return self.all_gather(value)[0]

    def sum_numbers(self, *numbers):
        return tuple(map(sum, zip(*self.all_gather(numbers), strict=True)))

    def all_reduce(self, array):
        array[:] = sum(self.all_gather(array.copy()))


def test_two_ranks_find_the_gradient_of_one(rng):
    batches = [random_batch(rng, ROWS) for _ in range(3)]
    dataset = SimpleNamespace(batch=lambda indices: batches[indices[0]])
    indices = SimpleNamespace(indices=[np.full(ROWS, i) for i in range(3)])

    def found(ranks):
        with InTurn.turn:
            one = updater(2)
            one.dataset, one.ranks, one.accumulate = dataset, ranks, 3
            figures = [float(x) for x in one.gradient(indices, step=2)]
            return figures, one.optimizer.gradients.copy()

    figures, gradients = found(Ranks())
    with ThreadPoolExecutor(2) as pool:
        for mine, theirs in pool.map(found, [InTurn(0, 2), InTurn(1, 2)]):
            assert mine == pytest.approx(figures, rel=1e-9)
            assert np.allclose(theirs, gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_every_row_is_in_one_slice(rng, size):
    for n_batches in range(1, 10):
        sizes = rng.integers(1, 30, n_batches).tolist()
        rows = [(i, row) for i, n in enumerate(sizes) for row in range(n)]
        shared = [
            (i, row)
            for each in slices_of(sizes, size)
            for i, start, stop in each
            for row in range(start, stop)
        ]
        assert shared == rows, "in order, none twice, none missing"
    for n_batches in range(1, 10):  # of 20 rows each: the slices are equal to within two rows
        for each in slices_of([20] * n_batches, size):
            assert abs(sum(stop - start for _, start, stop in each) - 20 * n_batches / size) < 2


def noted(cores):
    """Return the list of the batches that its models compute from now on."""
    parts = []
    for model in cores.models:
        plain = model.loss

        def loss(source, target_in, target_out, n_tokens, plain=plain):
            parts.append((source, target_in, target_out))
            return plain(source, target_in, target_out, n_tokens)

        model.loss = loss
    return parts


def test_the_slices_are_the_rows_of_the_batch(rng, monkeypatch):
    cores, batch = updater(3), random_batch(rng, ROWS)
    parts = noted(cores)
    gradient(cores, batch)
    assert sorted(len(source) for source, _, _ in parts) == [2, 2, 3]
    rows = [row for part in parts for row in zip(*map(np.ndarray.tolist, part), strict=True)]
    whole_rows = zip(batch.source, batch.target_in, batch.target_out, strict=True)
    assert sorted(rows) == sorted(tuple(map(np.ndarray.tolist, row)) for row in whole_rows)
    size = batch.target_in.size * cores.models[0].config.d_model
    for worth_it, n in ((size // 2, 2), (size, 1), (size + 1, 1)):
        monkeypatch.setattr(update, "_MIN_ACTIVATIONS", worth_it)
        parts.clear()
        gradient(cores, batch)
        assert len(parts) == n, "small batches are not worth a thread"


def train(count, rng, dtype="float64", steps=3):
    cores = updater(count, dtype)
    model, optimizer = cores.models[0], cores.optimizer
    for step in range(1, steps + 1):
        gradient(cores, random_batch(rng, ROWS, vocabulary_size=V))
        optimizer.step(warmup_rate(step, model.config.d_model, warmup_steps=4))
        for parameter in model.parameters():  # somebody changes the weights
            parameter.data *= 1.01
    return model.state()


def test_the_replicas_follow_the_weights():
    """After updates of the first model too: the weights are shared, not copied."""
    one, three = (train(count, np.random.default_rng(0)) for count in (1, 3))
    for name, array in one.items():
        assert np.allclose(array, three[name], rtol=1e-8, atol=1e-8), name


def test_the_switches_of_the_calling_thread_stay(rng):
    """no_grad and the dropout state belong to a thread; the replicas' threads have their own."""
    batch = random_batch(rng, ROWS)
    with F.dropout_state(seed=8, step=8), no_grad():
        found = gradient(updater(2), batch)
        assert (dropout._state.seed, dropout._state.place) == (8, 0)
    assert_equal(found, whole(batch))


def test_an_error_in_a_thread_arrives_and_leaves_nothing_behind(rng):
    cores = updater(3)
    batch, wrong = random_batch(rng, ROWS), random_batch(rng, ROWS)
    wrong.source[-1, 0] = V + 5
    with pytest.raises(IndexError, match=f"{V + 5}"):
        gradient(cores, wrong)
    assert_equal(gradient(cores, batch), whole(batch))


class Experts(Module):
    """A model with a bias for each kind of row, which only rows of that kind use."""

    config = SimpleNamespace(d_model=2, d_ff=2)

    def __init__(self):
        self.linear = Linear(3, 2, np.random.default_rng(0))
        self.biases = [Parameter(np.zeros(2, np.float32)) for _ in range(3)]

    def train(self):
        return self

    def loss(self, source, target_in, target_out, n_tokens):
        rows = [self.linear(np.ones(3, np.float32)) + self.biases[kind] for kind in source[:, 0]]
        loss = sum(rows[1:], rows[0]).sum() / n_tokens
        return loss, loss


@pytest.mark.parametrize("kinds", [(0, 0), (0, 1), (1, 0), (2, 1)], ids=str)
def test_a_parameter_that_only_some_rows_use_gets_their_gradient(kinds):
    """Such as an expert that no row of one replica uses."""
    model = Experts()
    cores = Updater(model, Adam(model.named_parameters()), build=Experts, replicas=2)
    batch = Batch(*(np.array(kinds).reshape(2, 1) for _ in range(3)))
    for _ in range(2):  # nothing is left of the first
        _, found = gradient(cores, batch, n_tokens=1)
        expected = [2.0] * 8 + [float(kinds.count(kind)) for kind in (0, 0, 1, 1, 2, 2)]
        assert found.tolist() == expected


# The threads of the matrix products ---------------------------------------------------------------


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    """BLAS has two threads, as it would on two cores."""
    with threadpool_limits(2, "blas"):
        yield


@pytest.mark.parametrize(("count", "tiny", "threads"), [(1, 1e8, {1}), (1, 0, {2}), (3, 0, {1})])
def test_tiny_products_have_one_thread(rng, monkeypatch, two_threads, count, tiny, threads):
    """So have those of several replicas; large products of an uncut batch have all."""
    monkeypatch.setattr(update, "_SMALL_PRODUCT", tiny)
    seen = []
    forward = Transformer.loss
    monkeypatch.setattr(
        Transformer, "loss", lambda *args: (seen.append(blas_threads()), forward(*args))[1]
    )
    batch = random_batch(rng, ROWS)
    gradient(updater(count), batch)
    assert seen == [threads] * count
    assert blas_threads() == {2}, "only inside"


@pytest.mark.parametrize(("cores", "threads"), [(1, {1}), (2, {2}), (64, {2})])
def test_blas_keeps_to_the_cores_of_a_container(two_threads, cores, threads):
    ranks = Ranks()
    ranks.cores = lambda: cores
    ranks.limit_threads()
    assert blas_threads() == threads
