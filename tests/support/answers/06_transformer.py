"""Answers to the exercises of lesson 06, and wrong ones that its checks must reject."""

import numpy as np

from minitf.tensor import Tensor


def predict_what_moves():
    return {"source 2": [0, 1, 2, 3, 4], "target 0": [0, 1, 2, 3, 4], "target 3": [3, 4]}


def wrong_predict_what_moves():
    # Position 3 reads its own token, too.
    return {"source 2": [0, 1, 2, 3, 4], "target 0": [0, 1, 2, 3, 4], "target 3": [4]}


def shift_right(target):
    rows = len(target)
    reads = np.concatenate([np.full((rows, 1), 2), target], axis=1)
    predicts = np.concatenate([target, np.zeros((rows, 1), int)], axis=1)
    predicts[np.arange(rows), (target != 0).sum(axis=1)] = 3  # after the last word
    return reads, predicts


def wrong_shift_right(target):
    # The end mark comes after the padding: the mistake of the exercise.
    start = np.full((len(target), 1), 2)
    end = np.full((len(target), 1), 3)
    return np.concatenate([start, target], axis=1), np.concatenate([target, end], axis=1)


def packed_mask(lengths):
    own = np.repeat(np.arange(len(lengths)), lengths)
    same_sentence = own[:, None] == own
    return (same_sentence & np.tri(len(own), dtype=bool))[None, None]


def wrong_packed_mask(lengths):
    own = np.repeat(np.arange(len(lengths)), lengths)
    return (own[:, None] == own)[None, None]  # the sentences are apart, but each sees ahead


def wrong_packed_mask_2(lengths):
    own = np.repeat(np.arange(len(lengths)), lengths)
    return np.tril(own[:, None] == own).astype(float)[None, None]  # ones and zeros


def find_leaks(run, x):
    reads = []
    for t, gradient in enumerate(np.random.default_rng(1).standard_normal(x.shape)):
        x.grad = None
        run(x)[t].backward(gradient)
        reads.append((Tensor(x.grad).numpy() != 0).any(axis=-1))
    return np.array(reads)


def wrong_find_leaks(run, x):
    reads = []
    for t in range(len(x)):
        # x.grad adds up: row t holds what rows 0 to t have read.
        run(x)[t].backward(np.ones(x.shape[1]))
        reads.append((Tensor(x.grad).numpy() != 0).any(axis=-1))
    return np.array(reads)
