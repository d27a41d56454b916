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
    """Return how far a form may be off, relative to the largest number, in float64."""
    return 1e-9
