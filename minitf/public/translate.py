"""The command translate.py, which also takes the name of a public model."""

import functools

from minitf.cli import say
from minitf.public.named import folder_of
from minitf.translation import commandline

__all__ = ["main"]


def main(arguments=None, model=None, backend=""):
    """Run the command line; returns the exit code, as `translation.commandline.main`."""
    return commandline.main(arguments, model, backend, functools.partial(folder_of, say=say))
