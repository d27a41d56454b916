"""python -m minitf.translation: the translator."""

import sys

from minitf.translation.commandline import main

if __name__ == "__main__":
    sys.exit(main())
