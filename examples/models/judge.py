"""Measure a translation model for its card, on the test of its corpus and on a hundred sentences.

    python examples/models/judge.py score examples/models/en-de
    python examples/models/judge.py compare runs/older examples/models/en-de
    python examples/models/judge.py hundred examples/models/en-de > hundred.tsv
    python examples/models/judge.py odd examples/models/en-de
    python examples/models/judge.py table examples/models/judged/en-de-*.tsv

`score` prints BLEU and chrF of the whole test and of its harder lines (judged/harder.txt), each
with a 95% interval: the sentences are resampled a thousand times. `compare` resamples the lines of
two models together, and prints how likely so large a difference is by chance alone. `hundred`
prints the sentences of judged/hundred.LANGUAGE.tsv with their translations; a person adds the
judgements, by the rules in judged/README.md; `table` prints such files side by side, for the card.
`odd` does the same as `hundred` with lines that are not as a model expects them.
"""

import argparse
import csv
import sys
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
    """Return the rows of a file with tabs between its columns, a dictionary each.

    Raises UserError for a file that cannot be read, or is not UTF-8.
    """
    lines = corpora.read_lines(path)
    if warning := corpora.undecoded(path, lines):
        raise UserError(f"{warning}: save it as UTF-8")
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_judgements(path):
    """Return the rows of a file with judgements.

    Raises UserError if there are none, an answer is neither yes nor no, or no reason is given for a
    no.
    """
    rows = read_rows(path)
    if not rows or not {"sentence", "translation", "meaning", "grammar"} <= rows[0].keys():
        raise UserError(
            f"{path} has no judgements: fill in the columns sentence, translation, meaning, grammar"
        )
    for row in rows:
        answers = row["meaning"], row["grammar"]
        if not set(answers) <= {"yes", "no"}:
            raise UserError(f"{path}, {row['sentence']!r}: answer meaning and grammar, yes or no")
        if "no" in answers and not row.get("reason"):
            raise UserError(f"{path}, {row['sentence']!r}: give the reason for the no")
    return rows


def table(*paths):
    """Print judgements side by side, in Markdown: a column for each file, with the reasons."""
    columns = [read_judgements(path) for path in paths]
    sentences = [[row["sentence"] for row in rows] for rows in columns]
    if any(others != sentences[0] for others in sentences):
        raise UserError(f"{', '.join(map(str, paths))} are not about the same sentences")
    names = [Path(path).stem for path in paths]
    print(f"| sentence | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for sentence, *rows in zip(sentences[0], *columns, strict=True):
        print(f"| {' | '.join([_in_table(sentence), *map(cell, rows)])} |")


def cell(row):
    """Return a judged translation, with what is wrong.

    >>> cell({"translation": "Der Hund.", "meaning": "no", "grammar": "yes", "reason": "it sleeps"})
    'Der Hund. (*meaning: it sleeps*)'
    """
    wrong = [question for question in ("meaning", "grammar") if row[question] == "no"]
    said = f" (*{' and '.join(wrong)}: {row['reason']}*)" if wrong else ""
    return _in_table(f"{row['translation']}{said}")


def _in_table(text):
    return text.replace("|", "\\|")


def main():
    """Run the command line; return its exit code."""
    return exit_code("judge.py", _run)


def _run():
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {each.__name__: each for each in (score, compare, hundred, odd, table)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("paths", nargs="+", help="folders of models, or files for `table`")
    options = parser.parse_args()
    wanted = {"table": len(options.paths), "compare": 2}.get(options.command, 1)
    if len(options.paths) != wanted:
        parser.error(f"{options.command} needs {wanted} folder{'s' * (wanted != 1)}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # on every system
    commands[options.command](*options.paths)


if __name__ == "__main__":
    sys.exit(main())
