"""The checks of lesson 05, embeddings."""

from math import sqrt

import numpy as np

from minitf.course.checks.compare import equal, equal_on_paper, gradient
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

    equal_on_paper(
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
            "a second hand 200 times as slow": two_hands(2, 0.01),
            "the angles, without sine and cosine": [2, 2, 0.02, 0.02],
            "the sine in place of the cosine": [np.sin(2), np.sin(2), np.sin(0.02), np.sin(0.02)],
        },
        [
            {"the cosine": np.cos(2), "the angle": 2},
            {"the sine: it belongs to the first of the two": np.sin(2), "the angle": 2},
            {
                "the cosine": np.cos(0.02),
                "that of the first hand": np.sin(2),
                "that of a hand 10 times as slow: the exponent is 2/4": np.sin(0.2),
            },
            {
                "the sine: it belongs to the first of the two": np.sin(0.02),
                "that of a hand 10 times as slow: the exponent is 2/4": np.cos(0.2),
            },
        ],
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
                "each id once: an id that comes twice has two rows": values[np.unique(ids)],
            },
        )
        gy = rng.standard_normal((len(ids), D))
        right, last, mean = np.zeros((V, D)), np.zeros((V, D)), np.zeros((V, D))
        np.add.at(right, ids, gy)
        last[ids] = gy
        mean[np.unique(ids)] = right[np.unique(ids)] / np.bincount(ids)[np.unique(ids), None]
        first, by_id, sums_of_rows = np.zeros((V, D)), np.zeros((V, D)), np.zeros((V, D))
        np.add.at(sums_of_rows, ids, values[ids])
        for i in ids[ids < len(gy)]:
            by_id[i] += gy[i]
        all_of_it = np.zeros((V, D))
        all_of_it[ids] = gy.sum(axis=0)
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
                "gy[i] of an id i: row n of gy belongs to ids[n]": by_id,
                "the rows of the table in place of gy": sums_of_rows,
                "a start with the table: the gradient starts with zeros": values + right,
                "all of gy for each id: row n of gy belongs to ids[n]": all_of_it,
                "gy itself, whose rows belong to the ids": gy,
            },
        )


def check_right_input(right_input):
    """Check the input of a model: scaled embeddings plus positions."""
    for length, d_model in ((5, 16), (9, 64)):
        embedding = np.random.default_rng(length).standard_normal((length, d_model))
        vectors = sinusoid(length + 1, d_model, dtype=np.float64)
        sines, late, root = vectors[:length], vectors[1:], sqrt(d_model)
        equal(
            f"length {length}, d_model {d_model}",
            right_input(embedding.copy(), length),
            embedding * root + sines,
            {
                "the code of the exercise": embedding + late,
                "positions from 0, but an embedding that is not scaled": embedding + sines,
                "a scaled embedding, but positions from 1": embedding * root + late,
                "an embedding times d_model: it is times the root": embedding * d_model + sines,
                "an embedding divided by the root": embedding / root + sines,
                "an embedding times the root of the length": embedding * sqrt(length) + sines,
                "a sum that is scaled: only the embedding is": (embedding + sines) * root,
                "the positions scaled, too, from 1": (embedding + late) * root,
                "the positions scaled in place of the embedding": embedding + sines * root,
                "the embedding alone": embedding * root,
                "positions in the opposite order": embedding * root + sines[::-1],
                "positions from 2": embedding * root + sinusoid(length + 2, d_model)[2:],
                "an embedding times 4, which is right for d_model 16 alone": embedding * 4 + sines,
                "an embedding times 8, which is right for d_model 64 alone": embedding * 8 + sines,
                "positions subtracted": embedding * root - sines,
                "a product with the positions: it is a sum": embedding * root * sines,
                "position 0 for every word": embedding * root + sines[0],
                "the positions alone": sines,
                "positions that are divided by the root": embedding * root + sines / root,
                "embedding and positions side by side: they are added": np.concatenate(
                    [embedding * root, sines], axis=1
                ),
                "the paper's d_model of 512": embedding * sqrt(512) + sines,
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
        equal(
            f"{name}: the scores (PE W) PE^T of positions {k} to {length - k - 1}",
            looks,
            products[: length - 2 * k],
            lambda PE=PE, k=k: _heads_that_look(PE, k),
            atol=0.05,  # a matrix that was fitted to PE is right, too
        )


def _heads_that_look(PE, k):
    """Return {mistake: the scores that it gives} of a head that looks k positions back."""
    length, d_model = PE.shape
    i = np.arange(d_model // 2)

    def scores(turns, first=2 * i, second=2 * i + 1, sines=1.0):
        """Of a matrix that turns pair i, which stands in columns first and second, back."""
        W = np.zeros((d_model, d_model))
        W[first, first] = W[second, second] = np.cos(turns)
        W[first, second], W[second, first] = sines * np.sin(turns), -sines * np.sin(turns)
        return (PE @ W @ PE.T)[k : length - k]

    def speeds(exponent, base=10_000):
        return 1 / base**exponent

    right = speeds(2 * i / d_model)
    mistakes = {
        "a head that looks k positions ahead": scores(-k * right),
        "a head that looks at its own position": scores(0 * right),
        "a head that looks 3 positions back, whatever k is": scores(3 * right),
        "a head that looks 1 position back, whatever k is": scores(right),
        "a head that looks 2 k positions back": scores(2 * k * right),
        "a head that looks k - 1 positions back": scores((k - 1) * right),
        "a head that looks k + 1 positions back": scores((k + 1) * right),
        "angles of 10000^(i / d_model) for pair i: it is 2 i / d_model": scores(
            k * speeds(i / d_model)
        ),
        "angles of 10000^(4 i / d_model) for pair i: it is 2 i / d_model": scores(
            k * speeds(4 * i / d_model)
        ),
        "angles of 10000^(2 i / (d_model - 2)) for pair i: it is 2 i / d_model": scores(
            k * speeds(2 * i / (d_model - 2))
        ),
        "angles that are multiplied by 10000^(2 i / d_model): a later pair turns more slowly": (
            scores(k / right)
        ),
        "another base than 10000, such as 1000": scores(k * speeds(2 * i / d_model, 1000)),
        "another base than 10000, such as 100": scores(k * speeds(2 * i / d_model, 100)),
        "one angle for all pairs: each pair has its own": scores(k * np.ones(d_model // 2)),
        "angles in degrees": scores(np.deg2rad(k * right)),
        "pairs of columns i and i + d_model / 2: sine and cosine stand side by side": scores(
            k * right, i, i + d_model // 2
        ),
        "the cosines alone: the matrix turns pairs": scores(k * right, sines=0.0),
        "sines of the same sign: one of the two has a minus": _mirrored(PE, k, right),
        "a matrix that moves columns: PE W is to move positions": (
            PE @ np.eye(d_model, k=-k) @ PE.T
        )[k : length - k],
        "a matrix that moves columns, the other way": (PE @ np.eye(d_model, k=k) @ PE.T)[
            k : length - k
        ],
        "zeros": 0 * scores(right),
    }
    expected = scores(k * right)
    # At k = 1, or 3, some of them are right.
    return {text: one for text, one in mistakes.items() if not np.allclose(one, expected)}


def _mirrored(PE, k, speeds):
    W, first = np.zeros((PE.shape[1],) * 2), 2 * np.arange(len(speeds))
    W[first, first] = W[first + 1, first + 1] = np.cos(k * speeds)
    W[first, first + 1] = W[first + 1, first] = np.sin(k * speeds)
    return (PE @ W @ PE.T)[k : len(PE) - k]
