"""Answers to the exercises of lesson 07: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

# first_move ---------------------------------------------------------------------------------------


def first_move(gradient, rate):
    return -rate * np.sign(gradient)


def right_first_move_2(g, lr):
    m, v = 0.1 * g / (1 - 0.9), 0.02 * g**2 / (1 - 0.98)
    return -lr * m / (np.sqrt(v) + 1e-9)


def right_first_move_3(gradient, rate):
    moves = np.zeros_like(gradient, dtype=np.float32)
    moves[gradient > 0] -= rate
    moves[gradient < 0] += rate
    return moves.tolist()


def right_first_move_4(gradient, rate):
    gradient /= np.maximum(np.abs(gradient), 1e-30)
    gradient *= -rate
    return gradient


def wrong_first_move_2(gradient, rate):
    """that looks like the opposite sign"""  # the way up
    return rate * np.sign(gradient)


def wrong_first_move_9(gradient, rate):
    """the moves of 5 numbers: found"""  # what is left of the gradient: return what the step adds
    return gradient - rate * np.sign(gradient)


def wrong_first_move_11(gradient, rate):
    """that looks like a mistake at 2 alone"""  # gradients limited to 1
    return -rate * np.clip(gradient, -1, 1)


# update_in_parts ----------------------------------------------------------------------------------


def update_in_parts(model, optimizer, batches, rate) -> None:
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate)


def right_update_in_parts_2(model, optimizer, batches, rate) -> None:
    tokens = [int((batch.target_out != 0).sum()) for batch in batches]
    optimizer.zero_grad()
    for batch, n in zip(batches, tokens, strict=True):
        loss = model.loss(batch.source, batch.target_in, batch.target_out)[0]
        (loss * (n / sum(tokens))).backward()
    optimizer.step(rate)
    return None


def right_update_in_parts_3(model, optimizer, parts, lr) -> None:
    n = 0
    for part in parts:
        n += part.n_tokens
    optimizer.zero_grad()
    total = sum(model.loss(p.source, p.target_in, p.target_out, n)[0] for p in parts)
    total.backward()
    optimizer.step(lr)
    optimizer.zero_grad()


def right_update_in_parts_4(model, optimizer, batches, rate) -> None:
    n_tokens = float(np.sum([batch.n_tokens for batch in batches]))
    first = True
    for batch in batches:
        if first:
            optimizer.zero_grad()
            first = False
        model.loss(
            source=batch.source,
            target_in=batch.target_in,
            target_out=batch.target_out,
            n_tokens=n_tokens,
        )[0].backward()
    optimizer.step(rate)


def _update(model, optimizer, batches, rate, n_tokens=None, zero_each=False, zero=True):
    if zero:
        optimizer.zero_grad()
    for batch in batches:
        if zero_each:
            optimizer.zero_grad()
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
    optimizer.step(rate)


def wrong_update_in_parts_3(model, optimizer, batches, rate) -> None:
    """the moves of all parameters: found"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches, rate / len(batches), n_tokens)


def wrong_update_in_parts_5(model, optimizer, batches, rate) -> None:
    """the calls of optimizer.step: found 2, expected 1"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
        optimizer.step(rate)


def wrong_update_in_parts_6(model, optimizer, batches, rate) -> None:
    """that looks like the mean of the parts' means"""
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        (loss / len(batches)).backward()
    optimizer.step(rate)


def wrong_update_in_parts_9(model, optimizer, batches, rate) -> None:
    """2 batches, the gradient of the update: found"""  # the gradient of the last part is lost
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches[:-1], rate, n_tokens)


def wrong_update_in_parts_13(model, optimizer, batches, rate) -> None:
    """take a tuple apart"""
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out).backward()


# pytorch_eps --------------------------------------------------------------------------------------


def pytorch_eps(eps, V):
    return eps * (V - 1) / V


def right_pytorch_eps_2(eps, n_words):
    return np.float32(eps - eps / n_words)


def right_pytorch_eps_3(eps, V):
    true_word = 1 - eps + eps / V
    return np.array(1.0 - true_word)


def wrong_pytorch_eps_7(eps, V):
    """expected one number"""
    return [eps / V] * V


def wrong_pytorch_eps_8(eps, V):
    """found 0.0444444, expected 0.0333333"""
    return eps - eps / V**2


def wrong_pytorch_eps_10(eps, V):
    """found 0.035, expected 0.0333333"""  # a number that was rounded
    return round(eps * (V - 1) / V, 2)
