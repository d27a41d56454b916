"""The options of translate.py, its help text, and the check of what the user typed."""

import argparse
import os
import re
import sys
from pathlib import Path

from minitf.cli import OptionParser, number, spelling_hint
from minitf.documents import FORMATS, format_of

INSTALLED = "minitf-translate"  # the command of the installed package, which brings no model
PAGES = (".html", ".htm")  # endings of --attention

DESCRIPTION = "Translate text: given in quotes, in a file, through a pipe or at a prompt."
MORE = """\
examples:
  translate.py "The children are playing in the garden."
  translate.py                                 (asks for sentences to translate)
  translate.py --input letter.txt --paragraphs --output letter.de.txt
  translate.py --input README.md --output README.de.md
  translate.py -- "-5 degrees?"                (text that starts with a dash)
  tail -f chat.txt | translate.py --format json
  translate.py --attention picture.png "The cat I saw was black."
  translate.py --attention page.html --with-model "The cat I saw was black."

lines and paragraphs:
  Each line is translated by itself and gives one line, in the same order; an
  empty line stays empty. A line may contain several sentences.

  In a letter, a sentence often continues on the next line. Use --paragraphs:
  it joins the lines up to the next empty line (or one of spaces only), and each
  paragraph gives one line. Empty lines are kept. --scores, --nbest and --format
  then count a paragraph as a line.

  Text is read as UTF-8, or as UTF-16 if it begins with that mark. What was
  lost, or cut, is said at the end, with the numbers of the lines.

documents:
  The ending of --input, or --format-in, names the format: md, html, xml,
  xliff, json, po, srt, vtt.
  Only the texts in it are translated; tags, code, keys, addresses and all else
  stay byte for byte. Empty targets of .po and .xliff are filled. Markdown needs
  a parser: pip install -e ".[documents]".

output formats:
  --format text       TRANSLATION
    with --scores     SCORE <tab> TRANSLATION
    with --nbest N    NUMBER ||| TRANSLATION ||| SCORE, up to N lines for each
                      line, the best first; NUMBER is the input line's number,
                      counted from 0 as in Moses and Marian. Where the text
                      itself has |||, it is written &#124;&#124;&#124;
  --format json       {"source", "translation", "score", "log_probability",
                      "nbest": [{"translation", "score", "log_probability"}]}
  SCORE is ln P(translation) / ((5 + length) / 6)^alpha, or with --like marian
  ln P(translation) / length^alpha; greater is better.
  length: tokens of the translation, with its end mark. The SCORE of a line that
  is translated in several parts is the sum of theirs.

The exit code is 0, or 2 after an error, reported on one line, or 130 after
Ctrl-C. The environment variable MINITF_BACKEND chooses a backend as --backend
does.
"""
# Options with which other programs name languages.
LANGUAGE = {"src", "tgt", "trg", "source", "target", "from", "to", "lang", "src-lang", "tgt-lang"}


# The command that the user has typed.
USAGE = Path(sys.argv[0]).name.removesuffix(".exe")
if USAGE not in (INSTALLED, "parse.py") and not re.match(r"(python -m )?minitf ", USAGE):
    USAGE = "translate.py"
PROGRAM = USAGE.removeprefix("python -m ")  # its name in messages


class StoreOnce(argparse.Action):
    """Keeps the value of an option that may be given once: the name of a file, or of a format."""

    def __call__(self, parser, namespace, value, option_string=None):
        if not value:
            parser.error(f"{option_string} needs the name of a file")
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice: give it once")
        setattr(namespace, self.dest, value)


class ListModels(argparse.Action):
    """Prints the models and ends the program, as --help does."""

    def __call__(self, parser, namespace, value, option_string=None):
        from minitf.commands.models import print_models  # lazily: it looks into folders

        print_models(parser.get_default("model"))
        parser.exit()


