"""Faster forms of the engine's ops, for NumPy on the cores of a CPU."""

from minitf.cpu import (  # noqa: F401  (each registers its forms)
    attention,
    decode,
    decoder_steps,
    functions,
    loss,
    multihead,
    optim,
)


def tolerance() -> float:
    """Return how far the numbers of a model may be off with forms, relative to the largest."""
    return 1e-3
