"""python -m minitf.parsing: the parser."""

import sys

from minitf.commands.parse import main

if __name__ == "__main__":
    sys.exit(main())
