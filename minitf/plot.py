"""Pictures: who attends to whom, the curves of a training, learning-rate schedules.

Everything here takes plain arrays and lists and writes one file, in the format that its suffix
names (.png, .pdf, .svg, ...). The figures are made without pyplot, so no window opens and the
reader's own plots, backend and settings stay as they are.
"""

import contextlib
import re
import textwrap
import unicodedata
import warnings
from itertools import accumulate
from pathlib import Path

import numpy as np

__all__ = ["attention_maps", "curves", "join_pieces", "schedule"]

# Besides DejaVu Sans, which matplotlib brings along (Latin, Greek, Cyrillic, Arabic, symbols, some
# emoji): what Linux, Windows and macOS have for other scripts. Those not installed are passed over.
# Fonts in colour are not here, because matplotlib cannot draw them.
FONTS = (
    "DejaVu Sans",
    *(
        "Noto Sans CJK SC",
        "Noto Sans CJK JP",
        "Noto Sans",
        "Noto Sans Devanagari",
        "Noto Emoji",
        "Unifont",
    ),
    *(
        "Microsoft YaHei",
        "Yu Gothic",
        "Malgun Gothic",
        "Nirmala UI",
        "Segoe UI Symbol",
        "Segoe UI Emoji",
    ),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "Apple Symbols"),
)
LONGEST_LABEL = 40
CELL = 0.24  # inches; smaller where the whole picture would get larger than LARGEST
LARGEST = 26.0
LINES_FROM = 0.1  # in smaller cells the lines between them would be all there is to see
GAP = 0.16
HEAD_TITLE = 0.3
FONT = 12.0  # points
LETTER = 0.085  # inches that a letter takes in this size
SMALLEST_FONT = 4.0
NARROWEST = 5.0  # inches that the title and the caption may take above a smaller picture
# Told apart in grey by the dashes.
COLOURS = ("#1f5fa8", "#d1701c", "#3f8f3f", "#8a4fa3", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


JOINED = "Words of several subwords: their columns are added, their rows averaged."
MARKED = "_ marks the beginning of a word."
BOXES = (
    "Boxes: no installed font has these characters; Noto Sans CJK has Chinese and Japanese ones."
)


# Who attends to whom ------------------------------------------------------------------------------


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
    """Draw attention weights, one panel for each head: rows attend, columns are attended
    to, dark is much.

    weights: (H, T, S), each row a distribution.  target_tokens: T strings.
    source_tokens: S strings.
    caption: small print under the title; it also explains the tokens.  names: those of the rows and
    of the columns. words: draw words in place of subwords, as `join_pieces` joins them; the bytes
    of a character are always joined.

    Raises ValueError where the sizes do not agree, and for a path that cannot be written.
    Source: the figures in the paper's appendix.
    """
    weights = np.asarray(weights)
    sizes = (len(target_tokens), len(source_tokens))
    if weights.ndim != 3 or weights.shape[1:] != sizes or 0 in weights.shape:
        raise ValueError(
            f"weights of shape {weights.shape} for {sizes[0]} target and {sizes[1]} source tokens: "
            f"they must be (heads, target tokens, source tokens)"
        )
    weights, target_tokens, source_tokens = join_pieces(
        weights, target_tokens, source_tokens, words
    )
    rows, columns = (
        [_label(token) for token in tokens] for tokens in (target_tokens, source_tokens)
    )
    title = _drawable(title or "")
    if caption:
        joined = words and weights.shape[1:] != sizes
        caption = _explained(_drawable(caption), [*target_tokens, *source_tokens, title], joined)
    sizes = weights.shape[1:]
    grid = _Grid(len(weights), rows, columns)
    figure = new_figure(grid.width, grid.height)
    highest = float(np.nanmax(weights)) or 1.0
    for head, panel in enumerate(weights):
        axes = figure.add_axes(grid.place(head))
        image = axes.imshow(
            panel, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest"
        )
        axes.set_title(f"head {head + 1}", fontsize=FONT, pad=4)
        _separate_cells(axes, *sizes, lines=grid.cell > LINES_FROM)
        _name_cells(axes.yaxis, rows, grid.cell, shown=grid.is_left(head))
        _name_cells(axes.xaxis, columns, grid.cell, shown=grid.is_lowest(head))
        axes.set_ylabel(
            names[0] if grid.has_row_name(head, names[0]) else "", fontsize=FONT, **_plain()
        )
        axes.set_xlabel(
            names[1] if grid.has_column_name(head, names[1]) else "", fontsize=FONT, **_plain()
        )
    bar = figure.colorbar(image, cax=figure.add_axes(grid.place_bar()))
    bar.set_label("attention weight", fontsize=FONT)
    bar.ax.tick_params(labelsize=0.8 * FONT)
    bar.outline.set_linewidth(0.5)
    _head(figure, title, caption)
    save_figure(figure, path)


def _explained(caption, tokens, joined):
    """Add to the caption what the reader has to know about these tokens."""
    boxes = not all(map(_has_glyph, set(_drawable("".join(tokens)))))
    hints = {JOINED: joined, MARKED: any("▁" in token for token in tokens), BOXES: boxes}
    return " ".join([caption, *(hint for hint, needed in hints.items() if needed)])


def _head(figure, title, caption):
    """Write the caption above the panels, in lines of about their width, and the title
    above the caption.
    """
    wide, high = figure.get_size_inches()
    # A large picture is seen from further away.
    wide, size = max(wide, NARROWEST), FONT * max(1.0, wide / 14)
    top = 1 + 0.1 / high
    if caption:
        lines = textwrap.wrap(caption, int(72 * wide / (0.47 * size)))
        style = {"va": "bottom", "ha": "center", "color": "#555555", "linespacing": 1.3, **_plain()}
        figure.text(0.5, top, "\n".join(lines), fontsize=0.85 * size, **style)
        top += (1.3 * len(lines) + 0.6) * 0.85 * size / 72 / high
    if title:
        title = _cut(title, int(72 * wide / (0.6 * 1.3 * size)))
        figure.suptitle(title, y=top, va="bottom", fontsize=1.3 * size, **_plain())


class _Grid:
    """Where the panels go, in inches: in as many columns as bring the picture nearest to a
    slide's shape.
    """

    def __init__(self, n, rows, columns):
        self.n = n
        # Labels stand outside and the saved picture grows around them; here a guess of their
        # length will do.
        margins = [0.11 * max(map(len, labels)) for labels in (rows, columns)]

        def shape(across):
            down = -(-n // across)
            wide = across * len(columns) * CELL + (across - 1) * GAP
            high = down * (len(rows) * CELL + HEAD_TITLE) + (down - 1) * GAP
            return wide, high

        def strangeness(across):
            wide, high = shape(across)
            empty = -n % across
            return abs(np.log((wide + margins[0]) / (high + margins[1]) / 1.7)) + 0.3 * empty

        self.across = min(range(1, n + 1), key=strangeness)
        self.cell = CELL * min(1.0, LARGEST / max(shape(self.across)))
        self.wide, self.high = len(columns) * self.cell, len(rows) * self.cell
        self.down = -(-n // self.across)
        self.width = self.across * (self.wide + GAP) + 0.16
        self.height = self.down * (self.high + HEAD_TITLE + GAP)

    def place(self, head):
        row, column = divmod(head, self.across)
        left = column * (self.wide + GAP)
        top = row * (self.high + HEAD_TITLE + GAP) + HEAD_TITLE
        return (
            left / self.width,
            1 - (top + self.high) / self.height,
            self.wide / self.width,
            self.high / self.height,
        )

    def place_bar(self):
        left = self.across * (self.wide + GAP)
        high = min(3.0, max(1.0, self.high))
        return (
            left / self.width,
            1 - (HEAD_TITLE + high) / self.height,
            0.12 / self.width,
            high / self.height,
        )

    def is_left(self, head):
        return head % self.across == 0

    def is_lowest(self, head):
        return head + self.across >= self.n

    def has_row_name(self, head, name):
        """Small panels share one, in which the names would overlap."""
        return self.is_left(head) and (head == 0 or LETTER * len(name) < self.high)

    def has_column_name(self, head, name):
        """The same for the columns."""
        return self.is_lowest(head) and (self.is_left(head) or LETTER * len(name) < self.wide)


def _separate_cells(axes, n_rows, n_columns, lines):
    if lines:  # pale, to lead the eye from a dark cell to its tokens
        axes.hlines(
            np.arange(1, n_rows) - 0.5, -0.5, n_columns - 0.5, color="#dddddd", linewidth=0.4
        )
        axes.vlines(
            np.arange(1, n_columns) - 0.5, -0.5, n_rows - 0.5, color="#dddddd", linewidth=0.4
        )
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="#888888")


def _name_cells(axis, labels, cell, shown):
    if not shown:
        axis.set_ticks([])
        return
    size = min(FONT, 72 * cell * 0.7)
    every = 1 if size >= SMALLEST_FONT else int(np.ceil(SMALLEST_FONT / size))
    axis.set_ticks(
        range(0, len(labels), every), labels[::every], fontsize=max(size, SMALLEST_FONT), **_plain()
    )
    axis.set_tick_params(length=0, pad=2, labelrotation=90 if axis.axis_name == "x" else 0)


def _label(token):
    # The mark ▁ is a heavy bar in most fonts.
    return _cut(_drawable(token).replace("▁", "_"), LONGEST_LABEL)


def _cut(text, length):
    return text if len(text) <= length else text[: length - 1] + "…"


# Pieces to words ----------------------------------------------------------------------------------

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_BYTES = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}  # in a character, by the first half of its first byte
# A word in the kinds of `_kind`: letters, perhaps with an apostrophe or a dot between them; a flag;
# or one character with what changes it.
_WORD = re.compile("b*(?:w(?:[wmz]|jw)*|rr|[^b]m*(?:z.m*)*)")


def join_pieces(weights, target_pieces, source_pieces, words: bool = False):
    """Join the bytes of each character and, with words=True, the subwords of each word.

        joined[h, i, j] = mean over the rows t of word i
                          of the sum over the columns s of word j of weights[h, t, s]

    weights: (H, T, S); the result is ((H, I, J), I strings, J strings).

    So each row still sums to what it did: a word attends as its subwords do on average, and gets
    what they get together. U+2581 begins a word, as in SentencePiece; where no piece has it,
    each piece is a word unless @@ marks a cut. A punctuation mark is a word of its own, and so is
    a Chinese character. A word is given without these marks, and the marks of a sentence's two ends
    as "(start)" and "(end)".

    >>> weights = [[[0.2, 0.3, 0.5], [0.4, 0.5, 0.1]]]
    >>> join_pieces(weights, ["▁H", "i"], ["▁Hal", "lo", "</s>"], words=True)
    (array([[[0.7, 0.3]]]), ['Hi'], ['Hallo', '(end)'])
    >>> join_pieces([[[0.2, 0.3, 0.5]]], ["é"], ["<0xC3>", "<0xA9>", "▁"])
    (array([[[0.5, 0.5]]]), ['é'], ['é', '▁'])
    """
    weights = np.asarray(weights)
    if weights.shape[1:] != (len(target_pieces), len(source_pieces)) or 0 in weights.shape:
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(target_pieces)} and "
            f"{len(source_pieces)} pieces"
        )
    (rows, row_starts), (columns, column_starts) = (
        _joined(p, words) for p in (target_pieces, source_pieces)
    )
    sizes = np.diff([*row_starts, weights.shape[1]]).astype(weights.dtype)
    summed = np.add.reduceat(weights, column_starts, axis=2)
    return np.add.reduceat(summed, row_starts, axis=1) / sizes[:, None], rows, columns


