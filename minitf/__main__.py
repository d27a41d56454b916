"""python -m minitf: run one of the commands, or print what there is."""

import os
import sys

from minitf.cli import exit_code
from minitf.errors import UserError

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
  python -m minitf train --quick --out runs/toy
                                   train a tiny model, in three minutes
  python -m minitf train --help    train other models
  python -m minitf data NAME       download a corpus for training
  python -m minitf public NAME DIR convert a public translation model
  python -m minitf toy 10          print sentences of the built-in corpus
  python examples/benchmarks/benchmark.py
                                   measure the speed of minitf and of other
                                   libraries
  pytest                           run the tests

If minitf is installed without the repository, the translator and the parser
are  minitf translate --model DIR  and  minitf parse --model DIR,  and the
trainer is  minitf train  (short for  python -m minitf train,  and so on).

Start with README.md; then lessons/README.md for the course,
minitf/README.md for the code, lessons/REPRODUCE.md for the paper's models."""


def main():
    """Run the command of the first argument, or print the overview; return the exit code."""
    return exit_code("minitf", _run_command)  # also for Ctrl-C while the command is imported


def _run_command():
    name, *arguments = sys.argv[1:] or ["--help"]
    typed = os.path.basename(sys.argv[0]) == "__main__.py"
    # The name of the command in its own messages.
    sys.argv[0] = f"{'python -m ' if typed else ''}minitf {name}"
    match name:
        case "-h" | "--help":
            print(OVERVIEW)
            return 0
        case "translate":
            from minitf.commands.translate import main as run
        case "parse":
            from minitf.parsing.command import main as run
        case "train":
            from minitf.training.commandline import main as run
        case "data":
            from minitf.data.corpora import main as run
        case "public":
            from minitf.public.commandline import main as run
        case "toy":
            from minitf.data.toy import main as run
        case _:
            raise UserError(f"{name!r} is no command: type  minitf  to list them")
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
