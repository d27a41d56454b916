"""The engine computes what PyTorch computes: each layer and its gradients, Adam, and
two whole models.

The other side's numbers are stored in fixtures/parity-*.npz, so that PyTorch is not needed here;
make_parity.py makes them afresh. An error is measured against the largest number of its array.
"""

from functools import cache, partial

import numpy as np
import parity_file
import pytest
from paths import FIXTURES
from sizes import D, H, K, V
from sizes import F as D_FF

from minitf import functions as F
from minitf.backend import to_device, to_numpy
from minitf.config import Config
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.nn import LayerNorm, Linear, Parameter
from minitf.optim import Adam, warmup_rate
from minitf.tensor import Tensor
from minitf.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
    causal_mask,
)

FOLDER = FIXTURES
EXACT = 1e-9  # in float64, where the two sides differ by the order of their sums alone: about 1e-15
GRADIENTS = {"float64": EXACT, "float32": 1e-3}
OUTPUTS = {"float64": EXACT, "float32": 1e-5}
PRECISIONS = pytest.mark.parametrize("dtype", ["float64", "float32"])


@cache
def fixture(name):
    return parity_file.read(FOLDER / f"parity-{name}.npz")


def below(arrays, prefix):
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def far(got, wanted):
    """The largest difference, in units of the largest number wanted."""
    got = np.zeros_like(wanted) if got is None else np.asarray(to_numpy(got), dtype=np.float64)
    assert got.shape == wanted.shape
    return abs(got - wanted).max() / (abs(wanted).max() or 1)


def assert_close(got, wanted, tolerance):
    """Compare two dictionaries of arrays; the message names what is off, the worst first."""
    assert got.keys() == wanted.keys()
    errors = {name: far(got[name], wanted[name]) for name in wanted}
    wrong = sorted(
        (name for name in errors if not errors[name] <= tolerance), key=lambda name: -errors[name]
    )
    assert not wrong, ", ".join(f"{name} is off by {errors[name]:.1e}" for name in wrong)


# Layers -------------------------------------------------------------------------------------------

CONFIG = Config(V, n_layers=1, d_model=D, d_ff=D_FF, n_heads=H, dropout=0.0)
PRE = CONFIG.replace(norm="pre")
RNG = np.random.default_rng(0)  # for weights that are overwritten


def attend(a):
    return F.attention(a["query"], a["key"], a["value"], a.get("mask"))


def weights_of_heads(module, a):
    queries, keys = (
        module.split_heads(module.query(a["x"])),
        module.split_heads(module.key(a["memory"])),
    )
    return F.attention_weights(queries, keys, a["mask"])


FUNCTIONS = {
    "linear": lambda a: F.linear(a["x"], a["weight"], a["bias"]),
    "linear_no_bias": lambda a: F.linear(a["x"], a["weight"]),
    "relu": lambda a: F.relu(a["x"]),
    "softmax": lambda a: F.softmax(a["x"]),
    "log_softmax": lambda a: F.log_softmax(a["x"]),
    "layer_norm": lambda a: F.layer_norm(a["x"], a["gain"], a["bias"]),
    "embedding": lambda a: F.embedding(a["table"], a["ids"]),
    "attention_none": attend,
    "attention_causal": attend,
    "attention_padding": attend,
    "attention_empty_row": attend,
    "loss": lambda a: label_smoothed_cross_entropy(a["logits"], a["target"], pad_id=0),
    "loss_unsmoothed": lambda a: label_smoothed_cross_entropy(
        a["logits"], a["target"], 0.0, pad_id=0
    ),
    "projected_loss": lambda a: projected_cross_entropy(a["x"], a["weight"], a["target"], pad_id=0)[
        0
    ],
}
MODULES = {
    "linear_module": (lambda: Linear(D, D_FF, RNG), lambda m, a: m(a["x"])),
    "layer_norm_module": (lambda: LayerNorm(D), lambda m, a: m(a["x"])),
    "multi_head": (
        lambda: MultiHeadAttention(CONFIG, RNG),
        lambda m, a: m(a["x"], a["memory"], a["mask"]),
    ),
    "multi_head_weights": (lambda: MultiHeadAttention(CONFIG, RNG), weights_of_heads),
    "multi_head_sizes": (
        lambda: MultiHeadAttention(CONFIG.replace(d_k=K + 1, d_v=K + 2), RNG),
        lambda m, a: m(a["x"], a["memory"], causal_mask(a["x"].shape[1])),
    ),
    "feed_forward": (lambda: FeedForward(CONFIG, RNG), lambda m, a: m(a["x"])),
    "encoder_layer_post": (lambda: EncoderLayer(CONFIG, RNG), lambda m, a: m(a["x"], a["mask"])),
    "encoder_layer_pre": (lambda: EncoderLayer(PRE, RNG), lambda m, a: m(a["x"], a["mask"])),
    "decoder_layer_post": (
        lambda: DecoderLayer(CONFIG, RNG),
        lambda m, a: m(a["x"], a["memory"], a["causal"], a["mask"]),
    ),
    "decoder_layer_pre": (
        lambda: DecoderLayer(PRE, RNG),
        lambda m, a: m(a["x"], a["memory"], a["causal"], a["mask"]),
    ),
}
# And the name in the fixture.
CASES = {case: case.removesuffix("_module") for case in (*FUNCTIONS, *MODULES)}


