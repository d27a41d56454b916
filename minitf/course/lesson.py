"""What every lesson needs besides its subject: its options, where its figures go, headings, last
line, exercises.
"""

import argparse
import ast
import contextlib
import inspect
import json
import linecache
import sys
import time
import traceback
from pathlib import Path

from threadpoolctl import threadpool_limits

from minitf import forms
from minitf.backend import use
from minitf.check import proved
from minitf.errors import UserError
from minitf.translation import Translator

__all__ = ["begin", "check_exercises", "draw", "finish", "toy_model", "train"]

_run = {"name": "", "started": 0.0, "figures": Path("figures"), "drawn": 0}
_equations = contextlib.ExitStack()  # the forms are off until it is closed, which only a test does


class _UnderHeadings:
    """Standard output that prints the heading of each section of a lesson before the first output
    of that section.

    The headings are comments in the lesson's file, which only a notebook shows. frame: the lesson's
    own frame, whose f_lineno is the line that is running.
    """

    def __init__(self, stream, frame):
        self.stream, self.frame, self.printed = stream, frame, ""
        lines = linecache.getlines(frame.f_code.co_filename)
        self.headings = [
            (n, line[5:].rstrip()) for n, line in enumerate(lines, 1) if line.startswith("# ## ")
        ]

    def write(self, text):
        above = [heading for n, heading in self.headings if n < self.frame.f_lineno]
        if above and above[-1] != self.printed:
            self.printed = above[-1]
            self.stream.write(f"\n{self.printed}\n")
        return self.stream.write(text)

    def __getattr__(self, name):
        return getattr(self.stream, name)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message} (--help lists all options)")


def begin(name, trainer=None):
    """Start a lesson: read --figures and --backend from the command line (a notebook has none).

    From here on the library computes with its equations, so that `show` prints the program that
    a check has run. A training or a timing says `with forms.on():`.
    trainer: of lesson 09, what runs in place of the lesson if any other option is given; --quick
    alone is the lesson with a training at its end. Returns whether that was asked for.
    """
    arguments = [] if _notebook() else sys.argv[1:]
    _run["name"] = name
    parser = _Parser(description=f"Lesson {name} of the minitf course.", allow_abbrev=False)
    parser.add_argument(
        "--figures",
        default="figures",
        metavar="DIR",
        help="folder for the pictures (default figures)",
    )
    parser.add_argument(
        "--backend", metavar="NAME", help="numpy or cupy (default: MINITF_BACKEND, or numpy)"
    )
    if trainer:
        parser.add_argument("--quick", action="store_true")
        if {"-h", "--help"} & set(arguments) or _or_stop(parser.parse_known_args, arguments)[1]:
            sys.exit(trainer(arguments, f"{name}.py"))
    options = _or_stop(parser.parse_args, arguments)
    if options.backend:
        _or_stop(use, options.backend)
    # The products of a lesson are small: a second thread would only be waited for.
    threadpool_limits(1, "blas")
    _equations.enter_context(forms.off())
    proved.clear()
    _run.update(started=time.perf_counter(), figures=Path(options.figures), drawn=0)
    if not _notebook():
        sys.stdout = _UnderHeadings(sys.stdout, inspect.currentframe().f_back)
    return getattr(options, "quick", False)


def draw(picture, file_name, *arguments, **options):
    """Draw a figure of the lesson: picture(*arguments, path=..., **options), saved
    as figures/<file_name>.
    """
    path = _run["figures"] / file_name
    _or_stop(path.parent.mkdir, parents=True, exist_ok=True)
    _or_stop(picture, *arguments, path=path, **options)
    _run["drawn"] += 1
    print(f"    figure {path}")
    if _notebook():
        from IPython.display import Image, display

        display(Image(filename=str(path), width=720))


def train(trainer, options):
    """Train in a folder of its own, with the forms on, at the end of lesson 09; gives what
    results.json says.

    trainer: as in `begin`. A training that does not come to its end ends the lesson, with the
    trainer's exit code.
    """
    folder = Path("runs", time.strftime("quick-%Y%m%d-%H%M%S"))
    with forms.on():
        code = trainer([*options.split(), "--out", str(folder)])
    if code:
        sys.exit(code)
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def finish(summary):
    """Print the last line of a lesson.

    All its claims were true, or it would not have come this far.
    """
    seconds = time.perf_counter() - _run["started"]
    counted = f"{len(proved)} claims hold, {_run['drawn']} figures, {seconds:.1f} s"
    print(f"\nlesson {_run['name']}: {counted}. {summary}")
    if isinstance(sys.stdout, _UnderHeadings):
        sys.stdout = sys.stdout.stream


def toy_model():
    """Give the small trained model that lies beside the lessons, as a Translator.

    Its README says how it was made.
    """
    return _or_stop(_load_toy_model)


def _load_toy_model():
    beside = [
        Path(sys.argv[0]).parent,
        Path.cwd(),
        Path.cwd() / "lessons",
        Path(__file__).parents[2] / "lessons",
    ]
    for place in beside:
        if (place / "toy-model").is_dir():
            return Translator.load(place / "toy-model")
    raise UserError(
        "the folder toy-model is missing: it is beside the lessons in the repository, "
        "run this there"
    )


def check_exercises(names):
    """Say of each exercise whether it is still to do, wrong and where, or right; exit code 0 if
    all are right.

    names: globals(). Each function check_NAME in it checks what the reader wrote in the function
    NAME, whose docstring may end with a hint for answers that are wrong.
    """
    checks = [
        name
        for name, thing in names.items()
        if name.startswith("check_") and thing is not check_exercises
    ]
    states = []
    for number, check in enumerate(checks, 1):
        name = check.removeprefix("check_")
        exercise = names.get(name)
        missing = "wrong", ": the function is not there"
        state, said = _state(exercise, names[check]) if inspect.isfunction(exercise) else missing
        states.append(state)
        print(f"{state:7s}{number}. {name}{said}")
        hint = (inspect.getdoc(exercise) or "").partition("Hint: ")[2]
        if state == "wrong" and hint:
            print(f"          hint: {' '.join(hint.split())}")
    if not _notebook():
        sys.exit(0 if states and set(states) == {"right"} else 1)


def _state(exercise, check):
    if _is_empty(exercise):
        return "to do", f": {(inspect.getdoc(exercise) or 'write its body').splitlines()[0]}"
    try:
        check()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.name == exercise.__name__]
        where = f" (line {own[-1].lineno})" if own else ""
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        return "wrong", f"{where}: {kind}{' '.join(str(error).split())}"
    return "right", ""


def _is_empty(function):
    """Whether the body ends in the three dots, in pass, or in its docstring: nothing
    was written yet.
    """
    definition = ast.parse(inspect.getsource(function)).body[0]
    # name = lambda: ...
    last = definition.body[-1] if isinstance(definition, ast.FunctionDef) else definition
    return isinstance(last, ast.Pass) or (
        isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)
    )


def _or_stop(function, *arguments, **options):
    """Call it; what the reader can mend, such as a folder that cannot be written, ends the lesson
    with one line.
    """
    try:
        return function(*arguments, **options)
    except UserError as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}: choose another place with --figures"
    except ValueError as error:
        # Not a picture that could not be written: a mistake in its data.
        if not isinstance(error.__cause__, OSError):
            raise
        text = str(error)
    print(f"lesson {_run['name']}: {text}", file=sys.stderr)
    sys.exit(2)


def _notebook():
    return "ipykernel" in sys.modules
