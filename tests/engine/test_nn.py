"""Parameters and modules: names, order, sharing, flat storage, saving and loading, the
first weights.
"""

import copy
import pickle

import numpy as np
import pytest
from models import SWITCHES, random_batch, small_config, small_model
from sizes import D, F, V

from minitf import functions
from minitf.config import Config
from minitf.errors import UserError
from minitf.nn import Dropout, Embedding, LayerNorm, Linear, Module, Parameter
from minitf.optim import Adam, Flat
from minitf.tensor import Tensor, gradient_out
from minitf.transformer import Transformer, feed_forward_network


class Pair(Module):
    """A module that holds modules and parameters in every way that counts,
    and one of them twice.
    """

    def __init__(self, rng):
        self.first = Linear(3, 2, rng)
        self.numbers = [1, "two", None]
        self.listed = [LayerNorm(2), (Dropout(0.5), Linear(2, 3, rng, bias=False))]
        self.own = Parameter(np.zeros(4, dtype=np.float32))
        self.again = self.first
        self.shared = self.listed[1][1].weight


def test_names_in_the_order_of_definition(rng):
    names = [name for name, _ in Pair(rng).named_parameters()]
    assert names == [
        "first.weight",
        "first.bias",
        "listed.0.gain",
        "listed.0.bias",
        "listed.1.1.weight",
        "own",
    ]


def test_names_of_a_transformer():
    model = Transformer(small_config(n_layers=1))
    attention = ["query.weight", "key.weight", "value.weight", "output.weight"]
    feed_forward = [
        f"feed_forward.{side}.{part}" for side in ("inner", "outer") for part in ("weight", "bias")
    ]

    def norm(name):
        return [f"{name}.norm.gain", f"{name}.norm.bias"]

    encoder = [f"self_attention.{part}" for part in attention] + norm("attention_residual")
    encoder += feed_forward + norm("feed_forward_residual")
    decoder = [f"self_attention.{part}" for part in attention] + norm("self_residual")
    decoder += [f"source_attention.{part}" for part in attention] + norm("source_residual")
    decoder += feed_forward + norm("feed_forward_residual")
    expected = ["embedding.weight"]
    expected += [f"encoder.layers.0.{name}" for name in encoder]
    expected += [f"decoder.layers.0.{name}" for name in decoder]
    assert [name for name, _ in model.named_parameters()] == expected
    assert "encoder.layers.0.self_attention.query.weight" in expected


def test_gradients_land_in_the_flat_array_and_add_up(rng):
    model = Linear(3, 2, rng)
    gradients = Flat(model.named_parameters()).gradients
    x = rng.normal(size=(5, 3)).astype(np.float32)
    for times in (1, 2):
        model(x).sum().backward()
        assert np.shares_memory(model.weight.grad, gradients)
        expected = np.concatenate([np.repeat(x.sum(0), 2), [5, 5]])
        assert np.allclose(gradients, times * expected, rtol=1e-6)
    model.zero_grad()
    model(x).sum().backward()
    assert np.allclose(gradients, expected, rtol=1e-6), (
        "the gradient of the last update is forgotten"
    )


@pytest.mark.parametrize("name", ["linear", "feed_forward"])
def test_a_parameter_that_is_also_the_input_gets_both_gradients(name, rng):
    """Neither overwrites the other in the flat array."""
    parameter, gy = Parameter(rng.normal(size=(4, 4))), rng.normal(size=(4, 4))
    inner, outer = Linear(4, 4, rng, bias=False), Linear(4, 4, rng, bias=False).astype(float)
    inner.weight = parameter

    def gradient():
        parameter.grad = None
        if name == "linear":
            y = inner(parameter)
        else:
            y = feed_forward_network(parameter, inner, functions.relu, Dropout(0.0), outer)
        (y * gy).sum().backward()
        return parameter.grad.copy()

    expected = gradient()
    Flat([("weight", parameter)])
    assert np.allclose(gradient(), expected, rtol=1e-9)


# Containers and cycles ----------------------------------------------------------------------------


