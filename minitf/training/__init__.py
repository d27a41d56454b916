"""A training run: its settings, its loop, its files and figures, and its command line."""

from minitf.training.commandline import main, train
from minitf.training.settings import Settings

__all__ = ["Settings", "main", "train"]
