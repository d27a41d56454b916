"""A whole training step: its gradients, its types, the backends, the first loss, and one batch
learned by heart.
"""

import math

import numpy as np
import pytest
import strict
from models import SWITCHES, each_switch, random_batch, small_config, small_model

from minitf import functions as F
from minitf.backend import to_numpy, using
from minitf.config import Config
from minitf.optim import Adam, gradient_norm, warmup_rate
from minitf.tensor import no_grad
from minitf.text import make_batch
from minitf.transformer import Transformer

switches = each_switch("paper", "halves, t2t base", "ssru", "all")

# Gradients ----------------------------------------------------------------------------------------


def loss_of(model, batch):
    with F.dropout_state(seed=3, step=7):
        return model.train().loss(batch.source, batch.target_in, batch.target_out)[0]


@switches
def test_gradient_of_the_whole_model(rng, changes):
    """Along one random direction for each parameter, with all three dropouts on."""
    rates = {"dropout": 0.2, "attention_dropout": 0.3, "feed_forward_dropout": 0.1}
    model = small_model(n_layers=1, **changes, **rates)
    batch = random_batch(rng)
    loss_of(model, batch).backward()
    h = 1e-5
    for name, p in model.named_parameters():
        direction = rng.normal(size=p.shape)
        values = p.data
        with no_grad():
            p.data = values + h * direction
            up = float(loss_of(model, batch))
            p.data = values - h * direction
            down = float(loss_of(model, batch))
        p.data = values
        assert (p.grad * direction).sum() == pytest.approx(
            (up - down) / (2 * h), rel=1e-6, abs=1e-9
        ), name


# Types --------------------------------------------------------------------------------------------

ALL_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "feed_forward_dropout": 0.1}


def train(model, batch, steps=1):
    """Take some whole training steps; returns the losses and the gradient norms."""
    optimizer = Adam(model.named_parameters())
    numbers = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        with F.dropout_state(seed=1, step=step):
            loss, nll = model.train().loss(
                batch.source, batch.target_in, batch.target_out, batch.n_tokens
            )
        loss.backward()
        norm = gradient_norm(optimizer.gather_gradients())
        optimizer.step(warmup_rate(step, model.config.d_model, warmup_steps=4))
        numbers.append((float(loss), float(nll), float(norm)))
    return numbers


@switches
def test_nothing_becomes_float64(rng, monkeypatch, changes):
    """On the stand-in for a GPU no array at all is float64 in a training step of float32."""
    plain_init = strict.StrictArray.__init__

    def init(self, array):
        assert array.dtype != np.float64
        plain_init(self, array)

    monkeypatch.setattr(strict.StrictArray, "__init__", init)
    with using(strict.module):
        train(Transformer(small_config(**changes, **ALL_DROPOUT)), random_batch(rng))


@pytest.mark.parametrize("changes", [SWITCHES["paper"], SWITCHES["all"]], ids=["paper", "all"])
def test_training_steps_on_every_backend(rng, library, changes):
    """Three whole steps with dropout and Adam: the losses,
    and the weights afterwards, are NumPy's.
    """
    batch = random_batch(rng)
    config = small_config(**changes, **ALL_DROPOUT)
    here = Transformer(config)
    numbers = train(here, batch, steps=3)
    with using("numpy"):
        there = Transformer(config)
        expected = train(there, batch, steps=3)
    assert np.allclose(numbers, expected, rtol=1e-5)
    for (name, p), q in zip(here.named_parameters(), there.parameters(), strict=True):
        if not name.endswith("key.bias"):  # the softmax ignores it: Adam scales a gradient of 0
            assert np.allclose(to_numpy(p.data), q.data, rtol=1e-3, atol=1e-4), name


# Learning -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "vocabulary_size, d_model, n_layers",
    [(1000, 64, 2), pytest.param(8000, 128, 3, marks=pytest.mark.slow)],
)
def test_the_first_loss(rng, vocabulary_size, d_model, n_layers, norm):
    """Logits of variance 1 give E[loss] = ln V + 1/2."""
    config = Config(vocabulary_size, n_layers, d_model, 2 * d_model, n_heads=4, norm=norm)
    batch = random_batch(rng, 10, 12, 13, vocabulary_size)
    loss, nll = Transformer(config).eval().loss(batch.source, batch.target_in, batch.target_out)
    expected = math.log(vocabulary_size) + 0.5
    assert float(loss) == pytest.approx(expected, rel=0.03)
    assert float(nll) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("changes", [SWITCHES["paper"], SWITCHES["all"]], ids=["paper", "all"])
def test_one_batch_is_learned_by_heart(changes):
    """Without smoothing and dropout the loss goes to zero, and every word is then the
    most probable one.
    """
    rng = np.random.default_rng(3)
    config = Config(
        30, n_layers=2, d_model=32, d_ff=64, n_heads=4, dropout=0.0, label_smoothing=0.0, **changes
    )
    lines = [rng.integers(4, 30, n).tolist() for n in (6, 3, 8, 1, 5)]
    batch = make_batch(lines, lines[::-1], 30)
    model = Transformer(config)
    optimizer = Adam(model.named_parameters())
    for _ in range(100):
        optimizer.zero_grad()
        loss, nll = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
        optimizer.step(5e-3)
    assert float(loss) == float(nll) < 0.01
    words = model(batch.source, batch.target_in).numpy().argmax(-1)
    real = batch.target_out != 0
    assert np.array_equal(words[real], batch.target_out[real])
