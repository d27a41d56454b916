"""Pictures: which token attends to which, and the curves of a training run.

Everything here takes plain arrays and lists and writes one file, whose suffix chooses the format
(.png, .pdf, .svg, ...). The figures are made without pyplot, so no window opens, and matplotlib's
settings do not change.
"""

import contextlib
import itertools
import re
import textwrap
import unicodedata
import warnings
from pathlib import Path

import numpy as np

# For scripts other than those of DejaVu Sans, which matplotlib brings (Latin, Greek, Cyrillic,
# Arabic, symbols): fonts of Linux, Windows and macOS. Missing ones are skipped. Fonts in colour are
# left out, because matplotlib cannot draw them.
FONTS = """DejaVu Sans, Noto Sans CJK SC, Noto Sans CJK JP, Noto Sans, Noto Sans Devanagari,
Noto Emoji, Unifont, Microsoft YaHei, Yu Gothic, Malgun Gothic, Nirmala UI, Segoe UI Symbol,
Segoe UI Emoji, PingFang SC, Hiragino Sans, Apple SD Gothic Neo, Arial Unicode MS, Apple Symbols"""
# Curves are told apart by colour on a screen, and by dashes when printed in greyscale.
COLOURS = ("#1f5fa8", "#d1701c", "#3f8f3f", "#8a4fa3", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))
GRID = {"color": "#dddddd", "linewidth": 0.7}

FONT = 12.0  # points
SMALLEST_FONT = 4.0  # points
CELL = 0.24  # inches; less if the picture would otherwise be larger than LARGEST
LARGEST = 26.0  # inches
LETTER = 0.11  # inches; the width of a letter of a label, roughly
MAX_ACROSS = 4  # panels side by side
LONGEST_LABEL = 40  # characters

JOINED = "Words of several subwords: their columns are added, their rows averaged."
MARKED = "_ marks the beginning of a word."
BOXES = (
    "Boxes: no installed font has these characters; Noto Sans CJK has Chinese and Japanese ones."
)


# Attention maps -----------------------------------------------------------------------------------


