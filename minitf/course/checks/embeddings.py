"""The checks of lesson 05, embeddings."""

from functools import partial
from math import sqrt

import numpy as np

from minitf.course.checks.compare import as_array, check, gradients, on_paper
from minitf.tensor import Tensor, record
from minitf.transformer import sinusoid

check_predicted_position = on_paper(
    ["sin, first hand", "cos, first hand", "sin, second hand", "cos, second hand"],
    lambda: sinusoid(4, 4, dtype=np.float64)[2],
    {
        "the sines in front: here sine and cosine take turns": [0.91, 0.02, -0.42, 1.0],
        "position 1: the first position is 0": [0.84, 0.54, 0.01, 1.0],
        "angles in degrees": [0.03, 1.0, 0.0, 1.0],
        "a second hand as fast as the first": [0.91, -0.42, 0.91, -0.42],
        "a second hand 10 times as slow: the exponent is 2/4": [0.91, -0.42, 0.2, 0.98],
    },
)


def _looked_up(backward):
    """Return an answer whose gradient is backward(zeros of the table's shape, ids, gy)."""
    return lambda table, ids: record(
        table.data[ids], (table,), lambda gy: backward(np.zeros_like(table.data), ids, gy)
    )


def _added(gradient, ids, gy):
    np.add.at(gradient, ids, gy)
    return gradient


def _last(gradient, ids, gy):
    gradient[ids] += gy
    return gradient


@check(
    right=_looked_up(_added),
    wrong={
        "an id that comes twice keeps only its last gradient": _looked_up(_last),
        "the mean over an id's places in place of their sum": _looked_up(
            lambda zeros, ids, gy: (
                _added(zeros, ids, gy)
                / np.maximum(1, np.bincount(ids, minlength=len(zeros)))[:, None]
            )
        ),
        "zeros: does backward return the array that it fills?": _looked_up(
            lambda zeros, ids, gy: zeros
        ),
        "ones in place of gy": _looked_up(lambda zeros, ids, gy: _added(zeros, ids, 1)),
        "gy[i] of an id i: row n of gy belongs to ids[n]": _looked_up(
            lambda zeros, ids, gy: _added(zeros, ids, gy[ids % len(gy)])
        ),
    },
)
def check_look_up(look_up):
    """Check rows of a table and their gradient, with ids that repeat."""
    for (V, D), ids in (((5, 3), [3, 1, 3, 3]), ((7, 2), [6, 6, 2, 6]), ((4, 4), [1, 0, 2, 3])):
        rng = np.random.default_rng(V)
        table, name = Tensor(rng.standard_normal((V, D))), f"a table ({V}, {D}), ids {ids}"
        out = look_up(table, np.array(ids))
        yield f"{name}, the rows", out
        name, gy = f"{name}, the gradient", rng.standard_normal((len(ids), D))
        yield name, gradients(name, out, [table], gy)[0]


def _input(embedding, length, scale=None, first=0):
    """Return embeddings times the scale (the root of d_model), plus positions from `first` on."""
    d_model = embedding.shape[1]
    return embedding * (scale or sqrt(d_model)) + sinusoid(length + first, d_model)[first:]


@check(
    right=_input,
    wrong={
        "the code of the exercise": partial(_input, scale=1, first=1),
        "a scaled embedding, but positions from 1": partial(_input, first=1),
        "positions from 0, but an embedding that is not scaled": partial(_input, scale=1),
        "an embedding times d_model: it is times the root": lambda embedding, length: _input(
            embedding, length, scale=embedding.shape[1]
        ),
        "a sum that is scaled: only the embedding is": lambda embedding, length: (
            _input(embedding, length, scale=1) * sqrt(embedding.shape[1])
        ),
    },
)
def check_right_input(right_input):
    """Check the input of a model: scaled embeddings plus positions."""
    for length, d_model in ((5, 16), (9, 64)):
        embedding = np.random.default_rng(length).standard_normal((length, d_model))
        yield f"length {length}, d_model {d_model}", right_input(embedding, length)


def _turned_back(k, d_model, slowness=lambda i, d_model: 10_000 ** (2 * i / d_model)):
    """Return the matrix that turns pair i back by the angle k / slowness(i, d_model)."""
    i, W = np.arange(d_model // 2), np.zeros((d_model, d_model))
    angles = k / slowness(i, d_model)
    W[2 * i, 2 * i] = W[2 * i + 1, 2 * i + 1] = np.cos(angles)
    W[2 * i, 2 * i + 1], W[2 * i + 1, 2 * i] = np.sin(angles), -np.sin(angles)
    return W


@check(
    right=_turned_back,
    wrong={
        "a head that looks k positions ahead": lambda k, d_model: _turned_back(-k, d_model),
        "angles of 10000^(i / d_model) for pair i: it is 2 i / d_model": partial(
            _turned_back, slowness=lambda i, d_model: 10_000 ** (i / d_model)
        ),
        "angles times 10000^(2 i / d_model): a later pair turns more slowly": partial(
            _turned_back, slowness=lambda i, d_model: 10_000 ** (-2 * i / d_model)
        ),
        "one angle for all pairs: each pair has its own": partial(
            _turned_back, slowness=lambda i, d_model: 1.0 + 0 * i
        ),
        "a matrix that moves columns: PE W is to move positions": lambda k, d_model: np.eye(
            d_model, k=-k
        ),
    },
    atol=0.003,  # a matrix that was fitted to PE is right, too
)
def check_look_back(look_back):
    """Check the matrix of a head that looks k positions back, by its scores."""
    for k, d_model, length in ((3, 32, 60), (5, 16, 40), (1, 8, 20)):
        PE = sinusoid(length, d_model, dtype=np.float64)
        name = f"k = {k}, d_model {d_model}"
        W = as_array(name, look_back(k, d_model))
        assert W.shape == (d_model, d_model), (
            f"{name}: found a matrix of shape {W.shape}, expected {(d_model, d_model)}"
        )
        # Of positions that have a word k before and k after.
        looks = (PE @ W @ PE.T)[k : length - k]
        yield f"{name}: the scores (PE W) PE^T of positions {k} to {length - k - 1}", looks
