"""The checks of lesson 04, layers."""

import numpy as np

from minitf import functions as F
from minitf.course.checks.compare import equal, equal_on_paper, parts_of, short

__all__ = [
    "check_mended_dropout",
    "check_normalised_on_paper",
    "check_rms_norm",
    "check_sees_one_position",
    "check_tent",
]


def check_normalised_on_paper(normalised_on_paper):
    """Check a layer norm computed on paper."""
    x = np.array([2.0, 2.0, 2.0, 10.0])
    away = x - x.mean()
    equal_on_paper(
        normalised_on_paper(),
        F.layer_norm(x, np.ones(4), np.zeros(4)).numpy(),
        ["the first 2", "the second 2", "the third 2", "the 10"],
        {
            "a division by D - 1 = 3 before the root": away / x.std(ddof=1),
            "the differences from the mean, not divided by the deviation": away,
            "a division by the variance in place of its root": away / x.var(),
            "x divided by the deviation: the mean is not subtracted": x / x.std(),
            "the mean distance in place of the deviation": away / abs(away).mean(),
            "the root mean square in place of the deviation": x / np.sqrt((x * x).mean()),
            "a division by the sum of the squares": away / np.sqrt((away * away).sum()),
            "differences from the median": (x - 2) / x.std(),
            "the opposite sign": -away / x.std(),
            "numbers that sum to 1": x / x.sum(),
            "numbers from 0 to 1": (x - 2) / 8,
            "a softmax": F.softmax(x).numpy(),
        },
    )


def check_mended_dropout(mended_dropout):
    """Check dropout by a given mask, while the model learns and while it translates."""
    rng = np.random.default_rng(3)
    # The kept share of a mask is seldom 1 - rate: here it is 17 of 20, and 4 of 6.
    for shape, rate, dropped in (((4, 5), 0.25, [0, 7, 11]), ((3, 2), 0.5, [1, 4])):
        x = rng.standard_normal(shape)
        mask = np.ones(shape, dtype=bool)
        mask.flat[dropped] = False
        keep = 1 - rate
        name = f"rate {rate}"
        found = mended_dropout(x.copy(), mask.copy(), rate, True)
        equal(
            f"{name}, while the model learns",
            found,
            mask * x / keep,
            {
                "x * mask: the mean of what is left is too small": mask * x,
                "a division by the kept share of this mask; the rate is known": mask
                * x
                / mask.mean(),
                "a division by the rate in place of 1 - rate": mask * x / rate,
                "a division by 0.75, which belongs to another rate": mask * x / 0.75,
                "a multiplication by 1 - rate": mask * x * keep,
                "x unchanged: it is `training` that turns dropout on": x,
                "x unchanged, but scaled: the mask is missing": x / keep,
                "the mask the wrong way round: True stands for what is kept": ~mask * x / keep,
                "a division by 1 + rate": mask * x / (1 + rate),
                "a multiplication by 1 + rate": mask * x * (1 + rate),
                "a new mask drawn: `mask` has it": 0 * x,
                "a division by the root of 1 - rate": mask * x / np.sqrt(keep),
                "x of the dropped places kept, and the rest scaled": np.where(mask, x / keep, x),
                "a division by the dropped share of this mask": mask * x / (1 - mask.mean()),
                "a division by 2, which belongs to another rate": mask * x / 2,
                "dropped places taken away: they stay, as zeros": x[mask] / keep,
                "dropped places taken away, and nothing scaled": x[mask],
            },
        )
        found = mended_dropout(x.copy(), mask.copy(), rate, False)
        equal(
            f"{name}, while it translates",
            found,
            x,
            {
                "dropout that is never off": mask * x / keep,
                "x * mask: a translation drops nothing": mask * x,
                "x scaled by 1 - rate: that was done while it learned": x * keep,
                "x divided by 1 - rate": x / keep,
                "zeros": 0 * x,
                "x scaled by the rate": x * rate,
            },
        )