def _joined(pieces, words):
    """Give the characters or words that the pieces make, and at which piece each of them begins."""
    texts, starts, at = [], [], 0
    while at < len(pieces):
        text, size = _character(pieces, at)
        texts.append(text)
        starts.append(at)
        at += size
    if not words:
        return texts, starts
    begins = [i for i, begins in enumerate(_begins(texts)) if begins]
    found = ["".join(texts[i:j]) for i, j in zip(begins, [*begins[1:], len(texts)], strict=True)]
    return [_word(text) for text in found], [starts[i] for i in begins]


def _character(pieces, at):
    """Give the piece at this place, or the character whose bytes begin there, and how many
    pieces that takes.
    """
    if first := _BYTE.fullmatch(pieces[at]):
        size = _BYTES.get(int(first[1], 16) >> 4, 1)
        found = [_BYTE.fullmatch(piece) for piece in pieces[at : at + size]]
        if all(found):
            with contextlib.suppress(UnicodeDecodeError):  # also where one byte is missing
                return bytes(int(byte[1], 16) for byte in found).decode(), size
    return pieces[at], 1


def _begins(texts):
    """Tell of each text whether it begins a word."""
    if not any("▁" in text for text in texts):
        return [True, *(not text.endswith("@@") for text in texts[:-1])]
    line = "".join(texts)
    inside = {
        i
        for match in _WORD.finditer("".join(map(_kind, line)))
        for i in range(match.start() + 1, match.end())
    }
    return [at not in inside for at in accumulate(map(len, texts[:-1]), initial=0)]


