"""Measure what happens to text that was pasted, and to what must not be translated.

    python examples/models/pasted.py changes examples/models/en-de
    python examples/models/pasted.py values examples/models/en-de

`changes` prints the BLEU of the corpus's test after each change that pasting, a telephone or
another keyboard makes to a source. `values` puts a hundred random values of each kind into ten
sentences, and prints how many arrive unchanged. Both print tables in Markdown, for the card.
"""

import argparse
import random
import re
import string
import sys
import unicodedata

from judge import JUDGED, languages_of, read_rows, read_test
from sacrebleu.metrics import BLEU

from minitf.cli import OptionParser, exit_code
from minitf.translation import Translator


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


def changes(folder):
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
    "entity": ("&amp;", "&lt;", "&nbsp;", "&quot;", "&#δδ;", "&#9δδδ;"),
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
    return exit_code("pasted.py", _run)


def _run():
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"changes": changes, "values": values}
    parser.add_argument("command", choices=commands)
    parser.add_argument("model", help="the folder of a model")
    options = parser.parse_args()
    commands[options.command](options.model)


if __name__ == "__main__":
    sys.exit(main())
