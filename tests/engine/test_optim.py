"""Adam against plain loops, the warm-up schedule by hand, clipping."""

import copy
import math
import pickle

import numpy as np
import pytest

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


def copied(model, adam):
    return copy.deepcopy((model, adam))


def pickled(model, adam):
    return pickle.loads(pickle.dumps((model, adam)))


def converted(model, adam):
    return model.astype("float32"), adam


def given_to_another(model, adam):
    Adam(model.named_parameters())
    return model, adam


def with_other_data(model, adam):
    model.b.data = model.b.data * 0.5
    return model, adam


def with_another_gradient(model, adam):
    model.b.grad = np.ones(4)
    return model, adam


@pytest.mark.parametrize(
    "change",
    [copied, pickled, converted, given_to_another, with_other_data, with_another_gradient],
)
def test_parameters_with_other_arrays_than_adams_are_refused(change, rng):
    """Otherwise it would update arrays that nobody reads, and the model would never learn."""
    model = Three(rng)
    adam = Adam(model.named_parameters())
    give(model.a, np.ones((2, 3)))
    adam.step(0.1)
    adam.zero_grad()
    model, adam = change(model, adam)
    give(model.a, np.ones((2, 3)))
    with pytest.raises(RuntimeError, match=r"^[ab] or its gradient was .*: make a new Adam, or"):
        adam.step(0.1)


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
    for twice in ([("a", model.a), ("a", model.b)], [("a", model.a), ("b", model.a)]):
        with pytest.raises(ValueError, match="a parameter or a name is listed twice"):
            Adam(twice)
    with pytest.raises(ValueError, match="some parameters are float32 and some float64"):
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
    optimizer.gather_gradients()  # for who has no data in this step and counts the gradient as 0
    optimizer.step(0.01)
    assert optimizer.step_count == 1


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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_clipping_does_not_hide_a_gradient_that_is_not_finite(bad):
    gradients = np.array([3.0, bad, -4.0])
    with np.errstate(invalid="ignore"):
        assert not math.isfinite(clip_gradient(gradients, 1.0))
    assert np.isnan(gradients).any()


def test_adam_and_clipping_on_every_backend(rng, library):
    model = Three(rng, "float64")
    start = model.state()
    optimizer = Adam(model.named_parameters())
    history = rng.normal(size=(5, 4))
    for g in history:
        optimizer.zero_grad()
        give(model.b, g)
        norm = clip_gradient(optimizer.gather_gradients(), 1.0)
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
