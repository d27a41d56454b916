"""Which rule learns the rare words? Lesson 07 trains a table of words by descent and by Adam."""

import numpy as np


def left_to_learn(shares, rate, divide, updates=100):
    """Train the table; return for each word how far its loss is above the goal."""
    rng = np.random.default_rng(1)
    n = len(shares)
    q = np.full((n, n), 0.1 / (n - 1))
    np.fill_diagonal(q, 0.9)
    table = np.zeros((n, n))
    m = 0.0
    v = 0.0
    for t in range(1, updates + 1):
        p = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
        counts = rng.multinomial(25_000, shares)  # of each word in this batch
        g = counts[:, None] / 25_000 * (p - q)
        m = 0.9 * m + 0.1 * g
        v = 0.98 * v + 0.02 * g**2
        move = m / (1 - 0.9**t)
        if divide:
            move = move / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
        table -= rate * move
    p = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    return (q * np.log(q / p)).sum(axis=1)  # the loss, less the entropy of q


def halving(n):
    """Return n shares, each half of the one before; only the last two are equal."""
    return 0.5 ** np.minimum(np.arange(1, n + 1), n - 1)
