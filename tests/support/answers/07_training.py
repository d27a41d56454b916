"""Answers to the exercises of lesson 07: right ones, and wrong ones that must not pass.

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


def wrong_first_move(gradient, rate):
    """gradient descent"""
    return -rate * gradient


def wrong_first_move_2(gradient, rate):
    """the way up"""
    return rate * np.sign(gradient)


def wrong_first_move_3(gradient, rate):
    """0 divided by 0"""
    return -rate * gradient / abs(gradient)


def wrong_first_move_4(gradient, rate):
    """m and v without their corrections"""
    return -rate * 0.1 * gradient / (np.sqrt(0.02 * gradient**2) + 1e-9)


def wrong_first_move_5(gradient, rate):
    """a move of a number whose gradient is 0"""
    return np.where(gradient < 0, rate, -rate)


def wrong_first_move_6(gradient, rate):
    """m without its correction"""
    return -0.1 * rate * np.sign(gradient)


def wrong_first_move_7(gradient, rate):
    """found the shape (), expected (5,)"""
    return -rate


def wrong_first_move_8(gradient, rate):
    """Adam looks at each number alone"""
    return -rate * gradient / np.linalg.norm(gradient)


def wrong_first_move_9(gradient, rate):
    """what is left of the gradient: return what the step adds"""
    return gradient - rate * np.sign(gradient)


def wrong_first_move_10(gradient, rate):
    """that looks like 0.9 times what is right"""
    return -0.9 * rate * np.sign(gradient)


def wrong_first_move_11(gradient, rate):
    """gradients limited to 1"""
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


def right_update_in_parts_5(model, optimizer, batches, rate) -> None:
    n_tokens, total = sum(batch.n_tokens for batch in batches), 0.0
    optimizer.zero_grad()
    for batch in batches:
        total = total + model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0]
    total.backward()
    optimizer.step(rate)
    optimizer.zero_grad()


def _update(model, optimizer, batches, rate, n_tokens=None, zero_each=False, zero=True):
    if zero:
        optimizer.zero_grad()
    for batch in batches:
        if zero_each:
            optimizer.zero_grad()
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
    optimizer.step(rate)


def wrong_update_in_parts(model, optimizer, batches, rate) -> None:
    """each part was divided by its own number of tokens"""
    _update(model, optimizer, batches, rate)


def wrong_update_in_parts_2(model, optimizer, batches, rate) -> None:
    """the gradient of an earlier batch was added"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches, rate, n_tokens, zero=False)


def wrong_update_in_parts_3(model, optimizer, batches, rate) -> None:
    """it is shorter than the rate"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches, rate / len(batches), n_tokens)


def wrong_update_in_parts_4(model, optimizer, batches, rate) -> None:
    """the gradient of the first part is lost"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches, rate, n_tokens, zero_each=True)


def wrong_update_in_parts_5(model, optimizer, batches, rate) -> None:
    """found 2 updates, expected one"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
        optimizer.step(rate)


def wrong_update_in_parts_6(model, optimizer, batches, rate) -> None:
    """the mean of the parts' own means"""
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        (loss / len(batches)).backward()
    optimizer.step(rate)


def wrong_update_in_parts_7(model, optimizer, batches, rate) -> None:
    """found no update, expected one optimizer.step(rate)"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()


def wrong_update_in_parts_8(model, optimizer, batches, rate) -> None:
    """no parameter has a gradient"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
    optimizer.zero_grad()
    optimizer.step(rate)


def wrong_update_in_parts_9(model, optimizer, batches, rate) -> None:
    """the gradient of the last part is lost"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    _update(model, optimizer, batches[:-1], rate, n_tokens)


def wrong_update_in_parts_10(model, optimizer, batches, rate) -> None:
    """the tokens counted up to each part, not of all"""
    n_tokens = 0
    optimizer.zero_grad()
    for batch in batches:
        n_tokens += batch.n_tokens
        model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)[0].backward()
    optimizer.step(rate)


def wrong_update_in_parts_11(model, optimizer, batches, rate) -> None:
    """target_in and target_out exchanged"""
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        model.loss(batch.source, batch.target_out, batch.target_in, n_tokens)[0].backward()
    optimizer.step(rate)


def wrong_update_in_parts_12(model, optimizer, batches, rate) -> None:
    """all parts divided by the source tokens"""
    n_tokens = sum(int((batch.source != 0).sum()) for batch in batches)
    _update(model, optimizer, batches, rate, n_tokens)


def wrong_update_in_parts_13(model, optimizer, batches, rate) -> None:
    """take a tuple apart"""
    for batch in batches:
        model.loss(batch.source, batch.target_in, batch.target_out).backward()


def wrong_update_in_parts_14(model, optimizer, batches, rate) -> None:
    """it is longer than the rate"""
    _update(model, optimizer, batches, 2 * rate, sum(batch.n_tokens for batch in batches))


# pytorch_eps --------------------------------------------------------------------------------------


def pytorch_eps(eps, V):
    return eps * (V - 1) / V


def right_pytorch_eps_2(eps, n_words):
    return np.float32(eps - eps / n_words)


def right_pytorch_eps_3(eps, V):
    true_word = 1 - eps + eps / V
    return np.array(1.0 - true_word)


def wrong_pytorch_eps(eps, V):
    """V / (V - 1) the wrong way round"""
    return eps * V / (V - 1)


def wrong_pytorch_eps_2(eps, V):
    """the number for eps 0.3 and V 5 alone"""
    return 0.3 * 4 / 5


def wrong_pytorch_eps_3(eps, V):
    """eps itself"""
    return eps


def wrong_pytorch_eps_4(eps, V):
    """the share of one wrong word"""
    return eps / V


def wrong_pytorch_eps_5(eps, V):
    """expected a number from 0 to 1"""
    return eps * (V - 1)


def wrong_pytorch_eps_6(eps, V):
    """the share of the true word"""
    return 1 - eps + eps / V


def wrong_pytorch_eps_7(eps, V):
    """expected one number"""
    return [eps / V] * V


def wrong_pytorch_eps_8(eps, V):
    """which gives each wrong word 0.072, expected eps / V = 0.06"""
    return eps - eps / V**2


def wrong_pytorch_eps_9(eps, V):
    """no smoothing"""
    return 0


def wrong_pytorch_eps_10(eps, V):
    """a number that was rounded"""
    return round(eps * (V - 1) / V, 2)


def wrong_pytorch_eps_11(eps, V):
    """the true word's is to go"""
    return eps + eps / V
