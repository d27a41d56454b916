"""Measure a translation model for its card, on the test of its corpus and on a hundred sentences.

    python examples/models/judge.py score examples/models/en-de
    python examples/models/judge.py hundred examples/models/en-de > hundred.tsv

`score` prints BLEU and chrF of the whole test and of its harder lines (judged/harder.txt), each
with a 95% interval: the sentences are resampled a thousand times. `hundred` prints the sentences of
judged/hundred.LANGUAGE.tsv with their translations; a person adds the judgements, by the rules in
judged/README.md. `harder` chose the harder lines, before the models were trained.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.models import read_model
from minitf.translation import Translator

JUDGED = Path(__file__).resolve().parent / "judged"
CORPUS, LANGUAGES = "tatoeba-en-de", ("en", "de")
HARDER = 400  # lines; the longest third of the test is 325 of them
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
    found = Translator.load(folder).translate(test.source)
    lines = [best.text for best, *_ in found]
    harder = [int(number) - 1 for number in (JUDGED / "harder.txt").read_text().split()]
    for name, rows in (("the whole test", range(len(lines))), ("its harder lines", harder)):
        outputs, references = [lines[i] for i in rows], [[test.target[i] for i in rows]]
        for kind in (BLEU, CHRF):
            metric = kind(references=references)
            result = metric.corpus_score(outputs, None, n_bootstrap=RESAMPLED)
            print(f"{name}, {len(outputs)} sentences: {result}  ({metric.get_signature()})")


def _test(folder):
    """Return the test of the corpus, in the direction of a model."""
    language, corpus = _language(folder), corpora.load(CORPUS)
    (test,) = corpus.tests.values()
    if language == corpus.source_language:
        return test
    return corpora.Pairs(test.target, test.source)


def _language(folder):
    """Return the language that a model translates from. Raises UserError unless it is en or de."""
    language = read_model(folder).notes.get("source_language")
    if language not in LANGUAGES:
        raise UserError(f"{folder} translates from {language}: only en and de can be judged")
    return language


def hundred(folder):
    """Print kind, sentence and translation of each of the hundred sentences."""
    language = _language(folder)
    rows = (JUDGED / f"hundred.{language}.tsv").read_text(encoding="utf-8").splitlines()
    kinds, sentences = zip(*(row.split("\t") for row in rows[1:]), strict=True)
    translations = Translator.load(folder).translate(sentences)
    print("kind\tsentence\ttranslation")
    for kind, sentence, (best, *_) in zip(kinds, sentences, translations, strict=True):
        print(f"{kind}\t{sentence}\t{best.text}")


def harder():
    """Choose the harder lines of the test, and write their numbers."""
    corpus = corpora.load(CORPUS)
    (test,) = corpus.tests.values()
    numbers = harder_lines(list(test.source), list(corpus.train.source))
    (JUDGED / "harder.txt").write_text("".join(f"{number}\n" for number in numbers))


def main():
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["score", "hundred", "harder"])
    parser.add_argument("model", nargs="?", help="folder of the model, except for `harder`")
    options = parser.parse_args()
    if (options.command == "harder") == bool(options.model):
        parser.error("score and hundred need the folder of a model; harder needs none")
    try:
        if options.command == "harder":
            harder()
        else:
            {"score": score, "hundred": hundred}[options.command](options.model)
    except UserError as error:
        print(f"judge.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
