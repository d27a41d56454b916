"""Measure a translation model for its card, on the test of its corpus and on a hundred sentences.

    python examples/models/judge.py score examples/models/en-de
    python examples/models/judge.py compare runs/older examples/models/en-de
    python examples/models/judge.py hundred examples/models/en-de > hundred.tsv
    python examples/models/judge.py odd examples/models/en-de
    python examples/models/judge.py pasted examples/models/en-de
    python examples/models/judge.py values examples/models/en-de

`score` prints BLEU and chrF of the whole test and of its harder lines (judged/harder.txt), each
with a 95% interval: the sentences are resampled a thousand times. `compare` resamples the lines of
two models together, and prints how likely so large a difference is by chance alone. `hundred`
prints the sentences of judged/hundred.LANGUAGE.tsv with their translations; a person adds the
judgements, by the rules in judged/README.md. `odd` does the same as `hundred` with lines that are
not as a model expects them.

`pasted` prints the BLEU of the test after each change that pasting, a telephone or another keyboard
makes to a source. `values` puts a hundred random values of each kind, which must not be translated,
into ten sentences, and prints how many arrive unchanged.
"""

import argparse
import csv
import random
import re
import string
import sys
import unicodedata
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from minitf.cli import OptionParser, exit_code, say
from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.models import read_model
from minitf.translation import Translator

JUDGED = Path(__file__).resolve().parent / "judged"
CORPUS, LANGUAGES = "tatoeba-en-de", ("en", "de")
TEST = 976  # lines of the test
RESAMPLED = 1000  # times


def score(folder):
    """Print the scores of a model on the test, and on its harder lines."""
    test = read_test(folder)
    lines = translations(folder, test.source)
    for name, rows in _parts(lines):
        outputs, references = [lines[i] for i in rows], [[test.target[i] for i in rows]]
        for kind in (BLEU, CHRF):
            metric = kind(references=references)
            result = metric.corpus_score(outputs, None, n_bootstrap=RESAMPLED)
            print(f"{name}, {len(outputs)} sentences: {result}  ({metric.get_signature()})")


def compare(older, newer):
    """Print what two models score, and the p-value of the difference.

    p: the probability of a difference at least as large if chance alone made it, by paired
    bootstrap (Koehn 2004); 1 if all translations are equal.
    """
    if languages_of(older) != languages_of(newer):
        raise UserError(f"{older} and {newer} do not translate between the same languages")
    test = read_test(newer)
    found = [translations(folder, test.source) for folder in (older, newer)]
    for name, rows in _parts(test.source):
        outputs = [[lines[i] for i in rows] for lines in found]
        systems = list(zip(("older", "newer"), outputs, strict=True))
        references = [[test.target[i] for i in rows]]
        metrics = {kind.__name__: kind(references=references) for kind in (BLEU, CHRF)}
        paired = PairedTest(systems, metrics, None, test_type="bs", n_samples=RESAMPLED)
        for metric, (before, after) in zip(metrics, list(paired()[1].values())[1:], strict=True):
            change = f"{before.score:.2f} -> {after.score:.2f}"
            p = 1.0 if outputs[0] == outputs[1] else after.p_value
            print(f"{name}, {len(rows)} sentences: {metric} {change}, p = {p:.3f}")


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


def hundred(folder, name="hundred"):
    """Print kind, sentence and translation of each of the hundred sentences."""
    rows = read_rows(JUDGED / f"{name}.{languages_of(folder)[0]}.tsv")
    print("kind\tsentence\ttranslation")
    texts = translations(folder, [row["sentence"] for row in rows])
    for row, text in zip(rows, texts, strict=True):
        print(f"{row['kind']}\t{row['sentence']}\t{text}")


def odd(folder):
    """Print kind, line and translation of each line that is not as the model expects it."""
    hundred(folder, "odd")


def read_rows(path):
    """Return the rows of a file with tabs between its columns, a dictionary each."""
    return list(csv.DictReader(corpora.read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE))


# Pasted text, and values --------------------------------------------------------------------------


def _once(change):
    """Return a change of one random place between two words of a line."""

    def changed(line, rng):
        spaces = [place.start() for place in re.finditer(" ", line)]
        place = rng.choice(spaces) if spaces else len(line)
        return line[:place] + change + line[place + (place < len(line)) :]

    return changed


def _inside_words(character):
    """Return a change of the middle of each long word."""

    def split(word):
        middle = len(word[0]) // 2
        return word[0][:middle] + character + word[0][middle:]

    return lambda line, rng: re.sub(r"\w{5,}", split, line)


