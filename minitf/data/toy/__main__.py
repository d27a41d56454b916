"""python -m minitf.data.toy N: print sentences of the built-in corpus."""

import sys

from minitf.data.toy import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
