"""The picture of the attention: the words that the model looks at while it translates."""

from pathlib import Path

from minitf.files.models import read_notes
from minitf.translation.console import PROGRAM, Mistake, say
from minitf.translation.languages import languages_of

PAGES = (".html", ".htm")
LICENCES = {  # of the models that come with minitf, by their corpus
    "toy": "its sentences and weights are minitf's own, MIT licence",
    "tatoeba-en-de": "sentence pairs of the Tatoeba project, CC BY 2.0 FR; code MIT",
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


def draw(translator, sentence, options):
    """Draw who attends to whom when the sentence is translated, into the file of --attention."""
    if options.attention.lower().endswith(PAGES):
        _draw_page(translator, sentence, options)
    else:
        _draw_maps(translator, sentence, options)
    if len(translator.parts(sentence)) > 1:
        say(
            f"{PROGRAM}: the line is translated in parts; {options.attention} shows "
            "the first of them"
        )


def _draw_page(translator, sentence, options):
    from minitf.page.writer import write_page

    explained = translator.explain(sentence, options.beam, options.alpha, options.max_extra)
    notes = read_notes(options.model)
    chosen = {}
    if options.with_model:
        chosen = {"model": translator.model, "subwords": translator.subwords}
    write_page(
        options.attention,
        explained,
        **chosen,
        longest=translator.longest,
        usual=translator.usual,
        languages=[str(notes.get(f"{side}_language") or "") for side in ("source", "target")],
        origin=_origin(options.model, notes),
    )


def _origin(folder, notes):
    """Return a sentence about where a model is from: whose its weights are, and their licence."""
    text = f"Model: {Path(folder).resolve().name}"
    if notes.get("corpus"):
        text += f", trained on {notes['corpus']}"
    about = LICENCES.get(notes.get("corpus"))
    return f"{text} ({about})." if about else f"{text}; see its folder for whose it is."


def _draw_maps(translator, sentence, options):
    from minitf import plot

    kind = options.attention_kind or "source"
    search = (options.beam, options.alpha, options.max_extra)
    weights, rows, columns = translator.attention(sentence, kind, options.layer, *search)

    parts = translator.parts(sentence)
    (title,) = translator.subwords.decode(parts[:1], side="source")
    last = len(translator.model.encoder.layers)
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
        raise Mistake(error) from None
