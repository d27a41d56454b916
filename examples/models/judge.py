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
`odd` does the same with lines that are not as a model expects them. `harder` chose the harder
lines, before the models were trained.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from minitf.atomic import save_text
from minitf.cli import OptionParser, exit_code, say
from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.models import read_model
from minitf.translation import Translator

JUDGED = Path(__file__).resolve().parent / "judged"
CORPUS, LANGUAGES = "tatoeba-en-de", ("en", "de")
TEST = 976  # lines of the test
COLUMNS = ("sentence", "translation", "meaning", "grammar")  # of a file with judgements
FORMULA = ("=", "+", "-", "@")  # a spreadsheet takes a cell that begins so for a formula
HARDER = 400  # of these; the longest third of the test is 325 of them
RESAMPLED = 1000  # times


def harder_lines(test, train, n=HARDER):
    """Return the numbers of n lines, from 1: the longest third, then those with the rarest words.

    test, train: lists of lines. A line is as rare as its rarest word is in `train`. Of equally long
    or rare lines, the earlier is taken.

    >>> harder_lines(["a", "a b c", "b a", "z", "c b", "c a"], ["a b c z", "a b c"], n=3)
    [2, 3, 4]
    """
    counts = Counter(word for line in train for word in _words(line))
    words = [_words(line) for line in test]
    longest = sorted(range(len(test)), key=lambda i: -len(words[i]))[: len(test) // 3]
    rarest = sorted(range(len(test)), key=lambda i: min((counts[w] for w in words[i]), default=0))
    chosen = list(dict.fromkeys(longest + rarest))[:n]
    return [i + 1 for i in sorted(chosen)]


def _words(line):
    """Return the words of a line, in small letters, without punctuation."""
    return "".join(c if c.isalnum() or c == "'" else " " for c in line.lower()).split()


def score(folder):
    """Print the scores of a model on the test, and on its harder lines."""
    test = _test(folder)
    lines = [best.text for best, *_ in Translator.load(folder).translate(test.source)]
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
    if _languages(older) != _languages(newer):
        raise UserError(f"{older} and {newer} do not translate between the same languages")
    test = _test(newer)
    lines = [
        [best.text for best, *_ in Translator.load(folder).translate(test.source)]
        for folder in (older, newer)
    ]
    for name, rows in _parts(test.source):
        systems = [
            (each, [texts[i] for i in rows])
            for each, texts in zip(("older", "newer"), lines, strict=True)
        ]
        references = [[test.target[i] for i in rows]]
        metrics = {kind.__name__: kind(references=references) for kind in (BLEU, CHRF)}
        paired = PairedTest(systems, metrics, None, test_type="bs", n_samples=RESAMPLED)
        for metric, (before, after) in zip(metrics, list(paired()[1].values())[1:], strict=True):
            change = f"{before.score:.2f} -> {after.score:.2f}"
            p = 1.0 if systems[0][1] == systems[1][1] else after.p_value
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


def _test(folder):
    """Return the test of the corpus, in the direction of a model."""
    languages, corpus = _languages(folder), corpora.load(CORPUS)
    (test,) = corpus.tests.values()
    if languages == LANGUAGES:
        return test
    return corpora.Pairs(test.target, test.source)


def _languages(folder):
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
    rows = rows_of(JUDGED / f"{name}.{_languages(folder)[0]}.tsv")
    translations = Translator.load(folder).translate([row["sentence"] for row in rows])
    print("kind\tsentence\ttranslation")
    for number, (row, (best, *_)) in enumerate(zip(rows, translations, strict=True), start=2):
        print(f"{row['kind']}\t{row['sentence']}\t{best.text}")
        if row["sentence"].startswith(FORMULA) or best.text.startswith(FORMULA):
            say(f"judge.py: line {number} looks like a formula: import the output as text")


def odd(folder):
    """Print kind, line and translation of each line that is not as the model expects it."""
    hundred(folder, "odd")


def rows_of(path):
    """Return the rows of a file with tabs between its columns, a dictionary each.

    Raises UserError for a file that cannot be read, or is not UTF-8.
    """
    return [row for _, row in _numbered_rows(path)]


def _numbered_rows(path):
    """Return (number of the line, row) for each row; empty lines are none."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8") from None
    names, *lines = [line.split("\t") for line in text.split("\n")]
    numbered = enumerate(lines, start=2)  # the first line names the columns
    return [
        (number, dict(zip(names, cells, strict=False))) for number, cells in numbered if any(cells)
    ]


def judgements(path):
    """Return the rows of a file with judgements.

    Raises UserError if there are none, a column is missing, an answer is neither yes nor no, or no
    reason is given for a no.
    """
    rows = _numbered_rows(path)
    if missing := [name for name in COLUMNS if not any(name in row for _, row in rows)]:
        raise UserError(f"{path} has no judgements: fill in the columns {', '.join(missing)}")
    for number, row in rows:
        if not {"sentence", "translation"} <= row.keys():
            raise UserError(f"{path}, line {number}: has too few cells: fill in the translation")
        answers = row.get("meaning"), row.get("grammar")
        if not set(answers) <= {"yes", "no"}:
            raise UserError(f"{path}, line {number}: answer meaning and grammar with yes or no")
        if "no" in answers and not row.get("reason"):
            raise UserError(f"{path}, line {number}: give the reason for the no")
    return [row for _, row in rows]


def table(*paths):
    """Print judgements side by side, in Markdown: a column for each file, with the reasons."""
    columns = [judgements(path) for path in paths]
    sentences = [[row["sentence"] for row in rows] for rows in columns]
    if any(others != sentences[0] for others in sentences):
        raise UserError(f"{', '.join(map(str, paths))} are not about the same sentences")
    names = [Path(path).stem for path in paths]
    print(f"| sentence | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for sentence, *rows in zip(sentences[0], *columns, strict=True):
        print(f"| {_in_table(sentence)} | {' | '.join(map(cell, rows))} |")


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


def harder():
    """Choose the harder lines of the test, and write their numbers."""
    corpus = corpora.load(CORPUS)
    (test,) = corpus.tests.values()
    if len(test.source) != TEST:
        raise UserError(f"this test has {len(test.source)} lines, not {TEST}")
    numbers = harder_lines(list(test.source), list(corpus.train.source))
    save_text(JUDGED / "harder.txt", "".join(f"{number}\n" for number in numbers))


def main():
    """Run the command line; return its exit code."""
    return exit_code("judge.py", _run)


def _run():
    parser = OptionParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {
        "score": score,
        "compare": compare,
        "hundred": hundred,
        "odd": odd,
        "table": table,
        "harder": harder,
    }
    parser.add_argument("command", choices=commands)
    parser.add_argument(
        "paths", nargs="*", help="folders of models; files with judgements for `table`"
    )
    options = parser.parse_args()
    if options.command == "table" and not options.paths:
        parser.error("table needs files with judgements")
    wanted = {"compare": 2, "harder": 0}.get(options.command, 1)
    if options.command != "table" and len(options.paths) != wanted:
        parser.error(f"{options.command} needs {wanted or 'no'} folder{'s' * (wanted != 1)}")
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # on every system
    commands[options.command](*options.paths)


if __name__ == "__main__":
    sys.exit(main())
