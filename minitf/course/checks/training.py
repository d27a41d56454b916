"""The checks of lesson 07, training."""

import numpy as np

from minitf.config import Config
from minitf.course.checks.compare import as_array, check
from minitf.nn import Parameter
from minitf.optim import Adam
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import Transformer


def _adam(gradient, rate):
    number = Parameter(np.zeros(gradient.shape))
    optimizer = Adam([("number", number)])
    number.backward(gradient)
    optimizer.step(rate)
    return number.numpy()


@check(
    right=_adam,
    wrong={
        "gradient descent: Adam divides by the gradient's size": (
            lambda gradient, rate: -rate * gradient
        ),
        "0 divided by 0: eps prevents it": lambda gradient, rate: -rate * gradient / abs(gradient),
        "a move of a number whose gradient is 0": (
            lambda gradient, rate: np.where(gradient < 0, rate, -rate)
        ),
        "a gradient of length 1: Adam looks at each number alone": lambda gradient, rate: (
            -rate * gradient / np.linalg.norm(gradient)
        ),
    },
    rtol=1e-3,
)
def check_first_move(first_move):
    """Check Adam's first step."""
    for gradient, rate in (
        (np.array([2.0, -3.0, 1e-4, 0.0, -500.0]), 0.01),
        (np.array([[-0.5, 0.25, 7.0], [0.0, -1e-3, 40.0]]), 0.3),
    ):
        yield f"the moves of {gradient.size} numbers", first_move(gradient, rate)


def _updated(divide_by=lambda batches, _: sum(batch.n_tokens for batch in batches), zero="once"):
    """Return an answer with losses divided by divide_by(batches, own); zero: once, each, never."""

    def update_in_parts(model, optimizer, batches, rate):
        for i, batch in enumerate(batches):
            if zero == "each" or (zero == "once" and i == 0):
                optimizer.zero_grad()
            n_tokens = divide_by(batches, batch)
            model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
        optimizer.step(rate)

    return update_in_parts


@check(
    right=_updated(),
    wrong={
        "each part was divided by its own number of tokens": _updated(
            lambda batches, own: own.n_tokens
        ),
        "the mean of the parts' means: a part with more tokens counts more": _updated(
            lambda batches, own: len(batches) * own.n_tokens
        ),
        "the gradient of the first part is lost": _updated(zero="each"),
        "the gradient of an earlier batch was added": _updated(zero="never"),
        "all parts divided by the source tokens: the target's count": _updated(
            lambda batches, own: sum(int((batch.source != 0).sum()) for batch in batches)
        ),
    },
)
def check_update_in_parts(update_in_parts):
    """Check one update from several batches, by the gradient that Adam receives."""
    for rows in (
        [([4, 9, 5, 7], [7, 5, 9, 4]), ([8, 6], [6])],
        [([8, 6], [6, 5]), ([4, 9, 5, 7], [7, 5, 9, 4, 8]), ([5], [12])],
    ):
        config = Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
        complete = make_batch([source for source, _ in rows], [target for _, target in rows], 14)
        batches = [complete.rows(i, i + 1) for i in range(len(rows))]
        name, rate = f"{len(rows)} batches", 0.01 * len(rows)
        model = Transformer(config, seed=1).astype(np.float64)
        optimizer = Adam(model.named_parameters())
        first = batches[0]  # an earlier batch has left its gradient
        model.loss(first.source, first.target_in, first.target_out)[0].backward()
        start = Tensor(optimizer.data).numpy().copy()
        update_in_parts(model, optimizer, batches, rate)
        moves = Tensor(optimizer.data).numpy() - start
        yield f"{name}, the calls of optimizer.step", optimizer.step_count
        # After one update, m is 0.1 times the gradient.
        yield f"{name}, the gradient of the update", Tensor(optimizer.m).numpy() / 0.1
        yield f"{name}, the moves of all parameters", moves


@check(
    right=lambda eps, V: eps * (V - 1) / V,
    wrong={
        "eps itself: then each wrong word gets eps / (V - 1)": lambda eps, V: eps,
        "the share of one wrong word: e is that of all": lambda eps, V: eps / V,
        "the share of the true word": lambda eps, V: 1 - eps + eps / V,
        "V / (V - 1) the wrong way round": lambda eps, V: eps * V / (V - 1),
        "the number for eps 0.3 and V 5 alone": lambda eps, V: 0.24,
    },
)
def check_pytorch_eps(pytorch_eps):
    """Check the number that gives PyTorch's label smoothing, by the share of a wrong word."""
    for eps, V in ((0.1, 3), (0.3, 5), (0.5, 8)):
        name = f"eps = {eps}, V = {V}"
        e = as_array(name, pytorch_eps(eps, V))
        assert e.size == 1, f"{name}: found {e.size} numbers, expected one number"
        assert 0 <= e < 1, f"{name}: found {e.item():.6g}, expected a number from 0 to 1"
        yield f"{name}, the share that e gives each wrong word", e.reshape(()) / (V - 1)
