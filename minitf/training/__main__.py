"""python -m minitf.training: the trainer."""

import sys

from minitf.training.commandline import main

if __name__ == "__main__":
    sys.exit(main(program="minitf.training"))
