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

from judge import _languages, _test
from sacrebleu.metrics import BLEU

from minitf.cli import OptionParser, exit_code
from minitf.translation import Translator

_WORD = re.compile(r"\w{5,}")


def _once(change):
    """Return a change of one random place between two words of a line."""

    def changed(line, rng):
        spaces = [place.start() for place in re.finditer(" ", line)]
        place = rng.choice(spaces) if spaces else len(line)
        return line[:place] + change + line[place + (place < len(line)) :]

    return changed


def _inside_words(character):
    def changed(line, rng):
        def split(word):
            middle = len(word[0]) // 2
            return word[0][:middle] + character + word[0][middle:]

        return _WORD.sub(split, line)

    return changed


def _replace(**pairs):
    table = str.maketrans(
        {unicodedata.lookup(name.replace("_", " ")): to for name, to in pairs.items()}
    )
    return lambda line, rng: line.translate(table)


def _quotes(opening, closing):
    """Return a change of each pair of straight quotes."""
    return lambda line, rng: re.sub('"([^"]*)"', rf"{opening}\1{closing}", line)


def _wide(line, rng):
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in line)


CHANGES = {
    "none": lambda line, rng: line,
    "a no-break space for one space": _once("\u00a0"),
    "a no-break space for each space": lambda line, rng: line.replace(" ", "\u00a0"),
    "a narrow no-break space (U+202F)": _once("\u202f"),
    "a thin space (U+2009)": _once("\u2009"),
    "an ideographic space (U+3000)": _once("\u3000"),
    "one space doubled": _once("  "),
    "each space doubled": lambda line, rng: line.replace(" ", "  "),
    "a tab for one space": _once("\t"),
    "spaces around the line": lambda line, rng: f"  {line} ",
    "a soft hyphen in each long word": _inside_words("\u00ad"),
    "a zero-width space in each long word": _inside_words("\u200b"),
    "a word joiner in each long word": _inside_words("\u2060"),
    "a zero-width non-joiner in each long word": _inside_words("\u200c"),
    "a zero-width space before the line": lambda line, rng: "\u200b" + line,
    "a byte-order mark before the line": lambda line, rng: "\ufeff" + line,
    "marks of direction around the line": lambda line, rng: f"\u202a{line}\u202c\u200e",
    "typographic apostrophes": _replace(APOSTROPHE="\u2019"),
    "acute accents for apostrophes": _replace(APOSTROPHE="\u00b4"),
    "English quotation marks": _quotes("\u201c", "\u201d"),
    "German quotation marks": _quotes("\u201e", "\u201c"),
    "guillemets": _quotes("\u00bb", "\u00ab"),
    "a typographic hyphen (U+2010)": lambda line, rng: line.replace("-", "\u2010"),
    "a no-break hyphen (U+2011)": lambda line, rng: line.replace("-", "\u2011"),
    "an ellipsis character": lambda line, rng: line.replace("...", "\u2026"),
    "decomposed letters (NFD)": lambda line, rng: unicodedata.normalize("NFD", line),
    "ligatures": lambda line, rng: line.replace("fi", "\ufb01").replace("fl", "\ufb02"),
    "full-width forms": _wide,
    "control characters": _once(" \x08"),
}


def changes(folder):
    """Print the BLEU of the test after each change of its sources."""
    translator, test = Translator.load(folder), _test(folder)
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


def _digits(rng, n):
    return str(rng.randint(1, 9)) + "".join(rng.choice(string.digits) for _ in range(n - 1))


def _letters(rng, low=3, high=9):
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(low, high)))


def _host(rng):
    return f"{_letters(rng)}.{rng.choice(('com', 'de', 'org', 'net', 'example', 'co.uk'))}"


def _grouped(rng, mark):
    return f"{rng.randint(1, 999)}{mark}{rng.randint(0, 999):03}" + rng.choice(
        ("", f"{mark}{rng.randint(0, 999):03}")
    )


