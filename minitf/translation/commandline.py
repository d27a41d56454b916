"""The command line of translate.py: text in, translations out, a batch of lines at a time."""

import collections
import contextlib
import os
import signal
import time
from pathlib import Path

from minitf.backend import use
from minitf.cli import Progress, exit_code, say
from minitf.cpu.machine import keep_memory
from minitf.errors import UserError, in_file
from minitf.files.models import read_notes
from minitf.text.frames import Framer
from minitf.translation.arguments import parse
from minitf.translation.console import PROGRAM, GivenUp
from minitf.translation.input import joined_paragraphs, opened_input
from minitf.translation.languages import TargetLanguages, languages_of
from minitf.translation.output import opened_output, rendered
from minitf.translation.picture import FirstLine
from minitf.translation.translator import Translator

__all__ = ["main", "signals_as_exceptions"]

RECENT = 10_000  # translations that are remembered, at most
SOON = 5  # seconds, after which the time of the whole text can be told
SHORT = 500  # characters; the translation of a longer line is not remembered


def main(arguments=None, model=None, backend="", folder_of=None):
    """Run the command line; returns the exit code, as `minitf.cli.exit_code`.

    model: the folder of the model that is used without --model. backend: the value of
    MINITF_BACKEND, if the caller has hidden it from `import minitf`, so that --backend can
    override a wrong name. folder_of: called with the value of --model if it is not None; returns
    the model's folder.
    """
    return exit_code(PROGRAM, lambda: _run(parse(arguments, model), backend, folder_of, model))


def _run(options, backend, folder_of, bundled):
    if folder_of is not None:
        options.model = folder_of(options.model)
    if not os.path.exists(options.model):
        raise UserError(f"{options.model}: no such folder: choose {_models_beside(bundled)}")
    keep_memory()
    if options.backend:
        use(options.backend)
    elif backend:
        with in_file("MINITF_BACKEND"):
            use(backend)
    translate(options)


def _models_beside(bundled):
    """Return which models can be named, for a message; bundled: the folder of one, or None."""
    found = sorted(Path(bundled).parent.glob("*/config.json")) if bundled else []
    found = [path.parent for path in found if _translates(path.parent)]
    public = "a public model such as opus-mt-fr-en (French to English), which is downloaded once"
    if not found:
        return f"the folder of a trained model, or {public}"
    return f"{', '.join(map(_named, found))}, a folder that the trainer wrote, or {public}"


def _translates(folder):
    """Return whether a folder has a model that translates."""
    with contextlib.suppress(UserError):
        return not str(read_notes(folder).get("target_language")).startswith("trees")
    return False


def _named(folder):
    """Return a model's folder as a user would type it, with its languages if they are known."""
    languages = languages_of(folder)
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(os.getcwd())
    return f"{folder} ({' to '.join(languages)})" if all(languages) else str(folder)


