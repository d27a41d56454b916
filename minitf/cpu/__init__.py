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
