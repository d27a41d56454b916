"""Every differentiable function with arguments to check it on, for test_gradients and test_docs.

The sizes are pairwise different; numbers are away from kinks and ties.
"""

import numpy as np
from sizes import B, D, H, K, S, T, V

from minitf import functions as F
from minitf import loss
from minitf.beyond import functions as variations


def _spread(rng, *shape):
    """Return numbers of both signs, not close to 0 nor to each other: no kinks, no ties."""
    n = int(np.prod(shape))
    values = (np.arange(n) - n // 2) * 0.31 + rng.uniform(0.05, 0.25, n)
    return rng.permutation(values / max(1.0, n / 12)).reshape(shape) if n else np.zeros(shape)


def table():
    """Return (function, arguments, options) for all public functions of functions, loss, beyond."""
    rng = np.random.default_rng(5)

    def normal(*shape):
        return rng.normal(size=shape)

    ids = rng.integers(0, V, (B, T))
    targets = rng.integers(1, V, (B, T))
    targets[1, 3:] = 0  # padding
    mask = rng.random((B, 1, T, S)) < 0.6
    mask[0, 0, 2] = False  # a query with nothing to attend to
    gates = rng.uniform(0.05, 0.95, (B, T, D))
    query, key, value = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, S, D)
    return [
        (F.exp, (normal(B, T),), {}),
        (F.log, (rng.uniform(0.5, 2, (B, T)),), {}),
        (F.relu, (_spread(rng, B, T),), {}),
        (F.swish, (3 * _spread(rng, B, T),), {}),
        (F.where, (rng.random((B, T)) < 0.5, normal(B, T), -2.0), {}),
        (F.where, (rng.random((B, T)) < 0.5, normal(B, T), normal(B, T)), {}),
        (F.concatenate, ([normal(B, T, D), normal(B, T, K)],), {}),
        (F.softmax, (normal(B, T, D),), {}),
        (F.softmax, (normal(B, T, D),), {"axis": 1}),
        (F.log_softmax, (normal(B, T, D),), {}),
        (F.log_softmax, (normal(B, T, D),), {"axis": 0}),
        (F.linear, (normal(B, T, D), normal(D, 16), normal(16)), {}),
        (F.linear, (normal(B, T, D), normal(D, 16)), {}),
        (F.layer_norm, (normal(B, T, D), normal(D), normal(D)), {}),
        (F.embedding, (normal(V, D), ids), {}),
        (F.dropout, (normal(B, T, D), 0.3), {"seed": 3}),
        (F.attention_weights, (query, key, mask), {}),
        (F.attention_weights, (query, key), {}),
        (F.attention, (query, key, value, mask), {}),
        (F.attention, (query, key, value), {}),
        (F.attention, (query, key, value, mask, 0.4), {"seed": 4}),
        (variations.tanh, (normal(B, T),), {}),
        (variations.sigmoid, (3 * normal(B, T),), {}),
        (variations.gelu_tanh, (2 * normal(B, T),), {}),
        (variations.gated_recurrence, (normal(B, T, D), gates), {}),
        (variations.gated_recurrence, (normal(B, T, D), gates, normal(B, D)), {}),
        (variations.sqrt, (rng.uniform(0.5, 2, (B, T)),), {}),
        (variations.stack, ([normal(B, T, D), normal(B, T, D), normal(B, T, D)],), {}),
        (variations.stack, ([normal(B, T, D), normal(B, T, D)],), {"axis": -1}),
        (loss.label_smoothed_cross_entropy, (normal(B, T, V), targets), {}),
        (loss.label_smoothed_cross_entropy, (normal(B, T, V), targets), {"pad_id": 0}),
        (loss.label_smoothed_cross_entropy, (normal(B, T, V), targets, 0.0), {"n_tokens": 23}),
        (loss.projected_cross_entropy, (normal(B, T, D), normal(V, D), targets), {}),
        (loss.projected_cross_entropy, (normal(B, T, D), normal(V, D), targets), {"pad_id": 0}),
        (
            loss.projected_cross_entropy,
            (normal(B, T, D), normal(V, D), targets, 0.2),
            {"n_tokens": 23},
        ),
    ]


def operators():
    """Return (name, function, arguments) for each operator and method of Tensor."""
    rng = np.random.default_rng(6)
    return _arithmetic(rng, lambda *shape: rng.normal(size=shape)) + _methods(
        rng, lambda *shape: rng.normal(size=shape)
    )


