"""Answers to the exercises of lesson 04: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

# normalised_on_paper ------------------------------------------------------------------------------


def normalised_on_paper():
    # The mean is 4, the deviation the root of (4 + 4 + 4 + 36) / 4 = 12.
    return [-0.58, -0.58, -0.58, 1.73]


def right_normalised_on_paper_2():
    return -0.577, -0.577, -0.577, 1.732


def right_normalised_on_paper_3():
    x = np.array([2, 2, 2, 10], dtype=np.float32)
    return (x - x.mean()) / x.std()


def wrong_normalised_on_paper_7():
    """the first 2, at 0, to two digits: not"""
    return [0.58, 0.58, 0.58, -1.73]


# mended_dropout -----------------------------------------------------------------------------------


def mended_dropout(x, mask, rate, training):
    return x * mask / (1 - rate) if training else x


def right_mended_dropout_2(x, mask, rate, training):
    if not training:
        return x
    x *= mask
    x /= 1 - rate
    return x


def right_mended_dropout_3(values, kept, p, learns):
    scale = np.float32(1 / (1 - p)) if learns else 1
    return np.where(kept | (not learns), values * scale, 0)


def right_mended_dropout_4(x, mask, rate, training):
    if training:
        return [
            [a / (1 - rate) if m else 0 for a, m in zip(row, allowed, strict=True)]
            for row, allowed in zip(x, mask, strict=True)
        ]
    return x.tolist()


def wrong_mended_dropout_3(x, mask, rate, training):
    """that looks like 0.6667 times what is right"""
    # a division by 0.75, which belongs to another rate
    return x * mask / 0.75 if training else x


def wrong_mended_dropout_4(x, mask, rate, training):
    """that looks like 3 times what is right"""  # a division by the rate
    return x * mask / rate if training else x


# tent ---------------------------------------------------------------------------------------------


def tent():
    # Slope 1 from -1, slope -1 from 0, slope 0 from 1.
    return [[1.0, 1.0, 1.0]], [1.0, 0.0, -1.0], [[1.0], [-2.0], [1.0]], [0.0]


def right_tent_2():
    return np.array([[2, 1, 0.5]]), np.array([2, 0, -0.5]), np.array([[0.5], [-2], [2]]), 0


def right_tent_3():
    return [np.ones((1, 3)), np.arange(1, -2, -1), np.array([[1], [-2], [1]]), np.zeros(1)]


def right_tent_4():  # from the right, and with a unit that is never used
    W_1 = np.array([[-1, -1, -1, 0]], dtype=np.float32)
    return W_1, (1, 0, -1, 0), ((1,), (-2,), (1,), (5,)), (0,)


def right_tent_5():  # 1 minus two slopes, and the slopes taken back
    return [[1, -1, 1, -1]], [0, 0, -1, -1], [[-1], [-1], [1], [1]], [1]


def wrong_tent_4():
    """found 5 units, expected at most 4"""
    return [[1.0] * 5], [1, 0.5, 0, -0.5, -1], [[1.0], [0], [-2.0], [0], [1.0]], [0.0]


def wrong_tent_6():
    """W_2: found the shape (3,), expected (3, 1)"""
    return [[1.0, 1.0, 1.0]], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0], [0.0]


def wrong_tent_11():
    """W_1: found the shape (3,), expected (1, 3): [[1, 2]] is a row of two"""
    return [1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [[1.0], [-2.0], [1.0]], [0.0]


# sees_one_position --------------------------------------------------------------------------------


def sees_one_position(norm):
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    changed = x + np.random.default_rng(1).standard_normal(x.shape)
    changed[0, 0] = x[0, 0]
    return np.array_equal(norm(x)[0, 0], norm(changed)[0, 0])


def right_sees_one_position_2(norm):
    x = np.random.rand(2, 3, 4)
    y = norm(x)
    for b in range(2):
        for t in range(3):
            other = np.random.rand(2, 3, 4)
            other[b, t] = x[b, t]
            if not np.allclose(norm(other)[b, t], y[b, t]):
                return False
    return True


def right_sees_one_position_3(norm):
    x = np.random.default_rng(3).standard_normal((4, 6, 8))
    before = norm(x)[2, 3].copy()
    x[2, 4] *= 3
    x[1] -= 1 + x[0]
    return int((norm(x)[2, 3] == before).all())


def right_sees_one_position_4(norm):
    x = np.random.default_rng(3).standard_normal((2, 2, 3))
    return bool(np.abs(norm(x)[1, 1] - norm(x[1:, 1:])[0, 0]).max() < 1e-9)


def wrong_sees_one_position_7(norm):
    """for a norm over the features: found"""
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    return bool(np.allclose(norm(x).mean(axis=-1), 0))  # a property of the features' norm


def wrong_sees_one_position_9(norm):
    """.all() makes one of many"""
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    return norm(x)[0, 0] == norm(x[:1, :1])[0, 0]


# rms_norm -----------------------------------------------------------------------------------------


def rms_norm(x, gain):
    r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    n = x / r

    def backward(gy):
        u = gy * gain
        return (u - n * (u * n).mean(axis=-1, keepdims=True)) / r, (gy * n).sum(axis=(0, 1))

    return gain * n, backward


def right_rms_norm_2(x, g):
    D = x.shape[-1]
    inverse = ((x**2).sum(-1)[..., None] / D + 1e-6) ** -0.5

    def backward(gy):
        inner = np.einsum("btd,btd,d->bt", gy, x, g)[..., None]
        gx = gy * g * inverse - x * inner * inverse**3 / D
        return [gx, np.einsum("btd,btd->d", gy, x * inverse)]

    return [x * inverse * g, backward]


def right_rms_norm_3(x, gain):
    x32, gain32 = x.astype(np.float32), gain.astype(np.float32)
    r = np.sqrt(np.mean(np.square(x32), axis=2, keepdims=True) + np.float32(1e-6))

    def backward(gy):
        gy = gy.astype(np.float32)
        gn = gy * gain32
        gr = (-gn * x32 / r**2).sum(axis=2, keepdims=True)
        return gn / r + gr * x32 / (r * x.shape[-1]), np.sum(gy * x32 / r, axis=0).sum(axis=0)

    return x32 / r * gain32, backward


def right_rms_norm_4(x, gain):
    y, backs = np.empty_like(x), []
    for place in np.ndindex(x.shape[:-1]):
        row, d = x[place], x.shape[-1]
        r = np.sqrt(row @ row / d + 1e-6)
        y[place] = gain * row / r
        backs.append((place, np.eye(d) / r - np.outer(row, row) / (d * r**3), row / r))

    def backward(gy):
        gx, g_gain = np.zeros_like(x), np.zeros_like(gain)
        for place, jacobian, n in backs:
            gx[place] = jacobian @ (gain * gy[place])
            g_gain += gy[place] * n
        return gx, g_gain

    return y, backward


def _rms(x, gain, of_x, of_gain=None):
    r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    n = x / r
    of_gain = of_gain or (lambda gy, n: (gy * n).sum(axis=(0, 1)))
    return gain * n, lambda gy: (of_x(gy, gy * gain, n, r), of_gain(gy, n))


def _right(gy, u, n, r):
    return (u - n * (u * n).mean(axis=-1, keepdims=True)) / r


def wrong_rms_norm_7(x, gain):
    """x (2, 3, 8), g_gain: found"""  # a mean in place of the sum
    return _rms(x, gain, _right, lambda gy, n: (gy * n).mean(axis=(0, 1)))


def wrong_rms_norm_9(x, gain):
    """expected (gx, g_gain)"""
    return rms_norm(x, gain)[0], lambda gy: None


def wrong_rms_norm_11(x, gain):
    """found 1 parts"""
    return (rms_norm(x, gain)[0],)


def wrong_rms_norm_12(x, gain):
    """x (2, 3, 8), gx: found"""  # the way of x_j to its own n_j alone: r is in every n_i
    return _rms(x, gain, lambda gy, u, n, r: u * (1 - n * n / x.shape[-1]) / r)


def wrong_rms_norm_13(x, gain):
    """backward: found one array, expected (gx, g_gain)"""
    y, backward = rms_norm(x, gain)
    return y, lambda gy: backward(gy)[0]


def wrong_rms_norm_14(x, gain):
    """found one array, expected (y, backward)"""
    return rms_norm(x, gain)[0]