# Each option in its group of the help text: the arguments of argparse's add_argument.
# fmt: off
OPTIONS = {
    "text": {
        "text": {"nargs": "*", "metavar": "TEXT",
            "help": "text to translate, in quotes (default: read it from a pipe or the keyboard)"},
        "--input": {"metavar": "FILE", "action": StoreOnce,
            "help": "read the text from this file"},
        "--format-in": {"choices": ("plain", *FORMATS), "action": StoreOnce,
            "help": "the format of the text, such as md, html or srt (default: that of the ending "
            "of --input); plain: lines of text, whatever the ending"},
        "--paragraphs": {"action": "store_true",
            "help": "join the lines of each paragraph first: for text whose sentences run over "
            "several lines"},
        "--keep": {"action": "append", "default": [], "metavar": "PATTERN",
            "help": "do not translate what this regular expression matches, such as '[A-Z]{3,}'; "
            "may be repeated (numbers, addresses, tags and the like are kept in any case)"},
    },
    "output": {
        "--output": {"metavar": "FILE", "action": StoreOnce,
            "help": "write to this file when everything is translated (default: print the lines "
            "as they are translated, of a file up to 500 at a time)"},
        "--format": {"choices": ("text", "json"), "default": "text",
            "help": "plain text (default), or a JSON object per line"},
        "--scores": {"action": "store_true",
            "help": "write the score before each translation"},
        "--nbest": {"type": number(int, 1, 1000), "default": 1, "metavar": "N",
            "help": "write the N best translations of each line"},
    },
    "model": {
        "--model": {"metavar": "DIR",
            "help": "folder of a trained model, or the name of a public one such as "
            "firefox-en-fr, which is downloaded once (default of examples/translate.py: its "
            "English-German model)"},
        "--list-models": {"action": ListModels, "nargs": 0,
            "help": "list the names for --model: of the models here, and of Firefox's, by one "
            "download"},
        "--beam": {"type": number(int, 1, 1000), "metavar": "N",
            "help": "compare N unfinished translations at a time; a larger N is slower; 1 is "
            "greedy decoding (default: 4, or the N of --nbest if that is greater)"},
        "--alpha": {"type": number(float, 0, 10), "default": 0.6, "metavar": "A",
            "help": "length penalty: a greater one favours longer translations (default: 0.6)"},
        "--like": {"choices": ("paper", "marian"), "default": "paper",
            "help": "search as the paper does (default), or as Marian, which trained many public "
            "models"},
        "--max-extra": {"type": number(int, 0, 10_000), "default": 50, "metavar": "N",
            "help": "limit a translation to N subwords (words or parts of words) more than its "
            "source (default: 50)"},
        "--shortlist": {"action": "store_true",
            "help": "write only subwords that the model's shortlist has for those of the source: "
            "faster, and some translations differ (models of Firefox have one)"},
        "--backend": {"choices": ("numpy", "cupy"),
            "help": "compute on the CPU (numpy) or on the GPU (cupy)"},
    },
    "sampling, for variety": {
        "--sample": {"action": "store_true",
            "help": "draw each token at random, by its probability, instead of searching for the "
            "best translation"},
        "--temperature": {"type": number(float, 0, 100), "metavar": "T",
            "help": "1 (default) keeps the model's probabilities; lower favours likely tokens, "
            "higher evens them out"},
        "--top-k": {"type": number(int, 1, 10**6), "metavar": "K",
            "help": "draw only among the K most likely tokens (default: all)"},
        "--top-p": {"type": number(float, 0.001, 1), "metavar": "P",
            "help": "draw only among the most likely tokens whose probabilities add up to P "
            "(default: all)"},
        "--seed": {"type": number(int, 0, 2**63), "metavar": "N",
            "help": "seed of the random draws: the same seed gives the same text (default: 0)"},
    },
    "picture of the attention": {
        "--attention": {"metavar": "FILE", "action": StoreOnce,
            "help": "draw which words the model looks at in the first sentence: a .png, .pdf or "
            ".svg file, or another format that Matplotlib writes; or, as .html, a page that shows "
            "how it is translated, for a browser"},
        "--with-model": {"action": "store_true",
            "help": "put the model into the .html page, which then translates what is typed "
            "there, without minitf and without internet"},
        "--attention-kind": {"choices": ("source", "encoder", "decoder"),
            "help": "draw the attention of the output to the source (default), or the "
            "self-attention of the encoder or the decoder"},
        "--attention-subwords": {"action": "store_true",
            "help": "label the picture with the model's own subwords, not with words"},
        "--layer": {"type": number(int, 1, 1000), "metavar": "N",
            "help": "draw this layer; 1 is the lowest (default: the last)"},
    },
    "help": {
        "--help": {"action": "help", "help": "show this text (also -h)"},
    },
}
# fmt: on


