"""The checks of lesson 07, training."""

import numpy as np

from minitf import functions as F
from minitf.config import Config
from minitf.course.checks.compare import equal, short
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import Parameter
from minitf.optim import Adam
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import Transformer

__all__ = ["check_first_move", "check_pytorch_eps", "check_update_in_parts"]


def check_first_move(first_move):
    """Check Adam's first step."""
    for gradient, rate in (
        (np.array([2.0, -3.0, 1e-4, 0.0, -500.0]), 0.01),
        (np.array([[-0.5, 0.25, 7.0], [0.0, -1e-3, 40.0]]), 0.3),
    ):
        number = Parameter(np.zeros(gradient.shape))
        optimizer = Adam([("number", number)])
        number.backward(gradient)
        optimizer.step(rate)
        right = -rate * np.sign(gradient)
        with np.errstate(all="ignore"):
            found = first_move(gradient.copy(), rate)
            mistakes = {
                "gradient descent: Adam divides by the gradient's size": -rate * gradient,
                "the way up: a step goes against the gradient": -right,
                "the same way for every number: the sign of a gradient counts": -rate
                + 0 * gradient,
                "a move of a number whose gradient is 0": np.where(gradient == 0, -rate, right),
                "a move where the gradient is 0, the other way": np.where(
                    gradient == 0, rate, right
                ),
                "the size of the moves alone: they have a sign": abs(right),
                "m and v without their corrections": right * 0.1 / np.sqrt(0.02),
                "m without its correction": 0.1 * right,
                "v without its correction": right / np.sqrt(0.02),
                "a gradient of length 1: Adam looks at each number alone": -rate
                * gradient
                / np.linalg.norm(gradient),
                "the signs, without the rate": np.sign(gradient) * -1,
                "a rate of 0.01, whatever the rate is": right * 0.01 / rate,
                "v without its root": -rate * gradient / (gradient**2 + 1e-9),
                "0 divided by 0: eps prevents it": -rate * gradient / abs(gradient),
                "the root of the gradient": -rate * np.sign(gradient) * np.sqrt(abs(gradient)),
                "a division by the largest gradient": -rate * gradient / abs(gradient).max(),
                "m in place of m / root of v": -rate * gradient * 0.1,
                "what is left of the gradient: return what the step adds": gradient + right,
                "1 in place of eps: that is far larger than a gradient": -rate
                * gradient
                / (abs(gradient) + 1),
                "a division by the standard deviation: Adam looks at each number alone": -rate
                * gradient
                / gradient.std(),
                "gradients limited to 1: a small one moves its number as far": right
                * np.minimum(1, abs(gradient)),
                "m without its correction, v without its root": 0.1
                * -rate
                * gradient
                / (0.02 * gradient**2 + 1e-9),
            }
        equal(f"the moves of {gradient.size} numbers", found, number.numpy(), mistakes, rtol=1e-3)


def check_update_in_parts(update_in_parts):
    """Check one update from several batches, by the gradient that Adam receives."""
    for rows in (
        [([4, 9, 5, 7], [7, 5, 9, 4]), ([8, 6], [6])],
        [([8, 6], [6, 5]), ([4, 9, 5, 7], [7, 5, 9, 4, 8]), ([5], [12])],
    ):
        _check_update(update_in_parts, rows)


def _check_update(update_in_parts, rows):
    config = Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
    complete = make_batch([source for source, _ in rows], [target for _, target in rows], 14)
    batches, n_tokens = [complete.rows(i, i + 1) for i in range(len(rows))], complete.n_tokens
    rate = 0.01 * len(rows)

    def new():
        model = Transformer(config, seed=1).astype(np.float64)
        return model, Adam(model.named_parameters())

    def backward(model, batch, n_tokens, exchanged=False):
        texts = batch.target_in, batch.target_out
        model.loss(batch.source, *texts[:: -1 if exchanged else 1], n_tokens)[0].backward()

    def gradient_of(batches, n_tokens, exchanged=False):
        model, optimizer = new()
        for batch in batches:
            backward(model, batch, n_tokens, exchanged)
        optimizer.step(rate)
        return Tensor(optimizer.m).numpy() / 0.1  # after one update m is 0.1 times the gradient

    model, optimizer = new()
    backward(model, batches[0], n_tokens)  # the gradient of an earlier batch
    start = Tensor(optimizer.data).numpy().copy()
    update_in_parts(model, optimizer, list(batches), rate)
    moves = Tensor(optimizer.data).numpy() - start
    longest, name = abs(moves).max(), f"{len(rows)} batches"
    assert optimizer.step_count > 0, f"{name}: found no update, expected one optimizer.step(rate)"
    assert optimizer.step_count == 1, (
        f"{name}: found {optimizer.step_count} updates, expected one: a step after each batch?"
    )
    assert longest > 0, f"{name}: found no parameter changed: is the gradient empty at the step?"
    for wrong, text in (
        (longest > 1.01 * rate, "longer"),
        (longest < 0.99 * rate, "shorter"),
    ):
        assert not wrong, (
            f"{name}: found a step of {longest:.4g}, expected {rate:g}: it is {text} than the rate"
        )

    equal(
        f"{name}, the gradient of the update",
        Tensor(optimizer.m).numpy() / 0.1,
        gradient_of([complete], n_tokens),
        lambda: _updates(batches, complete, gradient_of),
    )
    reference, own = new()
    backward(reference, complete, n_tokens)
    own.step(rate)
    equal(f"{name}, the moves of all parameters", moves, Tensor(own.data).numpy() - start)


