"""python -m minitf.translation: the translator."""

import sys

from minitf.commands.translate import main

if __name__ == "__main__":
    sys.exit(main())
