"""Faster forms of the engine's ops, for CuPy on a GPU."""

from minitf.gpu import decode, functions, loss  # noqa: F401  (they register forms)
