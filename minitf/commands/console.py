"""The messages of the command line, on standard error."""

import contextlib
import re
import sys
from pathlib import Path

from minitf.cli import say
from minitf.text.encoding import LOST

INSTALLED = "minitf-translate"  # the command of the installed package, which brings no model


def _usage():
    """Return the command that the user has typed."""
    name = Path(sys.argv[0]).name.removesuffix(".exe")
    known = name in (INSTALLED, "parse.py") or name.removeprefix("python -m ").startswith("minitf ")
    return name if known else "translate.py"


USAGE = _usage()
PROGRAM = USAGE.removeprefix("python -m ")  # its name in messages


class GivenUp:
    """What had to be given up in a text: said in one line at the end, with the numbers of lines."""

    MOST = 5  # numbers that are named; an endless pipe may have endlessly many

    def __init__(self, unit="line"):
        self.unit = unit  # that is translated by itself
        self._lines = {}  # (unit, what): [the first numbers], how many

    def note(self, translations, before):
        """Note what the translations of some units lack; before: how many units came before."""
        for number, (best, *_) in enumerate(translations, before + 1):
            for problem in best.given_up:
                self._add(self.unit, number, problem)

    def _add(self, unit, number, problem):
        first, count = self._lines.get((unit, problem), ([], 0))
        if count < self.MOST:
            first.append(number)
        self._lines[unit, problem] = first, count + 1

    def checked(self, batches):
        """Yield the lists of lines of a text, and note what the text has lost already."""
        before = 0
        for lines in batches:
            for number, line in enumerate(lines, before + 1):
                for pattern, problem in _DAMAGE.items():
                    if pattern.search(line):
                        self._add("line", number, problem)
            before += len(lines)
            yield lines

    @contextlib.contextmanager
    def reported(self):
        """Write the line at the end of the block, also if Ctrl-C ends it."""
        try:
            yield
        except KeyboardInterrupt:
            self._report()
            raise
        self._report()

    def _report(self):
        mistakes = [
            f"{unit}{_numbers(*numbers)}: {problem}"
            for (unit, problem), numbers in self._lines.items()
        ]
        if mistakes:
            say(f"{PROGRAM}: check {'; '.join(mistakes)}")


_DAMAGE = {
    LOST: "bytes that are not UTF-8 are lost",
    # As cp1252 is after  iconv -f latin1. U+0085 is a line end, too.
    re.compile("[\x80-\x84\x86-\x9f]"): (
        "control characters are lost (if they were Windows' quotes or dashes, convert "
        "the original with  iconv -f cp1252)"
    ),
}


def _numbers(first, count):
    """Return what follows the name of a unit: the first numbers, and how many more there are.

    >>> _numbers([3], 1), _numbers([3, 4], 2), _numbers([3, 4], 9)
    (' 3', 's 3 and 4', 's 3, 4 and 7 more')
    """
    *names, last = [f"{number:,}" for number in first]
    if count > len(first):
        names, last = [*names, last], f"{count - len(first):,} more"
    names = f"{', '.join(names)} and {last}" if names else last
    return f"{'s' * (count > 1)} {names}"
