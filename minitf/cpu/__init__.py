"""Faster forms of the engine's ops, for NumPy on the cores of a CPU."""

from minitf.cpu import attention, decode, functions, loss, optim  # noqa: F401  (registers their forms)
