"""Measure a translation model for its card, on the test of its corpus.

    python examples/models/judge.py examples/models/en-de

prints BLEU and chrF of the whole test and of its harder lines (judged/harder.txt), each with a 95%
interval: the sentences are resampled a thousand times. (`sacrebleu --paired-bs` says how likely a
difference between two models is by chance alone.)
"""

import argparse
import sys
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

from minitf.cli import OptionParser, exit_code, say
from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.models import read_model
from minitf.translation import Translator

JUDGED = Path(__file__).resolve().parent / "judged"
CORPUS, LANGUAGES = "tatoeba-en-de", ("en", "de")
TEST = 976  # lines of the test


def score(folder):
    """Print the scores of a model on the test, and on its harder lines."""
    test = read_test(folder)
    lines = translations(folder, test.source)
    for name, rows in _parts(lines):
        outputs, references = [lines[i] for i in rows], [[test.target[i] for i in rows]]
        for kind in (BLEU, CHRF):
            metric = kind(references=references)
            result = metric.corpus_score(outputs, None, n_bootstrap=1000)
            print(f"{name}, {len(outputs)} sentences: {result}  ({metric.get_signature()})")


def _parts(lines):
    """Return the name and the rows of the whole test, and of its harder lines.

    A newer collection may lack a sentence of the test: then the numbers of these lines are wrong.
    """
    if len(lines) != TEST:
        say(f"judge.py: no harder lines: this test has {len(lines)} lines, not {TEST}")
        return (("the whole test", range(len(lines))),)
    harder = [int(number) - 1 for number in (JUDGED / "harder.txt").read_text().split()]
    return ("the whole test", range(len(lines))), ("its harder lines", harder)


def translations(folder, lines):
    """Return the best translation of each line."""
    return [best.text for best, *_ in Translator.load(folder).translate(lines)]


def read_test(folder):
    """Return the test of the corpus, in the direction of a model."""
    languages, corpus = languages_of(folder), corpora.load(CORPUS)
    (test,) = corpus.tests.values()
    return test if languages == LANGUAGES else corpora.Pairs(test.target, test.source)


def languages_of(folder):
    """Return the languages that a model translates from and to.

    Raises UserError unless it is a translator between English and German.
    """
    notes = read_model(folder).notes
    found = notes.get("source_language"), notes.get("target_language")
    if sorted(map(str, found)) != sorted(LANGUAGES):
        raise UserError(
            f"{folder} translates from {found[0]} to {found[1]}: only translators from en to de or "
            "from de to en can be judged"
        )
    return found


def main():
    """Run the command line; return its exit code."""
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="of a model")
    return exit_code("judge.py", lambda: score(parser.parse_args().folder))


if __name__ == "__main__":
    sys.exit(main())
