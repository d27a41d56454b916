"""python -m minitf: print the commands, and the pages to read next."""

import sys

from minitf.cli import piped

OVERVIEW = """\
minitf: the Transformer of "Attention Is All You Need", on NumPy and CuPy.
Commands to run in the repository:

  python examples/translate.py "Where is the station?"
                                   translate text, a file or a pipe
  python examples/split.py all.en all.de
                                   split a text and its translation, to train
  python examples/parse.py "Mice die."
                                   write the tree of a sentence
  python lessons/01_attention.py   run a lesson (01 to 09)
  python lessons/exercise.py 04    write the exercises of lesson 04
  python lessons/notebooks.py      make a notebook for each lesson
  python -m minitf.training --quick --out runs/toy
                                   train a tiny model, in three minutes
  python -m minitf.training --help
                                   train other models
  python -m minitf.data NAME       download a corpus for training
  python -m minitf.public NAME DIR convert a public translation model
  python -m minitf.data.toy 10     print sentences of the built-in corpus
  python examples/models/prepare.py
                                   write additional training pairs
  python examples/benchmarks/benchmark.py
                                   measure the speed of minitf and of other
                                   libraries
  python examples/benchmarks/gpu_check.py
                                   check and measure minitf on a GPU
  pytest                           run the tests

If minitf is installed without the repository, the commands are
minitf-translate --model DIR  and  minitf-train,  or
python -m minitf.translation  and  python -m minitf.training.

Start with README.md; then lessons/README.md for the course,
minitf/README.md for the code, lessons/REPRODUCE.md for the paper's models."""


def main():
    """Print the overview; returns the exit code: 0, or 2 if anything but --help was typed."""
    for argument in sys.argv[1:]:
        if argument not in ("-h", "--help"):
            print(
                f"minitf: {argument!r} is no command: type  minitf  to list them", file=sys.stderr
            )
            return 2
    with piped():
        print(OVERVIEW)
    return 0


if __name__ == "__main__":
    sys.exit(main())
