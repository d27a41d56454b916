"""A lesson's page as slides: its questions, its formulas, its figures, and what was learned."""

import base64
import re

from .markup import MORE, plain, sections

FIGURE = re.compile(r"<figure\b(?! class=.stage).*?</figure>", re.DOTALL)
FORMULA = re.compile(r'<div class="scroll"><math.*?</div>', re.DOTALL)
TABLE = re.compile(r'<div class="scroll"><table.*?</table></div>', re.DOTALL)
LIST = re.compile(r"<[uo]l>.*?</[uo]l>", re.DOTALL)
TASK = re.compile(r'<article class="exercise"><h3.*?</h3>(.*?)</p>', re.DOTALL)
MOST_FORMULAS = 4  # on a slide
MOST_ROWS = 10
FEW_ROWS = 6  # such a table stands below the formulas, if these leave room
LAST = "What did we learn?"


def slides_of(page, folder, most):
    """Return a lesson's slides: [{"title": HTML, "inside": HTML, "kind": of its look}].

    A section is a slide with its title, a question, and its formulas and its first table,
    which has a slide of its own if it is long; then comes one for each figure. "More on ..."
    has none. If that is more than `most`, sections without formulas are left out, and then
    further figures, and tables.
    """
    slides = []
    for anchor, title, inside in sections(page):
        if not anchor:
            heading = re.search(r"<h1[^>]*>(.*?)</h1>(.*?</p>)", inside, re.DOTALL)
            slides.append(_slide(heading[1], heading[2], "opening"))
        elif plain(title).startswith(MORE):
            continue
        elif plain(title) == LAST:
            slides += [_slide(title, each, "learned") for each in LIST.findall(inside)]
        elif tasks := TASK.findall(inside):
            items = "".join(f"<li>{task.strip().removeprefix('<p>')}</li>" for task in tasks)
            slides.append(_slide(title, f"<ol>{items}</ol>", "turn"))
        else:
            slides += _of_section(title, inside, folder)
    for needless in ("question", "more", "second", "table"):
        if len(slides) > most:
            kept = [n for n, each in enumerate(slides) if each["kind"] != needless]
            room = most - len(kept)
            spare = [n for n, each in enumerate(slides) if each["kind"] == needless][: max(0, room)]
            slides = [slides[n] for n in sorted(kept + spare)]
    return slides[:most]


def _of_section(title, inside, folder):
    formulas = FORMULA.findall(inside)[:MOST_FORMULAS]
    figures = FIGURE.findall(inside)
    tables = [table for table in TABLE.findall(inside) if table.count("<tr>") <= MOST_ROWS][:1]
    room = MOST_ROWS - 2 * len(formulas)
    beside = [table for table in tables if table.count("<tr>") <= min(room, FEW_ROWS)]
    shown = "".join([*formulas, *beside])
    slides = [_slide(title, shown, "formulas" if shown else "question")]
    slides += [_slide(title, table, "table") for table in tables if table not in beside]
    for n, figure in enumerate(figures):
        shown = re.sub(r"</?a\b[^>]*>", "", figure)
        shown = re.sub(r'src="([^"]+)"', lambda found: f'src="{_data(folder / found[1])}"', shown)
        slides.append(_slide(title, shown, ("figure", "second", "more")[min(n, 2)]))
    return slides


def _slide(title, inside, kind):
    return {"title": title, "inside": inside, "kind": kind}


def _data(path):
    """Return a picture as an address that contains it."""
    kind = {".svg": "svg+xml"}.get(path.suffix, path.suffix[1:])
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