def check_tent(tent):
    """Check the matrices of a network that draws a tent."""
    names = ["W_1", "b_1", "W_2", "b_2"]
    parts = []
    for name, part in zip(names, parts_of("tent", tent(), names), strict=True):
        try:
            parts.append(np.array(part, dtype=float))
        except (ValueError, TypeError):
            raise AssertionError(f"{name}: found {short(part)}, expected numbers") from None
    W_1, b_1, W_2, b_2 = parts
    units = W_1.shape[-1] if W_1.ndim else 0
    expected = {"W_1": (1, units), "b_1": (units,), "W_2": (units, 1), "b_2": (1,)}
    if W_1.ndim == 2 and W_1.shape[0] > 1 and W_1.shape[1] == 1:
        raise AssertionError(f"W_1: found the shape {W_1.shape}, expected {W_1.shape[::-1]}")
    for name, part in zip(names, parts, strict=True):
        # One bias for all units, or b_2 as a plain number, means the same.
        fits = part.shape == expected[name] or (name[0] == "b" and part.size == 1)
        how = {"W_1": "[[1, 2]] is a row", "W_2": "[[1], [2]] is a column"}.get(name)
        assert fits, f"{name}: found the shape {part.shape}, expected {expected[name]}" + (
            f": {how} of two" if how else ""
        )
    b_1, b_2 = np.broadcast_to(b_1, units), b_2.reshape(1)
    assert units <= 4, f"found {units} units, expected at most 4"
    for x in (0.0, -1.0, -0.5, 0.25, 0.75, 1.0, -0.9, 2.0, -3.0, 1.2, 40.0, -40.0):
        found = float(F.feed_forward(np.array([[x]]), W_1, b_1, W_2, b_2).numpy()[0, 0])
        wanted = max(0.0, 1 - abs(x))
        if abs(found - wanted) < 1e-6:
            continue
        cause = ""
        if abs(x) > 1 and found < 0:
            cause = ": the slope of the last side goes on below 0, where a third bend is missing"
        elif abs(x) > 1:
            cause = ": it does not stay 0 beyond -1 and 1"
        elif abs(x) == 1 and found > 0:
            cause = ": its sides reach 0 too late"
        cause = cause or _bends(W_1[0], b_1, W_2[:, 0])
        raise AssertionError(f"at x = {x:g}: found {found:.4g}, expected {wanted:g}{cause}")


def _bends(w, b, v):
    """Return in words where the lines of a network bend: those of max(0, w x + b) times v."""
    bends = {}
    for one in range(len(w)):
        if w[one] and v[one]:
            bend = float(-b[one] / w[one]) + 0.0  # no -0
            bends[bend] = bends.get(bend, 0.0) + float(abs(w[one]) * v[one])
    if not bends:
        return ": its line does not bend"
    where = ", ".join(f"at {bend:g} by {bends[bend]:+g}" for bend in sorted(bends))
    return f": its slope changes {where}: where does that of a tent, and by how much?"


def check_sees_one_position(sees_one_position):
    """Check a test that tells by which axes a norm averages."""

    def over(axes):
        # Without a mean: over two numbers, a layer norm would give 1 and -1, whatever they are.
        return lambda x: x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-6)

    norms = {
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
    }
    right = {name: not name.startswith("a norm") or name.endswith("the features") for name in norms}
    right["a norm over positions and features"] = False
    found = {}
    for name, norm in norms.items():
        answer = sees_one_position(norm)
        if not isinstance(answer, bool | np.bool) and not (
            isinstance(answer, int | np.integer) and answer in (0, 1)
        ):
            one = ": .all() makes one of many" if np.ndim(answer) else ""
            raise AssertionError(f"for {name}: found {short(answer)}, expected True or False{one}")
        found[name] = bool(answer)
    for name, answer in found.items():
        if answer == right[name]:
            continue
        if not any(found.values()):
            cause = "False for every norm: does x[b, t] itself stay as it was?"
        elif all(found.values()):
            cause = "True for every norm"
        elif found == {one: not answer for one, answer in right.items()}:
            cause = "True and False exchanged"
        elif found["a norm over the sentences"] and not found["a norm over the positions"]:
            cause = "a test of one sentence: the other sentences are to change as well"
        elif found["a norm over the positions"] and not found["a norm over the sentences"]:
            cause = "a test of one position: the others of its sentence are to change as well"
        elif not found["tanh"] or not found["layer norm"]:
            cause = "a test of something else: what stays the same at x[b, t]?"
        else:
            cause = "a test that does not change enough of x"
        raise AssertionError(
            f"for {name}: found {answer}, expected {right[name]}: that looks like {cause}"
        )


def check_rms_norm(rms_norm):
    """Check the norm by root mean square and its gradients."""
    # Small numbers tell what becomes of the 1e-6.
    for shape, size in (((2, 3, 8), 1.0), ((4, 2, 5), 1e-3)):
        rng = np.random.default_rng(shape[0])
        x, gy = size * rng.standard_normal(shape), rng.standard_normal(shape)
        gain = np.arange(1.0, 1 + shape[-1])
        r = np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
        n, u = x / r, gy * gain
        name = f"x {shape}" if size == 1 else f"small x {shape}"
        answer = rms_norm(x.copy(), gain.copy())
        assert not isinstance(answer, np.ndarray), (
            f"{name}: found one array, expected (y, backward), where backward is a function"
        )
        y, backward = parts_of(name, answer, ["y", "backward"])
        equal(f"{name}, y", y, gain * n, _results(x, gain))
        assert callable(backward), f"{name}: found {short(backward)} for backward, not a function"
        gradients = backward(gy.copy())
        assert not isinstance(gradients, np.ndarray), (
            f"{name}, backward: found one array, expected (gx, g_gain)"
        )
        gx, g_gain = parts_of(f"{name}, backward", gradients, ["gx", "g_gain"])
        right = (u - n * (u * n).mean(axis=-1, keepdims=True)) / r
        right_gain = (gy * n).sum(axis=(0, 1))
        mistakes = _gradients_of_x(x, n, r, gy, gain) | {"gx and g_gain exchanged": right_gain}
        equal(f"{name}, gx", gx, right, mistakes, atol=1e-4 * abs(u / r).max())
        equal(f"{name}, g_gain", g_gain, right_gain, _gradients_of_the_gain(x, n, gy, gain))


