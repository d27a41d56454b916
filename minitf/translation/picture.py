"""The picture of the attention: the words that the model looks at while it translates."""

from minitf.translation.console import PROGRAM, Mistake, say
from minitf.translation.languages import languages_of

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
    if len(parts) > 1:
        say(
            f"{PROGRAM}: the line is translated in parts; {options.attention} shows "
            "the first of them"
        )
