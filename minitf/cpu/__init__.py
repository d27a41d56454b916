"""The ops of the engine once more, faster, for NumPy on the cores of a CPU."""

from minitf.cpu import search, strips

__all__ = ["search", "strips"]  # the modules of forms: importing them registers these
