"""Translate text, English to German by default; the program is minitf/commands/translate.py."""

import gc
import os
import sys
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "models" / "en-de"


def main(arguments=None):
    """Run the command line; returns its exit code."""
    # Decoding uses one thread in each process. The others of OpenBLAS, which start with NumPy,
    # would take as long as the translation of a sentence.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # what is loaded now stays until the end; `translate` turns it on again
    try:
        from minitf.commands import translate

        return translate.main(arguments, MODEL)
    except ModuleNotFoundError as error:
        hint = "activate the environment, or run  pip install -e .  (README.md tells how)"
        print(f"translate.py: {error.name} is not installed: {hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        gc.enable()


if __name__ == "__main__":
    # All is written, and no worker is left. To take every object apart, as sys.exit does, would
    # take half as long as to translate a sentence.
    os._exit(main())
