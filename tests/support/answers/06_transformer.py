"""Answers to the exercises of lesson 06: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

from minitf.tensor import Tensor

# predict_what_moves -------------------------------------------------------------------------------


def predict_what_moves():
    return {"source 2": [0, 1, 2, 3, 4], "target 0": [0, 1, 2, 3, 4], "target 3": [3, 4]}


def right_predict_what_moves_2():
    return {"target 3": (4, 3), "source 2": range(5), "target 0 ": np.arange(5)}


def right_predict_what_moves_3():
    every = {0, 1, 2, 3, 4}
    return {"source 2": every, "target 0": every, "target 3": every - {0, 1, 2}}


def wrong_predict_what_moves_5():
    """found no answer to 'target 3'"""
    return {"source 2": [0, 1, 2, 3, 4], "target 0": [0, 1, 2, 3, 4]}


def wrong_predict_what_moves_6():
    """expected a dict"""
    return [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [3, 4]]


def wrong_predict_what_moves_9():
    """source 2, the positions that move: not [0, 1, 2]"""
    # the positions up to the change: the decoder reads all of the source
    return {"source 2": [0, 1, 2], "target 0": [0, 1, 2, 3, 4], "target 3": [3, 4]}


# shift_right --------------------------------------------------------------------------------------


def shift_right(target):
    rows = len(target)
    reads = np.concatenate([np.full((rows, 1), 2), target], axis=1)
    predicts = np.concatenate([target, np.zeros((rows, 1), int)], axis=1)
    predicts[np.arange(rows), (target != 0).sum(axis=1)] = 3  # after the last word
    return reads, predicts


def right_shift_right_2(target):
    reads, predicts = [], []
    for row in target:
        words = [int(word) for word in row if word]
        padding = [0] * (len(row) - len(words))
        reads.append([2, *words, *padding])
        predicts.append([*words, 3, *padding])
    return reads, predicts


def right_shift_right_3(ids):
    B, T = ids.shape
    reads, predicts = np.zeros((B, T + 1)), np.zeros((B, T + 1))
    reads[:, 0] = 2
    reads[:, 1:] = predicts[:, :-1] = ids
    first_zero = (predicts == 0).argmax(axis=-1)
    predicts[range(B), first_zero] = 3
    return [reads, predicts]


def right_shift_right_4(target):
    padded = np.pad(target, ((0, 0), (0, 1)))
    before = np.pad(target, ((0, 0), (1, 0)), constant_values=1)
    predicts = np.where((padded == 0) & (before != 0), 3, padded)
    return np.pad(target, ((0, 0), (1, 0)), constant_values=2), predicts


def _shifted(target):
    start, end = np.full((len(target), 1), 2), np.full((len(target), 1), 3)
    return np.concatenate([start, target], axis=1), np.concatenate([target, end], axis=1)


def wrong_shift_right_8(target):
    """expected numbers of one shape"""
    return [[2, 6], [2]], [[6, 3], [3]]


def wrong_shift_right_9(target):
    """it must predict: found"""  # right if each row but the first has padding
    reads, predicts = _shifted(target)
    predicts[1:, -1] = 0
    for row in range(1, len(target)):
        predicts[row, 2] = 3
    return reads, predicts


def wrong_shift_right_10(target):
    """found one array, expected (reads, predicts)"""
    return _shifted(target)[0]


def wrong_shift_right_12(target):
    """target ids (2, 4), the decoder reads: found"""  # start marks in place of padding
    reads, predicts = shift_right(target)
    return np.where(reads == 0, 2, reads), predicts


# packed_mask --------------------------------------------------------------------------------------


def packed_mask(lengths):
    own = np.repeat(np.arange(len(lengths)), lengths)
    same_sentence = own[:, None] == own
    return (same_sentence & np.tri(len(own), dtype=bool))[None, None]


def right_packed_mask_2(lengths):
    T = sum(lengths)
    mask, start = np.zeros((1, 1, T, T), dtype=bool), 0
    for n in lengths:
        mask[0, 0, start : start + n, start : start + n] = np.tril(np.ones((n, n)))
        start += n
    return mask


def right_packed_mask_3(lengths):
    starts = [sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)]
    rows = [[starts[t] <= s <= t for s in range(len(starts))] for t in range(len(starts))]
    return [[rows]]


def right_packed_mask_4(lengths):
    number = []
    for i, n in enumerate(lengths):
        number += [i] * n
    position = np.arange(len(number))
    asks, read = np.array(number).reshape(1, 1, -1, 1), np.array(number).reshape(1, 1, 1, -1)
    return np.logical_and(asks == read, position[:, None] >= position)


def wrong_packed_mask_2(lengths):
    """found dtype float64, expected a mask of True and False"""
    own = np.repeat(np.arange(len(lengths)), lengths)
    return np.tril(own[:, None] == own).astype(float)[None, None]


def wrong_packed_mask_5(lengths):
    """found the shape (4, 4), expected (1, 1, 4, 4)"""
    return packed_mask(lengths)[0, 0]


def wrong_packed_mask_8(lengths):
    """found the shape (2, 1, 3, 3), expected (1, 1, 5, 5)"""
    longest = max(lengths)
    real = np.arange(longest) < np.array(lengths)[:, None]
    return (real[:, None, None, :] & np.tri(longest, dtype=bool))[: len(lengths)]


def wrong_packed_mask_10(lengths):
    """sentences of [1, 2, 2]: found"""  # sentences of equal length taken for one
    own = np.repeat(lengths, lengths)
    return np.tril(own[:, None] == own)[None, None]


def wrong_packed_mask_11(lengths):
    """sentences of [4]: found"""  # a position that sees the next one, too
    return packed_mask(lengths) | np.eye(sum(lengths), k=1, dtype=bool)


# find_leaks ---------------------------------------------------------------------------------------


def find_leaks(run, x):
    reads = []
    for t, gradient in enumerate(np.random.default_rng(1).standard_normal(x.shape)):
        x.grad = None
        run(x)[t].backward(gradient)
        reads.append((Tensor(x.grad).numpy() != 0).any(axis=-1))
    return np.array(reads)


def right_find_leaks_2(run, x):
    T = x.shape[0]
    found = np.zeros((T, T), dtype=bool)
    for t in range(T):
        copy = Tensor(x.numpy().copy())
        gradient = np.zeros(x.shape)
        gradient[t] = 1
        run(copy).backward(gradient)
        found[t] = np.abs(copy.grad).sum(axis=1) > 0
    return found


def right_find_leaks_3(run, x):
    rows = []
    for t in range(len(x)):
        x.grad = None
        run(x)[t].sum().backward()
        rows.append([bool(np.any(row)) for row in x.grad])
    return rows


def right_find_leaks_4(run, x):  # by changes: a check compares results
    rows, before = x.numpy(), run(x).numpy()
    found = np.zeros((len(rows), len(rows)), dtype=int)
    for s in range(len(rows)):
        changed = rows.copy()
        changed[s] += np.random.default_rng(s).standard_normal(rows.shape[1])
        found[:, s] = (run(Tensor(changed)).numpy() != before).any(axis=1)
    return found


def _leaks(run, x, seen):
    reads = []
    for t in range(len(x)):
        x.grad = None
        run(x)[t].backward(np.ones(x.shape[1]))
        reads.append(seen(Tensor(x.grad).numpy()))
    return np.array(reads)


def wrong_find_leaks_3(run, x):
    """differences of features (5, 4): found"""  # may be negative, or 0, and cancel
    return _leaks(run, x, lambda gradient: gradient.sum(axis=1) != 0)


def wrong_find_leaks_6(run, x):
    """negative weights (5, 3), one small leak: found"""
    # a leak is found by its gradient, however small
    return _leaks(run, x, lambda gradient: abs(gradient).max(axis=1) > 1e-5)


def wrong_find_leaks_7(run, x):
    """found the shape (6,), expected (6, 6)"""
    return find_leaks(run, x).any(axis=1)


def wrong_find_leaks_9(run, x):
    """found numbers such as"""
    return _leaks(run, x, lambda gradient: abs(gradient).sum(axis=1))


def wrong_find_leaks_11(run, x):
    """expected True"""
    return _leaks(run, x, lambda gradient: (gradient > 0).all(axis=1))
