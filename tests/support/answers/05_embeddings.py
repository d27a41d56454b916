"""Answers to the exercises of lesson 05: right ones, and wrong ones that must not pass.

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


def wrong_predicted_position():
    """the sines in front"""
    return [0.91, 0.02, -0.42, 1.0]


def wrong_predicted_position_2():
    """position 1: the first position is 0"""
    return [0.84, 0.54, 0.01, 1.0]


def wrong_predicted_position_3():
    """angles in degrees"""
    return [0.03, 1.0, 0.0, 1.0]


def wrong_predicted_position_4():
    """a second hand 10 times as slow"""
    return [0.91, -0.42, 0.2, 0.98]


def wrong_predicted_position_5():
    """the cosine before the sine"""
    return [-0.42, 0.91, 1.0, 0.02]


def wrong_predicted_position_6():
    """a second hand as fast as the first"""
    return [0.91, -0.42, 0.91, -0.42]


def wrong_predicted_position_7():
    """four hands"""
    return [0.91, 0.98, 0.02, 1.0]


def wrong_predicted_position_8():
    """the wrong sign of cos, first hand"""
    return [0.91, 0.42, 0.02, 1.0]


def wrong_predicted_position_9():
    """sin, second hand, at 2, is not 0.2: that looks like"""
    return [0.91, -0.42, 0.2, 1.0]


def wrong_predicted_position_10():
    """the angles, without sine and cosine"""
    return [2, 2, 0.02, 0.02]


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


def right_look_up_5(table, ids):
    chosen = np.eye(len(table.data))[ids]
    return record(chosen @ table.data, (table,), lambda gy: chosen.T @ gy)


def wrong_look_up(table, ids):
    """an id that comes twice keeps only its last gradient"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        gradient[ids] += gy
        return gradient, None

    return record(table.data[ids], (table, None), backward)


def wrong_look_up_2(table, ids):
    """returned a gradient of shape (4, 3)"""
    return record(table.data[ids], (table,), lambda gy: gy)


def wrong_look_up_3(table, ids):
    """zeros: does backward return the array that it fills?"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        np.add.at(gradient.copy(), ids, gy)
        return gradient

    return record(table.data[ids], (table,), backward)


def wrong_look_up_4(table, ids):
    """the mean over an id's places"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        np.add.at(gradient, ids, gy)
        return gradient / np.maximum(1, np.bincount(ids, minlength=len(gradient)))[:, None]

    return record(table.data[ids], (table,), backward)


def wrong_look_up_5(table, ids):
    """expected a Tensor: use record"""
    return table.data[ids]


def wrong_look_up_6(table, ids):
    """index 6 is out of bounds for axis 0 with size 5"""

    def backward(gy):
        gradient = np.zeros((5, 3))
        np.add.at(gradient, ids, gy)
        return gradient

    return record(table.data[ids], (table,), backward)


def wrong_look_up_7(table, ids):
    """ones in place of gy"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        np.add.at(gradient, ids, 1)
        return gradient

    return record(table.data[ids], (table,), backward)


def wrong_look_up_8(table, ids):
    """gy[i] of an id i: row n of gy belongs to ids[n]"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        for i in ids:
            gradient[i] += gy[i % len(gy)]
        return gradient

    return record(table.data[ids], (table,), backward)


def wrong_look_up_9(table, ids):
    """a start with the table: the gradient starts with zeros"""

    def backward(gy):
        gradient = table.data.copy()
        np.add.at(gradient, ids, gy)
        return gradient

    return record(table.data[ids], (table,), backward)


def wrong_look_up_10(table, ids):
    """all of gy for each id"""

    def backward(gy):
        gradient = np.zeros_like(table.data)
        gradient[ids] = gy.sum(axis=0)
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


def wrong_right_input(embedding, length):
    """a scaled embedding, but positions from 1"""
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length + 1, d_model)[1:]


def wrong_right_input_2(embedding, length):
    """positions from 0, but an embedding that is not scaled"""
    return embedding + sinusoid(length, embedding.shape[1])


def wrong_right_input_3(embedding, length):
    """an embedding times d_model"""
    return embedding * embedding.shape[1] + sinusoid(length, embedding.shape[1])


def wrong_right_input_4(embedding, length):
    """a sum that is scaled"""
    d_model = embedding.shape[1]
    return (embedding + sinusoid(length, d_model)) * d_model**0.5


def wrong_right_input_5(embedding, length):
    """an embedding divided by the root"""
    return embedding / embedding.shape[1] ** 0.5 + sinusoid(length, embedding.shape[1])


