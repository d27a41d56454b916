"""The gradient of a batch is the same, however it is cut into micro-batches or over cores."""

import itertools
import threading

import numpy as np
import pytest
from models import SWITCHES, random_batch, small_model
from sizes import V
from threadpoolctl import threadpool_info, threadpool_limits

from minitf import dropout
from minitf import functions as F
from minitf.config import Config
from minitf.cpu import replicas as parallel
from minitf.cpu.replicas import Replicas, threads_for
from minitf.cpu.threads import each
from minitf.nn import Linear
from minitf.optim import Adam, adam_update, warmup_rate
from minitf.tensor import no_grad
from minitf.training.settings import QUICK
from minitf.transformer import Transformer

RATES = {"dropout": 0.2, "attention_dropout": 0.3, "feed_forward_dropout": 0.1}
ROWS = 7
WORTH_IT = parallel._WORTH_IT
switches = pytest.mark.parametrize(
    "changes", [SWITCHES["paper"], SWITCHES["all"]], ids=["paper", "all"]
)


@pytest.fixture(autouse=True)
def small_batches_are_cut_too(monkeypatch):
    monkeypatch.setattr(parallel, "_WORTH_IT", 1)


def build(dtype="float64", **changes):
    model = small_model(dtype, **RATES, **changes)
    return model, Adam(model.named_parameters())


def replicate(model, count, **changes):
    return Replicas(model, lambda: small_model(seed=9, **RATES, **changes), count)


def whole(batch, **changes):
    """Return the loss and the flat gradient of the uncut batch, computed without replicas.py."""
    model, optimizer = build(**changes)
    with F.dropout_state(seed=5, step=6):
        loss, nll = model.train().loss(
            batch.source, batch.target_in, batch.target_out, batch.n_tokens
        )
    loss.backward()
    return float(loss), float(nll), optimizer.collect().copy()


def assert_equal(result, gradients, expected):
    assert result == pytest.approx(expected[:2], rel=1e-9)
    assert np.allclose(gradients, expected[2], rtol=1e-9, atol=1e-9 * np.abs(expected[2]).max())


@switches
@pytest.mark.parametrize("cuts", [[0, 3, 7], [0, 1, 2, 6, 7], list(range(8))], ids=str)
def test_micro_batches_equal_one_batch(rng, changes, cuts):
    batch = random_batch(rng, ROWS)
    expected = whole(batch, **changes)
    model, optimizer = build(**changes)
    losses = []
    for start, stop in itertools.pairwise(cuts):
        part = batch.rows(start, stop)
        with F.dropout_state(5, 6, part.first_row):
            pair = model.train().loss(part.source, part.target_in, part.target_out, batch.n_tokens)
        pair[0].backward()
        losses.append([float(x) for x in pair])
    assert_equal(np.sum(losses, axis=0), optimizer.collect(), expected)


@switches
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_cores_equal_one_core(rng, changes, count):
    batch = random_batch(rng, ROWS)
    expected = whole(batch, **changes)
    model, optimizer = build(**changes)
    replicas = replicate(model, count, **changes)
    for _ in range(2):  # the first call leaves nothing behind
        optimizer.zero_grad()
        result = replicas.backward(batch, batch.n_tokens, seed=5, step=6)
        assert_equal(result, optimizer.collect(), expected)


@pytest.mark.filterwarnings("error")
def test_weights_that_were_not_drawn_are_not_computed_with(rng):
    """Uninitialised memory may contain values that warn when they are converted."""

    def chance():
        twin = build()[0].astype("float32")
        for parameter in twin.parameters():
            parameter.data.view(np.uint32)[...] = 0x7FA00000  # a signalling NaN
        return twin

    batch = random_batch(rng, ROWS)
    model, optimizer = build()
    result = Replicas(model, chance, 3).backward(batch, batch.n_tokens, 5, 6)
    assert_equal(result, optimizer.collect(), whole(batch))


def test_micro_batches_over_cores_equal_one_batch(rng):
    batch = random_batch(rng, ROWS)
    model, optimizer = build()
    replicas = replicate(model, 2)
    losses = [
        replicas.backward(part, batch.n_tokens, 5, 6)
        for part in (batch.rows(0, 3), batch.rows(3, 7))
    ]
    assert_equal(np.sum(losses, axis=0), optimizer.collect(), whole(batch))


