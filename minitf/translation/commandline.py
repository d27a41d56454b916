"""The command line of translate.py: text in, translations out, a batch of lines at a time."""

import collections
import contextlib
import signal
import sys

from minitf.backend import use
from minitf.errors import UserError, in_file
from minitf.translation.arguments import parse
from minitf.translation.console import Bar, Mistake, complain, is_terminal, say
from minitf.translation.input import (
    batches,
    decoded,
    joined_paragraphs,
    opened_input,
    size_of,
    typed,
)
from minitf.translation.output import opened_output, rendered, settle_stdout
from minitf.translation.picture import draw
from minitf.translation.translator import Translator

__all__ = ["main"]

# Translations that are remembered, of lines of at most so many characters.
RECENT, SHORT = 10_000, 500


def main(arguments=None, model=None, backend=""):
    """Run the command line; returns the exit code: 0, 2 after a one-line message, 130 after Ctrl-C.

    model: the folder of the model that is used without --model. backend: the value of
    MINITF_BACKEND, if the caller has hidden it from `import minitf`: here a wrong name is an error
    only where --backend names no other.
    """
    try:
        return _run(parse(arguments, model), backend)
    except KeyboardInterrupt as stop:
        if is_terminal(sys.stderr):
            say("")  # the terminal has written ^C
        if stop.args:
            complain(stop)
        return 130
    except BrokenPipeError:  # whoever reads the output has read enough
        return 0
    except MemoryError:
        return complain("out of memory: take a smaller --beam")
    finally:
        settle_stdout()


def _run(options, backend):
    try:
        if options.backend:
            use(options.backend)
        elif backend:
            with in_file("MINITF_BACKEND"):
                use(backend)
        translate(options)
    except (UserError, Mistake) as error:
        return complain(error)
    return 0


def translate(options):
    """Translate the text that the options name, a batch of lines at a time."""
    with (
        _ended_by_exception(),
        opened_input(options) as file,
        opened_output(options.output, file) as write,
    ):
        translator = Translator.load(options.model)
        search = (options.beam, options.alpha, options.max_extra)
        number, undrawn = 0, options.attention
        read = decoded(
            typed(file, options) if file.isatty() and is_terminal(sys.stderr) else batches(file)
        )
        recent = _Recent(
            lambda lines, progress: translator.translate(
                lines, *search, options.nbest, progress=progress
            )
        )
        with Bar(size_of(file), not file.isatty()) as bar:
            for raw, lines in joined_paragraphs(read) if options.paragraphs else read:
                sentence = next(filter(translator.parts, lines), None) if undrawn else None
                if sentence:
                    draw(translator, sentence, search, options)
                    undrawn = None
                # The number of a line decides what is drawn for it, however the lines come.
                if options.sample:
                    shared = {
                        "alpha": options.alpha,
                        "max_extra": options.max_extra,
                        "progress": bar.over(raw),
                    }
                    found = translator.sample(lines, first=number, **shared, **options.draw)
                else:
                    found = recent.translate(lines, options.nbest, bar.over(raw))
                bar.clear()
                write(
                    "".join(
                        rendered(number + i, lines[i], found[i], options) for i in range(len(lines))
                    )
                )
                number += len(lines)
        if undrawn:
            raise Mistake("--attention: there is no text to draw a picture of: give a sentence")


class _Recent:
    """Translates equal lines once: those of one batch, and those that came not long before.

    search: translates a list of different lines.
    """

    def __init__(self, search):
        self.search, self.known = search, collections.OrderedDict()

    def translate(self, lines, n_best, progress):
        """Return for each line the translations that `search` would return."""
        new = [line for line in dict.fromkeys(lines) if line not in self.known]
        self.known.update(zip(new, self.search(new, progress), strict=True))
        found = [self.known[line] for line in lines]
        for line in dict.fromkeys(lines):
            if len(line) <= SHORT:
                self.known.move_to_end(line)
            else:
                del self.known[line]
        while len(self.known) * n_best > RECENT:
            self.known.popitem(last=False)
        return found


@contextlib.contextmanager
def _ended_by_exception():
    """Let a kill and a closed terminal raise SystemExit, or they would leave half a file."""

    def end(number, frame):
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup ignores SIGHUP
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
