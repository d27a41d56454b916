"""The English names of languages, and the tokens that name the target language of a line."""

import re

LANGUAGES = """
    ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca Catalan, cs
    Czech, da Danish, de German, el Greek, en English, es Spanish, et Estonian, fa Persian, fi
    Finnish, fr French, gu Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, id Indonesian,
    is Icelandic, it Italian, ja Japanese, kn Kannada, ko Korean, lt Lithuanian, lv Latvian, ml
    Malayalam, ms Malay, mt Maltese, nb Bokmål, nl Dutch, nn Nynorsk, no Norwegian, pl Polish, pt
    Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovene, sq Albanian, sr Serbian, sv Swedish,
    ta Tamil, te Telugu, th Thai, tr Turkish, uk Ukrainian, vi Vietnamese, zh Chinese
"""


def languages_of(notes):
    """Return the English names of a model's two languages, None for an unknown one."""
    names = dict(re.findall(r"(\w+)\s+(\w+)", LANGUAGES))
    return [names.get(str(notes.get(f"{side}_language"))) for side in ("source", "target")]


def direction(notes):
    """Return a model's languages as text, "" if they are not known.

    >>> direction({"source_language": "en", "target_language": "zh_hant"})
    'English to zh_hant'
    """
    codes = notes.get("source_language"), notes.get("target_language")
    names = zip(languages_of(notes), codes, strict=True)
    return " to ".join(name or str(code) for name, code in names) if all(codes) else ""


def naming_languages(batches, subwords, say):
    """Yield the lists of lines; tell the user which lines do not name their target language.

    subwords: a model's, which may have several target languages. say: called once for lines without
    a token such as `>>deu<<`, and once for each token that the model lacks.
    """
    tokens, reported, number = subwords.languages(), set(), 0
    for lines in batches:
        for line in lines:
            number += 1
            token = subwords.language_of(line)
            if not tokens or not line.strip() or token in tokens or token in reported:
                continue
            reported.add(token)
            wrong = "does not say into which language to translate"
            if token:
                wrong = f"begins with {token[:40]!r}, which the model does not know"
            say(
                f"notice   line {number} {wrong}: begin each line with one of the model's tokens, "
                f"{some_of(tokens)}"
            )
        yield lines


def some_of(tokens):
    """Return the first six of some tokens, for a line to the user."""
    return ", ".join(tokens[:6]) + (" ..." if len(tokens) > 6 else "")
