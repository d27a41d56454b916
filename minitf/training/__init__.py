"""A training run: settings, the loop, its files and figures, several machines, and
its command line.
"""

from minitf.training.commandline import main, train
from minitf.training.settings import Settings

__all__ = ["Settings", "main", "train"]
