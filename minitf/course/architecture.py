"""Figure 1 of the paper, with "you are here" for the lessons.

The encoder is on the left, the decoder in the middle. The two insets on the right are figure 2:
multi-head attention, and the attention inside one of its heads. They are left out if other parts
are marked.
"""

from minitf.course.figures import new_figure
from minitf.plot import save_figure

__all__ = ["PARTS", "figure_1"]

PARTS = (
    *("input", "output", "decoder input", "embedding", "positions", "encoder", "decoder"),
    *("self-attention", "masked self-attention", "source attention", "feed-forward"),
    *("add & norm", "linear", "softmax", "loss", "backward", "update"),
    *("multi-head", "attention inside a head"),
)
INSETS = ("multi-head", "attention inside a head")
LEARNED = (  # the parts that own parameters
    *("embedding", "self-attention", "masked self-attention", "source attention"),
    *("feed-forward", "add & norm", "linear"),
)
WIDTH, HEIGHT = 9.4, 7.4  # inches
FONT = 10.0  # points
PALE, PALE_FRAME = "#f1f3f6", "#8a94a3"
STRONG, STRONG_FRAME = "#1f5fa8", "#0b2f5c"
STACK = "#fafbfc"  # behind the boxes of a layer
STACK_HERE = "#dbe8f7"
LINE = "#555b66"
ENCODER, DECODER = 3.0, 7.6  # the middle of each stack
BOX = 2.8  # the width of a box
INSET = 13.7  # the middle of the insets
# The steps of a walk: {step: (x and y of its number, x and y and alignment of its text)}.
STEPS = {
    1: (4.7, 1.36, 3.2, 1.96, "left"),
    2: (0.0, 2.4, 3.2, 2.79, "left"),
    3: (4.7, 4.0, 0.95, 4.0, "right"),
    4: (4.7, 6.1, 0.95, 6.1, "right"),
    5: (2.55, 7.85, 2.9, 7.85, "left"),
    6: (5.9, 1.36, 7.8, 2.79, "left"),
    7: (5.9, 4.0, 9.65, 4.0, "left"),
    8: (5.9, 6.6, 9.65, 7.25, "left"),
    9: (5.9, 8.8, 7.8, 10.08, "left"),
    10: (5.9, 10.6, 7.8, 11.1, "left"),
    11: (5.9, 11.6, 7.8, 12.12, "left"),
}


def figure_1(path, here=(), walk=None):
    """Draw the architecture of the Transformer, with the parts `here` in a strong colour.

    here: names of parts, from PARTS. Without any, no part is marked.
    walk: {step: text}, for a sentence that is followed along the figure. All steps, 1 to 11, get
    their numbers, and these ones a text, such as the shape of an array. The insets are left out.
    Raises ValueError for another name or step.
    """
    unknown = [name for name in here if name not in PARTS]
    if unknown:
        raise ValueError(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    if walk and not walk.keys() <= STEPS.keys():
        raise ValueError(
            f"there are only the steps 1 to {len(STEPS)}, not {set(walk) - set(STEPS)}"
        )
    insets = not walk and (not here or any(part in here for part in INSETS))
    left, right = (0, 17.3) if insets else (-0.9, 11.7)
    figure = new_figure(WIDTH * (right - left) / 16.9, HEIGHT)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(left, right), ylim=(-0.3, 14.2))
    diagram = _Diagram(axes, frozenset(here))
    _encoder(diagram)
    _decoder(diagram)
    _top(diagram)
    if walk:
        _walk(diagram, walk)
    if insets:
        _insets(_Diagram(axes, diagram.here - {"backward"}))
    if here:
        axes.text(
            *(1.7, 12.0, "you are here"), ha="center", va="center", fontsize=FONT + 2,
            color="white",
            bbox={"boxstyle": "round,pad=0.4", "facecolor": STRONG, "edgecolor": STRONG_FRAME},
        )  # fmt: skip
        axes.text(
            *(1.7, 11.5, "\n".join(here)), ha="center", va="top", fontsize=FONT, color=STRONG,
            linespacing=1.4,
        )  # fmt: skip
    save_figure(figure, path)


