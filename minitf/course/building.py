"""`my_transformer.py`: examples/whole.py without the bodies of its pieces, written and checked.

The file is made of the page itself: of each piece the docstring and the comments are kept, and the
code is three dots. A check runs the student's file with one piece of the student's at a time; all
other pieces are the page's. So every piece can be right, whatever the others are, and one can begin
anywhere. Only what comes out is compared, never the text.
"""

import ast
import contextlib
import functools
import io
import itertools
import json
import re
import signal
import sys
import textwrap
import time
import traceback
from pathlib import Path
from types import ModuleType

import numpy as np

from minitf.cli import exit_code
from minitf.course.answering import ends_empty, parsed
from minitf.course.checks.compare import as_array, difference, explained, looks_like
from minitf.course.pieces import PIECES, Piece

PAGE = Path(__file__).parents[2] / "examples" / "whole.py"
QUICK_STEPS = 500  # updates, at the end: they take about a minute
SECONDS = 20  # for one piece: then it is taken to have no end
LAST = "learn_toy_corpus"  # the page from here on is its command line, which the student's has not
OPENING = '''"""My Transformer.

    python {name}

says of each piece below whether it is right, wrong, or to do. Write the pieces in any order: those
that you have not written are lent by the course. When all of them are right, your Transformer
learns the toy corpus for a minute, and translates SENTENCE with trained weights; with a sentence
after the file's name, it translates that at once.

In place of the three dots of a piece, write its code. The comments above them say what it computes,
and the docstring says which lesson derives it. Everything else is complete; `Tensor.__mul__` shows
how an operation is written. {letters}
In shapes, the lessons write T, D, H, K, F and V for L, d_model, h, d_k, d_ff and vocab_size.
"""

SENTENCE = "The children are playing in the garden."
'''
CLOSING = """
if __name__ == "__main__":
    from minitf.course.building import run

    run(__file__)
"""
LAST_CELL = """\
# Run the cells above, then this one.
from minitf.course.building import run_notebook

run_notebook()"""


# The student's file -------------------------------------------------------------------------------


@functools.cache
def page() -> str:
    """Return the text of the page."""
    return PAGE.read_text(encoding="utf-8")


def definitions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module by name, and its methods as Class.method."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found[f"{node.name}.{method.name}"] = method
    return found


@functools.cache
def lent_pieces() -> dict[str, ast.FunctionDef]:
    """Return the functions and methods of the page."""
    return definitions(ast.parse(page()))


def section_of(piece: Piece) -> str:
    """Return where a piece is derived, as the student reads it."""
    return f'lesson {piece.lesson}, "{piece.section}"'


def skeleton(name: str = "my_transformer.py") -> str:
    """Return the text of my_transformer.py: the page without the bodies of the pieces."""
    lines, tree = page().splitlines(), ast.parse(page())
    found = definitions(tree)
    # From the last piece to the first, because each changes the numbers of the lines below it.
    end = next(node for node in tree.body if getattr(node, "name", "") == LAST).lineno - 1
    del lines[end:]
    for number, piece in reversed(list(enumerate(PIECES, 1))):
        node = found[piece.name]
        docstring, indent = node.body[0], " " * node.body[0].col_offset
        text = textwrap.indent(ast.get_docstring(node), indent).strip()
        comments = filter(is_comment, lines[docstring.end_lineno : node.end_lineno])
        lines[docstring.lineno - 1 : node.end_lineno] = [
            f'{indent}"""{text}',
            "",
            f"{indent}Piece {number}: {section_of(piece)}.",
            f'{indent}"""',
            *[indent + line.strip() for line in comments],
            f"{indent}...",
        ]
    text = "\n".join(lines[tree.body[0].end_lineno :]).strip("\n")
    for line in ("HERE = Path(__file__).parent\n", "import sys\n", "from pathlib import Path\n"):
        text = text.replace(line, "")
    letters = "Names and letters:" + ast.get_docstring(tree).partition("Names and letters:")[2]
    return f"{OPENING.format(name=name, letters=letters)}\n{text}\n{CLOSING}"


def is_comment(line):
    """Return whether a line has nothing but a comment."""
    return line.strip().startswith("#")


def notebook() -> str:
    """Return the text of my_transformer.ipynb: a cell for each part of my_transformer.py."""
    import jupytext

    text = skeleton("my_transformer.ipynb").partition("\nif __name__")[0]
    text = text.replace("    python my_transformer.ipynb\n\nsays", "The last cell says")
    cells = [*re.split(r"\n\n\n+", text.strip()), LAST_CELL]
    made = jupytext.reads("\n\n# %%\n".join(cells), "py:percent")
    made.metadata["language_info"] = {"name": "python", "file_extension": ".py"}
    return jupytext.writes(made, "ipynb")


# A check ------------------------------------------------------------------------------------------


