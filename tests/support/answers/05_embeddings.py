"""Answers to the exercises of lesson 05: a right one each, and a typical wrong one that the
check must reject.
"""

import numpy as np

from minitf.tensor import record
from minitf.transformer import sinusoid


def predicted_position():
    return [0.91, -0.42, 0.02, 1.0]


def wrong_predicted_position():
    return [0.91, 0.02, -0.42, 1.0]  # the sines in front, as in other programs


def look_up(table, ids):
    rows = table.data[ids]

    def backward(gy):
        gradient = np.zeros_like(table.data)
        np.add.at(gradient, ids, gy)
        return gradient, None

    return record(rows, (table, None), backward)


def wrong_look_up(table, ids):
    def backward(gy):
        gradient = np.zeros_like(table.data)
        gradient[ids] += gy  # an id that comes twice keeps only its last gradient
        return gradient, None

    return record(table.data[ids], (table, None), backward)


def right_input(embedding, length):
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length, d_model)


def wrong_right_input(embedding, length):
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length + 1, d_model)[1:]  # one mistake is left


def _rotation(offset, d_model):
    """The matrix that turns PE(pos) into PE(pos + offset), when it stands on the right of a row."""
    turned = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        angle = offset / 10000 ** (2 * i / d_model)
        pair = slice(2 * i, 2 * i + 2)
        turned[pair, pair] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turned


def look_back(k, d_model):
    return _rotation(-k, d_model)


def wrong_look_back(k, d_model):
    return _rotation(k, d_model)  # looks k words ahead
