"""Measure a translation model for its card.

    python examples/models/judge.py score examples/models/en-de
    python examples/models/judge.py spans examples/models/en-de

`score` prints BLEU and chrF of the whole test of its corpus and of its harder lines
(judged/harder.txt), each with a 95% interval: the sentences are resampled a thousand times.
(`sacrebleu --paired-bs` says how likely a difference between two models is by chance alone.)

`spans` puts a hundred random spans of each kind, which must not be translated, into ten
sentences, and prints how many arrive unchanged.
"""

import argparse
import csv
import random
import re
import string
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


# Some forms of each kind of span, in which δ stands for a digit, and ω for a word.
VALUES = {
    "number of five to sixteen digits": ("1δδδδ", "9δδδδδδ", "2" + 11 * "δ", "4" + 15 * "δ"),
    "number with points or commas": ("1.δδδ", "9δ,δδδ", "5δδ.δδδ.δδδ", "8,δδδ,δδδ"),
    "decimal number": ("δ.δδ", "1δ,δδ", "3δδ.δδ"),
    "date, dd.mm.yyyy": ("1δ.0δ.19δδ", "2δ.12.20δδ"),
    "date, yyyy-mm-dd": ("19δδ-0δ-1δ", "20δδ-11-2δ"),
    "date, m/d/yyyy": ("5/1δ/20δδ", "12/2δ/19δδ"),
    "time": ("δ:1δ", "1δ:0δ", "1δ:4δ"),
    "amount in dollars": ("$δ.δδ", "$1δδ.δδ", "$7δδδ.δδ"),
    "amount in euros": ("δ,δδ €", "2δ,δδ €", "9δδ,δδ €"),
    "percentage": ("δ%", "4δ%", "1δ.δ%"),
    "IP address": ("1δ.2δ.3δ.1δδ", "192.168.δ.1δ"),
    "e-mail address": ("ω@ω.com", "ω.ω@ω.de", "ω_ω@ω.ω.org", "ω+ω@ω.co.uk"),
    "URL": ("https://www.ω.com/ω", "https://ω.de/ω?ω=δδδ", "https://ω.org/ω/ω.html"),
    "address without https": ("www.ω.net", "www.ω.example"),
    "telephone number": ("03δ 1δδδδδδ", "+49 3δ 2δδδδδδ", "5δδ-4δδδ"),
    "handle or hashtag": ("@ω", "#ω"),
    "file name": ("ω.pdf", "ω_ω.docx", "ω-ω.py", "ω.jpg"),
    "path": ("/ω/ω", "C:\\ω\\ω.txt", "~/ω/ω.py"),
    "version": ("vδ.1δ.δ", "1δ.δ.2δ"),
    "code": ("AB-4δδ", "QXR-1δδδδδ"),
    "tag": ("<ω>", "</ω>", '<a href="ω">', "<br/>"),
    "entity of an angle bracket": ("&lt;", "&gt;"),
    "placeholder": ("{ω}", "%s", "%d", "%(ω)s", "${ω}", "{{ ω }}"),
    "emoji": ("\U0001f600", "\U0001f60d", "\U0001f632", "\U0001f64f"),
}


def _filled(form, rng):
    """Return a form with random digits and words."""

    def filled(sign):
        if sign[0] == "δ":
            return rng.choice(string.digits)
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))

    return re.sub("[δω]", filled, form)


def spans(folder):
    """Print how many of a hundred random spans of each kind arrive, in ten sentences."""
    translator, language = Translator.load(folder), languages_of(folder)[0]
    rows = csv.DictReader(corpora.read_lines(JUDGED / "frames.tsv"), delimiter="\t")
    frames = [row[language] for row in rows]
    print("| kind | example | arrived, of 100 |\n|---|---|---|")
    for name, forms in VALUES.items():
        rng = random.Random(name)
        drawn = [_filled(rng.choice(forms), rng) for _ in range(100)]
        lines = [frames[i % len(frames)].format(span) for i, span in enumerate(drawn)]
        # Spaces at the ends of a line are those of its translation, too.
        found = [best.text.strip() for best, *_ in translator.translate(lines)]
        arrived = sum(span in text for span, text in zip(drawn, found, strict=True))
        print(f"| {name} | `{drawn[0]}` | {arrived} |", flush=True)


def main():
    """Run the command line; return its exit code."""
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {each.__name__: each for each in (score, spans)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("folder", help="of a model")

    def run():
        options = parser.parse_args()
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # on every system
        commands[options.command](options.folder)

    return exit_code("judge.py", run)


if __name__ == "__main__":
    sys.exit(main())