def wrong_right_input_6(embedding, length):
    """right for d_model 16 alone"""
    return embedding * 4 + sinusoid(length, embedding.shape[1])


def wrong_right_input_7(embedding, length):
    """found the shape (6, 16), expected (5, 16)"""
    d_model = embedding.shape[1]
    scaled = np.concatenate([embedding, embedding[-1:]]) * d_model**0.5
    return scaled + sinusoid(length + 1, d_model)


def wrong_right_input_8(embedding, length):
    """length 5, d_model 16: found"""  # the root of the length
    return embedding * length**0.5 + sinusoid(length, embedding.shape[1])


def wrong_right_input_9(embedding, length):
    """axis 0 has 5 numbers here, 6 there"""
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length + 1, d_model)


def wrong_right_input_10(embedding, length):
    """position 0 for every word"""
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 + sinusoid(length, d_model)[0]


def wrong_right_input_11(embedding, length):
    """a product with the positions: it is a sum"""
    d_model = embedding.shape[1]
    return embedding * d_model**0.5 * sinusoid(length, d_model)


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


def right_look_back_5(k, d_model):
    positions = sinusoid(200, d_model, dtype=np.float64)
    return np.linalg.lstsq(positions[k:], positions[:-k], rcond=None)[0]


def wrong_look_back(k, d_model):
    """a head that looks k positions ahead"""
    return _rotation(k, d_model)


def wrong_look_back_2(k, d_model):
    """a head that looks 3 positions back, whatever k is"""
    return _rotation(-3, d_model)


def wrong_look_back_3(k, d_model):
    """a head that looks at its own position"""
    return np.eye(d_model)


def wrong_look_back_4(k, d_model):
    """k = 3, d_model 32: the scores (PE W) PE^T of positions 3 to 56: found"""
    W = np.zeros((d_model, d_model))  # each number turned as a pair of its own
    for i in range(d_model):
        W[i, i] = np.cos(k / 10000 ** (i / d_model))
    return W


def wrong_look_back_5(k, d_model):
    """found a matrix of shape (2, 2), expected (32, 32)"""
    return np.array([[np.cos(k), np.sin(k)], [-np.sin(k), np.cos(k)]])


def wrong_look_back_6(k, d_model):
    """the scores (PE W) PE^T"""  # the pairs are in halves, as other programs have them
    order = [*range(0, d_model, 2), *range(1, d_model, 2)]
    return _rotation(-k, d_model)[order][:, order]


def wrong_look_back_7(k, d_model):
    """found a matrix of shape (60, 60), expected (32, 32)"""
    return np.eye(60, k=-k)


def wrong_look_back_8(k, d_model):
    """the scores (PE W) PE^T"""  # the same speed in each pair
    turn = np.array([[np.cos(k), np.sin(k)], [-np.sin(k), np.cos(k)]])
    return np.kron(np.eye(d_model // 2), turn)


def wrong_look_back_9(k, d_model):
    """angles of 10000^(i / d_model) for pair i: it is 2 i / d_model"""
    return _turned_back(k, d_model, lambda i: 10000 ** (i / d_model))


def wrong_look_back_10(k, d_model):
    """angles of 10000^(2 i / (d_model - 2)) for pair i"""
    return _turned_back(k, d_model, lambda i: 10000 ** (2 * i / (d_model - 2)))


def wrong_look_back_11(k, d_model):
    """angles that are multiplied by 10000^(2 i / d_model)"""
    return _turned_back(k, d_model, lambda i: 10000 ** (-2 * i / d_model))


def wrong_look_back_12(k, d_model):
    """another base than 10000, such as 1000"""
    return _turned_back(k, d_model, lambda i: 1000 ** (2 * i / d_model))


def wrong_look_back_13(k, d_model):
    """sine and cosine stand side by side"""
    half = d_model // 2
    order = [j + half * (j % 2) - (j // 2 + j % 2) for j in range(d_model)]
    return _rotation(-k, d_model)[np.argsort(order)][:, np.argsort(order)]


def wrong_look_back_14(k, d_model):
    """the cosines alone: the matrix turns pairs"""
    return np.diag(np.diag(_rotation(-k, d_model)))


def wrong_look_back_15(k, d_model):
    """a head that looks k - 1 positions back"""
    return _rotation(1 - k, d_model)


def wrong_look_back_16(k, d_model):
    """a matrix that moves columns: PE W is to move positions"""
    return np.eye(d_model, k=-k)