def attention_maps(
    weights,
    target_tokens,
    source_tokens,
    path,
    title: str | None = None,
    caption: str | None = None,
    names: tuple[str, str] = ("queries", "keys"),
    words: bool = False,
) -> None:
    """Draw attention weights, one panel for each head: rows attend to columns, darker means more.

    weights: (H, T, S), each row a distribution. target_tokens: T strings. source_tokens: S strings.
    caption: small print below the panels, to which hints on the tokens are added. names: what
    rows and columns are. words: draw words instead of subwords, as `join_pieces` joins them; the
    bytes of a character are always joined.
    Raises ValueError if the sizes do not agree, or the file cannot be written.
    Source: the figures in the paper's appendix.
    """
    sizes = np.shape(weights)[1:]
    weights, target_tokens, source_tokens = join_pieces(
        weights, target_tokens, source_tokens, words
    )
    rows, columns = (
        [_label(token) for token in tokens] for tokens in (target_tokens, source_tokens)
    )
    title = to_drawable(title or "")
    if caption:
        joined = words and weights.shape[1:] != sizes
        caption = _add_hints(to_drawable(caption), [*target_tokens, *source_tokens, title], joined)
    n_heads = len(weights)
    across = min(n_heads, MAX_ACROSS)
    down = -(-n_heads // across)
    cell = min(CELL, LARGEST / (across * len(columns)), LARGEST / (down * len(rows)))
    wide = across * max(3, len(columns)) * cell + LETTER * max(map(len, rows)) + 2
    high = down * (max(3, len(rows)) * cell + 0.4) + LETTER * max(map(len, columns)) + 2
    figure = new_figure(wide, high)
    figure.set_layout_engine("compressed")  # takes out what square cells leave empty
    grid = figure.subplots(down, across, squeeze=False)
    style, highest = text_style(), float(np.nanmax(weights)) or 1.0
    for head, axes in enumerate(grid.flat):
        if head >= n_heads:
            axes.set_axis_off()
            continue
        image = axes.imshow(weights[head], cmap="Blues", vmin=0, vmax=highest)
        axes.set_title(f"head {head + 1}" if n_heads > 1 else "", fontsize=FONT)  # a state has none
        _name_cells(axes.yaxis, rows, cell, names[0], shown=head % across == 0)
        _name_cells(axes.xaxis, columns, cell, names[1], shown=head + across >= n_heads)
    bar = figure.colorbar(image, ax=grid, shrink=min(1, 3 / high), pad=0.02)
    bar.set_label("weight", fontsize=FONT)
    letters = int(wide / LETTER)
    if title:
        lines = textwrap.wrap(title, letters, max_lines=2, placeholder=" …")
        figure.suptitle("\n".join(lines), fontsize=1.3 * FONT, **style)
    if caption:
        lines = textwrap.wrap(caption, letters)
        figure.supxlabel("\n".join(lines), fontsize=0.85 * FONT, color="#555555", **style)
    save_figure(figure, path)


def _add_hints(caption, tokens, joined):
    """Return the caption with the hints that a reader of these tokens needs."""
    boxes = without_font("".join(tokens))
    hints = {JOINED: joined, MARKED: any("▁" in token for token in tokens), BOXES: boxes}
    return " ".join([caption, *(hint for hint, needed in hints.items() if needed)])


def _name_cells(axis, labels, cell, name, shown):
    if not shown:
        axis.set_ticks([])
        return
    size = min(FONT, 72 * cell * 0.7)
    every = 1 if size >= SMALLEST_FONT else int(np.ceil(SMALLEST_FONT / size))
    style = text_style() | {"fontsize": max(size, SMALLEST_FONT)}
    axis.set_ticks(range(0, len(labels), every), labels[::every], **style)
    axis.set_tick_params(length=0, labelrotation=90 if axis.axis_name == "x" else 0)
    axis.set_label_text(name, fontsize=FONT, **text_style())


def _label(token):
    """Return a token as a label: the mark ▁ is a heavy bar in most fonts."""
    text = to_drawable(token).replace("▁", "_")
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


# Pieces to words ----------------------------------------------------------------------------------

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_BYTES = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}  # in a character, by the first half of its first byte
# A word, written in the letters that `_kind` returns: letters, perhaps with an apostrophe or a dot
# between them; or one character with its modifiers.
_WORD = re.compile("b*(?:w(?:[wm]|jw)*|[^b]m*)")


def join_pieces(weights, target_tokens, source_tokens, words: bool = False):
    """Join the bytes of each character and, with words=True, the subwords of each word.

        joined[h, i, j] = average over the rows t of word i
                          of the sum over the columns s of word j of weights[h, t, s]

    weights: (H, T, S); the result is ((H, I, J), I strings, J strings).

    A word attends as its subwords do on average, and receives the sum of their weights, so the sum
    of a row does not change. U+2581 begins a word, as in SentencePiece; if no token contains it,
    each token is a word unless @@ marks a split. A punctuation mark is a separate word, and so is a
    Chinese character. Words are returned without these marks, and the start and end marks of a
    sentence as "(start)" and "(end)".

    >>> weights = [[[0.2, 0.3, 0.5], [0.4, 0.5, 0.1]]]
    >>> join_pieces(weights, ["▁H", "i"], ["▁Hal", "lo", "</s>"], words=True)
    (array([[[0.7, 0.3]]]), ['Hi'], ['Hallo', '(end)'])
    >>> join_pieces([[[0.2, 0.3, 0.5]]], ["é"], ["<0xC3>", "<0xA9>", "▁"])
    (array([[[0.5, 0.5]]]), ['é'], ['é', '▁'])
    """
    weights = np.asarray(weights)
    if weights.shape[1:] != (len(target_tokens), len(source_tokens)) or 0 in weights.shape:
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(target_tokens)} target and "
            f"{len(source_tokens)} source tokens"
        )
    (rows, row_starts), (columns, column_starts) = (
        _join_tokens(p, words) for p in (target_tokens, source_tokens)
    )
    sizes = np.diff([*row_starts, weights.shape[1]]).astype(weights.dtype)
    summed = np.add.reduceat(weights, column_starts, axis=2)
    return np.add.reduceat(summed, row_starts, axis=1) / sizes[:, None], rows, columns


