"""Figure 1 of the paper, with "you are here" for the lessons.

figure_1.svg has the encoder, the decoder, and two insets, which are figure 2: multi-head attention,
and the attention inside one of its heads. Each element says in data-part to which parts it belongs,
and in data-only with which parts it is shown, if not always.
"""

from pathlib import Path
from xml.etree import ElementTree

DRAWN = Path(__file__).with_name("figure_1.svg")
SVG = "http://www.w3.org/2000/svg"
INSETS = {"whole", "multi-head", "attention inside a head"}
NARROW = {"viewBox": "-36 0 504 533", "width": "504pt"}  # without the insets


def figure_1(path, here=(), walk=None):
    """Write the architecture of the Transformer as SVG, with the parts `here` in a strong colour.

    walk: {step: text}, for a sentence that is followed along the figure. All steps, 1 to 11, get
    their numbers, and these ones a text, such as the shape of an array. The insets are left out
    there, and where none of them is marked. Raises ValueError for a part that is not there.
    """
    ElementTree.register_namespace("", SVG)
    tree = ElementTree.parse(DRAWN)
    root = tree.getroot()
    shown = {*here} or {"walk" if walk else "whole"}
    known = set()
    for element in root.iter():
        parts, only = (element.get(name, "").split("|") for name in ("data-part", "data-only"))
        known |= {*parts, *only}
        if not shown.isdisjoint(parts):
            element.set("class", f"{element.get('class', '')} here".strip())
        if only != [""] and shown.isdisjoint(only):
            element.set("display", "none")
    if unknown := shown - known:
        raise ValueError(f"there is no part {unknown.pop()!r}: choose from {sorted(known - {''})}")
    root.set("class", " ".join(shown & {"backward", "update", "walk"}))
    for name, value in ({} if shown & INSETS else NARROW).items():
        root.set(name, value)
    if here:
        _write(root, "names", here, 14)
    else:
        _find(root, "here").set("display", "none")
    for step, text in (walk or {}).items():
        _write(root, f"step-{step}", text.split("\n"), 12)
    tree.write(path, encoding="utf-8")


def _write(root, place, lines, height):
    """Write lines into the empty text element whose id is `place`, each `height` points high."""
    element = _find(root, place)
    for line in lines:
        down = 0 if line is lines[0] else height
        span = ElementTree.SubElement(element, f"{{{SVG}}}tspan", x=element.get("x"), dy=str(down))
        span.text = line


def _find(root, place):
    return root.find(f".//*[@id='{place}']")
