"""The checks of lesson 04, layers."""

import numpy as np

from minitf import functions as F
from minitf.course.checks.compare import as_array, check, on_paper, parts_of, short

check_normalised_on_paper = on_paper(
    ["the first 2", "the second 2", "the third 2", "the 10"],
    lambda: F.layer_norm(np.array([2.0, 2.0, 2.0, 10.0]), np.ones(4), np.zeros(4)).numpy(),
    {
        "a division by D - 1 = 3 before the root": [-0.5, -0.5, -0.5, 1.5],
        "the differences from the mean, not divided by the deviation": [-2, -2, -2, 6],
        "a division by the variance in place of its root": [-0.17, -0.17, -0.17, 0.5],
        "x divided by the deviation: the mean is not subtracted": [0.58, 0.58, 0.58, 2.89],
        "the mean distance in place of the deviation": [-0.67, -0.67, -0.67, 2],
    },
)


@check(
    right=lambda x, mask, rate, training: x * mask / (1 - rate) if training else x,
    wrong={
        "x * mask: the mean of what is left is too small": lambda x, mask, rate, training: x * mask,
        "a division by the kept share of this mask; the rate is known": (
            lambda x, mask, rate, training: x * mask / mask.mean() if training else x
        ),
        "dropout that is never off": lambda x, mask, rate, training: x * mask / (1 - rate),
    },
)
def check_mended_dropout(mended_dropout):
    """Check dropout by a given mask, while the model learns and while it translates."""
    rng = np.random.default_rng(3)
    # The kept share of a mask is seldom 1 - rate: here it is 17 of 20, and 4 of 6.
    for shape, rate, dropped in (((4, 5), 0.25, [0, 7, 11]), ((3, 2), 0.5, [1, 4])):
        x, mask = rng.standard_normal(shape), np.ones(shape, dtype=bool)
        mask.flat[dropped] = False
        for training, when in ((True, "while the model learns"), (False, "while it translates")):
            yield f"rate {rate}, {when}", mended_dropout(x, mask, rate, training)


def _network(*matrices):
    """Return an answer of these matrices."""
    return lambda: matrices


@check(
    right=_network([[1, 1, 1]], [1, 0, -1], [[1], [-2], [1]], [0]),
    wrong={
        "a last side that goes on below 0: a third bend is missing": _network(
            [[1, 1]], [1, 0], [[1], [-2]], [0]
        ),
        "1 - |x|: it is to bend at -1 and at 1 as well": _network(
            [[1, -1]], [0, 0], [[-1], [-1]], [1]
        ),
        "|x|, a tent upside down": _network([[1, -1]], [0, 0], [[1], [1]], [0]),
        "sides that reach 0 too late": _network(
            [[0.5, 0.5, 0.5]], [1, 0, -1], [[1], [-2], [1]], [0]
        ),
        "a bend of -1 at the top: the slope falls from 1 to -1 there": _network(
            [[1, 1, 1]], [1, 0, -1], [[1], [-1], [1]], [0]
        ),
    },
)
def check_tent(tent):
    """Check the matrices of a network that draws a tent."""
    names = ["W_1", "b_1", "W_2", "b_2"]
    parts = parts_of("tent", tent(), names)
    parts = [as_array(name, part) for name, part in zip(names, parts, strict=True)]
    W_1, b_1, W_2, b_2 = parts
    units = W_1.shape[-1] if W_1.ndim else 0
    if W_1.shape[1:] == (1,):  # a column
        units = len(W_1)
    expected = {"W_1": (1, units), "b_1": (units,), "W_2": (units, 1), "b_2": (1,)}
    for name, part in zip(names, parts, strict=True):
        # One bias for all units, or b_2 as a plain number, means the same.
        fits = part.shape == expected[name] or (name[0] == "b" and part.size == 1)
        how = {"W_1": ": [[1, 2]] is a row of two", "W_2": ": [[1], [2]] is a column of two"}
        assert fits, (
            f"{name}: found the shape {part.shape}, expected {expected[name]}{how.get(name, '')}"
        )
    assert units <= 4, f"found {units} units, expected at most 4"
    for x in (0.0, -1.0, -0.5, 0.25, 0.75, 1.0, -0.9, 2.0, -3.0, 1.2, 40.0, -40.0):
        hidden = F.relu(np.array([[x]]) @ W_1 + np.broadcast_to(b_1, units))
        y = hidden @ W_2 + b_2.reshape(1)
        yield f"at x = {x:g}", y.numpy()[0, 0]