VALUES = {
    "number of five to sixteen digits": lambda r: _digits(r, r.randint(5, 16)),
    "number with points or commas": lambda r: _grouped(r, r.choice(".,")),
    "decimal number": lambda r: f"{r.randint(0, 999)}{r.choice('.,')}{r.randint(0, 99):02}",
    "date, dd.mm.yyyy": lambda r: (
        f"{r.randint(1, 28):02}.{r.randint(1, 12):02}.{r.randint(1900, 2099)}"
    ),
    "date, yyyy-mm-dd": lambda r: (
        f"{r.randint(1900, 2099)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
    ),
    "date, m/d/yyyy": lambda r: f"{r.randint(1, 12)}/{r.randint(1, 28)}/{r.randint(1900, 2099)}",
    "time": lambda r: f"{r.randint(0, 23)}:{r.randint(0, 59):02}",
    "amount in dollars": lambda r: f"${r.randint(1, 9999)}.{r.randint(0, 99):02}",
    "amount in euros": lambda r: f"{r.randint(1, 999)},{r.randint(0, 99):02} €",
    "percentage": lambda r: f"{r.randint(1, 99)}{r.choice(('', f'.{r.randint(1, 9)}'))}%",
    "IP address": lambda r: ".".join(str(r.randint(0, 255)) for _ in range(4)),
    "e-mail address": lambda r: (
        f"{_letters(r)}{r.choice(('', '.', '_', '+'))}{_letters(r)}@{_host(r)}"
    ),
    "URL": lambda r: (
        f"https://{r.choice(('', 'www.'))}{_host(r)}/{_letters(r)}"
        + r.choice(("", f"?{_letters(r)}={_digits(r, 3)}", f"/{_letters(r)}.html", "/"))
    ),
    "address without https": lambda r: f"www.{_host(r)}",
    "telephone number": lambda r: r.choice(
        (
            f"0{_digits(r, 2)} {_digits(r, 7)}",
            f"+49 {_digits(r, 2)} {_digits(r, 7)}",
            f"{_digits(r, 3)}-{_digits(r, 4)}",
        )
    ),
    "handle or hashtag": lambda r: r.choice("@#") + _letters(r),
    "file name": lambda r: (
        _letters(r)
        + r.choice(("", "_", "-"))
        + f"{_letters(r)}.{r.choice(('pdf', 'txt', 'docx', 'py', 'jpg', 'csv'))}"
    ),
    "path": lambda r: r.choice(
        (
            f"/{_letters(r)}/{_letters(r)}",
            f"C:\\{_letters(r)}\\{_letters(r)}.txt",
            f"~/{_letters(r)}/{_letters(r)}.py",
        )
    ),
    "version": lambda r: (
        f"{r.choice(('v', ''))}{r.randint(0, 20)}.{r.randint(0, 30)}.{r.randint(0, 30)}"
    ),
    "code": lambda r: f"{_letters(r, 2, 3).upper()}-{_digits(r, r.randint(3, 6))}",
    "tag": lambda r: r.choice(
        (f"<{_letters(r, 1, 5)}>", f"</{_letters(r, 1, 5)}>", f'<a href="{_letters(r)}">', "<br/>")
    ),
    "entity": lambda r: r.choice(
        ("&amp;", "&lt;", "&nbsp;", "&quot;", f"&#{r.randint(33, 9999)};")
    ),
    "placeholder": lambda r: r.choice(
        (
            f"{{{_letters(r)}}}",
            "%s",
            "%d",
            f"%({_letters(r)})s",
            f"${{{_letters(r)}}}",
            f"{{{{ {_letters(r)} }}}}",
        )
    ),
    "emoji": lambda r: chr(r.randint(0x1F600, 0x1F64F)),
}
FRAMES = {
    "en": (
        "Here is {}.",
        "I saw {} yesterday.",
        "Please look at {} again.",
        "She said that {} was wrong.",
        "What does {} mean?",
        "We found {} on the table.",
        "Tom wrote {} on a piece of paper.",
        "Is {} really the right one?",
        "{} is what I need.",
        "My brother does not like {}, but my sister does.",
    ),
    "de": (
        "Hier ist {}.",
        "Ich habe gestern {} gesehen.",
        "Bitte sehen Sie sich {} noch einmal an.",
        "Sie sagte, dass {} falsch war.",
        "Was bedeutet {}?",
        "Wir haben {} auf dem Tisch gefunden.",
        "Tom schrieb {} auf ein Stück Papier.",
        "Ist {} wirklich richtig?",
        "{} ist das, was ich brauche.",
        "Mein Bruder mag {} nicht, aber meine Schwester schon.",
    ),
}


def values(folder):
    """Print how many of a hundred random values of each kind arrive, in ten sentences."""
    translator, frames = Translator.load(folder), FRAMES[_languages(folder)[0]]
    print("| kind | example | arrived, of 100 |\n|---|---|---|")
    for name, made in VALUES.items():
        rng = random.Random(name)
        drawn = [made(rng) for _ in range(100)]
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
