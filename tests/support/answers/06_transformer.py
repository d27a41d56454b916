"""Answers to the exercises of lesson 06, and wrong ones that its checks must reject."""

import numpy as np

from minitf.tensor import Tensor


def prefix_mask(length, p):
    t, s = np.arange(length)[:, None], np.arange(length)
    return ((s <= t) | (s < p))[None, None]


def wrong_prefix_mask(length, p):
    mask = np.tri(length, dtype=bool)
    mask[:p] = True  # the prefix sees all, also what comes after it
    return mask[None, None]


def leaks(run, x):
    reads = []
    for t, gradient in enumerate(np.random.default_rng(1).standard_normal(x.shape)):
        x.grad = None
        run(x)[t].backward(gradient)
        reads.append((Tensor(x.grad).numpy() != 0).any(axis=-1))
    return np.array(reads)


def wrong_leaks(run, x):
    reads = []
    for t in range(len(x)):
        # x.grad adds up: row t holds what rows 0 to t have read.
        run(x)[t].backward(np.ones(x.shape[1]))
        reads.append((Tensor(x.grad).numpy() != 0).any(axis=-1))
    return np.array(reads)
