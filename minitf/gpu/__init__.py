"""The ops of the engine once more, faster, for CuPy on a GPU."""

from minitf.gpu import loss, ops, optim, search  # noqa: F401  (each registers its forms)