def _arithmetic(rng, normal):
    positive = rng.uniform(0.5, 2, (B, T))
    return [
        ("x + y", lambda x, y: x + y, (normal(B, T), normal(B, T))),
        ("x + y, y broadcast along rows", lambda x, y: x + y, (normal(B, T, D), normal(D))),
        ("x + y, y broadcast along columns", lambda x, y: x + y, (normal(B, T, D), normal(T, 1))),
        ("x + y, both broadcast", lambda x, y: x + y, (normal(B, 1, D), normal(T, 1))),
        ("1 + x", lambda x: 1 + x, (normal(B, T),)),
        ("x - y", lambda x, y: x - y, (normal(B, T), normal(T))),
        ("1 - x", lambda x: 1 - x, (normal(B, T),)),
        ("-x", lambda x: -x, (normal(B, T),)),
        ("x * y", lambda x, y: x * y, (normal(B, T), normal(B, 1))),
        ("x * x", lambda x: x * x, (normal(B, T),)),
        ("3 * x", lambda x: 3 * x, (normal(B, T),)),
        ("x / y", lambda x, y: x / y, (normal(B, T), positive)),
        ("1 / x", lambda x: 1 / x, (positive,)),
        ("x / 3", lambda x: x / 3, (normal(B, T),)),
        ("x / y, y broadcast", lambda x, y: x / y, (normal(B, T), positive[:, :1])),
        ("array / x", lambda x: np.arange(3.0)[:, None, None] / x, (positive,)),
        ("abs(x)", abs, (_spread(rng, B, T),)),
        ("x ** 3", lambda x: x**3, (normal(B, T),)),
        ("x ** 0.5", lambda x: x**0.5, (positive,)),
        ("x ** 0", lambda x: x**0 + x, (np.array([0.0, 1.5]),)),
        ("x @ y", lambda x, y: x @ y, (normal(T, D), normal(D, S))),
        ("x @ y, batches", lambda x, y: x @ y, (normal(B, H, T, K), normal(B, H, K, S))),
        ("x @ y, y shared by the batch", lambda x, y: x @ y, (normal(B, T, D), normal(D, S))),
        ("array @ x", lambda x: np.ones((S, T)) @ x, (normal(T, D),)),
    ]


def _methods(rng, normal):
    rows = np.array([1, 0, 1])
    return [
        ("x[slice]", lambda x: x[:, 1:3], (normal(B, T),)),
        ("x[number]", lambda x: x[1], (normal(B, T),)),
        ("x[ids], an id twice", lambda x: x[rows], (normal(B, T),)),
        ("x.sum()", lambda x: x.sum(), (normal(B, T),)),
        ("x.sum(axis)", lambda x: x.sum(1), (normal(B, T, D),)),
        ("x.sum(axes, keepdims)", lambda x: x.sum((0, 2), keepdims=True), (normal(B, T, D),)),
        ("x.mean()", lambda x: x.mean(), (normal(B, T),)),
        ("x.mean(axis)", lambda x: x.mean(-1), (normal(B, T, D),)),
        ("x.var()", lambda x: x.var(), (normal(B, T),)),
        ("x.var(axis, keepdims)", lambda x: x.var(1, keepdims=True), (normal(B, T, D),)),
        ("x.max()", lambda x: x.max(), (_spread(rng, B, T),)),
        ("x.max(axis)", lambda x: x.max(1), (_spread(rng, B, T, D),)),
        ("x.max(axes, keepdims)", lambda x: x.max((0, 2), keepdims=True), (_spread(rng, B, T, D),)),
        ("x.astype", lambda x: x.astype("float64") * 2, (normal(B, T),)),
        ("x.reshape", lambda x: x.reshape(T, -1), (normal(B, T, D),)),
        ("x.transpose()", lambda x: x.transpose(), (normal(B, T, D),)),
        ("x.transpose(axes)", lambda x: x.transpose(1, -1, 0), (normal(B, T, D),)),
        ("x.T", lambda x: x.T, (normal(B, T, D),)),
        ("x.swapaxes", lambda x: x.swapaxes(0, -1), (normal(B, T, D),)),
        ("iteration", lambda x: sum(row * i for i, row in enumerate(x)), (normal(T, D),)),
    ]
