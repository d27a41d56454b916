"""The picture of the attention: the words that the model looks at while it translates."""

from pathlib import Path
from typing import NamedTuple

from minitf.cli import say
from minitf.commands.console import PROGRAM
from minitf.errors import UserError
from minitf.files.models import read_notes
from minitf.translation.languages import languages_of

PAGES = (".html", ".htm")


class Corpus(NamedTuple):
    """What a page says of a model that comes with minitf: its training text, and what to type.

    turning: a line that a beam translates better than greedy decoding, if one is known.
    """

    origin: str
    hint: str
    examples: tuple[str, ...]
    turning: str = ""


_TATOEBA = (
    "sentence pairs of tatoeba.org, collected by manythings.org/anki (pairs and "
    "weights: CC BY 2.0 FR, code: MIT licence)"
)
_EVERYDAY = "It is best at everyday sentences of up to 15 words. For example:"
CORPORA = {
    "toy": Corpus(
        "made-up sentences that come with minitf, a Transformer written from scratch in Python. It "
        "knows the words of these sentences and no others (sentences, weights and code: MIT "
        "licence)",
        "This small model learned from made-up sentences that use a few hundred words. What it "
        "makes of other words is nonsense, and so it may be with known words in a new kind of "
        "sentence. Begin with a capital letter, and end with a full stop or a question mark. For "
        "example:",
        (
            "Tom is sleeping.",
            "I think that Tom bought a horse yesterday.",
            "Where is my friend?",
            "The child will not open the window.",
        ),
        "His father drank cold coffee at home on Sunday.",
    ),
    "tatoeba-en-de": Corpus(
        _TATOEBA,
        _EVERYDAY,
        (
            "The children are playing in the garden.",
            "Have you ever been to Berlin?",
            "I think that we should go home now.",
            "When I was a child, I wanted to become an astronaut.",
        ),
        "She took off the coat before dinner.",
    ),
    "tatoeba-de-en": Corpus(
        _TATOEBA,
        _EVERYDAY,
        (
            "Die Kinder spielen im Garten.",
            "Warst du schon einmal in Berlin?",
            "Ich glaube, dass wir jetzt nach Hause gehen sollten.",
            "Als ich ein Kind war, wollte ich Astronaut werden.",
        ),
    ),
}

CAPTIONS = {
    "source": (
        "Where the model looks in the input to choose each word of the output (decoder to source"
    ),
    "encoder": (
        "Where the model looks in the input to understand each of its words (encoder self-attention"
    ),
    "decoder": (
        "Where the model looks in the output so far to choose its next word (decoder self-attention"
    ),
}


class FirstLine:
    """Draws who attends to whom when the first line of a text is translated: --attention."""

    def __init__(self, translator, options):
        self._translator, self._options = translator, options
        self._is_drawn, self._is_done = False, not options.attention

    def see(self, lines):
        """Draw the first line with text, and tell of the second, in whatever batches they come."""
        if self._is_done:
            return
        for line in filter(self._translator.parts, lines):
            if self._is_drawn:
                say(f"{PROGRAM}: {self._options.attention} shows the first line of the text only")
                self._is_done = True
                return
            _draw(self._translator, line, self._options)
            self._is_drawn = True

    def check_is_drawn(self):
        """Raise UserError if the text had no line to draw."""
        if self._options.attention and not self._is_drawn:
            raise UserError("--attention: there is no text to draw a picture of: give a sentence")


def _draw(translator, line, options):
    if options.attention.lower().endswith(PAGES):
        _draw_page(translator, line, options)
    else:
        _draw_maps(translator, line, options)
    if len(translator.parts(line)) > 1:
        say(
            f"{PROGRAM}: the line is translated in parts; {options.attention} shows "
            "the first of them"
        )


def _draw_page(translator, sentence, options):
    search = (options.beam, options.alpha, options.max_extra)
    draw_page(
        translator, sentence, options.attention, options.model, *search, model=options.with_model
    )


def draw_page(translator, sentence, path, folder, beam=4, alpha=0.6, max_extra=50, model=True):
    """Write a page that shows how a sentence is translated; model: with the model in it.

    folder: that of the translator's model, whose notes say what it was trained on.
    """
    from minitf.page.writer import write_page

    explained = translator.explain(sentence, beam, alpha, max_extra)
    notes = read_notes(folder)
    corpus = notes.get("corpus")
    corpus = corpus if isinstance(corpus, str) else ""  # a person may have edited the file
    languages = [str(notes.get(f"{side}_language") or "") for side in ("source", "target")]
    if corpus == "own":  # the trainer's names for files of the user
        corpus, languages = "", ["", ""]
    known = CORPORA.get(corpus)
    chosen = {"model": translator.model, "subwords": translator.subwords} if model else {}
    write_page(
        path,
        explained,
        **chosen,
        max_subwords=translator.max_subwords,
        max_unsplit=translator.max_unsplit,
        reads_capitals=translator.reads_capitals,
        languages=languages,
        origin=_origin(folder, corpus),
        hint=known.hint if known else "",
        examples=known.examples if known else (),
        turning=known.turning if known else "",
    )


def _origin(folder, corpus):
    """Return a sentence about where a model is from: whose its weights are, and their licence."""
    name = f"Model: {Path(folder).resolve().name}"
    if corpus in CORPORA:
        return f"{name}, trained on {CORPORA[corpus].origin}."
    return f"{name}{f', trained on {corpus}' if corpus else ''}; see its folder for whose it is."


def _draw_maps(translator, sentence, options):
    from minitf import plot

    kind = options.attention_kind or "source"
    search = (options.beam, options.alpha, options.max_extra)
    weights, rows, columns = translator.attention(sentence, kind, options.layer, *search)

    parts = translator.parts(sentence)
    (title,) = translator.subwords.decode(parts[:1], side="source")
    model = translator.model
    last = len((model.encoder if kind == "encoder" else model.decoder).layers)
    layer = options.layer or last
    caption = (
        f"{CAPTIONS[kind]}, layer {layer} of {last}). Darker means more attention; "
        "each row sums to 1."
    )

    source, target = languages_of(options.model)
    read, written = f"{source or ''} input".strip(), f"{target or ''} output".strip()
    axes = {"source": (written, read), "encoder": (read, read), "decoder": (written, written)}
    words = not options.attention_subwords
    try:
        plot.attention_maps(
            weights, rows, columns, options.attention, title.strip(), caption, axes[kind], words
        )
    except ValueError as error:
        raise UserError(error) from None
