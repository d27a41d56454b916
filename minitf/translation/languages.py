"""The English names of languages, for a prompt and for pictures."""

import re

from minitf.files.models import read_notes

LANGUAGES = """
    ar Arabic, bg Bulgarian, cs Czech, da Danish, de German, el Greek, en English, es Spanish,
    et Estonian, fi Finnish, fr French, hi Hindi, hu Hungarian, it Italian, ja Japanese, ko
    Korean, lt Lithuanian, lv Latvian, nl Dutch, no Norwegian, pl Polish, pt Portuguese, ro
    Romanian, ru Russian, sk Slovak, sl Slovene, sv Swedish, tr Turkish, uk Ukrainian, vi
    Vietnamese, zh Chinese
"""


def languages_of(model):
    """Return the English names of a model's two languages, None for an unknown one."""
    notes = read_notes(model)
    names = dict(re.findall(r"(\w+)\s+(\w+)", LANGUAGES))
    return [names.get(str(notes.get(f"{side}_language"))) for side in ("source", "target")]