def module_with(tree: ast.Module, own: str | None, file: str) -> ModuleType:
    """Run a file in which all pieces but `own` are the page's; return it as a module."""
    lent = lent_pieces()
    names = {piece.name for piece in PIECES} - {own}
    missing = names - definitions(tree).keys()
    body = [lent[name] for name in missing if "." not in name]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            prefix = f"{node.name}."
            methods = [swapped(method, prefix, names, lent) for method in node.body]
            methods += [lent[name] for name in missing if name.startswith(prefix)]
            node = ast.ClassDef(**{**vars(node), "body": methods})
        else:
            node = swapped(node, "", names, lent)
        body.append(node)
    module = ModuleType("my_transformer")
    module.__file__, module.own_piece = file, definitions(tree).get(own)
    code = compile(ast.Module(body, []), file, "exec")
    exec(code, module.__dict__)
    return module


def swapped(node, prefix, names, lent):
    """Return the page's definition in place of a piece, anything else as it is."""
    name = prefix + getattr(node, "name", "")
    return lent[name] if isinstance(node, ast.FunctionDef) and name in names else node


def outcome_of(piece: Piece, module: ModuleType) -> dict:
    """Try a piece; return what came out: named arrays, or one entry for an error."""
    try:
        with time_limit(SECONDS), np.errstate(all="ignore"):
            found = piece.try_it(module)
            return {name: as_outcome(name, value) for name, value in found.items()}
    except (Exception, SystemExit) as error:
        return {"error": explained(error), "line": line_of(error, module)}


def as_outcome(name, value):
    """Return a result as an array, or as text; raise AssertionError for anything else."""
    assert value is not None, "it returns nothing: is `return` missing?"
    return value if isinstance(value, str) else as_array(name, value)


def line_of(error, module):
    """Return the line of the student's piece in which an error arose, or None."""
    if module.own_piece is None:
        return None
    inside = [node.name for node in ast.walk(module.own_piece) if isinstance(node, ast.FunctionDef)]
    own = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == module.__file__
        and (frame.name in inside or frame.name.startswith("<"))
        and module.own_piece.lineno <= frame.lineno <= module.own_piece.end_lineno
    ]
    return own[-1] if own else None


@contextlib.contextmanager
def time_limit(seconds):
    """Raise TimeoutError in a block that takes longer, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_):
        raise TimeoutError(f"no end after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def same(found: dict, expected: dict) -> bool:
    """Return whether two outcomes are the same up to rounding, or the same error."""
    names = found.keys() | expected.keys()
    return all(
        name in found and name in expected and not compared(found[name], expected[name])
        for name in names - {"line"}
    )


def compared(found, expected):
    """Return what differs between two results, in words; "" if nothing does."""
    if isinstance(found, str) or isinstance(expected, str):
        kinds = [x if isinstance(x, str) else "an array" for x in (found, expected)]
        return "" if kinds[0] == kinds[1] else f"found {kinds[0]}, expected {kinds[1]}"
    text = difference(found, expected, rtol=1e-6, atol=1e-9)
    if not text and (found.dtype == bool) != (expected.dtype == bool):
        kinds = ["True and False" if x.dtype == bool else "numbers" for x in (found, expected)]
        text = f"found {kinds[0]}, expected {kinds[1]}"
    return text


@functools.cache
def expected_of(piece: Piece) -> dict:
    """Return what the page's own piece computes."""
    return outcome_of(piece, page_itself())


def answer(piece: Piece, *changes: tuple[str, str]) -> str:
    """Return the page with (old, new) texts of a piece replaced; KeyError without an old text."""
    node = lent_pieces()[piece.name]
    lines = page().splitlines(keepends=True)
    body = [line for line in lines[node.lineno - 1 : node.end_lineno] if not is_comment(line)]
    changed = "".join(body)
    for old, new in changes:
        if old not in changed:
            raise KeyError(f"{piece.name} has no text {old!r}")
        changed = changed.replace(old, new, 1)
    return "".join([*lines[: node.lineno - 1], changed, *lines[node.end_lineno :]])


@functools.cache
def outcomes_of_mistakes(piece: Piece, at_once: int = 1) -> list:
    """Return (what a student is told, what comes out) of each typical mistake of a piece.

    at_once: how many mistakes are made together.
    """
    outcomes = []
    for mistakes in itertools.combinations(piece.wrong, at_once):
        with contextlib.suppress(KeyError, SyntaxError):  # two that exclude each other
            text = answer(piece, *(mistake[:2] for mistake in mistakes))
            module = module_with(ast.parse(text), piece.name, str(PAGE))
            told = "; and ".join(mistake[2] for mistake in mistakes)
            outcomes.append((told, outcome_of(piece, module)))
    return outcomes


