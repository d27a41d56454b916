"""Answers to the exercises of lesson 05: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import math

import numpy as np

from minitf.tensor import record
from minitf.transformer import sinusoid

# predicted_position -------------------------------------------------------------------------------


def predicted_position():
    return [0.91, -0.42, 0.02, 1.0]


def right_predicted_position_2():
    return 0.909, -0.416, 0.02, 1


def right_predicted_position_3():
    return np.array([math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)], np.float32)


# look_up ------------------------------------------------------------------------------------------


def look_up(table, ids):
    rows = table.data[ids]

    def backward(gy):
        gradient = np.zeros_like(table.data)
        np.add.at(gradient, ids, gy)
        return gradient, None

    return record(rows, (table, None), backward)


def right_look_up_2(table, ids):
    picked = np.eye(table.data.shape[0])[ids]
    return record(picked @ table.data, (table,), lambda gy: picked.T @ gy)


def right_look_up_3(t, i):
    def backward(gy):
        g = np.zeros(t.data.shape)
        for row, one in zip(i, gy, strict=True):
            g[row] += one
        return (g,)

    return record(np.take(t.data, i, axis=0), [t], backward)


def right_look_up_4(table, ids):
    return table[ids]


def wrong_look_up_2(table, ids):
    """returned a gradient of shape (4, 3)"""
    return record(table.data[ids], (table,), lambda gy: gy)


def wrong_look_up_6(table, ids):
    """index 6 is out of bounds for axis 0 with size 5"""

    def backward(gy):
        gradient = np.zeros((5, 3))
        np.add.at(gradient, ids, gy)
        return gradient

    return record(table.data[ids], (table,), backward)


# right_input --------------------------------------------------------------------------------------


def right_input(embedding, length):
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length, d_model)


def right_right_input_2(embedding, length):
    embedding *= math.sqrt(embedding.shape[-1])
    embedding += sinusoid(length + 5, embedding.shape[-1])[:length]
    return embedding


def right_right_input_3(vectors, n):
    d = len(vectors[0])
    rows = []
    for t in range(n):
        angles = t / 10000 ** (2 * (np.arange(d) // 2) / d)
        waves = np.where(np.arange(d) % 2 == 0, np.sin(angles), np.cos(angles))
        rows.append(math.sqrt(d) * vectors[t] + waves)
    return rows


def right_right_input_4(embedding, length):
    waves = sinusoid(length, embedding.shape[1])
    return (np.sqrt(embedding.shape[1]) * embedding).astype(np.float32) + waves.astype(np.float32)


def wrong_right_input_6(embedding, length):
    """length 9, d_model 64: found"""  # right for d_model 16 alone
    return embedding * 4 + sinusoid(length, embedding.shape[1])


def wrong_right_input_9(embedding, length):
    """axis 0 has 5 numbers here, 6 there"""
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length + 1, d_model)


# look_back ----------------------------------------------------------------------------------------


def _rotation(offset, d_model):
    """The matrix that turns PE(pos) into PE(pos + offset), when it stands on the right of a row."""
    return _turned_back(-offset, d_model, lambda i: 10000 ** (2 * i / d_model))


def _turned_back(k, d_model, slowness):
    """A matrix as of k positions back, with another angle: 1 / slowness(i) for pair i."""
    turned = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        angle = -k / slowness(i)
        pair = slice(2 * i, 2 * i + 2)
        turned[pair, pair] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turned


def look_back(k, d_model):
    return _rotation(-k, d_model)


def right_look_back_2(k, d_model):
    W = np.zeros((d_model, d_model), dtype=np.float32)
    for i in range(0, d_model, 2):
        a = k * 10000 ** (-i / d_model)
        W[i, i] = W[i + 1, i + 1] = math.cos(a)
        W[i, i + 1], W[i + 1, i] = math.sin(a), -math.sin(a)
    return W


def right_look_back_3(k, d_model):
    PE = sinusoid(200, d_model, dtype=np.float64)
    return np.linalg.lstsq(PE[k:], PE[:-k], rcond=None)[0]


def right_look_back_4(k, d_model):
    return _rotation(k, d_model).T.tolist()


def wrong_look_back_2(k, d_model):
    """k = 5, d_model 16: the scores (PE W) PE^T of positions 5 to 34: found"""
    # a head that looks 3 positions back, whatever k is
    return _rotation(-3, d_model)


def wrong_look_back_5(k, d_model):
    """found a matrix of shape (2, 2), expected (32, 32)"""
    return np.array([[np.cos(k), np.sin(k)], [-np.sin(k), np.cos(k)]])


def wrong_look_back_10(k, d_model):
    """k = 3, d_model 32: the scores (PE W) PE^T of positions 3 to 56: found"""
    # angles of 10000^(2 i / (d_model - 2)) for pair i
    return _turned_back(k, d_model, lambda i: 10000 ** (2 * i / (d_model - 2)))


def wrong_look_back_12(k, d_model):
    """k = 3, d_model 32: the scores (PE W) PE^T of positions 3 to 56: found"""
    # another base than 10000, such as 1000
    return _turned_back(k, d_model, lambda i: 1000 ** (2 * i / d_model))


def wrong_look_back_13(k, d_model):
    """k = 3, d_model 32: the scores (PE W) PE^T of positions 3 to 56: found"""
    # sine and cosine stand side by side
    half = d_model // 2
    order = [j + half * (j % 2) - (j // 2 + j % 2) for j in range(d_model)]
    return _rotation(-k, d_model)[np.argsort(order)][:, np.argsort(order)]