def parse(arguments=None, model=None):
    """Return the options of a command line. Raises UserError for a mistake.

    model: the folder of the model that is used without --model.
    """
    parser = OptionParser(
        prog=USAGE,
        usage=f"{USAGE} [OPTIONS] [TEXT ...]",
        description=DESCRIPTION,
        epilog=MORE.replace("translate.py", USAGE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, option in options.items():
            group.add_argument(name, **option)
    parser.set_defaults(model=model)
    options = parse_with_text(parser, sys.argv[1:] if arguments is None else list(arguments))
    if options.format_in:
        options.format_in = FORMATS.get(options.format_in)  # None for "plain"
    elif options.input:
        options.format_in = format_of(options.input)
    _check_options(parser, options)
    return options


def parse_with_text(parser, arguments):
    """Return the options of a command line with `text`; after --, all is text, also "-Hello."."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    # argparse would read -hello as -h with a value, so -h is not an option of the parser.
    typed = ("--help" if argument == "-h" else argument for argument in arguments[:end])
    options, unknown = parser.parse_known_intermixed_args(typed)
    if unknown:
        advice = f"unknown option {unknown[0]}: put -- before text that starts with a dash"
        if unknown[0].lstrip("-").partition("=")[0] in LANGUAGE:
            parser.error(
                f"unknown option {unknown[0]}: each model has its languages: choose one with "
                "--model, such as --model firefox-fr-en (--list-models lists them)"
            )
        parser.error(spelling_hint(parser, unknown) or advice)
    options.text += arguments[end + 1 :]
    return options


def _check_options(parser, options):
    """Refuse options that contradict each other; collect those of sampling, and choose the beam."""
    settings = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")}
    options.sampling = {name: value for name, value in settings.items() if value is not None}
    picture = options.attention or ""
    is_page = picture.lower().endswith(PAGES)
    is_chosen = options.attention_kind or options.layer or options.attention_subwords
    files = {os.path.realpath(path) for path in (options.input, options.output) if path}
    for_lines = {
        "--paragraphs": options.paragraphs,
        "--nbest": options.nbest > 1,
        "--scores": options.scores,
        "--format json": options.format == "json",
        "--attention": options.attention,
    }
    given = [name for name, is_given in for_lines.items() if is_given]
    mistakes = {
        "name a trained model with --model DIR: a folder that the trainer wrote, "
        "examples/models/en-de in a copy of the repository, or a public one, firefox-en-de": (
            options.model is None
        ),
        "TEXT and --input are both given: choose one of them (--input takes one file)": (
            options.text and options.input is not None
        ),
        "--format-in needs a document: give it with --input FILE, or through a pipe": (
            options.format_in and options.text
        ),
        f"{' and '.join(given)}: only for lines of text, and this is a document "
        f"({options.format_in}): leave it out, or add --format-in plain": (
            options.format_in and given
        ),
        "--temperature, --top-k, --top-p and --seed are only used with --sample: add it": (
            options.sampling and not options.sample
        ),
        "--sample draws one translation of each line: leave out --beam, --like, --nbest and "
        "--attention": options.sample
        and (options.beam or options.like != "paper" or options.nbest > 1 or picture),
        f"--attention {picture} has no ending: use .png, .pdf or .svg for a picture, .html for a "
        "page": picture and not os.path.splitext(picture)[1],
        "--attention names the file of --input or --output: choose another": (
            picture and os.path.realpath(picture) in files
        ),
        "--attention shows what the model writes out of all subwords: leave out --shortlist": (
            picture and options.shortlist
        ),
        "--with-model is only used with --attention PAGE.html: add it": (
            options.with_model and not is_page
        ),
        "--attention-kind, --attention-subwords and --layer are only used with --attention FILE: "
        "add it": is_chosen and not picture,
        "a page shows all kinds and layers: leave out --attention-kind, --attention-subwords and "
        "--layer, or draw a .png": is_chosen and is_page,
        "a page shows the paper's search: leave out --like": is_page and options.like != "paper",
        f"--nbest {options.nbest} needs a beam at least as wide: set --beam {options.nbest}": (
            options.nbest > (options.beam or options.nbest)
        ),
    }
    for message, is_made in mistakes.items():
        if is_made:
            parser.error(message)
    options.beam = options.beam or max(4, options.nbest)
