"""The options of the command line, its help text, and the mistakes that are refused before
anything is read.
"""

import argparse
import contextlib
import sys

from minitf.translation.console import USAGE, complain
from minitf.translation.picture import CAPTIONS

__all__ = ["parse"]

DESCRIPTION = "Translate text: given in quotes, in a file, through a pipe or at a prompt."
MORE = """\
examples:
  translate.py "The children are playing in the garden."
  translate.py                                 (asks for sentences to translate)
  translate.py --input letter.txt --paragraphs --output brief.txt
  translate.py -- "-5 degrees?"                (text that starts with a dash)
  tail -f chat.txt | translate.py --format json
  translate.py --attention picture.png "The cat I saw was black."

lines and paragraphs:
  Each line is translated by itself and gives one line, in the same order; an
  empty line stays empty. A line may hold several sentences.

  In a letter, a sentence often continues on the next line. Use --paragraphs:
  it joins the lines up to the next empty line (or one of blanks only), and each
  paragraph gives one line. Empty lines stay. --scores, --nbest and --format
  then count a paragraph as a line. A paragraph of more than a million
  characters is cut, at the end of a line, into several.

  Text is read as UTF-8; bytes that are not UTF-8 become U+FFFD. A line ends at
  a line feed and nowhere else. The output holds no control characters.

what is written:
  --format text       TRANSLATION
    with --scores     SCORE <tab> TRANSLATION
    with --nbest N    NUMBER ||| TRANSLATION ||| SCORE, up to N lines for each
                      line, the best first; NUMBER is that of the input line,
                      from 0, as Moses and Marian count
  --format json       {"source", "translation", "score", "log_probability",
                      "nbest": [{"translation", "score", "log_probability"}]}
  SCORE is ln P(translation) / ((5 + length) / 6)^alpha; greater is better.

The exit code is 0, or 2 after a one-line message, or 130 after Ctrl-C. The
environment variable MINITF_BACKEND chooses a backend as --backend does.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(complain(f"{message} (see --help)"))


def _number(kind, least, most):
    def parse(text):
        with contextlib.suppress(ValueError):
            if least <= kind(text) <= most:
                return kind(text)
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {what} from {least} to {most}, not {text!r}")

    return parse


def _parser(model):
    parser = _Parser(
        prog=USAGE,
        description=DESCRIPTION,
        epilog=MORE.replace("translate.py", USAGE),
        allow_abbrev=False,
        add_help=False,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = f"{USAGE} [OPTIONS] [TEXT ...]"
    _add_text(parser.add_argument_group("text").add_argument)
    _add_output(parser.add_argument_group("output").add_argument)
    _add_model(parser.add_argument_group("model").add_argument, model)
    _add_sampling(parser.add_argument_group("sampling, for variety").add_argument)
    _add_picture(parser.add_argument_group("picture of the attention").add_argument)
    add = parser.add_argument_group("help").add_argument
    add("--help", action="help", help="show this text (also -h)")
    return parser


def _add_text(add):
    add(
        "text",
        nargs="*",
        metavar="TEXT",
        help="text to translate, in quotes; without it, text is read",
    )
    add(
        "--input",
        metavar="FILE",
        help="read the text from this file (default: from a pipe or the keyboard)",
    )
    add(
        "--paragraphs",
        action="store_true",
        help="join the lines of each paragraph first: for letters",
    )


def _add_output(add):
    add(
        "--output",
        metavar="FILE",
        help="write to this file, when all is translated (default: show each line at once)",
    )
    add(
        "--format",
        choices=("text", "json"),
        default="text",
        help="plain text (default), or a JSON object per line",
    )
    add("--scores", action="store_true", help="write the score before each translation")
    add(
        "--nbest",
        type=_number(int, 1, 1000),
        default=1,
        metavar="N",
        help="give the N best translations",
    )


def _add_model(add, model):
    trained = "folder of a trained model" + (" (default: English to German)" if model else "")
    add("--model", metavar="DIR", default=model, help=trained)
    wide = (
        "compare N translations in the making; more takes longer, 1 is greedy (default: 4, "
        "or as many as --nbest)"
    )
    add("--beam", type=_number(int, 1, 1000), metavar="N", help=wide)
    penalty = "length penalty: a greater one favours longer translations (default 0.6)"
    add("--alpha", type=_number(float, 0, 10), default=0.6, metavar="A", help=penalty)
    extra = (
        "a translation has at most N subwords (parts of words) more than its source (default 50)"
    )
    add("--max-extra", type=_number(int, 0, 10_000), default=50, metavar="N", help=extra)
    add(
        "--backend",
        choices=("numpy", "cupy"),
        help="compute on the CPU (numpy) or on the GPU (cupy)",
    )


def _add_sampling(add):
    add(
        "--sample",
        action="store_true",
        help="draw each word by its probability, instead of the best translation",
    )
    add(
        "--temperature",
        type=_number(float, 0, 100),
        metavar="T",
        help="below 1 likely words are drawn more often",
    )
    add(
        "--top-k",
        type=_number(int, 1, 10**6),
        metavar="K",
        help="draw among the K likeliest words only",
    )
    likely = "draw among the likeliest words that together have the probability P"
    add("--top-p", type=_number(float, 0.001, 1), metavar="P", help=likely)
    add(
        "--seed",
        type=_number(int, 0, 2**63),
        metavar="N",
        help="another seed draws another text (default 0)",
    )


def _add_picture(add):
    add(
        "--attention",
        metavar="FILE",
        help="draw which words the model looks at in the first sentence: .png .pdf .svg",
    )
    looks = "attention of the output to the source (default), or within the encoder or the decoder"
    add("--attention-kind", choices=tuple(CAPTIONS), help=looks)
    add(
        "--attention-subwords", action="store_true", help="draw the model's own subwords, not words"
    )
    add(
        "--layer",
        type=_number(int, 1, 1000),
        metavar="N",
        help="draw this layer, 1 is the lowest (default: the last)",
    )


def parse(arguments=None, model=None):
    """Read the command line; a mistake ends in one line on stderr and exit code 2.

    model: the folder of the model that is used without --model.
    """
    parser = _parser(model)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # After it all is text, also "-Hello.".
    end = arguments.index("--") if "--" in arguments else len(arguments)
    # As an option it would claim -hello.
    words = ("--help" if word == "-h" else word for word in arguments[:end])
    options, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(f"{unknown[0]} is not an option: put -- before text that starts with a dash")
    options.text += arguments[end + 1 :]
    if options.model is None:
        parser.error(
            "name a trained model with --model DIR: the repository has one in examples/models/en-de"
        )
    if options.text and options.input is not None:
        parser.error("TEXT and --input: give one of them")
    _check_sampling(parser, options)
    if options.beam is None:
        options.beam = max(4, options.nbest)
    if options.nbest > options.beam:
        parser.error(
            f"--nbest {options.nbest} needs a beam at least as wide: set --beam {options.nbest}"
        )
    if not options.attention and (
        options.attention_kind or options.layer or options.attention_subwords
    ):
        parser.error(
            "--attention-kind, --attention-subwords and --layer need a picture: name it with "
            "--attention FILE"
        )
    return options


def _check_sampling(parser, options):
    """Refuse options that contradict each other, and collect those of sampling in options.draw."""
    options.draw = {
        name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")
    }
    options.draw = {name: value for name, value in options.draw.items() if value is not None}
    if options.draw and not options.sample:
        parser.error("--temperature, --top-k, --top-p and --seed belong to sampling: add --sample")
    if options.sample and (options.beam or options.nbest > 1 or options.attention):
        parser.error(
            "--sample draws one translation of each line: leave out --beam, --nbest and --attention"
        )
