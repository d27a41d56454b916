"""The command `python -m minitf public`: public models in, and our own out."""

import argparse
import re
from pathlib import Path

from minitf.atomic import check_empty
from minitf.cli import OptionParser, exit_code
from minitf.files.arrays import exists
from minitf.public import public_name
from minitf.public.hugging_face import export_model
from minitf.public.importing import import_model
from minitf.public.remote import download

_NAME = re.compile(r"[a-z0-9][\w.-]*/[a-z0-9][\w.-]*", re.ASCII | re.IGNORECASE)  # of any owner

_MORE = """\
examples:
  python -m minitf public opus-mt-en-de models/opus-en-de
  python -m minitf public firefox-en-fr models/firefox-en-fr
  python -m minitf public path/to/opus-mt-en-de models/opus-en-de
  python -m minitf public opus-2020-02-26.zip models/opus-en-de
  python -m minitf public --export hf runs/mine out/

MODEL is the name of a public model, which is downloaded; a folder with config.json,
model.safetensors or pytorch_model.bin, vocab.json, source.spm and target.spm; a .npz or
.bin of Marian, as Firefox's models are, with its vocabulary in the same folder, or that
folder; or a release of OPUS-MT as .zip. With --export, or to change the type of its
numbers with --keep, it is a folder of minitf.
"""


def main(arguments=None):
    """Run the command line; returns the exit code: 0, or 2 after a one-line message."""
    return exit_code("minitf public", lambda: _run(_parser().parse_args(arguments)))


def _run(options):
    if options.export:
        export_model(options.model, options.out)
        return
    source, notes = Path(options.model), {}
    name = public_name(options.model)
    if not exists(source) and (name or _NAME.fullmatch(options.model)):  # files come first
        check_empty(options.out)  # before 300 MB are downloaded
        if not name:  # it may be a mistyped folder
            name = options.model
            print(f"there is no folder {name} here: looking for a model of this name")
        source, notes = download(name)
    import_model(source, options.out, options.keep, options.like, notes)
    print(f"made     {options.out}: give this folder to translate.py --model")


def _parser():
    parser = OptionParser(
        prog="python -m minitf public",
        description="Convert a public translation model into minitf's format, or the other way.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="the public model, or with --export a model of minitf")
    add("out", metavar="OUT", help="the folder to write")
    add(
        "--keep",
        choices=("float16", "float32", "int8"),
        default="float16",
        help="the type of the stored numbers (default: float16); int8 takes half of its space",
    )
    add(
        "--like",
        choices=("marian", "transformers"),
        default="marian",
        help="compute as the program that trained the model (default), or as transformers, which "
        "has other exponents of the sinusoid and another eps in layer norm",
    )
    add("--export", choices=("hf",), help="write a model of minitf for Hugging Face's transformers")
    return parser