def translate(options):
    """Translate the text that the options name, a batch of lines at a time."""
    with (
        signals_as_exceptions(),
        opened_input(options) as source,
        opened_output(options.output, source.file) as write,
    ):
        translator = Translator.load(options.model)
        _check_is_no_parser(options.model)
        translations_of = (
            _sampler(translator, options) if options.sample else _Recent(translator, options)
        )
        languages = TargetLanguages(translator.subwords, say)
        given_up, unit = GivenUp(), "paragraph" if options.paragraphs else "line"
        batches = given_up.seen(source.batches)
        if options.paragraphs:
            batches = joined_paragraphs(batches)
        picture = FirstLine(translator, options) if options.attention else None
        number = 0  # of the first line of the batch
        start = 0  # of the batch in the text, in bytes
        with given_up.told(), Progress(*_label(source)) as bar:
            forecast = _Forecast(source.size, bar)
            for lines in batches:
                languages.check(lines, number)
                size = sum(len(line.encode()) + 1 for line in lines)
                if picture:
                    picture.see(lines)

                def show(done, parts, start=start, size=size):
                    forecast.see(start + size * done // parts)
                    bar.to(start + size * done // parts)

                found = translations_of(lines, number, None if source.typed else show)
                bar.wipe()
                if number == 0:
                    _tell_if_empty(translator, lines, found, options.model)
                write(rendered(lines, number, found, options))
                for i, translations in enumerate(found, number + 1):
                    for what in translations[0].given_up:
                        given_up.add(i, what, unit)
                number += len(lines)
                start += size
        if picture and not picture.is_drawn:
            raise UserError("--attention: there is no text to draw a picture of: give a sentence")


def _check_is_no_parser(model):
    if str(read_notes(model).get("target_language")).startswith("trees"):
        raise UserError(
            f"{model}: a parser, which writes trees: use parse.py, or python -m minitf.parsing"
        )


def _tell_if_empty(translator, lines, translations, model):
    """Say so if no line with text has a translation: a model writes none at first."""
    if any(found[0].text for found in translations):
        return
    if any(map(translator.parts, lines)):
        updates = read_notes(model).get("step")
        so_far = f": it has had {updates} updates" if isinstance(updates, int) else ""
        say(f"{PROGRAM}: the model writes nothing. It may need more training{so_far}")


class _Forecast:
    """Says once, soon after the beginning, how long a text takes, if it is two minutes or more."""

    def __init__(self, size, bar):
        self.size, self.bar, self.began = size, bar, time.monotonic()

    def see(self, done):
        """Take note that so much of the text is translated."""
        seconds = time.monotonic() - self.began
        if not self.size or not done or seconds < SOON:
            return
        minutes = seconds * self.size / done / 60
        self.size = None  # said once
        if minutes > 1.5:
            said = f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
            self.bar.wipe()
            say(f"{PROGRAM}: the whole text will take about {said}")


def _label(source):
    """Return the text next to the bar, and the size of the work."""
    return ("of the text translated", source.size) if source.size else ("bytes translated", 0)


def _sampler(translator, options):
    """Return a function that draws a translation of each line; number: that of the first line.

    The number of a line decides what is drawn for it, in whatever batches the lines come.
    """

    framer = Framer()

    def sample(lines, number, progress):
        return translator.sample(
            lines,
            options.alpha,
            options.max_extra,
            first=number,
            progress=progress,
            keep=options.keep,
            frames=list(map(framer, lines)),
            **options.sampling,
        )

    return sample


class _Recent:
    """Translates equal lines once: those of one batch, and those of the batches before it.

    Lines are equal if their pieces are: a line of code is kept, and the same as text is not.
    """

    def __init__(self, translator, options):
        self.translator, self.options = translator, options
        self.framer = Framer()
        self.known = collections.OrderedDict()  # pieces: translations; the least recent line first

    def __call__(self, lines, number, progress):
        """Return the translations of each line."""
        frames = [tuple(self.framer(line)) for line in lines]
        new = [pieces for pieces in dict.fromkeys(frames) if pieces not in self.known]
        self.known.update(zip(new, self._search(new, progress), strict=True))
        found = [self.known[pieces] for pieces in frames]
        self._forget(frames)
        return found

    def _search(self, frames, progress):
        options = self.options
        return self.translator.translate(
            ["".join(text for text, _ in pieces) for pieces in frames],
            options.beam,
            options.alpha,
            options.max_extra,
            options.nbest,
            progress=progress,
            keep=options.keep,
            frames=frames,
        )

    def _forget(self, frames):
        """Forget long lines, and the least recent ones if there are too many."""
        for pieces in dict.fromkeys(frames):
            if sum(len(text) for text, _ in pieces) <= SHORT:
                self.known.move_to_end(pieces)
            else:
                del self.known[pieces]
        while len(self.known) * self.options.nbest > RECENT:
            self.known.popitem(last=False)


@contextlib.contextmanager
def signals_as_exceptions():
    """Let SIGTERM and SIGHUP raise SystemExit, or they would leave half a file."""
    received = []

    def end(number, frame):
        received.append(number)
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # nohup ignores SIGHUP, and so does a program under it.
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    except Exception:
        if not received:
            raise
        # An extension module that is being imported turns SystemExit into ImportError.
        raise SystemExit(128 + received[0]) from None
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
