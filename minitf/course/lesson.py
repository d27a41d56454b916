"""What every lesson shares: its options, its figures, its last line, and its exercises."""

import ast
import atexit
import base64
import contextlib
import functools
import inspect
import json
import linecache
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from threadpoolctl import threadpool_limits

from minitf import check as checking
from minitf.backend import use
from minitf.check import COLUMNS, proved
from minitf.cli import OptionParser, drop_unwritten, quiet_when_closed
from minitf.course.answering import is_empty
from minitf.course.checks.compare import explained
from minitf.errors import UserError
from minitf.translation import Translator

_run = SimpleNamespace(name="", trainer=None, started=0.0, figures=Path("figures"), drawn=0)
COLOURS = 128  # of a PNG file
WITHOUT_RESULT = ("update_in_parts",)  # the exercises whose answer returns nothing


def begin(name, trainer=None):
    """Start a lesson: read its options.

    The options are --figures, --backend and --verbose; a notebook has none.
    trainer: for lesson 09, the command line that runs instead of the lesson if any other option is
    given. --quick alone is the lesson with a training run in it; returns whether it was given.
    """
    arguments = [] if _notebook() else sys.argv[1:]
    _run.name, _run.trainer = name, trainer
    said = f"Run lesson {name.replace('_', ', ', 1)}: check each claim, and draw the figures."
    parser = OptionParser(description=said)
    said = "folder for the figures (default: figures)"
    parser.add_argument("--figures", default="figures", metavar="DIR", help=said)
    said = "numpy or cupy (default: MINITF_BACKEND, or numpy)"
    parser.add_argument("--backend", metavar="NAME", help=said)
    said = "print a line for each claim, with what was measured"
    parser.add_argument("-v", "--verbose", action="store_true", help=said)
    if trainer:
        parser.add_argument("--quick", action="store_true", help="train a small model, too")
        parser.epilog = "With any other option, this file is the trainer:"
        if for_help := {"-h", "--help"} & set(arguments):
            parser.print_help()
        with _one_line_errors():
            others = for_help or parser.parse_known_args(arguments)[1]
        if others:
            sys.exit(trainer(arguments))
    with _one_line_errors():
        options = parser.parse_args(arguments)
        use(options.backend)
    # The products of a lesson are small: a second thread would only cost time.
    threadpool_limits(1, "blas")
    proved.clear()
    _run.started, _run.figures, _run.drawn = time.perf_counter(), Path(options.figures), 0
    if _notebook():
        get_ipython = sys.modules["IPython"].get_ipython
        get_ipython().set_custom_exc((AssertionError,), _show_in_notebook)
    else:
        sys.excepthook = _end
        atexit.register(drop_unwritten)  # what is printed last may find no reader either
        checking._report = _print_claim if options.verbose else _count_claim
    return getattr(options, "quick", False)


_print_claim = checking._report


def _count_claim(name, _):
    """Note a claim that holds, without a line for it."""
    proved.append(name)


def _end(kind, error, trace):
    """End the lesson with a traceback, but quietly after Ctrl-C, and in ... | head."""
    if issubclass(kind, AssertionError):
        print(_falsehood(error, trace), file=sys.stderr)
        return
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    if issubclass(kind, BrokenPipeError):
        drop_unwritten()
        sys.exit(141)  # as a program of Unix that SIGPIPE ends: not all claims were checked
    sys.__excepthook__(kind, error, trace)


def _falsehood(error, trace):
    """Describe the false claim and the line it is on."""
    library = str(Path(__file__).parents[1])
    frames = [one for one in traceback.extract_tb(trace) if not one.filename.startswith(library)]
    frames = [one for one in frames if linecache.getline(one.filename, one.lineno or 0)]
    if not frames:
        return f"AssertionError: {error}"
    own = frames[-1]
    lines = linecache.getlines(own.filename)[own.lineno - 1 : own.end_lineno]
    source = textwrap.indent(textwrap.dedent("".join(lines)).rstrip(), "    ")
    place = f"Line {own.lineno}" + ("" if _notebook() else f" of {Path(own.filename).name}")
    text = textwrap.fill(str(error) or "this is not so", COLUMNS, break_long_words=False)
    return f"{place} is false:\n{source}\n{text}"


def _show_in_notebook(shell, kind, error, trace, tb_offset=None):
    shell._showtraceback(kind, error, [_falsehood(error, trace)])


def draw(picture, file_name, *arguments, **options):
    """Draw a figure: call picture(*arguments, path=..., **options), with a path in --figures. A
    notebook shows it.
    """
    path = _run.figures / file_name
    with _one_line_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(*arguments, path=path, **options)
        if path.suffix == ".png":
            _save_in_few_colours(path)
    _run.drawn += 1
    print(f"    figure {path}")
    if _notebook():
        from IPython.display import HTML, Image, display

        if path.suffix == ".png":
            display(Image(path, width=720))
        else:  # as an image of its own: its styles would change the icons of some notebooks
            svg = base64.b64encode(path.read_bytes()).decode()
            display(HTML(f'<img src="data:image/svg+xml;base64,{svg}">'))


def _save_in_few_colours(path):
    """Make a PNG file several times smaller: a figure has few colours."""
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    small.save(path, optimize=True)


def _found(name, advice="run the lesson in a clone, or install again"):
    """Return a file of lessons/: beside the lesson, in a clone, or in a wheel."""
    here = Path(__file__).parent
    for folder in (Path(sys.argv[0]).parent, here.parents[1] / "lessons", here / "lessons"):
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{name} is missing: {advice}")


