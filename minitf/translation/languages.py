"""The English names of languages, and the tokens that name the target language of a line."""

import re

from minitf.text import PairedSubwords

LANGUAGES = """
    ar Arabic, bg Bulgarian, cs Czech, da Danish, de German, el Greek, en English, es Spanish,
    et Estonian, fi Finnish, fr French, hi Hindi, hu Hungarian, it Italian, ja Japanese, ko
    Korean, lt Lithuanian, lv Latvian, nl Dutch, no Norwegian, pl Polish, pt Portuguese, ro
    Romanian, ru Russian, sk Slovak, sl Slovene, sv Swedish, tr Turkish, uk Ukrainian, vi
    Vietnamese, zh Chinese
"""


def languages_of(notes):
    """Return the English names of a model's two languages, None for an unknown one."""
    names = dict(re.findall(r"(\w+)\s+(\w+)", LANGUAGES))
    return [names.get(str(notes.get(f"{side}_language"))) for side in ("source", "target")]


class TargetLanguages:
    """Tells the user which lines do not name their target language, for a model of several.

    say: called with a line for the first line without a token such as `>>deu<<`, and for the first
    line with each token that the model does not know.
    """

    def __init__(self, subwords, say):
        self._subwords, self._say, self._reported = subwords, say, set()
        self._tokens = subwords.languages() if isinstance(subwords, PairedSubwords) else []

    def check(self, lines, first):
        """Look at some lines; first: the number of lines before them."""
        if not self._tokens:
            return
        for number, line in enumerate(lines, first + 1):
            token = self._subwords.language_of(line)
            if not line.strip() or token in self._tokens or token in self._reported:
                continue
            self._reported.add(token)
            wrong = (
                f"begins with {token[:40]!r}, which the model does not know"
                if token
                else "does not say into which language to translate"
            )
            self._say(
                f"notice   line {number} {wrong}: begin each line with one of the model's tokens, "
                f"{some_of(self._tokens)}"
            )


def some_of(tokens):
    """Return the first of some tokens, for a line to the user."""
    return ", ".join(tokens[:6]) + (" ..." if len(tokens) > 6 else "")
