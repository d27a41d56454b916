"""Model answers to the exercises of lesson 04, and wrong ones that must not pass."""

import numpy as np


def rms_norm(x, gain):
    r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    n = x / r

    def backward(gy):
        u = gy * gain
        return (u - n * (u * n).mean(axis=-1, keepdims=True)) / r, (gy * n).sum(axis=(0, 1))

    return gain * n, backward


def wrong_rms_norm(x, gain):
    r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    # As if r did not depend on x.
    return gain * x / r, lambda gy: (gy * gain / r, (gy * x / r).sum(axis=(0, 1)))


def sees_one_position(norm):
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    changed = x + np.random.default_rng(1).standard_normal(x.shape)
    changed[0, 0] = x[0, 0]
    return np.array_equal(norm(x)[0, 0], norm(changed)[0, 0])


def wrong_sees_one_position(norm):
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    changed = x.copy()
    changed[0, 1] += np.arange(5.0)  # another position, but never another sentence
    return np.array_equal(norm(x)[0, 0], norm(changed)[0, 0])
