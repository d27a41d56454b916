"""Faster forms of the engine's ops, for CuPy on a GPU."""

from minitf.gpu import decode, functions, loss, optim  # noqa: F401  (each registers its forms)