def test_a_wrong_sum_would_be_found(rng):
    """Dividing each slice by its own tokens, or masks from row 0, give another gradient."""
    batch = random_batch(rng, ROWS)
    expected = whole(batch)[2]
    for n_tokens, shift in ((None, 1), (batch.n_tokens, 0)):
        model, optimizer = build()
        for part in (batch.rows(0, 3), batch.rows(3, 7)):
            with F.dropout_state(5, 6, shift * part.first_row):
                loss, _ = model.train().loss(part.source, part.target_in, part.target_out, n_tokens)
            loss.backward()
        assert not np.allclose(optimizer.collect(), expected, rtol=1e-2, atol=0)


def test_the_slices_are_the_rows_of_the_batch(rng, monkeypatch):
    model, _ = build()
    replicas = replicate(model, 3)
    batch = random_batch(rng, ROWS)
    slices = replicas.slices(batch)
    assert [len(part.source) for part in slices] == [2, 2, 3]
    assert [part.first_row for part in slices] == [0, 2, 4]
    for field in ("source", "target_in", "target_out"):
        assert np.array_equal(
            np.concatenate([getattr(part, field) for part in slices]), getattr(batch, field)
        )
    assert len(replicas.slices(random_batch(rng, 2))) == 2, "no slice is empty"
    size = batch.target_in.size * model.config.d_model
    for worth_it, n in ((size // 2, 2), (size, 1), (size + 1, 1)):
        monkeypatch.setattr(parallel, "_WORTH_IT", worth_it)
        assert len(replicas.slices(batch)) == n, "small batches are not worth a thread"


def train(count, rng, dtype="float64", steps=3):
    model, optimizer = build(dtype)
    replicas = Replicas(model, lambda: small_model(dtype, seed=9, **RATES), count)
    for step in range(1, steps + 1):
        batch = random_batch(rng, ROWS, vocabulary_size=V)
        optimizer.zero_grad()
        replicas.backward(batch, batch.n_tokens, seed=1, step=step)
        optimizer.step(warmup_rate(step, model.config.d_model, warmup_steps=4))
    return model.state()


def test_the_replicas_follow_the_weights():
    """After updates of the first model too: the weights are shared, not copied."""
    one, three = (train(count, np.random.default_rng(0)) for count in (1, 3))
    for name, array in one.items():
        assert np.allclose(array, three[name], rtol=1e-8, atol=1e-8), name


def test_a_run_can_be_repeated_bit_for_bit():
    one, again = (train(3, np.random.default_rng(0), "float32") for _ in range(2))
    assert all(np.array_equal(array, again[name]) for name, array in one.items())


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 7, 8, 23])
def test_each_item_is_taken_once(count, n):
    """Adam's step changes every slice of the parameters exactly once."""
    taken = []
    with replicate(build()[0], count).lend_threads():
        each(taken.append, list(range(n)))
    assert sorted(taken) == list(range(n))


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3)])
def test_only_threads_that_are_lent_are_taken(count, expected):
    """One replica starts none, and after the block no thread is lent."""
    threads, gate = set(), threading.Barrier(count, timeout=30)

    def note(item):
        if item < count:
            gate.wait()
        threads.add(threading.get_ident())

    running = threading.active_count()
    with replicate(build()[0], count).lend_threads():
        each(note, list(range(23)))
    assert len(threads) == expected
    assert (threading.get_ident() in threads) == (count == 1)
    assert count > 1 or threading.active_count() <= running
    threads.clear()
    each(lambda item: threads.add(threading.get_ident()), list(range(23)))
    assert threads == {threading.get_ident()}


def test_a_step_on_several_threads_is_the_step_on_one(rng):
    """The parameters have enough blocks to be worth waking a thread."""
    x, g = rng.normal(size=(2, 9 << 17)).astype(np.float32)
    results = []
    for count in (1, 3):
        data, m, v = x.copy(), np.zeros_like(x), np.zeros_like(x)
        with replicate(build()[0], count).lend_threads():
            for t in (1, 2):
                adam_update(data, g, m, v, t, 0.1)
        results.append((data, m, v))
    assert all(np.array_equal(*pair) for pair in zip(*results, strict=True))


def test_replicas_made_before_the_optimizer(rng):
    """Adam moves the weights in memory; the replicas must follow."""
    model = small_model(**RATES)
    replicas = replicate(model, 2)
    optimizer = Adam(model.named_parameters())
    optimizer.data *= 1.1
    expected_model, expected = build()
    expected.data *= 1.1
    batch = random_batch(rng, ROWS)
    with F.dropout_state(seed=5, step=6):
        loss, _ = expected_model.train().loss(batch.source, batch.target_in, batch.target_out)
    loss.backward()
    replicas.backward(batch, batch.n_tokens, seed=5, step=6)
    assert np.allclose(optimizer.collect(), expected.collect(), rtol=1e-9, atol=1e-12)


