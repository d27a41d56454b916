"""Lesson 09: train the Transformer on a real corpus. `--quick` learns the toy corpus in three minutes."""

import sys

from minitf.train import main

if __name__ == "__main__":
    sys.exit(main(program="09_train_wmt.py"))
