"""Pictures: who attends to whom, the curves of a training, learning-rate schedules.

Everything here takes plain arrays and lists and writes one file, in the format that its suffix names (.png,
.pdf, .svg, ...). The figures are made without pyplot, so no window opens and the reader's own plots, backend
and settings stay as they are.
"""

import warnings
from pathlib import Path

import numpy as np

__all__ = ["attention_maps", "curves", "schedule"]

# Besides DejaVu Sans, which matplotlib brings along (Latin, Greek, Cyrillic, Arabic, symbols, some emoji):
# what Linux, Windows and macOS have for other scripts. Those not installed are passed over. Fonts in colour
# are not here, because matplotlib cannot draw them.
FONTS = (
    "DejaVu Sans",
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Devanagari", "Noto Emoji", "Unifont"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Segoe UI Symbol", "Segoe UI Emoji"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "Apple Symbols"),
)
LONGEST_LABEL = 40
CELL = 0.24  # inches; smaller where the whole picture would get larger than LARGEST
LARGEST = 26.0
LINES_FROM = 0.1  # in smaller cells the lines between them would be all there is to see
GAP = 0.16
HEAD_TITLE = 0.3
FONT = 12.0  # points
SMALLEST_FONT = 4.0
COLOURS = ("#1f5fa8", "#d1701c", "#3f8f3f", "#8a4fa3", "#777777")  # told apart in grey by the dashes
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


# Who attends to whom ----------------------------------------------------------------------------------------


def attention_maps(weights, target_tokens, source_tokens, path, title: str | None = None) -> None:
    """Draw attention weights, one panel for each head: rows attend, columns are attended to, dark is much.

    weights: (H, T, S), each row a distribution.  target_tokens: T strings.  source_tokens: S strings.

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
    rows = [_label(token) for token in target_tokens]
    columns = [_label(token) for token in source_tokens]
    grid = _Grid(len(weights), rows, columns)
    figure = new_figure(grid.width, grid.height)
    highest = float(np.nanmax(weights)) or 1.0
    for head, panel in enumerate(weights):
        axes = figure.add_axes(grid.place(head))
        image = axes.imshow(panel, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest")
        axes.set_title(f"head {head + 1}", fontsize=FONT, pad=4)
        _separate_cells(axes, *sizes, lines=grid.cell > LINES_FROM)
        _name_cells(axes.yaxis, rows, grid.cell, shown=grid.is_left(head))
        _name_cells(axes.xaxis, columns, grid.cell, shown=grid.is_lowest(head))
        axes.set_ylabel("queries" if grid.is_left(head) else "", fontsize=FONT)
        axes.set_xlabel("keys" if grid.is_lowest(head) else "", fontsize=FONT)
    bar = figure.colorbar(image, cax=figure.add_axes(grid.place_bar()))
    bar.set_label("attention weight", fontsize=FONT)
    bar.ax.tick_params(labelsize=0.8 * FONT)
    bar.outline.set_linewidth(0.5)
    if title:
        figure.suptitle(_printable(title), y=1 + 0.1 / grid.height, va="bottom", fontsize=1.3 * FONT, **_plain())
    save_figure(figure, path)


class _Grid:
    """Where the panels go, in inches: in as many columns as bring the picture nearest to a slide's shape."""

    def __init__(self, n, rows, columns):
        self.n = n
        # Labels stand outside and the saved picture grows around them; here a guess of their length will do.
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
        return left / self.width, 1 - (HEAD_TITLE + high) / self.height, 0.12 / self.width, high / self.height

    def is_left(self, head):
        return head % self.across == 0

    def is_lowest(self, head):
        return head + self.across >= self.n


def _separate_cells(axes, n_rows, n_columns, lines):
    if lines:  # pale, to lead the eye from a dark cell to its tokens
        axes.hlines(np.arange(1, n_rows) - 0.5, -0.5, n_columns - 0.5, color="#dddddd", linewidth=0.4)
        axes.vlines(np.arange(1, n_columns) - 0.5, -0.5, n_rows - 0.5, color="#dddddd", linewidth=0.4)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="#888888")


def _name_cells(axis, labels, cell, shown):
    if not shown:
        axis.set_ticks([])
        return
    size = min(FONT, 72 * cell * 0.7)
    every = 1 if size >= SMALLEST_FONT else int(np.ceil(SMALLEST_FONT / size))
    axis.set_ticks(range(0, len(labels), every), labels[::every], fontsize=max(size, SMALLEST_FONT), **_plain())
    axis.set_tick_params(length=0, pad=2, labelrotation=90 if axis.axis_name == "x" else 0)


def _label(token):
    text = _printable(token).replace("▁", "_")  # the mark of a word's beginning is a heavy bar in most fonts
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


# Curves -----------------------------------------------------------------------------------------------------

PANELS = (  # title, {key in the history: name in the legend}, logarithmic
    ("loss (nats per target token)", {"loss": "training"}, False),
    ("perplexity", {"perplexity": "training", "valid_perplexity": "validation"}, True),
    ("validation BLEU", {"valid_bleu": "validation"}, False),
    ("learning rate", {"learning_rate": "training"}, False),
    ("gradient norm", {"gradient_norm": "training"}, True),
)
BEST = {"valid_perplexity": min, "valid_bleu": max}


def curves(history: list[dict], path) -> None:
    """Draw the course of a training: loss, perplexity, BLEU, learning rate and gradient norm over the steps.

    history: records of the training log. Each has "step" and any of "loss", "perplexity", "learning_rate",
    "gradient_norm", "valid_perplexity", "valid_bleu"; where a resumed run logged a step twice, the later one
    counts. What no record has gets no panel; the best validation is marked.

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
    for place, band in zip(figure.subfigures(len(bands), 1, squeeze=False)[:, 0], bands, strict=True):
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
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
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
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.6}
        axes.plot(range(1, len(values) + 1), values, label=_printable(str(name)), **style)
    axes.legend(frameon=False, fontsize=9, prop={"family": _fonts()})
    axes.set_ylim(bottom=0)
    _finish(axes, "learning rate")
    save_figure(figure, path)


# Figures and files ------------------------------------------------------------------------------------------


def new_figure(width, height):
    """Give an empty figure of this size in inches, which no window shows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150)


def save_figure(figure, path):
    """Write the file. Raises ValueError for a format that is none, and for a path that cannot be written."""
    path = Path(path)
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ValueError(f"{path}: no picture format is called {path.suffix!r}: use .png, .pdf or .svg")
    try:
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box: enough said.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(path, bbox_inches="tight", pad_inches=0.12)
    except OSError as error:
        raise ValueError(f"{path}: not written ({error.strerror or error}): choose another place") from error


def _fonts():
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [name for name in FONTS if name in installed]


def _plain():
    """Text as it stands: a dollar sign is no formula."""
    return {"parse_math": False, "usetex": False, "fontfamily": _fonts()}


def _printable(text):
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
