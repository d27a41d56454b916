"""python -m minitf.data NAME: fetch a corpus."""

import sys

from minitf.data.corpora import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
