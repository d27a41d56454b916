"""Faster forms of the engine's ops, for NumPy on the cores of a CPU."""

from minitf.cpu import attention, decode, functions, loss  # noqa: F401  (they register forms)