def checked(text: str, piece: Piece, file: str) -> tuple[str, str]:
    """Return ("right", "wrong" or "to do", what is wrong) of the piece in the student's text."""
    tree = ast.parse(text, file)
    node = definitions(tree).get(piece.name)
    if node is None:
        return "wrong", "the function is missing"
    if ends_empty(node):
        return "to do", ""
    try:
        module = module_with(tree, piece.name, file)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        return "wrong", f"the file cannot be run: {type(error).__name__}: {reason}"
    found, expected = outcome_of(piece, module), expected_of(piece)
    if same(found, expected):
        return "right", ""
    mistakes = itertools.chain.from_iterable(outcomes_of_mistakes(piece, n) for n in (1, 2))
    looks = next((f": {told}" for told, outcome in mistakes if same(found, outcome)), "")
    if "error" in found:
        line = f" (line {found['line']})" if found.get("line") else ""
        return "wrong", f"{found['error']}{line}{looks}"
    for name, one in expected.items():
        words = compared(found[name], one) if name in found else "is missing"
        if words:
            arrays = [isinstance(each.get(name), np.ndarray) for each in (found, expected)]
            if not looks and all(arrays):
                looks = looks_like(found[name], one)
            return "wrong", f"{name}: {words}{looks}"
    return "wrong", looks


# The command --------------------------------------------------------------------------------------


def run(file: str) -> None:
    """Check the student's file, say what is right, and use the model when everything is.

    With --hints, wrong pieces get a hint. Exits with code 0 if all pieces are right, 1 if not.
    """
    words = [word for word in sys.argv[1:] if word != "--hints"]
    text, hints = Path(file).read_text(encoding="utf-8"), words != sys.argv[1:]
    sys.exit(exit_code(Path(file).name, lambda: tell(text, file, " ".join(words), hints)))


def run_notebook(hints: bool = False) -> None:
    """Check the cells that were run in this notebook, and use the model when all is right."""
    from IPython import get_ipython

    texts = []
    for cell in get_ipython().user_ns["In"]:
        with contextlib.suppress(SyntaxError):  # a cell that was run, and then mended
            texts += [python_of(cell)] if "run_notebook" not in cell else []
    tell("\n\n".join(texts), "my_transformer.ipynb", hints=hints)


def python_of(cell):
    """Return the code of a cell without lines that are no Python, such as a magic."""
    return ast.unparse(ast.Module(parsed(cell)[0], []))


def is_python(cell):
    """Return whether a cell is Python alone, without a magic or a mistake of syntax."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return bool(ast.parse(cell))
    return False


def grade(text: str, file: str) -> int:
    """Print what is right in a student's text, as JSON; return 0 if all of it is, else 1."""
    exercises = []
    for number, piece in enumerate(PIECES, 1):
        begun = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):  # of what the answers print, nothing
            state, message = checked(text, piece, file)
        seconds = round(time.perf_counter() - begun, 2)
        row = {"number": number, "name": piece.name, "state": state, "message": message}
        exercises.append(row | {"seconds": seconds})
    right = sum(row["state"] == "right" for row in exercises)
    result = {"lesson": "my_transformer", "exercises": exercises, "right": right}
    print(json.dumps(result | {"total": len(PIECES)}, indent=2))
    return 0 if right == len(PIECES) else 1


def tell(text, file, sentence="", hints=False):
    """Print a line for each piece, and for a wrong one what helps; if all are right, use the model.

    Returns the exit code.
    """
    right, lesson, wrong = 0, "", False
    for number, piece in enumerate(PIECES, 1):
        state, message = checked(text, piece, file)
        right += state == "right"
        if piece.lesson != lesson:
            lesson = piece.lesson
            print(f"lesson {lesson}")
        separator = ": " if message else ""
        print(f"  {state:6s} {number:2}. {piece.name}{separator}{message}")
        if state == "wrong":
            wrong, space = True, " " * 13
            print(f"{space}hint: {piece.hint}\n" * hints + f"{space}see {section_of(piece)}")
    print(f"{right} of {len(PIECES)} pieces are yours.")
    if wrong and not hints:
        notebook, again = file.endswith(".ipynb"), f"python {Path(file).name} --hints"
        print(f"Wrong a second time? Hints: {'run_notebook(hints=True)' if notebook else again}")
    if right < len(PIECES):
        return 1
    speak(text, file, sentence)
    return 0


def speak(text, file, sentence):
    """Translate with trained weights. Without a sentence, train for a minute before that."""
    module = ModuleType("my_transformer")
    module.__dict__.update(__file__=file, HERE=PAGE.parent)
    exec(compile(text, file, "exec"), module.__dict__)
    if not sentence:
        learn = lent_pieces()[LAST]
        exec(compile(ast.Module([learn], []), str(PAGE), "exec"), module.__dict__)
        print("\nAll of it is yours. It learns the toy corpus, for about a minute:")
        module.learn_toy_corpus(steps=QUICK_STEPS, n_test=5)
    print("\nWith the weights of examples/models/en-de:")
    sentence = sentence or getattr(module, "SENTENCE", "Where is the station?")
    print(f"  {sentence}")
    for whose, program in {"your Transformer": module, "examples/whole.py": page_itself()}.items():
        model, subwords = program.load(PAGE.parent / "models" / "en-de")
        print(f"  {whose + ':':18} {program.translate(model, subwords, sentence)}")


def page_itself():
    """Return the page as a module."""
    return module_with(ast.parse(page()), None, str(PAGE))
