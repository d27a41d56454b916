"""Model answers to the exercises of lesson 07, and for each a typical wrong one that
must be rejected.
"""

import numpy as np


def first_move(gradient, rate):
    return -rate * np.sign(gradient)


def wrong_first_move(gradient, rate):
    return -rate * gradient  # gradient descent: Adam divides by the gradient's size


def update_in_parts(model, optimizer, batches, rate) -> None:
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate)


def wrong_update_in_parts(model, optimizer, batches, rate) -> None:
    optimizer.zero_grad()
    for batch in batches:  # each part is divided by its own number of tokens
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
    optimizer.step(rate)


def wrong_update_in_parts_2(model, optimizer, batches, rate) -> None:
    n_tokens = sum(batch.n_tokens for batch in batches)
    for batch in batches:  # what an earlier batch left is added
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate)


def wrong_update_in_parts_3(model, optimizer, batches, rate) -> None:
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate / len(batches))  # each part takes its share of the step, too


def wrong_update_in_parts_4(model, optimizer, batches, rate) -> None:
    n_tokens = sum(batch.n_tokens for batch in batches)
    for batch in batches:
        optimizer.zero_grad()  # only the last part is left
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate)


def pytorch_eps(eps, V):
    return eps * (V - 1) / V


def wrong_pytorch_eps(eps, V):
    return eps * V / (V - 1)


def wrong_pytorch_eps_2(eps, V):
    return 0.3 * 4 / 5  # right for one size only