def test_replicas_have_the_dtype_of_the_model(rng):
    """Twins are built in float32; gradients of a float64 model must keep all digits."""
    batch = random_batch(rng, ROWS)
    model, optimizer = build()
    replicas = Replicas(model, lambda: small_model("float32", **RATES), 2)
    assert_equal(replicas.backward(batch, batch.n_tokens, 5, 6), optimizer.collect(), whole(batch))


def test_the_switches_of_the_calling_thread_stay(rng):
    """no_grad and the dropout state belong to a thread; the replicas' threads have their own."""
    model, optimizer = build()
    batch = random_batch(rng, ROWS)
    with F.dropout_state(seed=8, step=8), no_grad():
        replicate(model, 2).backward(batch, batch.n_tokens, 5, 6)
        assert (dropout._state.seed, dropout._state.place) == (8, 0)
    assert np.allclose(optimizer.collect(), whole(batch)[2], rtol=1e-9, atol=1e-12)


def test_an_error_in_a_thread_arrives_and_leaves_nothing_behind(rng):
    model, optimizer = build()
    replicas = replicate(model, 3)
    batch = random_batch(rng, ROWS)
    wrong = random_batch(rng, ROWS)
    wrong.source[-1, 0] = V + 5
    with pytest.raises(IndexError, match=f"{V + 5}"):
        replicas.backward(wrong, wrong.n_tokens, 5, 6)
    optimizer.zero_grad()
    result = replicas.backward(batch, batch.n_tokens, 5, 6)
    assert_equal(result, optimizer.collect(), whole(batch))


def test_every_slice_has_its_own_thread(rng):
    model, _ = build()
    replicas = replicate(model, 3)
    threads = {}
    for i, twin in enumerate(replicas.models):
        plain = twin.loss

        def loss(*arguments, i=i, plain=plain):
            threads[i] = threading.get_ident()
            return plain(*arguments)

        twin.loss = loss
    batch = random_batch(rng, ROWS)
    replicas.backward(batch, batch.n_tokens, 5, 6)
    assert set(threads) == {0, 1, 2}
    assert threading.get_ident() not in threads.values()


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
    monkeypatch.setattr(parallel, "_TINY", tiny)
    seen = []
    forward = Transformer.loss
    monkeypatch.setattr(
        Transformer, "loss", lambda *args: (seen.append(blas_threads()), forward(*args))[1]
    )
    batch = random_batch(rng, ROWS)
    replicate(build()[0], count).backward(batch, batch.n_tokens, seed=5, step=6)
    assert seen == [threads] * count
    assert blas_threads() == {2}, "only inside"


def test_what_is_tiny_depends_on_the_shape_of_the_batch_alone(rng, monkeypatch, two_threads):
    replicas = replicate(build()[0], 1)
    short, long = random_batch(rng, ROWS, 3, 9), random_batch(rng, ROWS, 9, 3)
    config = replicas.models[0].config
    for batch in (short, long):
        assert replicas._operations(batch) == 2 * ROWS * 9 * config.d_model * config.d_ff
    for operations, threads in ((99, {1}), (100, {2})):
        monkeypatch.setattr(parallel, "_TINY", 100)
        with threads_for(operations):
            assert blas_threads() == threads


def test_a_batch_of_quick_is_tiny():
    """Its updates use one thread, however busy the machine is."""
    config = Config.preset(QUICK["preset"], QUICK["vocabulary_size"])
    assert 2 * QUICK["batch_tokens"] * config.d_model * config.d_ff < parallel._TINY
    assert QUICK["batch_tokens"] * config.d_model < 2 * WORTH_IT, "and not worth a second replica"


@pytest.mark.parametrize(("cores", "threads"), [(1, {1}), (2, {2}), (64, {2})])
def test_blas_keeps_to_the_cores_of_a_container(two_threads, cores, threads):
    parallel.keep_to_cores(cores)
    assert blas_threads() == threads


@pytest.mark.parametrize("touched", [{0}, {1}, {0, 1}, set()])
def test_a_parameter_that_only_some_rows_touch_gets_their_gradient(touched):
    """Such as an expert that no row of one replica uses."""
    model, twin = Linear(3, 2, np.random.default_rng(0)), Linear(3, 2, None)
    replicas = Replicas(model, lambda: twin, 2)
    for i, part in enumerate((model, twin)):
        part.weight.grad = np.ones((3, 2), np.float32)
        part.bias.grad = np.full(2, 1 + i, np.float32) if i in touched else None
    replicas._sum(2)
    assert (model.weight.grad == 2).all()
    if touched:
        assert (model.bias.grad == sum(1 + i for i in touched)).all()
    else:
        assert model.bias.grad is None
