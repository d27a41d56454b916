"""The process of the answers: it reads a sheet or a notebook, and computes what it is asked.

`python -m minitf.course.answering` is started by `grading`, which has the checks. Its standard
input and output are the channel to that process, which the answers do not see as such: what they
print is left out. Nothing here decides whether an answer is right.
"""

import __future__

import ast
import contextlib
import ctypes
import inspect
import linecache
import os
import re
import sys
import textwrap
import types

from minitf.course.calls import LONGEST, Channel, Ended, described

DEFINITIONS = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
SHEET = "answers.py"  # what a sheet is called here, where a notebook has cells

# What a notebook may have in a line that is not Python, and its name.
NO_PYTHON = {
    r"\s*%": "a magic",
    r"\s*!|[\w\s,.()]+=\s*!": "a shell command",
    r"[\w\s,.()]+=\s*%": "a magic",
    r"\s*\?|.*\?\s*$": "a question",
}
# A cell with one of these is Python below its first line.
ABOUT_PYTHON = re.compile(r"%%(time|timeit|capture|prun|debug)\b")


def parsed(source):
    """Return the statements of a cell, and the lines that are no Python: [(line, text, what)].

    Such a line is one at which Python stops to understand the cell: another that looks like it may
    be a part of a text. Raises SyntaxError if it stops anywhere else.
    """
    start = source.lstrip()
    if start.startswith("%%") and not ABOUT_PYTHON.match(start):
        return [], [(1, start.partition("\n")[0], "a magic")]
    # Lines as Python's: str.splitlines also ends one at a form feed, or at U+2028.
    lines, left_out = re.split("\r\n|\r|\n", source), []
    while True:
        try:
            return ast.parse("\n".join(lines)).body, left_out
        except SyntaxError as error:
            number = error.lineno or 1
            line = lines[number - 1] if number <= len(lines) else ""
            kinds = [reason for pattern, reason in NO_PYTHON.items() if re.match(pattern, line)]
            if not kinds:
                raise
            left_out.append((number, line.strip(), kinds[0]))
            lines[number - 1] = re.match(r"\s*", line)[0] + "pass"
            while line.endswith("\\") and number < len(lines):  # it goes on in the next line
                line, lines[number] = lines[number], ""
                number += 1


def is_empty(function):
    """Return whether the body still ends in three dots, in pass, or in its docstring."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):  # made in a way that has no source of its own
        return False
    # An answer may also be a lambda, which is an assignment.
    return isinstance(definition, ast.FunctionDef) and ends_empty(definition)


def ends_empty(definition):
    """Return whether the body of a definition ends in three dots, in pass, or in its docstring."""
    last = definition.body[-1]
    return isinstance(last, ast.Pass) or (
        isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)
    )


class Answers:
    """The answers of a sheet or a notebook, read one statement at a time."""

    def __init__(self, channel):
        self.channel, self.names, self.notes = channel, [], []
        self.flags = 0  # of the compiler: what the answers import from __future__
        module = types.ModuleType("answers")
        sys.modules["answers"] = module
        self.own = vars(module)
        self.own["__file__"] = SHEET

    def read(self, cells, names):
        """Run the cells; return [{name: how far the answer is}, what was skipped].

        cells: lists of a name (such as "cell 7"), a source, and whether only imports, functions and
        classes count. A statement that fails is skipped with a word, and so is a line that is not
        Python. names: of the exercises.
        """
        self.names = names
        for place, source, only_definitions in cells:
            self.channel.sources.append(place)
            linecache.cache[place] = len(source), None, source.splitlines(True), place
            try:
                statements, left_out = parsed(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                if place == SHEET:
                    raise
                if not only_definitions:
                    self.notes.append(f"{place} was skipped: {described(error, ())}")
                continue
            for statement in statements:
                if not only_definitions or isinstance(statement, DEFINITIONS):
                    self._run(statement, place, source, quiet=only_definitions)
            for number, text, reason in [] if only_definitions else left_out:
                self._skip(place, number, text, reason)
        return [{name: self._state(name) for name in names}, self.notes]

    def _run(self, statement, place, source, quiet):
        text = re.split("\r\n|\r|\n", source)[statement.lineno - 1].strip()
        if text.startswith("check_exercises("):
            return
        named = getattr(statement, "name", None)
        before = self.own.get(named)
        try:
            tree = ast.Module([statement], [])
            exec(compile(tree, place, "exec", self.flags, dont_inherit=True), self.own)
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                for each in statement.names:
                    self.flags |= getattr(__future__, each.name).compiler_flag
        except (Ended, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            if not quiet:
                self._skip(place, statement.lineno, text, described(error, ()))
        # The empty function of the notebook may stand below a copy that is filled in.
        filled = named in self.names and inspect.isfunction(before) and not is_empty(before)
        if place != SHEET and filled and self._state(named) == "to do":
            self.own[named] = before

    def _skip(self, place, number, text, reason):
        shown = f"`{text[:40]}`, " if text else ""
        self.notes.append(f"{place}, line {number}: skipped {shown}{reason}")

    def _state(self, name):
        answer = self.own.get(name)
        if not inspect.isfunction(answer):
            return "missing"
        return "to do" if is_empty(answer) else "written"

    def answer(self, name, *arguments, **options):
        """Return what an answer returns."""
        return self.own[name](*arguments, **options)


def main():
    """Serve the process that started this one until it hangs up."""
    receiving, sending = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in 0, 1, 2:
        os.dup2(nothing, standard)
    limit_memory(MEMORY)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG: end with whoever started this
    sys.path += sys.argv[1:]  # the folder from which the answers may import
    sys.argv[:] = [SHEET]

    def send(message):
        if len(message) > LONGEST:
            raise ValueError("it returns more numbers than can be sent")
        sending.write(message)
        sending.flush()

    def receive():
        message = receiving.readline()
        if not message:
            os._exit(0)
        return message

    channel = Channel(send, receive, [], trusted=True)
    answers = Answers(channel)
    channel.keep(answers.read)
    channel.keep(answers.answer)
    while True:
        channel.serve()


def limit_memory(size):
    """Limit the addresses of this process: one that takes all memory would end other programs."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):  # macOS, or a lower limit of whoever grades
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


MEMORY = 8 * 2**30  # bytes, of addresses

if __name__ == "__main__":
    main()
