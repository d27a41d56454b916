"""python -m minitf.public MODEL OUT: convert a public model."""

import sys

from minitf.public.commandline import main

if __name__ == "__main__":
    sys.exit(main())