def train(options):
    """Run the trainer given to `begin` in a new folder; return its results.

    options: its command line, without --out. If the trainer does not finish, the lesson ends with
    its exit code.
    """
    folder = Path("runs", time.strftime("quick-%Y%m%d-%H%M%S"))
    code = _run.trainer([*options.split(), "--out", str(folder)])
    if code:
        sys.exit(code)
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def finish(summary):
    """Print how a lesson ended: a false claim would have ended it before."""
    seconds = time.perf_counter() - _run.started
    checking._report = _print_claim
    done = f"{len(proved)} claims hold, {_run.drawn} figures, {seconds:.1f} s"
    print(f"\nlesson {_run.name}: {done}.\n{textwrap.fill(summary, COLUMNS)}")


def toy_model(name="toy-model"):
    """Return a small trained model of the lessons, as a Translator.

    Its README says how it was made.
    """
    with _one_line_errors():
        return Translator.load(_found(f"{name}/config.json").parent)


def as_words(pieces):
    """Return pieces of words as text to print: words begin plainly, "-s" continues a word.

    The marks are (start), (end) and (pad).
    """
    # A full stop continues a word, but stands alone.
    marks = {"<s>": "(start)", "</s>": "(end)", "<pad>": "(pad)", ".": "."}
    plain = {piece: piece.removeprefix("\u2581") for piece in pieces if piece[0] == "\u2581"}
    return [marks.get(piece) or plain.get(piece) or f"-{piece}" for piece in pieces]


def kept(name):
    """Return the results of an experiment that takes too long for a lesson.

    `python -m minitf.course.experiments.NAME` computed them and wrote them to results/NAME.json.
    """
    with _one_line_errors():
        advice = f"run  python -m minitf.course.experiments.{name}  in a clone"
        return json.loads(_found(f"results/{name}.json", advice).read_text(encoding="utf-8"))


def show(thing: Callable) -> None:
    """Print the source of a function or class of the library, as `source_of` returns it."""
    print(source_of(thing))


def source_of(thing: Callable) -> str:
    """Return the source of a function or class.

    Of each docstring only the first sentence is there: what follows it, a lesson has derived.
    """
    source = textwrap.dedent(inspect.getsource(thing))
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            text = node.body[0]
            sentence = ast.get_docstring(node).partition("\n")[0]
            lines[text.lineno - 1] = " " * text.col_offset + f'"""{sentence}"""'
            lines[text.lineno : text.end_lineno] = [None] * (text.end_lineno - text.lineno)
    return "\n".join(line for line in lines if line is not None)


def check_exercises(names):
    """Print for each exercise whether it is still to do, wrong and where, or right.

    names: globals(). A function check_NAME in it checks the reader's function NAME, whose docstring
    may end with a hint for wrong answers. Exits with code 0 if all are right, else 1; in a notebook
    it only prints. Python without asserts (-O) is refused: it would find every answer right.
    """
    if sys.flags.optimize:
        print("-O and PYTHONOPTIMIZE take the checks away: run it without them", file=sys.stderr)
        sys.exit(2)
    checks = [
        name for name in names if name.startswith("check_") and names[name] is not check_exercises
    ]
    states = []
    with quiet_when_closed():
        for number, check in enumerate(checks, 1):
            name = check.removeprefix("check_")
            exercise = names.get(name)
            state, message = state_of(exercise, names[check])
            states.append(state)
            separator = " " if message.startswith("(line ") else ": " if message else ""
            print(_hanging(f"{state:7s}{number}. {name}{separator}{message}"))
            hint = (inspect.getdoc(exercise) or "").partition("Hint: ")[2]
            if state == "wrong" and hint and inspect.isfunction(exercise):
                print(_hanging(f"          hint: {' '.join(hint.split())}"))
    if not _notebook():
        sys.exit(0 if states and set(states) == {"right"} else 1)


def _hanging(line):
    """Return a line in lines of at most 80 columns, of which the later ones are indented."""
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, COLUMNS, subsequent_indent=" " * 12, **whole)


def state_of(exercise, check):
    """Return ("right", "wrong" or "to do", the text that explains it) of an answer.

    check: the function check_NAME, which calls the answer by its NAME.
    """
    if not inspect.isfunction(exercise):
        return "wrong", "the function is missing"
    if is_empty(exercise):
        task = (inspect.getdoc(exercise) or "write its body").partition("\n\n")[0]
        return "to do", " ".join(task.split())
    names, name = check.__globals__, check.__name__.removeprefix("check_")
    last = []  # what the answer returned last

    @functools.wraps(exercise)
    def watched(*arguments, **options):
        last[:] = [exercise(*arguments, **options)]
        return last[0]

    names[name] = watched
    try:
        check()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.name == exercise.__name__]
        if not own and name not in WITHOUT_RESULT and last and last[0] is None:
            return "wrong", "it returns nothing: is `return` missing?"
        where = f"(line {own[-1].lineno}): " if own else ""
        return "wrong", f"{where}{explained(error)}"
    finally:
        names[name] = exercise
    return "right", ""


@contextlib.contextmanager
def _one_line_errors():
    """End the lesson with one line for errors that its reader can fix, such as a wrong folder."""
    try:
        yield
        return
    except UserError as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}: choose another folder with --figures"
    except ValueError as error:
        # plot.save_figure turns an OSError into a ValueError; others are mistakes in the data.
        if not isinstance(error.__cause__, OSError):
            raise
        text = str(error)
    print(f"lesson {_run.name}: {text}", file=sys.stderr)
    sys.exit(2)


def _notebook():
    return "ipykernel" in sys.modules
