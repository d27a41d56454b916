"""Faster forms of the engine's ops, for CuPy on a GPU."""

from minitf.gpu import decode, functions, loss  # noqa: F401  (they register forms)
from minitf.gpu.matmul import tolerance  # noqa: F401  (forms.py asks for it)
