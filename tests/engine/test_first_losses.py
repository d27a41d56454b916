"""The first ten losses of a small training, dropout on, are the stored ones: no number of a step
changed unnoticed.

Batches and weights are those of fixtures/parity-model-post.npz, so no library's initial draw
matters. With dropout off the losses are PyTorch's; with dropout on the masks are ours, so the
stored numbers are as well.
If they change on purpose (a mask drawn in another order), print the new ones:
python tests/engine/test_first_losses.py
"""

import numpy as np
import parity_file
import pytest
from paths import FIXTURES

from minitf.config import Config
from minitf.optim import Adam, warmup_rate
from minitf.text import Batch
from minitf.training.update import Updater
from minitf.transformer import Transformer

FIXTURE = FIXTURES / "parity-model-post.npz"
RATES = {"dropout": 0.1, "attention_dropout": 0.05, "feed_forward_dropout": 0.2}
LOSSES = [
    4.557795555017770,
    4.526869027312366,
    5.032670055197944,
    4.409659641269999,
    4.077255634432471,
    3.993732265815966,
    4.206285779267842,
    3.866644629302719,
    3.902647049511920,
    4.110197293258280,
]

# Sums in another order (another BLAS, more cores) move the last digits: 1e-15 in float64 after
# ten steps. In float32 that is 1e-7, which is also how far the two precisions lie apart, so one
# list serves both.
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}


def first_losses(dtype, steps=10, **changes):
    arrays, notes = parity_file.read(FIXTURE)
    settings = notes["settings"]
    config = Config(**settings["config"]).replace(**changes)
    weights = {
        name.removeprefix("weight/"): array
        for name, array in arrays.items()
        if name.startswith("weight/")
    }
    batches = [
        Batch(*(arrays[f"batch/{b}/{name}"] for name in ("source", "target_in", "target_out")))
        for b in range(3)
    ]
    model = Transformer(config).astype(dtype).load_state(weights)
    optimizer = Adam(model.named_parameters())
    updater = Updater(model, optimizer, seed=5)
    losses = []
    for step in range(1, steps + 1):
        batch = batches[(step - 1) % 3]
        optimizer.zero_grad()
        losses.append(float(updater.backward(batch, batch.n_tokens, step - 1)[0]))
        optimizer.step(
            warmup_rate(step, config.d_model, settings["warmup_steps"], settings["factor"])
        )
    return losses


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    "library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)], indirect=True
)
def test_first_ten_losses_are_the_stored_ones(dtype, library):
    np.testing.assert_allclose(first_losses(dtype, **RATES), LOSSES, rtol=TOLERANCES[dtype])


@pytest.mark.parametrize(("dtype", "key"), [("float64", "losses"), ("float32", "losses_float32")])
def test_without_dropout_they_are_those_of_pytorch(dtype, key):
    wanted = parity_file.read(FIXTURE)[0][key]
    np.testing.assert_allclose(first_losses(dtype), wanted, rtol=TOLERANCES[dtype])


def test_each_dropout_rate_matters():
    for name in RATES:
        others = {**RATES, name: 0.0}
        assert abs(first_losses("float64", 1, **others)[0] - LOSSES[0]) > 1e-4, name


if __name__ == "__main__":
    print(*(f"    {loss:.15f}," for loss in first_losses("float64", **RATES)), sep="\n")
