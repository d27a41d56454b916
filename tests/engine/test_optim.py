"""Adam against plain loops, the warm-up schedule by hand, clipping."""

import copy
import math
import pickle

import numpy as np
import pytest
from models import random_batch, small_config, small_model

from minitf.backend import to_device, to_numpy
from minitf.errors import UserError
from minitf.nn import Linear, Module, Parameter
from minitf.optim import Adam, clip_gradient, gradient_norm, warmup_rate
from minitf.tensor import Tensor


class Three(Module):
    """Three parameters of different shapes."""

    def __init__(self, rng, dtype="float64"):
        self.a = Parameter(rng.normal(size=(2, 3)).astype(dtype))
        self.b = Parameter(rng.normal(size=4).astype(dtype))
        self.c = Parameter(rng.normal(size=()).astype(dtype))


def give(parameter, gradient):
    """Add a gradient to a parameter, as backward() does."""
    parameter.backward(to_device(gradient, parameter.dtype))


def scalar_adam(x, gradients, rates, beta_1=0.9, beta_2=0.98, eps=1e-9):
    """Algorithm 1 of Kingma and Ba for one number, as they wrote it."""
    m = v = 0.0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        m_hat = m / (1 - beta_1**t)
        v_hat = v / (1 - beta_2**t)
        x = x - rate * m_hat / (math.sqrt(v_hat) + eps)
    return x


# The schedule -------------------------------------------------------------------------------------


def test_warmup_by_hand():
    assert warmup_rate(4000, 512) == pytest.approx(6.988e-4, rel=1e-4)
    assert warmup_rate(1, 512) == pytest.approx(512**-0.5 / 4000**1.5)
    assert warmup_rate(2000, 512) == pytest.approx(warmup_rate(4000, 512) / 2), "it rises linearly"
    assert warmup_rate(16000, 512) == pytest.approx(warmup_rate(4000, 512) / 2), (
        "it falls as 1 / sqrt(step)"
    )
    assert warmup_rate(100, 64, warmup_steps=100) == pytest.approx(1 / 80)
    assert warmup_rate(7, 512, factor=3.0) == 3 * warmup_rate(7, 512)


@pytest.mark.parametrize("warmup_steps", [1, 10, 4000])
def test_the_highest_rate_is_at_the_last_step_of_the_warmup(warmup_steps):
    rates = [warmup_rate(step, 64, warmup_steps) for step in range(1, 10 * warmup_steps)]
    assert int(np.argmax(rates)) + 1 == warmup_steps


def test_the_first_step_is_one():
    with pytest.raises(ValueError, match="step must be at least 1, not 0"):
        warmup_rate(0, 512)
    with pytest.raises(ValueError, match="warmup_steps must be at least 1, not 0"):
        warmup_rate(1, 512, 0)


# Adam ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constants", [{}, {"beta_1": 0.5, "beta_2": 0.7, "eps": 0.1}], ids=["paper", "others"]
)
def test_adam_is_the_algorithm_number_by_number(rng, constants):
    model = Three(rng)
    start = model.state()
    optimizer = Adam(model.named_parameters(), **constants)
    steps = 20
    gradients = [
        {name: rng.normal(size=p.shape) for name, p in model.named_parameters()}
        for _ in range(steps)
    ]
    rates = [warmup_rate(step, 16, warmup_steps=8) for step in range(1, steps + 1)]
    for step, rate in zip(gradients, rates, strict=True):
        optimizer.zero_grad()
        for name, p in model.named_parameters():
            give(p, step[name])
        optimizer.step(rate)
    for name, p in model.named_parameters():
        for index in np.ndindex(p.shape):
            history = [step[name][index] for step in gradients]
            expected = scalar_adam(start[name][index], history, rates, **constants)
            assert p.data[index] == pytest.approx(expected, rel=1e-12), (name, index)