def _join_tokens(tokens, words):
    """Return the characters or words that the tokens form, and the first token of each."""
    texts, starts, start = [], [], 0
    while start < len(tokens):
        text, size = _character(tokens, start)
        texts.append(text)
        starts.append(start)
        start += size
    if not words:
        return texts, starts
    begins = [i for i, begins in enumerate(_begins(texts)) if begins]
    joined = ["".join(texts[i:j]) for i, j in zip(begins, [*begins[1:], len(texts)], strict=True)]
    return [_word(text) for text in joined], [starts[i] for i in begins]


def _character(tokens, start):
    """Return the token at this index, or the character whose bytes begin there, and its length."""
    if first := _BYTE.fullmatch(tokens[start]):
        size = _BYTES.get(int(first[1], 16) >> 4, 1)
        encoded = [_BYTE.fullmatch(token) for token in tokens[start : start + size]]
        if all(encoded):
            with contextlib.suppress(UnicodeDecodeError):  # a byte may be missing
                return bytes(int(byte[1], 16) for byte in encoded).decode(), size
    return tokens[start], 1


def _begins(texts):
    """Return for each text whether it begins a word."""
    if not any("▁" in text for text in texts):
        return [True, *(not text.endswith("@@") for text in texts[:-1])]
    line = "".join(texts)
    inside = {
        i
        for match in _WORD.finditer("".join(map(_kind, line)))
        for i in range(match.start() + 1, match.end())
    }
    return [start not in inside for start in itertools.accumulate(map(len, texts[:-1]), initial=0)]


def _kind(character):
    """Return the role of a character in a word: w, m, j, b or x."""
    category = unicodedata.category(character)
    if character == "▁":
        return "b"  # begins a word
    if category in ("Mn", "Mc", "Me", "Cf") or "\U0001f3fb" <= character <= "\U0001f3ff":
        return "m"  # changes the one before it: an accent, a colour of skin
    if character in "'’.,:-_@":
        return "j"  # is part of a word between two letters
    if character.isalnum() and unicodedata.east_asian_width(character) != "W":
        return "w"  # a letter or digit of a script with spaces between words
    return "x"


def _word(text):
    return (
        {"<s>": "(start)", "</s>": "(end)"}.get(text) or text.replace("@@", "").strip("▁") or text
    )


# Curves -------------------------------------------------------------------------------------------

PANELS = (  # title, {key in the history: name in the legend}, logarithmic
    ("loss (nats per target token)", {"loss": "training"}, False),
    ("perplexity", {"perplexity": "training", "valid_perplexity": "validation"}, True),
    ("validation BLEU", {"valid_bleu": "validation"}, False),
    ("learning rate", {"learning_rate": "training"}, False),
    ("gradient norm", {"gradient_norm": "training"}, True),
)
BEST = {"valid_perplexity": min, "valid_bleu": max}


def curves(history: list[dict], path) -> None:
    """Draw the curves of a training run: loss, perplexity, BLEU, learning rate and gradient norm.

    history: records of the training log, in order. Each has "step" and any of "loss", "perplexity",
    "learning_rate", "gradient_norm", "valid_perplexity", "valid_bleu". A quantity without records
    gets no panel; the best validation is marked.
    Raises ValueError if there is nothing to draw, or the file cannot be written.
    """
    panels = [panel for panel in PANELS if any(_series(history, key)[0] for key in panel[1])]
    if not panels:
        raise ValueError(f"{path}: nothing to draw: the history contains no values yet")
    figure = new_figure(11, 6.2, padding=0.08)
    for axes, panel in itertools.zip_longest(figure.subplots(2, 3).flat, panels):
        if panel is None:
            axes.remove()
            continue
        _draw_panel(axes, history, *panel)
        axes.set_xlim(0, 1.03 * max(1, history[-1]["step"]))
    save_figure(figure, path)


