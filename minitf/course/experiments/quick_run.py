"""The training of lesson 09, `--quick`, for readers who do not run it.

    python -m minitf.course.experiments.quick_run

trains it, and keeps its scores, its first translations and some lines that the trainer printed, in
two CPU minutes.
"""

import contextlib
import io
import json
import tempfile
from pathlib import Path

from minitf.course.experiments import write
from minitf.data import toy
from minitf.training import main as train

OPTIONS = "--quick --steps 2600 --valid-every 1300 --save-every 50"
N_SENTENCES = 3
SCORES = ("perplexity", "bleu")  # of a validation
LINES = ("step      1 ", "step  1,000 ", "step  2,600 ")  # as they begin


def summary(results, sources, translations, printed):
    """Return what lesson 09 prints of a run, in the form of results.json, and some lines.

    results: what the trainer wrote to results.json. sources, translations, printed: lists of lines.
    """
    valid, tests = results["valid"], results["tests"]
    pairs = list(zip(sources, translations, strict=True))
    return {
        "valid": {name: {key: valid[name][key] for key in SCORES} for name in ("last", "averaged")},
        "tests": {"test": {"bleu": tests["test"]["bleu"]}},
        "sentences": pairs[:N_SENTENCES],
        "printed": [line for line in printed if line.startswith(LINES)],
    }


def main():
    """Train, and keep what the lesson prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            train([*OPTIONS.split(), "--out", str(folder)])
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        translations = (folder / "test.out").read_text(encoding="utf-8").splitlines()
    sources = toy.splits(n_train=0)["test"][0]
    printed = output.getvalue().splitlines()
    write("quick_run", summary(results, sources, translations, printed))


if __name__ == "__main__":
    main()