@pytest.mark.parametrize(
    "change", [lambda m: m.astype("float32"), lambda m: Adam(m.named_parameters())]
)
def test_an_optimizer_whose_parameters_have_gone_elsewhere_says_so(change):
    """Otherwise it would update arrays that nobody reads, and the model would never learn."""
    model = Linear(2, 3, np.random.default_rng(0)).astype("float64")
    optimizer = Adam(model.named_parameters())
    give(model.weight, np.ones((2, 3)))
    optimizer.step(0.1)
    change(model)
    give(model.weight, np.ones((2, 3)))
    with pytest.raises(
        RuntimeError, match="weight was converted or given to another optimizer: make a new Adam"
    ):
        optimizer.step(0.1)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda pair: pickle.loads(pickle.dumps(pair)),
    "deepcopy, Adam first": lambda pair: copy.deepcopy(pair[::-1])[::-1],
    "pickle, Adam first": lambda pair: pickle.loads(pickle.dumps(pair[::-1]))[::-1],
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_model_and_its_adam_are_copied_together(rng, copied):
    """A copy continues like the original, bit for bit, even from the middle of an update."""
    model = small_model("float32")
    optimizer, batches = Adam(model.named_parameters()), [random_batch(rng) for _ in range(4)]

    def update(model, optimizer, batch):
        model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
        optimizer.step(0.01)
        optimizer.zero_grad()

    update(model, optimizer, batches[0])
    # Half of an update.
    model.loss(batches[1].source, batches[1].target_in, batches[1].target_out)[0].backward()
    clone, other = copied((model, optimizer))
    before = clone.state()
    for batch in batches[2:]:
        update(model, optimizer, batch)
    assert all(np.array_equal(before[name], array) for name, array in clone.state().items())
    for batch in batches[2:]:
        update(clone, other, batch)
    assert all(np.array_equal(model.state()[name], array) for name, array in clone.state().items())
    assert all(
        np.array_equal(optimizer.state()[name], array) for name, array in other.state().items()
    )
    assert all(np.shares_memory(p.data, other.data) for p in clone.parameters())
    assert not any(np.array_equal(before[name], array) for name, array in clone.state().items())