def _sees_one(places):
    """Return an answer that changes x (3, 4, 5) at these places, and looks at x[0, 0]."""

    def sees_one_position(norm):
        x = np.random.default_rng(0).standard_normal((3, 4, 5))
        changed = x.copy()
        changed[places] += np.random.default_rng(1).standard_normal(changed[places].shape)
        return np.allclose(norm(x)[0, 0], norm(changed)[0, 0])

    return sees_one_position


OTHERS = np.arange(12).reshape(3, 4) > 0  # all positions but x[0, 0]


@check(
    right=_sees_one(OTHERS),
    wrong={
        "True for every norm": lambda norm: True,
        "False for every norm: does x[b, t] itself stay as it was?": _sees_one(...),
        "True and False exchanged": lambda norm: not _sees_one(OTHERS)(norm),
        "a test of one sentence: the other sentences are to change as well": _sees_one(
            np.s_[0, 1:]
        ),
        "a test of one position: the others of its sentence are to change as well": _sees_one(
            np.s_[1:]
        ),
    },
)
def check_sees_one_position(sees_one_position):
    """Check a test that tells by which axes a norm averages."""

    def over(axes):
        # Without a mean: over two numbers, a layer norm would give 1 and -1, whatever they are.
        return lambda x: x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-6)

    for name, norm in {
        "a norm over the features": over(2),
        "a norm over the positions": over(1),
        "a norm over the sentences": over(0),
        "a norm over positions and features": over((1, 2)),
        "a norm over sentences and positions": over((0, 1)),
        "a norm over sentences and features": over((0, 2)),
        "a norm over all three axes": over((0, 1, 2)),
        "layer norm": lambda x: F.layer_norm(
            np.asarray(x), np.ones(x.shape[-1]), np.zeros(x.shape[-1])
        ).numpy(),
        "tanh": np.tanh,
    }.items():
        answer = sees_one_position(norm)
        one = ": .all() makes one of many" if np.ndim(answer) else ""
        is_number = isinstance(answer, int | np.integer | np.bool) and answer in (0, 1)
        assert is_number, f"for {name}: found {short(answer)}, expected True or False{one}"
        yield f"for {name}", np.bool(answer)


def _gx(gy, gain, n, r):
    u = gy * gain
    return (u - n * (u * n).mean(axis=-1, keepdims=True)) / r


def _rms(y=None, gx=_gx, g_gain=lambda gy, n: (gy * n).sum(axis=(0, 1))):
    """Return an answer of these parts: y(x, gain), gx(gy, gain, n, r) and g_gain(gy, n)."""

    def rms_norm(x, gain):
        r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
        result = y(x, gain) if y else gain * x / r
        return result, lambda gy: (gx(gy, gain, x / r, r), g_gain(gy, x / r))

    return rms_norm


@check(
    right=_rms(),
    wrong={
        "1e-6 outside the root": _rms(
            lambda x, gain: gain * x / (np.sqrt((x * x).mean(-1, keepdims=True)) + 1e-6)
        ),
        "a layer norm: the mean is not subtracted here": _rms(
            lambda x, gain: F.layer_norm(x, gain, 0 * gain).numpy()
        ),
        "r kept constant: it depends on each x_j": _rms(gx=lambda gy, gain, n, r: gy * gain / r),
        "a gy that was not multiplied by the gain": _rms(
            gx=lambda gy, gain, n, r: _gx(gy, 1.0, n, r)
        ),
        "a gradient that is not summed: the gain is shared by all positions": _rms(
            g_gain=lambda gy, n: gy * n
        ),
    },
    atol=1e-5,  # of small x, gx is a difference of large numbers
)
def check_rms_norm(rms_norm):
    """Check the norm by root mean square and its gradients."""
    # Small numbers tell what becomes of the 1e-6.
    for shape, size in (((2, 3, 8), 1.0), ((4, 2, 5), 1e-3)):
        rng = np.random.default_rng(shape[0])
        x, gy = size * rng.standard_normal(shape), rng.standard_normal(shape)
        gain = np.arange(1.0, 1 + shape[-1])
        name = f"x {shape}" if size == 1 else f"small x {shape}"
        y, backward = parts_of(name, rms_norm(x, gain), ["y", "backward"])
        yield f"{name}, y", y
        assert callable(backward), f"{name}: found {short(backward)} for backward, not a function"
        gx, g_gain = parts_of(f"{name}, backward", backward(gy.copy()), ["gx", "g_gain"])
        yield f"{name}, gx", gx
        yield f"{name}, g_gain", g_gain