class _Diagram:
    """The axes, and the names of the marked parts."""

    def __init__(self, axes, here):
        import matplotlib.patches

        self.axes, self.here, self.shapes = axes, here, matplotlib.patches

    def is_here(self, part):
        return part in self.here

    def box(self, x, y, text, part, width=BOX, height=0.72, size=FONT):
        """Draw a box whose middle is at (x, y)."""
        here = self.is_here(part)
        face, frame = (STRONG, STRONG_FRAME) if here else (PALE, PALE_FRAME)
        if self.is_here("update") and part in LEARNED:
            face, frame = STACK_HERE, STRONG
        patch = self.shapes.FancyBboxPatch(
            (x - width / 2, y - height / 2), width, height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=face, edgecolor=frame, linewidth=1.2, zorder=3,
        )  # fmt: skip
        self.axes.add_patch(patch)
        colour, weight = ("white", "bold") if here else ("black", "normal")
        self.text(x, y, text, colour, size, weight)

    def text(self, x, y, text, colour="black", size=FONT, weight="normal", align="center"):
        self.axes.text(
            x, y, text, ha=align, va="center", fontsize=size, color=colour, weight=weight,
            linespacing=1.05, zorder=4,
        )  # fmt: skip

    def arrow(self, *points, colour=LINE, width=1.2, dashed=False, learns=True):
        """Draw a line through the points, with a head at its end.

        If "backward" is marked, it is the way back of a gradient: strong, with its head at the
        other end. learns: whether a gradient comes back along it.
        """
        if self.is_here("backward") and learns:
            points, colour, width = points[::-1], STRONG, 2.0
        *_, before, end = points
        line = "--" if dashed else "-"
        across = [x for x, _ in points]
        up = [y for _, y in points]
        self.axes.plot(
            across[:-1], up[:-1], color=colour, linewidth=width, linestyle=line, zorder=2
        )
        style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "linestyle": line}
        style |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
        self.axes.annotate("", end, before, arrowprops=style, zorder=2)

    def stack(self, x, bottom, top, part):
        """Draw the frame of a layer that is repeated N times."""
        here = self.is_here(part)
        frame = self.shapes.FancyBboxPatch(
            (x - 1.9, bottom), 3.8, top - bottom, boxstyle="round,pad=0,rounding_size=0.25",
            facecolor=STACK_HERE if here else STACK, linewidth=2.4 if here else 1.0,
            edgecolor=STRONG if here else PALE_FRAME, zorder=0,
        )  # fmt: skip
        self.axes.add_patch(frame)

    def plus(self, x, y):
        """Draw the sum of embedding and positional encoding, and the wave of the latter."""
        here = self.is_here("positions")
        colour = STRONG if here else LINE
        self.axes.add_patch(
            self.shapes.Circle((x, y), 0.2, facecolor="white", edgecolor=colour, zorder=3)
        )
        self.text(x, y - 0.02, "+", colour, FONT + 2)

    def bridge(self, colour, width):
        """Draw the way of the encoder's output to the keys and values of the decoder."""
        turn = 5.3
        for end in (DECODER - 0.8, DECODER - 0.15):
            self.arrow(
                *((ENCODER, 7.08), (ENCODER, 7.55), (turn, 7.55), (turn, 5.75), (end, 5.75)),
                (end, 6.15), colour=colour, width=width,
            )  # fmt: skip

    def sublayer(self, x, y, text, part, height=0.72):
        """Draw a sub-layer and its Add & Norm; return the height at which its output leaves."""
        self.box(x, y, text, part, height=height)
        norm = y + height / 2 + 0.36
        self.box(x, norm, "Add & Norm", "add & norm", height=0.52)
        # The residual connection passes the sub-layer on the outside.
        outside = x - 1.65 if x < 5 else x + 1.65
        edge = x - BOX / 2 if x < 5 else x + BOX / 2
        below = y - height / 2 - 0.28
        here = self.is_here("add & norm")
        self.arrow(
            *((x, below), (outside, below), (outside, norm), (edge, norm)),
            colour=STRONG if here else LINE, width=2.0 if here else 1.2,
        )  # fmt: skip
        return norm + 0.26