def test_a_shallow_copy_is_refused_and_takes_nothing_from_the_original(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    with pytest.raises(TypeError, match=r"copy.deepcopy\(\(model, adam\)\)"):
        copy.copy(optimizer)
    run(optimizer, model, rng, 1)
    assert np.shares_memory(model.a.data, optimizer.data)


@pytest.mark.parametrize("steps_before", [0, 1])
def test_what_is_assigned_to_a_parameter_counts(rng, steps_before):
    """The next step starts from it, as from numbers written into the array."""
    assigned, written = Three(rng), Three(np.random.default_rng(9))
    written.load_state(assigned.state())
    optimizers = [Adam(model.named_parameters()) for model in (assigned, written)]
    for step in range(steps_before + 2):
        for model, optimizer in zip((assigned, written), optimizers, strict=True):
            optimizer.zero_grad()
            if step == steps_before and model is assigned:
                model.a.data = model.a.data * 0.5
                model.b.grad = np.arange(4.0)
            elif step == steps_before:
                model.a.data[...] = model.a.data * 0.5
                give(model.b, np.arange(4.0))
            give(model.a, np.ones((2, 3)))
            optimizer.step(0.1)
    assert all(
        np.array_equal(written.state()[name], array) for name, array in assigned.state().items()
    )
    assert np.shares_memory(assigned.a.data, optimizers[0].data)


def test_what_cannot_be_copied_into_its_place_is_refused(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    give(model.a, np.ones((2, 3)))
    model.b.data = np.zeros(1)  # would be broadcast
    with pytest.raises(
        RuntimeError, match=r"b.data is float64 of shape \(1,\), but Adam needs float64 of \(4,\)"
    ):
        optimizer.step(0.1)
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    model.b.grad = np.zeros(4, dtype=np.float32)
    with pytest.raises(RuntimeError, match=r"b.grad is float32 .* Adam needs float64"):
        optimizer.step(0.1)
    weight = Parameter([1.0, 2.0])
    optimizer = Adam([("weight", weight)])
    give(weight, [3.0, 4.0])
    weight.grad = weight.grad * np.float64(0.5)
    with pytest.raises(RuntimeError, match=r"weight.grad is float64 .* a NumPy scalar"):
        optimizer.step(0.1)


def test_what_adam_cannot_train_is_refused(rng):
    model = Three(rng)
    for wrong in (
        model,
        model.parameters(),
        [model.a],
        [("a", model.a), ("b", model.b.data)],
        ["ab"],
    ):
        with pytest.raises(TypeError, match=r"write Adam\(model.named_parameters\(\)\)"):
            Adam(wrong)
    with pytest.raises(TypeError, match="positional"):
        Adam(model.named_parameters(), 1e-3)  # a learning rate, as elsewhere: it would be beta_1
    with pytest.raises(ValueError, match="nothing to train"):
        Adam(())
    with pytest.raises(ValueError, match="two parameters have the name a"):
        Adam([("a", model.a), ("a", model.b)])
    with pytest.raises(ValueError, match="the same parameter is listed twice"):
        Adam([("a", model.a), ("b", model.a)])
    with pytest.raises(ValueError, match="is float32, the first one float64"):
        Adam([("a", model.a), ("b", Parameter(np.zeros(2, dtype=np.float32)))])


def test_eps_counts_where_gradients_are_tiny():
    """Eps is added outside the root, to that of the corrected v: a gradient of eps moves x by half
    the rate.
    """
    model = Linear(1, 1, np.random.default_rng(0), bias=False).astype("float64")
    before = float(model.weight.data[0, 0])
    optimizer = Adam(model.named_parameters())
    give(model.weight, [[1e-9]])
    optimizer.step(0.1)
    assert before - float(model.weight.data[0, 0]) == pytest.approx(0.05, rel=1e-9)


def test_the_flat_form_equals_one_adam_per_parameter(rng):
    flat, single = small_model(), small_model()
    batch = random_batch(rng)
    together = Adam(flat.named_parameters())
    apart = [Adam([named]) for named in single.named_parameters()]
    for _ in range(5):
        for model, optimizers in ((flat, [together]), (single, apart)):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
            for optimizer in optimizers:
                optimizer.step(0.01)
    for (name, p), q in zip(flat.named_parameters(), single.parameters(), strict=True):
        assert np.array_equal(p.data, q.data), name


def test_a_parameter_without_a_gradient_counts_as_zero(rng):
    """It moves by its momentum; the gradient of an earlier step is not used again."""
    model = Three(rng)
    start = model.state()
    optimizer = Adam(model.named_parameters())
    history = [1.0, None, None, 2.0, None]
    for g in history:
        optimizer.zero_grad()
        give(model.a, np.ones((2, 3)))
        if g is not None:
            give(model.b, np.full(4, g))
        optimizer.step(0.01)
    expected = scalar_adam(start["b"][0], [g or 0.0 for g in history], [0.01] * 5)
    assert model.b.data[0] == pytest.approx(expected, rel=1e-12)
    assert model.c.data == start["c"], "what never had a gradient never moves"


def test_a_step_without_any_gradient_is_refused(rng):
    """backward() was forgotten, or called on a loss that was not computed from the parameters."""
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    (Tensor(model.a.numpy()) * 2).sum().backward()
    with pytest.raises(RuntimeError, match=r"no parameter has a gradient: call backward\(\)"):
        optimizer.step(0.01)
    assert optimizer.step_count == 0
    optimizer.collect()  # for who has no data in this step and counts the gradient as 0
    optimizer.step(0.01)
    assert optimizer.step_count == 1


def test_zero_gradients_move_nothing(rng):
    model = Three(rng)
    start = model.state()
    optimizer = Adam(model.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        give(model.a, np.zeros((2, 3)))
        optimizer.step(0.1)
    assert all(np.array_equal(start[name], array) for name, array in model.state().items())


def test_gradients_of_micro_batches_add_up_in_place(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    optimizer.zero_grad()
    for factor in (1.0, 2.0):
        give(model.a, np.full((2, 3), factor))
    assert optimizer.collect().tolist() == [3.0] * 6 + [0.0] * 5
    assert optimizer.collect() is optimizer.gradients


def test_what_is_added_to_the_flat_gradient_counts(rng):
    """Other machines may have a gradient for a parameter that has none here."""
    model = Three(rng)
    start = model.state()
    optimizer = Adam(model.named_parameters())
    give(model.a, np.ones((2, 3)))
    optimizer.collect()[:] += 2.0
    optimizer.step(0.01)
    assert model.b.data[0] == pytest.approx(scalar_adam(start["b"][0], [2.0], [0.01]), rel=1e-12)


def test_values_are_kept_when_adam_takes_over_the_memory(rng):
    model = Three(rng)
    start = model.state()
    optimizer = Adam(model.named_parameters())
    assert all(np.array_equal(start[name], array) for name, array in model.state().items())
    assert optimizer.data.size == optimizer.m.size == optimizer.v.size == 11
    assert all(np.shares_memory(p.data, optimizer.data) for p in model.parameters())


def test_a_tied_matrix_is_moved_once(rng):
    model = small_model()
    optimizer = Adam(model.named_parameters())
    assert optimizer.data.size == sum(p.size for p in model.parameters())
    before = model.embedding.weight.data.copy()
    batch = random_batch(rng)
    model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
    optimizer.step(0.01)
    moved = np.abs(model.embedding.weight.data - before)
    assert 0 < moved.max() <= 0.01 * 1.0001, "the first step of Adam is at most the rate"


def run(optimizer, model, rng, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        for p in model.parameters():
            give(p, rng.normal(size=p.shape))
        optimizer.step(0.01)


def test_state_lets_training_go_on_bit_by_bit():
    draw = np.random.default_rng(1)
    model = Three(np.random.default_rng(0))
    optimizer = Adam(model.named_parameters())
    run(optimizer, model, draw, 3)
    state, weights = optimizer.state(), model.state()
    later = draw.bit_generator.state
    run(optimizer, model, draw, 4)

    other = Three(np.random.default_rng(9))
    resumed = Adam(other.named_parameters())
    other.load_state(weights)
    resumed.load_state(state)
    assert resumed.step_count == 3
    draw.bit_generator.state = later
    run(resumed, other, draw, 4)
    assert all(np.array_equal(model.state()[name], array) for name, array in other.state().items())
    assert all(
        np.array_equal(optimizer.state()[name], array) for name, array in resumed.state().items()
    )


def test_state_is_by_name_and_a_copy(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    run(optimizer, model, rng, 1)
    state = optimizer.state()
    assert set(state) == {"step", "m.a", "m.b", "m.c", "v.a", "v.b", "v.c"}
    assert state["m.a"].shape == state["v.a"].shape == (2, 3)
    before = state["m.a"].copy()
    run(optimizer, model, rng, 1)
    assert np.array_equal(state["m.a"], before)
    assert state["step"] == 1


def test_a_state_that_does_not_fit_is_refused(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    state = optimizer.state()
    without_step = {name: array for name, array in state.items() if name != "step"}
    lacking = {name: array for name, array in state.items() if name != "v.b"}
    cases = [
        ("step", without_step),
        ("v.b", lacking),
        (r"m.a .*\(2, 3\)", {**state, "m.a": state["m.a"].T}),
    ]
    cases += [("step", {**state, "step": np.array(step)}) for step in (-1, 2**53, [1, 2], np.nan)]
    cases += [("v.c .* not float", {**state, "v.c": np.array("1.0")})]
    before = {name: array + 1 for name, array in state.items()}
    optimizer.load_state(before)
    for message, wrong in cases:
        with pytest.raises(UserError, match=message) as error:
            optimizer.load_state(wrong)
        assert "\n" not in str(error.value)
        after = optimizer.state()
        assert all(np.array_equal(after[name], array) for name, array in before.items()), message


def test_float32_stays_float32(rng):
    model = Three(rng, "float32")
    optimizer = Adam(model.named_parameters())
    run(optimizer, model, rng, 2)
    assert {a.dtype for a in (optimizer.data, optimizer.gradients, optimizer.m, optimizer.v)} == {
        np.dtype("f4")
    }
    assert model.c.dtype == np.float32


# Clipping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_shortens_and_never_lengthens(dtype):
    gradients = np.array([3.0, 0.0, -4.0], dtype=dtype)
    assert gradient_norm(gradients) == 5
    assert clip_gradient(gradients, 10.0) == 5
    assert gradients.tolist() == [3, 0, -4]
    assert clip_gradient(gradients, 1.0) == 5
    assert np.allclose(gradients, [0.6, 0, -0.8])
    assert gradients.dtype == dtype
    nothing = np.zeros(3, dtype)
    for largest in (1.0, 0.0):
        assert clip_gradient(nothing, largest) == 0
        assert not nothing.any()


def test_a_negative_length_is_refused_instead_of_turning_the_gradient_round():
    with pytest.raises(ValueError, match="must be at least 0, not -1"):
        clip_gradient(np.ones(3), -1.0)


def test_a_gradient_whose_squares_overflow_is_clipped_and_not_erased():
    """The squares of float32 numbers above 1.8e19 are infinite; so may be the sum of smaller
    squares, and the length of several numbers near the largest one.
    """
    for values in ([3e30, 0.0, -4e30], [1.5e19] * 4, [3e38] * 3):
        gradients = np.array(values, dtype=np.float32)
        with np.errstate(over="ignore"):
            norm = clip_gradient(gradients, 2.0)
        length = np.linalg.norm(np.array(values))
        assert norm == pytest.approx(length, rel=1e-6)
        assert np.allclose(gradients, np.array(values) / length * 2, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_clipping_does_not_hide_a_gradient_that_is_not_finite(bad):
    gradients = np.array([3.0, bad, -4.0])
    with np.errstate(invalid="ignore"):
        assert math.isnan(clip_gradient(gradients, 1.0))
    assert np.isnan(gradients).all()


def test_a_length_that_is_known_is_not_computed_again():
    """It may be the length of the sum over several machines."""
    gradients = np.array([3.0, -4.0])
    assert clip_gradient(gradients, 1.0, norm=10.0) == 10
    assert np.allclose(gradients, [0.3, -0.4])


def test_clipping_the_flat_gradient_clips_what_adam_uses(rng):
    model = Three(rng)
    optimizer = Adam(model.named_parameters())
    give(model.a, np.full((2, 3), 7.0))
    give(model.b, np.full(4, -7.0))
    clip_gradient(optimizer.collect(), 0.5)
    assert float(gradient_norm(optimizer.gradients)) == pytest.approx(0.5)
    optimizer.step(0.01)
    assert np.allclose(optimizer.m[:6], 0.1 * 0.5 / math.sqrt(10))


def test_adam_and_clipping_on_every_backend(rng, library):
    model = Three(rng, "float64")
    start = model.state()
    optimizer = Adam(model.named_parameters())
    history = rng.normal(size=(5, 4))
    for g in history:
        optimizer.zero_grad()
        give(model.b, g)
        norm = clip_gradient(optimizer.collect(), 1.0)
        assert float(norm) == pytest.approx(np.linalg.norm(g))
        optimizer.step(0.01)
    clipped = [g / max(1, np.linalg.norm(g)) for g in history]
    for i in range(4):
        expected = scalar_adam(start["b"][i], [g[i] for g in clipped], [0.01] * 5)
        assert to_numpy(model.b.data)[i] == pytest.approx(expected, rel=1e-10)
    state = optimizer.state()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    optimizer.load_state(state)
    assert all(np.array_equal(state[name], array) for name, array in optimizer.state().items())


def test_training_lowers_the_loss(rng):
    model = small_model("float32")
    batch = random_batch(rng)
    optimizer = Adam(model.named_parameters())
    losses = []
    for step in range(1, 31):
        optimizer.zero_grad()
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
        optimizer.step(warmup_rate(step, small_config().d_model, warmup_steps=30, factor=0.2))
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
