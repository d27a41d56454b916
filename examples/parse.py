"""Write the constituency trees of sentences; the program is minitf/parsing/command.py."""

import os
import sys
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "models" / "parse-en"


def main(arguments=None):
    """Run the command line; returns its exit code."""
    # As in translate.py: one thread in each process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from minitf.parsing import command

        return command.main(arguments, MODEL)
    except ModuleNotFoundError as error:
        hint = "activate the environment, or run  pip install -e .  (README.md tells how)"
        print(f"parse.py: {error.name} is not installed: {hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