def _inputs(d, x, text, part, positions_at):
    """Draw what is below a stack; the sum enters the stack at y = 3.2."""
    here = d.is_here(part)
    d.text(x, 0.2, text, STRONG if here else "black", weight="bold" if here else "normal")
    d.arrow((x, 0.75), (x, 1.0), learns=False)
    d.box(x, 1.36, "Embedding", "embedding")
    d.arrow((x, 1.72), (x, 2.2))
    d.plus(x, 2.4)
    d.arrow((x, 2.6), (x, 3.56))
    side = 1 if positions_at > x else -1
    here = d.is_here("positions")
    d.text(
        positions_at, 2.4, "Positional\nencoding", STRONG if here else "black", FONT - 1,
        weight="bold" if here else "normal",
    )  # fmt: skip
    d.arrow((positions_at - side * 0.75, 2.4), (x + side * 0.2, 2.4), learns=False)


def _encoder(d):
    d.stack(ENCODER, 2.95, 7.15, "encoder")
    here = d.is_here("encoder")
    d.text(0.6, 5.1, "N \u00d7", STRONG if here else "black", FONT + 1)
    _inputs(d, ENCODER, "Inputs", "input", ENCODER - 1.8)
    top = d.sublayer(ENCODER, 4.0, "Multi-head\nattention", "self-attention", 0.9)
    # Queries, keys and values are made of the same vectors.
    for offset in (-0.8, 0.8):
        d.arrow((ENCODER, 3.3), (ENCODER + offset, 3.3), (ENCODER + offset, 3.55))
    d.arrow((ENCODER, top), (ENCODER, 5.75))
    d.sublayer(ENCODER, 6.1, "Feed-forward", "feed-forward", 0.7)


def _decoder(d):
    d.stack(DECODER, 2.95, 9.85, "decoder")
    here = d.is_here("decoder")
    d.text(10.05, 6.4, "N \u00d7", STRONG if here else "black", FONT + 1)
    # "output" marks the same words, and the way of the written word back to them.
    part = "output" if d.is_here("output") else "decoder input"
    _inputs(d, DECODER, "Outputs\n(shifted right)", part, DECODER + 1.8)
    top = d.sublayer(DECODER, 4.0, "Masked multi-\nhead attention", "masked self-attention", 0.9)
    for offset in (-0.8, 0.8):
        d.arrow((DECODER, 3.3), (DECODER + offset, 3.3), (DECODER + offset, 3.55))
    d.arrow((DECODER, top), (DECODER, 5.85), (DECODER + 0.8, 5.85), (DECODER + 0.8, 6.15))
    top = d.sublayer(DECODER, 6.6, "Multi-head\nattention", "source attention", 0.9)
    # The output of the encoder, from which keys and values are made.
    colour = STRONG if d.is_here("source attention") else LINE
    width = 2.0 if d.is_here("source attention") else 1.2
    d.bridge(colour, width)
    d.arrow((DECODER, top), (DECODER, 8.45))
    d.sublayer(DECODER, 8.8, "Feed-forward", "feed-forward", 0.7)


def _top(d):
    d.arrow((DECODER, 9.77), (DECODER, 10.3))
    d.box(DECODER, 10.6, "Linear", "linear", height=0.6)
    d.arrow((DECODER, 10.9), (DECODER, 11.3))
    d.box(DECODER, 11.6, "Softmax", "softmax", height=0.6)
    d.arrow((DECODER, 11.9), (DECODER, 12.35))
    d.text(DECODER, 12.75, "Output\nprobabilities")
    if d.is_here("loss") or d.is_here("backward"):
        d.arrow((DECODER - 0.95, 12.75), (DECODER - 1.6, 12.75))
        d.box(DECODER - 2.7, 12.75, "Loss", "loss", width=2.1)
        d.text(DECODER - 2.7, 13.65, "the right words")
        d.arrow((DECODER - 2.7, 13.4), (DECODER - 2.7, 13.12), learns=False)
    if d.is_here("backward"):
        d.text(4.9, 11.2, "the gradient\nwalks back", STRONG, weight="bold")
    if d.is_here("update"):
        d.text(4.4, 9.0, "Adam moves all\nnumbers in the\npale blue boxes", STRONG, weight="bold")
    if d.is_here("output"):
        # The word that was written is the next input of the decoder.
        d.arrow(
            *((DECODER + 0.95, 12.75), (10.7, 12.75), (10.7, 0.2), (DECODER + 1.25, 0.2)),
            colour=STRONG, width=2.5, dashed=True,
        )  # fmt: skip
        d.box(10.7, 11.3, "Choose\na token", "output", width=1.7, height=0.9)
        d.text(9.25, 13.45, "the word written is read next", STRONG, weight="bold")


