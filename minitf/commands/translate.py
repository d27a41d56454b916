"""The command translate.py: text in, translations out, a batch of lines at a time."""

import collections
import contextlib
import functools
import gc
import os
import time
from pathlib import Path

from minitf.backend import use
from minitf.cli import Progress, exit_code, say, signals_as_exceptions
from minitf.commands.arguments import parse
from minitf.commands.console import PROGRAM, GivenUp
from minitf.commands.input import joined_paragraphs, opened_input
from minitf.commands.output import opened_output, rendered
from minitf.commands.picture import FirstLine
from minitf.cpu.machine import keep_memory
from minitf.errors import UserError
from minitf.files.models import read_notes
from minitf.public.model_folder import model_folder
from minitf.text.frames import Framer
from minitf.translation.languages import TargetLanguages, languages_of
from minitf.translation.translator import Translator

__all__ = ["main", "translate"]

RECENT = 10_000  # translations that are remembered, at most
SOON = 5  # seconds, after which the time of the whole text can be told
SHORT = 500  # characters; the translation of a longer line is not remembered


def main(arguments=None, model=None):
    """Run the command line; return the exit code, as `minitf.cli.exit_code`.

    model: the folder of the model that is used without --model.
    """
    return exit_code(PROGRAM, lambda: translate(parse(arguments, model), model))


def translate(options, bundled=None):
    """Translate the text that the options name, a batch of lines at a time.

    bundled: the folder of a model beside which there are others, for a message.
    """
    options.model = _model_folder(options.model, bundled)
    use(options.backend)
    keep_memory()
    with (
        signals_as_exceptions(),
        opened_input(options) as source,
        opened_output(options.output, source.file) as write,
    ):
        _check_is_no_parser(options.model)
        translator = Translator.load(options.model)
        # What is loaded stays: to look through it for garbage, now and at the end of the program,
        # takes longer than to translate a sentence.
        gc.freeze()
        gc.enable()
        settings = {"alpha": options.alpha, "max_extra": options.max_extra, "keep": options.keep}
        if options.sample:
            search = functools.partial(translator.sample, **settings, **options.sampling)
        else:
            settings |= {"beam": options.beam, "n_best": options.nbest}
            search = _EqualLinesOnce(translator.translate, settings)
        framer = Framer()
        languages = TargetLanguages(translator.subwords, say)
        picture = FirstLine(translator, options)
        given_up = GivenUp("paragraph" if options.paragraphs else "line")
        batches = given_up.checked(source.batches)
        if options.paragraphs:
            batches = joined_paragraphs(batches)
        number = 0  # of the first line of the batch
        with given_up.reported(), _TextProgress(source) as bar:
            for lines in batches:
                languages.check(lines, number)
                picture.see(lines)
                spans = [tuple(framer(line)) for line in lines]
                progress = bar.for_batch(lines)
                translations = search(lines, spans=spans, first=number, progress=progress)
                bar.wipe()
                if number == 0:
                    _tell_if_empty(translator, lines, translations, options.model)
                write(rendered(lines, number, translations, options))
                given_up.note(translations, number)
                number += len(lines)
        picture.check_is_drawn()


# The model ----------------------------------------------------------------------------------------


def _model_folder(model, bundled):
    """Return the folder of a model: of a public one, after it was downloaded and converted."""
    folder = model_folder(model, say)
    if not os.path.exists(folder):
        raise UserError(f"{folder}: no such folder: choose {_models_beside(bundled)}")
    return folder


def _models_beside(bundled):
    """Return which models can be named, for a message; bundled: the folder of one, or None."""
    folders = sorted(Path(bundled).parent.glob("*/config.json")) if bundled else []
    folders = [path.parent for path in folders if _translates(path.parent)]
    public = "a public model such as opus-mt-fr-en (French to English), which is downloaded once"
    if not folders:
        return f"the folder of a trained model, or {public}"
    return f"{', '.join(map(_named, folders))}, a folder that the trainer wrote, or {public}"


def _translates(folder):
    """Return whether a folder has a model that translates."""
    with contextlib.suppress(UserError):
        return not _parses(folder)
    return False


def _parses(folder):
    """Return whether a model writes trees. Raises UserError if it has no readable config.json."""
    return str(read_notes(folder).get("target_language")).startswith("trees")


def _named(folder):
    """Return a model's folder as a user would type it, with its languages if they are known."""
    languages = languages_of(folder)
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(os.getcwd())
    return f"{folder} ({' to '.join(languages)})" if all(languages) else str(folder)


def _check_is_no_parser(folder):
    is_parser = False
    with contextlib.suppress(UserError):  # what Translator.load says is more exact
        is_parser = _parses(folder)
    if is_parser:
        raise UserError(
            f"{folder}: a parser, which writes trees: use parse.py, or python -m minitf parse"
        )


def _tell_if_empty(translator, lines, translations, model):
    """Say so if no line with text has a translation: a model writes none at first."""
    if any(best[0].text for best in translations):
        return
    if any(map(translator.parts, lines)):
        updates = read_notes(model).get("step")
        so_far = f": it has had {updates} updates" if isinstance(updates, int) else ""
        say(f"{PROGRAM}: the model writes nothing. It may need more training{so_far}")


# Equal lines --------------------------------------------------------------------------------------


class _EqualLinesOnce:
    """Translates equal lines once: those of one batch, and those of the batches before it.

    Lines are equal if their spans are: a line of code is kept, and the same as text is not.
    translate, settings: `Translator.translate` and its arguments.
    """

    def __init__(self, translate, settings):
        self.translate, self.settings = translate, settings
        self.known = collections.OrderedDict()  # spans: translations; the least recent line first

    def __call__(self, lines, spans, first, progress):
        """Return the translations of each line; first, the number of the first, changes nothing."""
        new = {
            each: line for each, line in zip(spans, lines, strict=True) if each not in self.known
        }
        translations = self.translate(
            list(new.values()), spans=list(new), progress=progress, **self.settings
        )
        self.known.update(zip(new, translations, strict=True))
        for_all = [self.known[each] for each in spans]
        self._forget(spans)
        return for_all

    def _forget(self, seen):
        """Forget long lines, and the least recent ones if there are too many."""
        for spans in dict.fromkeys(seen):
            if sum(len(text) for text, _ in spans) <= SHORT:
                self.known.move_to_end(spans)
            else:
                del self.known[spans]
        while len(self.known) * self.settings["n_best"] > RECENT:
            self.known.popitem(last=False)


# The progress -------------------------------------------------------------------------------------


class _TextProgress(Progress):
    """The bytes of a text that are translated, as a bar.

    Says once, soon after the beginning, how long the text takes, if it is two minutes or more.
    """

    def __init__(self, source):
        super().__init__("text translated" if source.size else "bytes translated", source.size or 0)
        self.is_typed, self.has_forecast = source.typed, not source.size
        self.seen = 0  # bytes of the text, in this batch and those before it

    def for_batch(self, lines):
        """Return the progress function of a batch: called with its parts done and all."""
        size, before = sum(len(line.encode()) + 1 for line in lines), self.seen
        self.seen += size

        def show(done, parts):
            self.forecast(before + size * done // parts)
            self.update_to(before + size * done // parts)

        return None if self.is_typed else show

    def forecast(self, done):
        """Tell the time of the whole text, given how much of it is translated."""
        seconds = time.monotonic() - self.began
        if self.has_forecast or not done or seconds < SOON:
            return
        self.has_forecast = True
        minutes = seconds * self.total / done / 60
        if minutes > 1.5:
            duration = f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
            self.wipe()
            say(f"{PROGRAM}: the whole text will take about {duration}")