class Heads(Module):
    """A module with modules and parameters in dicts."""

    def __init__(self, rng):
        self.heads = {"de": Linear(3, 2, rng), "fr": [Linear(3, 2, rng, bias=False), Dropout(0.5)]}
        self.scales = {
            1: Parameter(np.ones(2, dtype=np.float32)),
            (2, 3): {"x": self.heads["de"].weight},
        }
        self.nothing = {"config": Config(11), 5: None, "table": np.ones(3)}


def test_dicts_are_looked_into(rng):
    model = Heads(rng)
    names = ["heads.de.weight", "heads.de.bias", "heads.fr.0.weight", "scales.1"]
    assert [name for name, _ in model.named_parameters()] == names
    assert list(map(type, model.eval().modules())).count(Linear) == 2
    assert not any(module.training for module in (model.heads["de"], model.heads["fr"][1]))
    state = {name: array + 1 for name, array in model.state().items()}
    assert set(state) == set(names)
    assert np.array_equal(
        model.load_state(state).heads["fr"][0].weight.data, state["heads.fr.0.weight"]
    )
    assert model.astype("float64").scales[1].dtype == np.float64
    lines = repr(model).splitlines()
    assert lines[0] == "Heads  16 parameters"
    assert {
        "  heads.de: Linear  8 parameters",
        "  heads.fr.1: Dropout  0 parameters",
        "  scales.1 (2,)",
    } <= set(lines)


def test_a_cycle_of_modules_is_walked_once(rng):
    model = Pair(rng)
    names = model.state().keys()
    model.listed[0].parent = model
    model.first.siblings = {"model": model, "norm": model.listed[0]}
    assert model.named_parameters()[0][0] == "first.weight"
    assert {name.rpartition(".")[2] for name in names} == {
        name.rpartition(".")[2] for name in model.state()
    }
    assert len(model.parameters()) == len(names)
    assert len(model.modules()) == len(set(map(id, model.modules()))) == 5
    assert not any(module.training for module in model.eval().modules())
    assert "model: Pair  (the same as Pair)" in repr(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_is_independent(rng, copied):
    model = small_model()
    optimizer = Adam(model.named_parameters())
    batch = random_batch(rng)
    model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
    clone = copied(model)
    before, gradients = clone.state(), {name: p.grad.copy() for name, p in clone.named_parameters()}
    optimizer.step(0.1)
    model.zero_grad()
    model.loss(batch.source, batch.target_in, batch.target_out)[0].backward()
    assert all(np.array_equal(before[name], array) for name, array in clone.state().items())
    assert all(np.array_equal(gradients[name], p.grad) for name, p in clone.named_parameters())
    assert clone.embedding.weight is clone.output_embedding.weight and len(
        clone.parameters()
    ) == len(model.parameters())
    assert not np.array_equal(model.embedding.weight.data, clone.embedding.weight.data)
    assert not any(np.shares_memory(p.data, optimizer.data) for p in clone.parameters())


def test_evaluating_leaves_every_module_as_it_was(rng):
    model = Pair(rng)
    model.listed[1][0].train(False)
    before = [module.training for module in model.modules()]
    with model.evaluating() as same:
        assert same is model and not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    assert set(before) == {True, False}


def test_train_and_eval_reach_every_module(rng):
    model = Pair(rng)
    inner = model.listed[1][0]
    x = Tensor(np.ones((4, 4)))
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    assert inner(x) is x
    assert model.train() is model
    assert all(module.training for module in model.modules())
    assert (inner(x).numpy() == 0).any()
    assert len(set(map(id, model.modules()))) == 5
    assert Module.training, "the switch belongs to each module, not to the class"


def test_astype_makes_a_model_checkable(rng):
    model = Transformer(small_config())
    batch = random_batch(rng)
    single = model(batch.source, batch.target_in)
    single.sum().backward()
    before = model.state()
    assert model.astype("float64") is model
    assert all(p.dtype == np.float64 and p.grad is None for p in model.parameters())
    assert all(np.array_equal(before[name], array) for name, array in model.state().items())
    double = model(batch.source, batch.target_in)
    assert double.dtype == np.float64
    assert np.allclose(single.numpy(), double.numpy(), atol=1e-5)
    assert not np.array_equal(single.numpy(), double.numpy())


@pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES)
def test_state_carries_the_model_over(rng, changes):
    one, other = small_model(seed=1, **changes), small_model(seed=2, **changes)
    batch = random_batch(rng)
    logits = one(batch.source, batch.target_in).numpy()
    assert not np.allclose(logits, other(batch.source, batch.target_in).numpy())
    assert other.load_state(one.state()) is other
    assert np.array_equal(logits, other(batch.source, batch.target_in).numpy())


