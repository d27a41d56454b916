"""python -m minitf.parsing: the parser."""

import sys

from minitf.parsing.commandline import main

if __name__ == "__main__":
    sys.exit(main())
