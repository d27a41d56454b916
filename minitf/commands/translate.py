"""The command translate.py: text in, translations out, a batch of lines at a time."""

import contextlib
import functools
import gc
from itertools import chain, islice, pairwise

from minitf.backend import use
from minitf.cli import Progress, exit_code, say, signals_as_exceptions
from minitf.commands.arguments import PROGRAM, parse
from minitf.commands.input import greet, join_paragraphs, open_input
from minitf.commands.output import LostText, open_output, render
from minitf.cpu.machine import keep_memory
from minitf.errors import UserError
from minitf.files.arrays import exists
from minitf.text import PairedSubwords
from minitf.text.sentences import text_ranges
from minitf.text.vocabulary import printable, valid_unicode
from minitf.translation.loading import is_parser
from minitf.translation.translator import Search, Translator
from minitf.translation.writing import join_parts


def main(arguments=None, model=None):
    """Run the command line; return the exit code, as `minitf.cli.exit_code`.

    model: the folder of the model that is used without --model.
    """
    return exit_code(PROGRAM, lambda: translate(parse(arguments, model), model))


def translate(options, bundled=None):
    """Translate the text that the options name.

    bundled: the folder of a model beside which there are others, for a message.
    """
    if not exists(options.model):
        from minitf.commands.models import folder_of  # lazily: most models are here

        options.model = folder_of(options.model, bundled)
    use(options.backend)
    keep_memory()
    with (
        signals_as_exceptions(),
        open_input(options) as source,
        open_output(options.output, source.file) as write,
    ):
        document = None
        if options.format_in:
            from minitf.documents.reading import read_document  # lazily: most texts are plain

            name = "the input" if options.input in (None, "-") else options.input
            document = read_document(source.file, options.format_in, name)
            if not document.segments:
                say(f"{PROGRAM}: the document has no text to translate: it stays as it is")
        translator = Translator.load(options.model, shortlist=options.shortlist)
        if is_parser(translator.notes):
            raise UserError(f"{options.model}: a parser: use parse.py, or python -m minitf parse")
        # What is loaded stays: looking through it for garbage, now and at the end of the program,
        # takes longer than translating a sentence.
        gc.freeze()
        gc.enable()
        if source.typed:
            hint = "an empty line ends a paragraph" if options.paragraphs else None
            greet(options.model, translator.notes, hint)
        search = Search(
            options.beam, options.alpha, options.max_extra, options.nbest, like=options.like
        )
        method = functools.partial(
            translator.sample if options.sample else translator.translate,
            search=search,
            keep=options.keep,
            **options.sampling,
        )
        if document:
            _translate_document(document, translator, method, options.model, write)
        else:
            _translate_batches(source, translator, method, options, write)


def _translate_document(document, translator, method, name, write):
    """Write a Document with its texts translated. name: the model's."""
    if isinstance(translator.subwords, PairedSubwords) and translator.subwords.languages():
        raise UserError(
            f"{name} needs the target language in each line, which a document lacks: "
            "choose a model with one target language"
        )
    total = sum(len(segment.text) for segment in document.segments)
    with LostText() as lost, Progress("text translated", total) as bar:

        def show(done, parts):
            bar.update_to(total * done // parts)

        write(document.translate(functools.partial(method, progress=show), lost.note))


def _translate_batches(source, translator, method, options, write):
    """Write the translations of a Source, a batch of lines at a time.

    method: `Translator.translate` or `sample`, with the options.
    """
    lost = LostText("paragraph" if options.paragraphs else "line")
    batches = lost.watch(source.batches)
    if options.paragraphs:
        batches = join_paragraphs(batches)
    if isinstance(translator.subwords, PairedSubwords):
        from minitf.translation.languages import naming_languages  # lazily: few models need it

        batches = naming_languages(batches, translator.subwords, say)
    if options.attention:
        from minitf.commands.picture import draw_first

        batches = draw_first(batches, translator, options)
    number = n_texts = end = 0  # before the batch: lines and texts; the bytes up to its last line
    told = "text translated" if source.size else "bytes translated"
    has_bar = source.file and not source.typed
    bar = Progress(told, source.size or 0) if has_bar else None
    with lost, bar or contextlib.nullcontext():
        for lines in batches:
            begin, end = end, end + sum(len(line.encode()) + 1 for line in lines)

            def show(done, parts, begin=begin, end=end):
                bar.update_to(begin + (end - begin) * done // parts)

            ranges = [(line, text_ranges(line)) for line in lines]
            per_text = method(
                [line[start:stop] for line, texts in ranges for start, stop in texts],
                progress=show if bar else None,
                **({"first": n_texts} if options.sample else {}),
            )
            left = iter(per_text)
            translations = [
                join_parts(list(islice(left, len(texts))), options.nbest, _around(line, texts))
                for line, texts in ranges
            ]
            if bar:
                bar.wipe()
            is_empty = number == 0 and not any(best[0].text for best in per_text)
            if is_empty and any(map(translator.parts, lines)):  # a model writes nothing at first
                updates = translator.notes.get("step")
                so_far = f": it has had {updates} updates" if updates else ""
                say(f"{PROGRAM}: the model writes nothing. It may need more training{so_far}")
            write(render(lines, number, translations, options))
            lost.note(translations, number)
            number, n_texts = number + len(lines), n_texts + len(per_text)


def _around(line, ranges):
    """Return what is before, between and after some ranges of a line, in printable characters."""
    edges = pairwise([0, *chain(*ranges), len(line)])
    return [
        "\t".join(printable(valid_unicode(each)) for each in line[start:stop].split("\t"))
        for start, stop in islice(edges, None, None, 2)
    ]