def _updates(batches, complete, gradient_of):
    """Return {mistake: the gradient of the update} of a batch in parts."""
    n_tokens = complete.n_tokens
    n, one_gpu = len(batches), gradient_of(batches, None)
    return {
        "each part was divided by its own number of tokens": one_gpu,
        "the gradient of the first part is lost": gradient_of(batches[1:], n_tokens),
        "the gradients of all parts but the last are lost": gradient_of(batches[-1:], n_tokens),
        "the gradient of the last part is lost": gradient_of(batches[:-1], n_tokens),
        "the gradient of an earlier batch was added": gradient_of([batches[0], *batches], n_tokens),
        "the mean of the parts' own means": one_gpu / n,
        "a sum that is divided by the tokens and by the number of parts": gradient_of(
            batches, n_tokens * n
        ),
        "a sum that is divided by nothing": gradient_of(batches, 1),
        "a sum that is divided by the number of parts alone": gradient_of(batches, n),
        "each part divided by its own tokens, of the last part alone": gradient_of(
            batches[-1:], None
        ),
        "each part divided by its own tokens, and an earlier batch was added": one_gpu
        + gradient_of(batches[:1], n_tokens),
        "all parts divided by the tokens of the first": gradient_of(batches, batches[0].n_tokens),
        "all parts divided by the tokens of the last": gradient_of(batches, batches[-1].n_tokens),
        "all parts divided by the places of the batch: padding does not count": gradient_of(
            batches, complete.target_out.size
        ),
        "all parts divided by the source tokens: the target's count": gradient_of(
            batches, int((complete.source != 0).sum())
        ),
        "all parts divided by the tokens of source and target": gradient_of(
            batches, n_tokens + int((complete.source != 0).sum())
        ),
        "target_in and target_out exchanged": gradient_of(batches, n_tokens, exchanged=True),
        "each part's own mean multiplied by all tokens": one_gpu * n_tokens,
        "the tokens counted up to each part, not of all": sum(
            gradient_of([batch], sum(one.n_tokens for one in batches[: i + 1]))
            for i, batch in enumerate(batches)
        ),
    }


def check_pytorch_eps(pytorch_eps):
    """Check the number that gives PyTorch's label smoothing, by the loss."""
    for eps, V in ((0.3, 5), (0.1, 3), (0.5, 8)):
        logits = np.random.default_rng(V).standard_normal((3, V))
        target = np.array([V - 1, 1, 2])
        unsmoothed = label_smoothed_cross_entropy(logits, target, 0.0).numpy()
        by_all = -F.log_softmax(logits).numpy().mean()
        name = f"eps = {eps}, V = {V}"
        found = pytorch_eps(eps, V)
        try:
            e = float(np.asarray(found, dtype=float).reshape(()))
        except (ValueError, TypeError):
            raise AssertionError(f"{name}: found {short(found)}, expected one number") from None
        assert 0 <= e < 1, f"{name}: found {e:.6g}, expected a number from 0 to 1"
        known = {
            "eps itself: then each wrong word gets eps / (V - 1)": eps,
            "the share of one wrong word: e is that of all": eps / V,
            "the share of one wrong word of minitf": eps / (V - 1),
            "the share of the true word": 1 - eps + eps / V,
            "the share of the true word taken from 1, not from eps": 1 - (1 - eps) / V,
            "1 - eps, the share of the true word without its part of eps": 1 - eps,
            "V / (V - 1) the wrong way round": eps * V / (V - 1),
            "eps times V - 1: it is to be divided by V as well": eps * (V - 1),
            "the number for eps 0.3 and V 5 alone": 0.24,
            "the share for V = 5 alone": eps * 4 / 5,
            "no smoothing": 0,
            "the share of one of V words, whatever eps is": 1 / V,
            "eps, and a wrong word's share added: the true word's is to go": eps + eps / V,
            "the share of one wrong word of all, divided once more": eps / V / (V - 1),
            "a number that was rounded": round(eps * (V - 1) / V, 2),
            "the share of two wrong words": 2 * eps / V,
            "the true word's part subtracted twice": eps * (V - 2) / V,
            "the share of the wrong words of eps / V for each of V words": eps - eps / (V - 1),
        }
        loss = label_smoothed_cross_entropy(logits, target, e)
        try:
            equal("the loss", loss, (1 - eps) * unsmoothed + eps * by_all)
        except AssertionError as error:
            shares = (
                f"{name}: found e = {e:.6g}, which gives each wrong word {e / (V - 1):.4g}, "
                f"expected eps / V = {eps / V:.4g}"
            )
            looks_like = next(
                (f": that looks like {text}" for text, value in known.items() if
                 abs(value - e) < 1e-6), "",
            )  # fmt: skip
            raise AssertionError(shares + looks_like) from error