def _results(x, gain):
    """Return {mistake: the y that it gives} of the norm by root mean square."""
    squares = (x * x).mean(axis=-1, keepdims=True)
    r, deviation = np.sqrt(squares + 1e-6), np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)
    away = x - x.mean(axis=-1, keepdims=True)
    return {
        "a layer norm: the mean is not subtracted here": gain * away / deviation,
        "the deviation in place of the root mean square": gain * x / deviation,
        "1e-6 outside the root": gain * x / (np.sqrt(squares) + 1e-6),
        "the 1e-6 left out": gain * x / np.sqrt(squares),
        "another number than 1e-6, as 1e-5 or 1e-8": gain * x / np.sqrt(squares + 1e-5),
        "1e-8 in place of 1e-6": gain * x / np.sqrt(squares + 1e-8),
        "a y without its gain": x / r,
        "the sum of the squares in place of their mean": gain
        * x
        / np.sqrt(squares * x.shape[-1] + 1e-6),
        "a division without the root": gain * x / (squares + 1e-6),
        "one mean square for the whole array": gain * x / np.sqrt((x * x).mean() + 1e-6),
        "the mean over another axis than the last": gain
        * x
        / np.sqrt((x * x).mean(axis=0, keepdims=True) + 1e-6),
        "a multiplication by the root": gain * x * r,
        "the gain added in place of multiplied": gain + x / r,
        "the square of the mean in place of the mean of the squares": gain
        * x
        / np.sqrt(x.mean(axis=-1, keepdims=True) ** 2 + 1e-6),
        "the mean of |x| in place of the root": gain * x / abs(x).mean(axis=-1, keepdims=True),
        "a division by the gain": x / r / gain,
    }


def _gradients_of_x(x, n, r, gy, gain):
    """Return {mistake: the gx that it gives} of the norm by root mean square."""
    u = gy * gain

    def mean(numbers):
        return numbers.mean(axis=-1, keepdims=True)

    right = (u - n * mean(u * n)) / r
    return {
        "r kept constant: it depends on each x_j": u / r,
        "the way of x_j to its own n_j alone: r is in every n_i": u * (1 - n * n / x.shape[-1]) / r,
        "the way of x_j to its own n_j alone, without 1 / D": u * (1 - n * n) / r,
        "a gy that was not multiplied by the gain": (gy - n * mean(gy * n)) / r,
        "the gradient of layer norm: the mean is not subtracted here": right - mean(u) / r,
        "a gy without its gain in the mean": (u - n * mean(gy * n)) / r,
        "r^2 in place of r^3": u / r - x * mean(u * x) / r**2,
        "a sum in place of the mean": (u - n * (u * n).sum(axis=-1, keepdims=True)) / r,
        "a result without its division by r": right * r,
        "a second division by r": right / r,
        "a plus in place of the minus": (u + n * mean(u * n)) / r,
        "one mean for the whole array": (u - n * (u * n).mean()) / r,
        "the mean of u in place of that of u n": (u - n * mean(u)) / r,
        "x in place of n": (u - x * mean(u * x)) / r,
        "the gain a second time": gain * right,
        "the gain outside the mean, where each gy has its own": gain * (gy - n * mean(gy * n)) / r,
        "the result in place of n: it has the gain": (u - gain * n * mean(u * gain * n)) / r,
    }


def _gradients_of_the_gain(x, n, gy, gain):
    """Return {mistake: the g_gain that it gives} of the norm by root mean square."""
    return {
        "a gradient that is not summed: the gain is shared by all positions": gy * n,
        "a sum over the sentences alone": (gy * n).sum(axis=0),
        "a sum over the positions alone": (gy * n).sum(axis=1),
        "a mean in place of the sum": (gy * n).mean(axis=(0, 1)),
        "a sum over the features": (gy * n).sum(axis=-1),
        "a sum over everything": (gy * n).sum(),
        "x in place of n": (gy * x).sum(axis=(0, 1)),
        "gy alone, as for a bias": gy.sum(axis=(0, 1)),
        "the gain a second time": (gy * n * gain).sum(axis=(0, 1)),
        "axes kept that the gain does not have": (gy * n).sum(axis=(0, 1), keepdims=True),
    }
