"""python -m minitf.training: the trainer."""

import sys

from minitf.training.commandline import installed

if __name__ == "__main__":
    sys.exit(installed("minitf.training"))