def _replaced(old, new):
    return lambda line, rng: line.replace(old, new)


def _quotes(opening, closing):
    """Return a change of each pair of straight quotes."""
    return lambda line, rng: re.sub('"([^"]*)"', rf"{opening}\1{closing}", line)


CHANGES = {
    "none": lambda line, rng: line,
    "a no-break space for one space": _once("\u00a0"),
    "a no-break space for each space": _replaced(" ", "\u00a0"),
    "a narrow no-break space (U+202F)": _once("\u202f"),
    "a thin space (U+2009)": _once("\u2009"),
    "an ideographic space (U+3000)": _once("\u3000"),
    "one space doubled": _once("  "),
    "each space doubled": _replaced(" ", "  "),
    "a tab for one space": _once("\t"),
    "spaces around the line": lambda line, rng: f"  {line} ",
    "a soft hyphen in each long word": _inside_words("\u00ad"),
    "a zero-width space in each long word": _inside_words("\u200b"),
    "a word joiner in each long word": _inside_words("\u2060"),
    "a zero-width non-joiner in each long word": _inside_words("\u200c"),
    "a zero-width space before the line": lambda line, rng: "\u200b" + line,
    "a byte-order mark before the line": lambda line, rng: "\ufeff" + line,
    "marks of direction around the line": lambda line, rng: f"\u202a{line}\u202c\u200e",
    "typographic apostrophes": _replaced("'", "\u2019"),
    "acute accents for apostrophes": _replaced("'", "\u00b4"),
    "English quotation marks": _quotes("\u201c", "\u201d"),
    "German quotation marks": _quotes("\u201e", "\u201c"),
    "guillemets": _quotes("\u00bb", "\u00ab"),
    "a typographic hyphen (U+2010)": _replaced("-", "\u2010"),
    "a no-break hyphen (U+2011)": _replaced("-", "\u2011"),
    "an ellipsis character": _replaced("...", "\u2026"),
    "decomposed letters (NFD)": lambda line, rng: unicodedata.normalize("NFD", line),
    "ligatures": lambda line, rng: line.replace("fi", "\ufb01").replace("fl", "\ufb02"),
    "full-width forms": lambda line, rng: "".join(
        chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in line
    ),
    "control characters": _once(" \x08"),
}


def pasted(folder):
    """Print the BLEU of the test after each change of its sources."""
    translator, test = Translator.load(folder), read_test(folder)
    metric = BLEU(references=[list(test.target)])
    print("| change of the source | lines changed | BLEU | other translations |\n|---|---|---|---|")
    plain = None
    for name, change in CHANGES.items():
        rng = random.Random(0)
        lines = [change(line, rng) for line in test.source]
        # Spaces at the ends of a line are those of its translation, too.
        found = [best.text.strip() for best, *_ in translator.translate(lines)]
        plain = plain or found
        changed = sum(a != b for a, b in zip(lines, test.source, strict=True))
        other = sum(a != b for a, b in zip(found, plain, strict=True))
        print(
            f"| {name} | {changed} | {metric.corpus_score(found, None).score:.2f} | {other} |",
            flush=True,
        )


# Of each kind of value some forms, in which δ stands for a digit, and ω for a word.
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


def values(folder):
    """Print how many of a hundred random values of each kind arrive, in ten sentences."""
    translator, language = Translator.load(folder), languages_of(folder)[0]
    frames = [row[language] for row in read_rows(JUDGED / "frames.tsv")]
    print("| kind | example | arrived, of 100 |\n|---|---|---|")
    for name, forms in VALUES.items():
        rng = random.Random(name)
        drawn = [_filled(rng.choice(forms), rng) for _ in range(100)]
        lines = [frames[i % len(frames)].format(value) for i, value in enumerate(drawn)]
        # Spaces at the ends of a line are those of its translation, too.
        found = [best.text.strip() for best, *_ in translator.translate(lines)]
        arrived = sum(value in text for value, text in zip(drawn, found, strict=True))
        print(f"| {name} | `{drawn[0]}` | {arrived} |", flush=True)


def main():
    """Run the command line; return its exit code."""
    return exit_code("judge.py", _run)


def _run():
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {each.__name__: each for each in (score, compare, hundred, odd, pasted, values)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("paths", nargs="+", help="folders of models")
    options = parser.parse_args()
    wanted = 2 if options.command == "compare" else 1
    if len(options.paths) != wanted:
        parser.error(f"{options.command} needs {wanted} folder{'s' * (wanted != 1)}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # on every system
    commands[options.command](*options.paths)


if __name__ == "__main__":
    sys.exit(main())