def _kind(character):
    """Tell what a character is to a word: w, m, z, j, r, b or x."""
    category = unicodedata.category(character)
    if character == "▁":
        return "b"  # begins a word
    if character == "\u200d":
        return "z"  # joins two emoji
    if category in ("Mn", "Mc", "Me", "Cf") or "\U0001f3fb" <= character <= "\U0001f3ff":
        return "m"  # changes the one before it: an accent, a colour of skin
    if "\U0001f1e6" <= character <= "\U0001f1ff":
        return "r"  # two of them are a flag
    if character in "'’.,:-_@":
        return "j"  # is part of a word between two letters
    if character.isalnum() and unicodedata.east_asian_width(character) != "W":
        return "w"  # a letter or digit, of a script that has blanks between words
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
    """Draw the course of a training: loss, perplexity, BLEU, learning rate and gradient norm
    over the steps.

    history: records of the training log. Each has "step" and any of "loss", "perplexity",
    "learning_rate", "gradient_norm", "valid_perplexity", "valid_bleu"; where a resumed run
    logged a step twice, the later one counts. What no record has gets no panel; the best
    validation is marked.

    Raises ValueError for a history without figures, and for a path that cannot be written.
    """
    merged = {}
    for record in history:
        step = record["step"]
        merged[step] = merged.get(step, {}) | record
    records = [merged[step] for step in sorted(merged)]
    panels = [panel for panel in PANELS if any(_series(records, key)[0] for key in panel[1])]
    if not panels:
        raise ValueError(f"{path}: nothing to draw: the history holds no figures yet")
    upper = -(-len(panels) // 2)
    bands = [band for band in (panels[:upper], panels[upper:]) if band]
    figure = new_figure(11, 3.1 * len(bands))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    for place, band in zip(
        figure.subfigures(len(bands), 1, squeeze=False)[:, 0], bands, strict=True
    ):
        for axes, panel in zip(place.subplots(1, len(band), squeeze=False)[0], band, strict=True):
            _draw_panel(axes, records, *panel)
            axes.set_xlim(0, 1.03 * max(1, records[-1]["step"]))
    save_figure(figure, path)


def _series(records, key):
    pairs = [(record["step"], record[key]) for record in records if _is_number(record.get(key))]
    return [step for step, _ in pairs], [value for _, value in pairs]


def _is_number(value):
    return value is not None and bool(np.isfinite(value))


def _draw_panel(axes, records, title, names, logarithmic):
    for i, (key, name) in enumerate(names.items()):
        steps, values = _series(records, key)
        if not steps:
            continue
        style = {"marker": "o", "markersize": 3} if len(steps) < 30 else {}
        style |= {"color": COLOURS[i], "linestyle": DASHES[i], "linewidth": 1.3}
        if key in BEST:
            at = values.index(BEST[key](values))
            axes.plot(steps[at], values[at], "o", markersize=7, fillstyle="none", color=COLOURS[i])
            name += f", best {values[at]:.2f} at step {steps[at]:,}"
        axes.plot(steps, values, label=name, **style)
    if logarithmic:
        _logarithmic(axes)
    if BEST.keys() & names.keys():
        axes.legend(frameon=False, fontsize=8)
    _finish(axes, title)


def _logarithmic(axes):
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _finish(axes, title):
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step", fontsize=9)
    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(labelsize=8)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def schedule(rates: dict, path) -> None:
    """Draw learning rates over the steps, one curve for each name.

    rates: {name: [rate at step 1, rate at step 2, ...]}

    Raises ValueError where there is nothing to draw, and for a path that cannot be written.
    Source: section 5.3, eq. 3.
    """
    if not any(len(values) for values in rates.values()):
        raise ValueError(f"{path}: nothing to draw: no rates were given")
    figure = new_figure(7, 4)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for i, (name, values) in enumerate(rates.items()):
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i % len(DASHES)],
            "linewidth": 1.6,
        }
        axes.plot(range(1, len(values) + 1), values, label=_printable(str(name)), **style)
    axes.legend(frameon=False, fontsize=9, prop={"family": _fonts()})
    axes.set_ylim(bottom=0)
    _finish(axes, "learning rate")
    save_figure(figure, path)