def _walk(d, walk):
    """Write the number of each step and its text; draw the bridge between the towers thick."""
    d.text(5.35, 13.85, "Follow a sentence through the model, from 1 to 11", size=FONT + 3)
    d.bridge(STRONG, 3.0)
    # Below the lines, where there is room.
    for letter, x in (("K", DECODER - 0.8), ("V", DECODER - 0.27), ("Q", DECODER + 0.8)):
        d.text(x, 5.46, letter, STRONG, FONT + 2, "bold")
    for step, (x, y, text_x, text_y, align) in STEPS.items():
        d.axes.add_patch(
            d.shapes.Circle((x, y), 0.27, facecolor=STRONG, edgecolor="white", zorder=5)
        )
        d.axes.text(
            x, y - 0.02, str(step), ha="center", va="center", fontsize=FONT - 1, color="white",
            weight="bold", zorder=6,
        )  # fmt: skip
        d.text(text_x, text_y, walk.get(step, ""), STRONG, FONT, "bold", align)


def _insets(d):
    _multi_head(d)
    _inside_a_head(d)


def _title(d, y, text, part):
    here = d.is_here(part)
    d.text(INSET, y, text, STRONG if here else "black", FONT, "bold")


def _multi_head(d):
    part = "multi-head"
    _title(d, 13.2, "Multi-head attention", part)
    d.box(INSET, 12.45, "Linear", part, height=0.55)
    d.arrow((INSET, 11.82), (INSET, 12.17))
    d.box(INSET, 11.55, "Concat", part, height=0.55)
    d.arrow((INSET, 10.8), (INSET, 11.27))
    for shift in (0.3, 0.15):  # the heads behind the first
        d.box(INSET + shift, 10.1 + shift, "", "", width=3.5, height=0.8)
    head = "attention inside a head" if d.is_here("attention inside a head") else part
    d.box(INSET, 10.1, "Scaled dot-product\nattention", head, width=3.5, height=0.9)
    d.text(INSET + 2.25, 10.3, "h times", align="left")
    for offset, name in ((-1.2, "V"), (0, "K"), (1.2, "Q")):
        d.arrow((INSET + offset, 9.3), (INSET + offset, 9.65))
        d.box(INSET + offset, 9.0, "Linear", part, width=1.12, height=0.5, size=FONT - 1)
        d.arrow((INSET + offset, 8.45), (INSET + offset, 8.74))
        d.text(INSET + offset, 8.2, name)


def _inside_a_head(d):
    part = "attention inside a head"
    _title(d, 6.75, "Scaled dot-product attention", part)
    names = ("MatMul", "Scale", "Mask", "Softmax")
    for number, name in enumerate(names):
        y = 1.75 + 0.95 * number
        d.box(INSET - 0.5, y, name, part, width=2.3, height=0.58)
        d.arrow((INSET - 0.5, y + 0.29), (INSET - 0.5, y + 0.66))
    d.box(INSET, 5.55, "MatMul", part, width=3.3, height=0.58)
    d.arrow((INSET, 5.84), (INSET, 6.35))
    d.arrow((INSET + 1.3, 0.9), (INSET + 1.3, 5.26))
    for offset, name in ((-1.0, "Q"), (0.0, "K")):
        d.arrow((INSET + offset, 0.9), (INSET + offset, 1.46))
        d.text(INSET + offset, 0.6, name)
    d.text(INSET + 1.3, 0.6, "V")
