"""Faster forms of the engine's ops, for NumPy on the cores of a CPU."""

from minitf.cpu import (  # noqa: F401  (registers their forms)
    attention,
    decode,
    functions,
    loss,
    multihead,
    optim,
)