def _series(records, key):
    """Return (steps, values) of the records whose value is a number."""
    pairs = [(record["step"], record.get(key)) for record in records]
    pairs = [(step, value) for step, value in pairs if value is not None and np.isfinite(value)]
    return [step for step, _ in pairs], [value for _, value in pairs]


def _draw_panel(axes, records, title, names, logarithmic):
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    label_axes(axes, "step", "", title, font=10, small=8)
    axes.grid(**GRID)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for i, (key, name) in enumerate(names.items()):
        steps, values = _series(records, key)
        if not steps:
            continue
        style = {"marker": "o", "markersize": 3} if len(steps) < 30 else {}
        if key in BEST:
            best = values.index(BEST[key](values))
            ring = {"markersize": 7, "fillstyle": "none", "color": COLOURS[i]}
            axes.plot(steps[best], values[best], "o", **ring)
            name += f", best {values[best]:.2f} at step {steps[best]:,}"
        axes.plot(steps, values, label=name, linewidth=1.3, **curve_style(i), **style)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        plain_numbers(axes.yaxis)
    if BEST.keys() & names.keys():
        axes.legend(frameon=False, fontsize=8)


# All figures --------------------------------------------------------------------------------------


def new_figure(width, height, padding=None, dpi=150):
    """Return an empty figure of this size in inches, which no window shows.

    padding: inches around each panel, which matplotlib then arranges; None if the caller does.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi)
    if padding:
        figure.set_layout_engine("constrained", w_pad=padding, h_pad=padding)
    return figure


def label_axes(axes, x, y, title, font, small):
    """Write title and labels in one size and ticks in another, and open the frame."""
    axes.set_title(title, fontsize=font)
    axes.set_xlabel(x, fontsize=font)
    axes.set_ylabel(y, fontsize=font)
    axes.tick_params(labelsize=small)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def curve_style(i):
    """Return the colour and the dashes of curve i."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def plain_numbers(axis):
    """Write the numbers of a logarithmic axis without powers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure, path):
    """Write the figure to a file.

    Raises ValueError for an unknown format, and for a file that cannot be written.
    """
    path = Path(path)
    if path.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"{path}: unknown picture format {path.suffix!r}: use .png, .pdf or .svg")
    try:
        with warnings.catch_warnings():
            # A character without a font is drawn as a box, and the caption says so.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(path, bbox_inches="tight", pad_inches=0.12)
    except (OSError, RuntimeError) as error:  # the latter where LaTeX is missing, for .pgf
        (reason, *_) = (getattr(error, "strerror", None) or str(error)).splitlines() or [""]
        raise ValueError(
            f"{path}: cannot be written ({reason}): choose another file, folder or format"
        ) from error


def _fonts():
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [name for name in re.split(r",\s", FONTS) if name in installed]


def text_style():
    """Return the options of text: in any installed font, and a dollar sign begins no formula."""
    return {"parse_math": False, "usetex": False, "fontfamily": _fonts()}


def to_drawable(text):
    """Leave out invisible characters, and replace those that cannot be printed."""
    visible = (c for c in text if unicodedata.category(c) != "Cf")
    return "".join(c if c.isprintable() else "\ufffd" for c in visible)


def without_font(text):
    """Return the characters of a text that no installed font has, so that they become boxes."""
    from matplotlib import font_manager

    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in _fonts()]
    signs = dict.fromkeys(to_drawable(text))
    return "".join(s for s in signs if not any(font.get_char_index(ord(s)) for font in fonts))
