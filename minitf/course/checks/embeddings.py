"""The checks of lesson 05, embeddings."""

from math import sqrt

import numpy as np

from minitf.course.checks.compare import equal, gradient, on_paper
from minitf.tensor import Tensor
from minitf.transformer import sinusoid

__all__ = [
    "check_look_back",
    "check_look_up",
    "check_predicted_position",
    "check_right_input",
]


def check_predicted_position(predicted_position):
    """Check the four numbers of a position, found on paper."""
    vectors = sinusoid(4, 4, dtype=np.float64)
    degrees = np.deg2rad(2), np.deg2rad(2 / 100)

    def two_hands(first, second):
        return [np.sin(first), np.cos(first), np.sin(second), np.cos(second)]

    on_paper(
        predicted_position(),
        vectors[2],
        ["sin, first hand", "cos, first hand", "sin, second hand", "cos, second hand"],
        {
            "the sines in front: here sine and cosine take turns": vectors[2][[0, 2, 1, 3]],
            "position 1: the first position is 0": vectors[1],
            "position 3: the first position is 0": vectors[3],
            "position 0": vectors[0],
            "angles in degrees": two_hands(*degrees),
            "the cosine before the sine": vectors[2][[1, 0, 3, 2]],
            "a second hand as fast as the first": two_hands(2, 2),
            "a second hand 10 times as slow: the exponent is 2/4": two_hands(2, 0.2),
            "a second hand 10000 times as slow: the exponent is 2/4": two_hands(2, 0.0002),
            "four hands: sine and cosine share one": [
                np.sin(2),
                np.cos(0.2),
                np.sin(0.02),
                np.cos(0.002),
            ],
            "a second hand 100 times as fast": two_hands(2, 200),
        },
    )


def check_look_up(look_up):
    """Check rows of a table and their gradient, with ids that repeat."""
    for (V, D), ids in (((5, 3), [3, 1, 3, 3]), ((7, 2), [6, 6, 2, 6]), ((4, 4), [1, 0, 2, 3])):
        rng = np.random.default_rng(V)
        values, ids = rng.standard_normal((V, D)), np.array(ids)
        table, name = Tensor(values.copy()), f"a table ({V}, {D}), ids {ids.tolist()}"
        out = look_up(table, ids.copy())
        equal(
            f"{name}, the rows",
            out,
            values[ids],
            {
                "rows counted from 1": values[ids - 1],
                "the rows added": values[ids].sum(axis=0),
                "the table itself": values,
            },
        )
        gy = rng.standard_normal((len(ids), D))
        right, last, mean = np.zeros((V, D)), np.zeros((V, D)), np.zeros((V, D))
        np.add.at(right, ids, gy)
        last[ids] = gy
        mean[np.unique(ids)] = right[np.unique(ids)] / np.bincount(ids)[np.unique(ids), None]
        first = np.zeros((V, D))
        first[ids[::-1]] = gy[::-1]
        equal(
            f"{name}, the gradient",
            gradient(f"{name}, the gradient", out, table, gy),
            right,
            {
                "an id that comes twice keeps only its last gradient": last,
                "an id that comes twice keeps only its first gradient": first,
                "the mean over an id's places in place of their sum": mean,
                "zeros: does backward return the array that it fills?": 0 * right,
                "ones in place of gy": np.bincount(ids, minlength=V)[:, None] + 0 * right,
                "gy handed to every row": gy.sum(axis=0) + 0 * right,
                "a gradient of the wrong sign": -right,
                "gy itself, whose rows belong to the ids": gy,
            },
        )


def check_right_input(right_input):
    """Check the input of a model: scaled embeddings plus positions."""
    for length, d_model in ((5, 16), (9, 64)):
        embedding = np.random.default_rng(length).standard_normal((length, d_model))
        vectors = sinusoid(length + 1, d_model, dtype=np.float64)
        at, late, root = vectors[:length], vectors[1:], sqrt(d_model)
        equal(
            f"length {length}, d_model {d_model}",
            right_input(embedding.copy(), length),
            embedding * root + at,
            {
                "the code of the exercise": embedding + late,
                "positions from 0, but an embedding that is not scaled": embedding + at,
                "a scaled embedding, but positions from 1": embedding * root + late,
                "an embedding times d_model: it is times the root": embedding * d_model + at,
                "an embedding divided by the root": embedding / root + at,
                "an embedding times the root of the length": embedding * sqrt(length) + at,
                "a sum that is scaled: only the embedding is": (embedding + at) * root,
                "the positions scaled, too, from 1": (embedding + late) * root,
                "the positions scaled in place of the embedding": embedding + at * root,
                "the embedding alone": embedding * root,
                "positions in the opposite order": embedding * root + at[::-1],
                "positions from 2": embedding * root + sinusoid(length + 2, d_model)[2:],
                "an embedding times 4, which is right for d_model 16 alone": embedding * 4 + at,
                "an embedding times 8, which is right for d_model 64 alone": embedding * 8 + at,
                "positions subtracted": embedding * root - at,
            },
            rtol=1e-4,
            atol=1e-5,
        )


def check_look_back(look_back):
    """Check the matrix of a head that looks k positions back, by its scores."""
    for k, d_model, length in ((3, 32, 60), (5, 16, 40), (1, 8, 20)):
        PE = sinusoid(length, d_model, dtype=np.float64)
        name = f"k = {k}, d_model {d_model}"
        W = look_back(k, d_model)
        W = W.numpy() if isinstance(W, Tensor) else np.asarray(W, dtype=float)
        assert W.shape == (d_model, d_model), (
            f"{name}: found a matrix of shape {W.shape}, expected {(d_model, d_model)}"
        )
        scores = PE @ W @ PE.T
        products = PE @ PE.T
        looks = scores[k : length - k]  # of positions that have a word k before and k after
        mistakes = {
            "a head that looks k positions ahead": products[2 * k :],
            "a head that looks at its own position": products[k : length - k],
            "a head that looks 3 positions back, whatever k is": PE[k - 3 : length - k - 3] @ PE.T
            if k > 3
            else None,
            "a head that looks 1 position back, whatever k is": products[k - 1 : length - k - 1],
            "a head that looks 2 k positions back": None,
            "half of the dot products": products[: length - 2 * k] / 2,
            "twice the dot products": products[: length - 2 * k] * 2,
            "the opposite sign": -products[: length - 2 * k],
            "zeros": 0 * looks,
        }
        if k == 1:
            del mistakes["a head that looks 1 position back, whatever k is"]
        equal(
            f"{name}: the scores (PE W) PE^T of positions {k} to {length - k - 1}",
            looks,
            products[: length - 2 * k],
            {text: value for text, value in mistakes.items() if value is not None},
            atol=0.05,  # a matrix that was fitted to PE is right, too
        )
