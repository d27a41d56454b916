"""Model answers to the exercises of lesson 04, and wrong ones that must not pass."""

import numpy as np


def normalised_on_paper():
    # The mean is 4, the deviation the root of (4 + 4 + 4 + 36) / 4 = 12.
    return [-0.58, -0.58, -0.58, 1.73]


def wrong_normalised_on_paper():
    return [-0.5, -0.5, -0.5, 1.5]  # divided by D - 1 = 3 before the root


def mended_dropout(x, mask, rate, training):
    return x * mask / (1 - rate) if training else x


def wrong_mended_dropout(x, mask, rate, training):
    # Scaled in the trained model, as in the first paper on dropout, and not in training.
    return x * mask if training else x * (1 - rate)


def tent():
    # Slope 1 from -1, slope -1 from 0, slope 0 from 1.
    return [[1.0, 1.0, 1.0]], [1.0, 0.0, -1.0], [[1.0], [-2.0], [1.0]], [0.0]


def wrong_tent():
    return [[1.0, -1.0]], [0.0, 0.0], [[-1.0], [-1.0]], [1.0]  # falls below 0


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