# Figures and files --------------------------------------------------------------------------------


def new_figure(width, height):
    """Give an empty figure of this size in inches, which no window shows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150)


def save_figure(figure, path):
    """Write the file.

    Raises ValueError for a format that is none, and for a path that cannot be written.
    """
    path = Path(path)
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ValueError(
            f"{path}: no picture format is called {path.suffix!r}: use .png, .pdf or .svg"
        )
    try:
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box: enough said.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(path, bbox_inches="tight", pad_inches=0.12)
    except OSError as error:
        raise ValueError(
            f"{path}: not written ({error.strerror or error}): choose another place"
        ) from error


def _fonts():
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [name for name in FONTS if name in installed]


def _plain():
    """Text as it stands: a dollar sign is no formula."""
    return {"parse_math": False, "usetex": False, "fontfamily": _fonts()}


def _printable(text):
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _drawable(text):
    """Leave out what is invisible, and write the name of a sign that no font here has, as
    [waving hand sign].
    """
    text = _printable(
        "".join(character for character in text if unicodedata.category(character) != "Cf")
    )
    signs = {character for character in text if unicodedata.category(character) in ("So", "Sk")}
    names = {sign: unicodedata.name(sign, "sign").lower() for sign in signs if not _has_glyph(sign)}
    names = {
        sign: f"[{name.removeprefix('regional indicator symbol letter ')}]"
        for sign, name in names.items()
    }
    return "".join(names.get(character, character) for character in text)


def _has_glyph(character):
    from matplotlib import font_manager

    fonts = (font_manager.get_font(font_manager.findfont(name)) for name in _fonts())
    return any(font.get_char_index(ord(character)) for font in fonts)
