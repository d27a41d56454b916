"""The ops of the engine once more, faster, for NumPy on the cores of a CPU."""

from minitf.cpu import loss, optim
