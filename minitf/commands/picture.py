"""The picture of the attention: the words that the model looks at while it translates."""

from pathlib import Path

from minitf import plot
from minitf.cli import say
from minitf.commands.arguments import PAGES, PROGRAM
from minitf.errors import UserError
from minitf.page.writer import write_page
from minitf.translation.languages import languages_of
from minitf.translation.translator import Search

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
    "ssru": (
        "How much of the decoder's state comes from each word of the output so far (SSRU, the mean "
        "of its features"
    ),
}
SUMS = {
    "ssru": "Darker means more of it; each row sums to less than 1, because the state begins at 0."
}


def draw_first(batches, translator, options):
    """Yield the lists of lines; draw who attends to whom in the first line that has text.

    Raises UserError if no line has text.
    """
    seen = 0  # lines with text: the first is drawn; at the second, a message says so
    for lines in batches:
        for line in lines:
            if seen == 2 or not (parts := translator.parts(line)):
                continue
            seen += 1
            if seen == 2:
                say(f"{PROGRAM}: {options.attention} shows the first line of the text only")
                continue
            path = options.attention
            search = Search(options.beam, options.alpha, options.max_extra, like=options.like)
            if path.lower().endswith(PAGES):
                draw_page(translator, line, path, options.model, search, options.with_model)
            else:
                _draw_maps(translator, line, options, search)
            if len(parts) > 1:
                say(
                    f"{PROGRAM}: the line is translated in parts; {options.attention} shows the "
                    "first of them"
                )
        yield lines
    if not seen:
        raise UserError("--attention: there is no text to draw a picture of: give a sentence")


def draw_page(translator, sentence, path, folder, search=None, model=True):
    """Write a page that shows how a sentence is translated.

    folder: the model's, whose name is on the page. model: whether the model is in the page.
    """
    notes = translator.notes
    if notes.get("corpus") == "own":  # the trainer's names for files of the user
        notes = {}
    about, name = notes.get("page", {}), f"Model: {Path(folder).resolve().name}"
    corpus = f", trained on {notes['corpus']}" if "corpus" in notes else ""
    origin = f"{name}{corpus}; see its folder for whose it is."
    if "origin" in about:
        origin = f"{name}, trained on {about['origin']}."
    chosen = {"model": translator.model, "subwords": translator.subwords} if model else {}
    write_page(
        path,
        translator.explain(sentence, search),
        **chosen,
        max_subwords=translator.max_subwords,
        max_unsplit=translator.max_unsplit,
        reads_capitals=translator.reads_capitals,
        languages=[notes.get(f"{side}_language", "") for side in ("source", "target")],
        origin=origin,
        hint=about.get("hint", ""),
        examples=about.get("examples", ()),
        turning=about.get("turning", ""),
    )


def _draw_maps(translator, sentence, options, search):
    kind = options.attention_kind or "source"
    weights, rows, columns = translator.attention(sentence, kind, options.layer, search)
    (title,) = translator.subwords.decode(translator.parts(sentence)[:1], side="source")
    model = translator.model
    last = len((model.encoder if kind == "encoder" else model.decoder).layers)
    shown = "ssru" if kind == "decoder" and model.config.decoder == "ssru" else kind
    sums = SUMS.get(shown, "Darker means more attention; each row sums to 1.")
    caption = f"{CAPTIONS[shown]}, layer {options.layer or last} of {last}). {sums}"
    source, target = languages_of(translator.notes)
    read, written = f"{source or ''} input".strip(), f"{target or ''} output".strip()
    axes = {"source": (written, read), "encoder": (read, read), "decoder": (written, written)}
    words = not options.attention_subwords
    try:
        plot.attention_maps(
            weights, rows, columns, options.attention, title.strip(), caption, axes[kind], words
        )
    except ValueError as error:
        raise UserError(error) from None
