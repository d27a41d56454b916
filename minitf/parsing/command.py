"""The command line of parse.py: sentences in, a tree for each out."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from minitf.backend import use
from minitf.cli import (
    OptionParser,
    Progress,
    blank_unprintable,
    exit_code,
    number,
    report_error,
    say,
    signals_as_exceptions,
)
from minitf.commands.arguments import PROGRAM, USAGE, StoreOnce, parse_with_text
from minitf.commands.input import greet, open_input
from minitf.commands.output import LostText, open_output
from minitf.cpu.machine import keep_memory
from minitf.errors import UserError
from minitf.parsing.parser import ALPHA, BEAM, Parser
from minitf.parsing.picture import draw
from minitf.parsing.scores import Scores, interval, score
from minitf.parsing.words import tokenise
from minitf.text.trees import clean, read_trees, to_line, to_lines, unescape_brackets, words_of
from minitf.text.vocabulary import printable

DESCRIPTION = """\
Write the constituency tree of each sentence: given in quotes, in a file, through
a pipe or at a prompt. Each line is one sentence and gives one tree."""
MORE = """\
The words of a tree are those of the line: punctuation at the edges of words is
split off, as in the Penn Treebank, unless the line is tokenised already.
Brackets in words are written -LRB- and -RRB-. A model writes no parts of speech,
so each word is tagged XX. An empty line stays empty. Put -- before a sentence
that starts with a dash.

The exit code is 0, or 2 after an error, reported on one line, or 130 after
Ctrl-C.
"""
_SHORT = 60, 40  # words of the sentences on which parsers are compared
_PICTURES = {".png", ".svg", ".pdf"}


def _options(arguments, model):
    """Return the options of a command line; model: the folder that is used without --model."""
    parser = OptionParser(
        prog=USAGE,
        usage=f"{USAGE} [OPTIONS] [TEXT ...]",
        description=DESCRIPTION,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    add = parser.add_argument
    add("--help", action="help", help="show this text (also -h)")
    add("text", nargs="*", metavar="TEXT", help="sentences, in quotes")
    for option, text in (
        ("--input", "read the sentences from this file, one on each line"),
        ("--output", "write the trees to this file when everything is parsed"),
        ("--draw", "draw the first tree (.png, .svg or .pdf)"),
    ):
        add(option, metavar="FILE", action=StoreOnce, help=text)
    lines = "write each tree in several lines, followed by an empty one"
    add("--pretty", action="store_true", help=lines)
    gold = "parse the sentences of these .tree files, and compare with their trees"
    add("--score", nargs="+", metavar="GOLD", help=gold)
    add("--model", metavar="DIR", default=model, help="folder of a trained parser")
    beam = f"compare N unfinished trees at a time (default: {BEAM}, as in the paper; 1 is fast)"
    add("--beam", type=number(int, 1, 1000), default=BEAM, metavar="N", help=beam)
    alpha = f"length penalty (default: {ALPHA})"
    add("--alpha", type=number(float, 0, 10), default=ALPHA, metavar="A", help=alpha)
    add("--backend", choices=("numpy", "cupy"), help="compute on the CPU or the GPU")
    options = parse_with_text(parser, arguments)
    _check_options(options, parser.error)
    return options


def _check_options(options, refuse):
    """Refuse options that do not go together, before anything is read."""
    if options.score and (options.text or options.input is not None):
        refuse("--score reads its sentences from the gold trees: leave the other text out")
    if options.score and (options.draw is not None or options.pretty or options.output == "-"):
        refuse("--score prints scores: leave out --draw and --pretty, and give --output a file")
    if options.text and options.input is not None:
        refuse("TEXT and --input are both given: choose one of them")
    if options.draw and Path(options.draw).suffix.lower() not in _PICTURES:
        refuse(f"--draw: unknown picture format {options.draw!r}: use .png, .svg or .pdf")
    read = {os.path.realpath(path) for path in (*(options.score or ()), options.input or "-")}
    written = [options.output, options.draw]
    written = [os.path.realpath(path) for path in written if path not in (None, "-")]
    if len({*written} - read) < len(written):
        refuse("--output or --draw would replace another file: give it a name of its own")
    if options.model is None:
        refuse(
            "no model: name the folder of a parser with --model DIR, or run examples/parse.py, "
            "which has one"
        )


def main(arguments=None, model=None):
    """Run the command line; return the exit code, as `minitf.cli.exit_code`.

    model: the folder of the model that is used without --model.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    return exit_code(PROGRAM, lambda: _run(_options(arguments, model)))


