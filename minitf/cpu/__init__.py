"""The ops of the engine once more, faster, for NumPy on the cores of a CPU."""

from minitf.cpu import decode, functions, loss, optim  # noqa: F401  (registers their forms)