def test_state_that_does_not_fit_is_refused(rng):
    model = Linear(3, 2, rng)
    state = model.state()
    cases = {
        r"^the weights lack bias: use the settings and the code": {"weight": state["weight"]},
        r"^the model has no gain, which the weights have: use": {**state, "gain": np.ones(2)},
        r"weight has shape \(2, 3\) in the weights and \(3, 2\) in the model": {
            **state,
            "weight": state["weight"].T,
        },
        r"weight is int64 in the weights, not float: use": {
            **state,
            "weight": np.ones((3, 2), np.int64),
        },
    }
    for message, wrong in cases.items():
        with pytest.raises(UserError, match=message) as error:
            model.load_state(wrong)
        assert "\n" not in str(error.value)
        assert np.array_equal(model.weight.numpy(), state["weight"]), "nothing was loaded"


def test_repr_shows_the_tree(rng):
    lines = repr(Pair(rng)).splitlines()
    assert lines[0] == "Pair  22 parameters"
    assert "  first: Linear  8 parameters" in lines
    assert "    weight (3, 2)" in lines
    assert "  listed.0: LayerNorm  4 parameters" in lines
    assert "  own (4,)" in lines
    assert "  again: Linear  (the same as first)" in lines
    model = Transformer(small_config())
    text = repr(model)
    count = sum(p.size for p in model.parameters())
    assert text.startswith(f"Transformer  {count:,} parameters\n")
    assert "    layers.1: DecoderLayer" in text
    assert text.count("Embedding  (the same as embedding)") == 2 and "(the same" not in repr(
        model.encoder
    )
    assert f"      feed_forward: FeedForward  {2 * D * F + F + D:,} parameters" in text


def test_the_first_weights_are_drawn_as_the_docstrings_say(rng):
    layer, limit = Linear(300, 500, rng), (6 / 800) ** 0.5
    assert 0.99 * limit < np.abs(layer.weight.data).max() <= limit
    assert layer.weight.data.var() == pytest.approx(limit**2 / 3, rel=0.02)
    assert not layer.bias.data.any()
    table = Embedding(2000, 64, rng).weight.data
    assert table.mean() == pytest.approx(0, abs=0.002)
    assert table.var() == pytest.approx(1 / 64, rel=0.02)


def test_the_seed_decides_the_weights():
    one, same, other = (Transformer(Config.preset("tiny", V), seed).state() for seed in (5, 5, 6))
    for name, array in one.items():
        assert np.array_equal(array, same[name])
        if array.ndim == 2:
            assert not np.array_equal(array, other[name])
    layers = [one[f"encoder.layers.{i}.self_attention.query.weight"] for i in (0, 1)]
    assert not np.array_equal(*layers)


def test_the_gradient_out_receives_the_first_gradient_only(rng):
    parameter = Parameter(rng.normal(size=(2, 3)))
    flat = Flat([("weight", parameter)])
    view = gradient_out(parameter)
    assert np.shares_memory(view, flat.gradients) and view.shape == (2, 3)
    flat.zero_grad()
    for _ in range(2):  # the second gradient is an array that the product makes
        functions.linear(np.ones((1, 2)), parameter).sum().backward()
    assert gradient_out(parameter) is None
    assert parameter.grad is view and np.array_equal(flat.gradients, np.full(6, 2.0))