def _run(options):
    use(options.backend)
    keep_memory()
    with signals_as_exceptions():
        return _score(options) if options.score else _parse(options)


def _parse(options):
    """Write the trees, and draw the first; return the exit code."""
    code, to_draw, n_parsed = 0, options.draw, 0
    lost = LostText()
    with (
        open_input(options) as source,
        open_output(options.output, source.file) as write,
        lost,
        Progress("sentences parsed") as bar,
    ):
        parser = Parser.load(options.model)
        if source.typed:
            greet(options.model, {})
        for lines in lost.watch(source.batches):
            # The words as in the trees that a parser learns from: ( for -LRB-.
            sentences = [list(map(unescape_brackets, tokenise(printable(line)))) for line in lines]

            def show(done, parts, before=n_parsed, lines=lines):
                bar.update_to(before + len(lines) * done // parts)

            progress = None if source.typed else show
            trees = parser.parse(
                sentences, beam=options.beam, alpha=options.alpha, progress=progress
            )
            n_parsed += len(lines)
            bar.wipe()
            form = to_lines if options.pretty else to_line
            end = "\n\n" if options.pretty else "\n"
            write("".join(f"{form(tree)}{end}" if tree else "\n" for tree in trees))
            if to_draw and (first := next(filter(None, trees), None)):
                code, to_draw = _draw(first, to_draw), None
    if to_draw:
        raise UserError("--draw: there is no text to draw a tree of: give a sentence")
    return code


def _draw(tree, path):
    """Draw a tree; return the exit code. No trees are lost if it cannot be drawn."""
    try:
        boxes = draw(tree, path)
    except ValueError as error:
        return report_error(PROGRAM, f"--draw: {error}")
    if boxes:
        say(blank_unprintable(f"{PROGRAM}: {path} has boxes: no installed font has {boxes}"))
    return 0


def _score(options):
    """Print how well the parser finds the gold trees, and write those it found to --output.

    Those found are complete in --output before anything else can fail.
    """
    trees_file = contextlib.nullcontext()
    if options.output is not None:  # before the parsing, which may take an hour
        trees_file = open_output(options.output, None)
    with trees_file as write:
        gold, parser = _gold(options.score), Parser.load(options.model)
        with Progress("sentences parsed", len(gold)) as bar:
            found = parser.parse(
                map(words_of, gold),
                beam=options.beam,
                alpha=options.alpha,
                progress=lambda done, parts: bar.update_to(done * len(gold) // parts),
            )
        if write:
            write("".join(f"{to_line(tree)}\n" for tree in found))
    rows = dict(_rows(gold, found))
    lines = [f"{name:18}  {sum(scores, Scores())}" for name, scores in rows.items()]
    low, high = interval(rows["all sentences"])
    lines.append(f"F1 of all sentences: a 95% interval is {low:.2f} to {high:.2f}")
    with open_output(None, None) as write:
        write("".join(f"{line}\n" for line in lines))


def _gold(paths):
    trees = [tree for path in paths for tree in map(clean, read_trees(path)) if tree]
    if not trees:
        raise UserError(f"there are no trees with words in {', '.join(paths)}")
    return trees


def _rows(gold, found):
    """Yield what a row of the scores is about, and the Scores of its sentences."""
    lengths, scores = [len(words_of(tree)) for tree in gold], score(gold, found)
    yield "all sentences", scores
    yield "without labels", score(gold, found, labelled=False)
    for most in _SHORT:
        if some := [one for n, one in zip(lengths, scores, strict=True) if n <= most]:
            yield f"{most} words or fewer", some
