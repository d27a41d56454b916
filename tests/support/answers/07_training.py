"""Model answers to the exercises of lesson 07, and for each a typical wrong one that
must be rejected.
"""

import numpy as np

from minitf.loss import label_smoothed_cross_entropy


def first_move(gradient, rate):
    return -rate * np.sign(gradient)


def wrong_first_move(gradient, rate):
    return -rate * gradient  # gradient descent: Adam divides by the gradient's size


def update_in_parts(model, optimizer, batches, rate):
    n_tokens = sum(batch.n_tokens for batch in batches)
    optimizer.zero_grad()
    for batch in batches:
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n_tokens)
        loss.backward()
    optimizer.step(rate)


def wrong_update_in_parts(model, optimizer, batches, rate):
    optimizer.zero_grad()
    for batch in batches:  # each part is divided by its own number of tokens
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
    optimizer.step(rate)


def pytorch_loss(logits, target, eps):
    size = logits.shape[-1]
    return label_smoothed_cross_entropy(logits, target, eps * (size - 1) / size)


def wrong_pytorch_loss(logits, target, eps):
    size = logits.shape[-1]
    return label_smoothed_cross_entropy(logits, target, eps * size / (size - 1))