def run(case, dtype, function=None):
    """Run one case forward and backward: (output, gradients by name, what PyTorch has for both)."""
    stored = below(fixture("layers")[0], f"{CASES[case]}/")
    inputs, leaves = below(stored, "input/"), {}
    if case in MODULES:
        build, call = MODULES[case]
        module = build().astype(dtype)
        leaves = dict(module.named_parameters())
        module.load_state({name: inputs.pop(name) for name in leaves})
        function = partial(call, module)
    for name, array in inputs.items():
        if array.dtype.kind == "f":
            inputs[name] = leaves[name] = Tensor(array.astype(dtype))
    out = (function or FUNCTIONS[case])(inputs)
    out.backward(stored["cotangent"].astype(dtype))
    gradients = {name: leaf.grad for name, leaf in leaves.items()}
    return out.numpy(), gradients, stored["output"], below(stored, "gradient/")


@PRECISIONS
@pytest.mark.parametrize("case", CASES)
def test_layer(case, dtype, library):
    out, gradients, wanted_out, wanted_gradients = run(case, dtype)
    assert out.dtype == dtype
    assert_close({"output": out}, {"output": wanted_out}, OUTPUTS[dtype])
    assert_close(gradients, wanted_gradients, GRADIENTS[dtype])


def test_every_stored_layer_is_compared():
    assert {name.split("/")[0] for name in fixture("layers")[0]} == set(CASES.values())


# Adam ---------------------------------------------------------------------------------------------


def test_five_adam_steps(library):
    stored, notes = fixture("adam")
    parameters = {name: Parameter(stored[f"0/{name}"]) for name in ("matrix", "vector", "number")}
    optimizer = Adam(parameters.items())
    for step in range(1, 6):
        rate = warmup_rate(step, **notes["settings"])
        assert rate == pytest.approx(stored["rates"][step - 1], rel=1e-12)
        optimizer.zero_grad()
        for name, parameter in parameters.items():
            parameter._receive(to_device(stored[f"{step}/gradient/{name}"]))
        optimizer.step(rate)
        state = optimizer.state()
        for name, parameter in parameters.items():
            got = {"x": parameter.data, "m": state[f"m.{name}"], "v": state[f"v.{name}"]}
            wanted = {"x": stored[f"{step}/{name}"]} | {
                k: stored[f"{step}/{k}/{name}"] for k in "mv"
            }
            assert_close(got, wanted, EXACT)
    assert max(stored["rates"]) == stored["rates"][2]  # the steps cover both sides of the peak


# Whole models -------------------------------------------------------------------------------------


@pytest.fixture(params=["post", "pre"])
def model(request, dtype, library):
    """(a model with the stored weights, its batches, what PyTorch computed, settings)."""
    stored, notes = fixture(f"model-{request.param}")
    config = Config(**notes["settings"]["config"])
    transformer = Transformer(config).astype(dtype).load_state(below(stored, "weight/"))
    batches = [list(below(stored, f"batch/{b}/").values()) for b in range(3)]
    return transformer, batches, stored, notes["settings"]


@PRECISIONS
def test_forward_loss_and_every_gradient(model, dtype):
    transformer, batches, stored, _ = model
    source, target_in, target_out = batches[0]
    logits = transformer(source, target_in).numpy()[target_out != 0]
    loss, nll = transformer.loss(source, target_in, target_out)
    loss.backward()
    got = {"logits": logits, "loss": loss.numpy(), "nll": nll.numpy()}
    assert_close(
        got,
        {"logits": stored["logits"], "loss": stored["losses"][0], "nll": stored["nll"]},
        OUTPUTS[dtype],
    )
    gradients = {name: parameter.grad for name, parameter in transformer.named_parameters()}
    assert_close(gradients, below(stored, "gradient/"), GRADIENTS[dtype])


@PRECISIONS
@pytest.mark.parametrize(
    "library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)], indirect=True
)
def test_losses_of_ten_adam_steps(model, dtype):
    transformer, batches, stored, settings = model
    optimizer = Adam(transformer.named_parameters())
    losses = []
    for step in range(1, 11):
        loss, _ = transformer.loss(*batches[(step - 1) % len(batches)])
        optimizer.zero_grad()
        loss.backward()
        rate = warmup_rate(
            step, settings["config"]["d_model"], settings["warmup_steps"], settings["factor"]
        )
        optimizer.step(rate)
        losses.append(float(loss))
    wanted = stored["losses" if dtype == "float64" else "losses_float32"]
    np.testing.assert_allclose(losses, wanted, rtol=OUTPUTS[dtype])
