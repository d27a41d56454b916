"""From the translations of the parts of a line to one that reads as if it had not been cut."""

import dataclasses
import re

from minitf.text import Vocabulary
from minitf.text.sentences import is_abbreviated

__all__ = ["AROUND", "CUT", "alike_quotes", "as_one_sentence", "goes_on", "without_added_stop"]

CUT = "a sentence is too long for the model, and was translated in parts"

AROUND = "a value was lost, so its sentence was translated in parts around it"

_END = re.compile(r"[.!?…。！？](?:[\"'”’»)\]」』]|\[\^?\w+\])*\s*$")  # a footnote may follow
_STOP = re.compile(r"(?<!\.)[.。]$")  # a full stop, and no ellipsis
_ADDED = re.compile(r"(?<![.!?])[.!。！]$")
_FRAGMENT = 8  # words at most
_WORDS_END = re.compile(r"\w[\"'”’»)\]]*$")
_MARK = re.compile(r"[,;:–—，；：、]$")  # after which cutting.py cuts
_WORD = re.compile(r"[^\W\d_]+")
_KINDS = re.compile('["„“”«»]')


def goes_on(source: str) -> bool:
    """Return whether a sentence goes on after this part of its source.

    >>> goes_on("I went out,"), goes_on('He said: "No!"'), goes_on("It is so.[1]")
    (True, False, False)
    """
    return not _END.search(source)


def without_added_stop(text: str, source: str) -> str:
    """Return a translation without the full stop that its source has not.

    A model that learned from sentences ends a heading, an item or a cell of a table as one. A
    question mark stays: many people who ask leave it out. So does what ends a longer text, which is
    a sentence whose full stop somebody forgot.

    >>> without_added_stop("Sparen.", "Save"), without_added_stop("Er kam.", "He came.")
    ('Sparen', 'Er kam.')
    """
    is_fragment = _WORDS_END.search(source) and len(source.split()) <= _FRAGMENT
    if not is_fragment or is_abbreviated(text):
        return text
    return _ADDED.sub("", text)


def as_one_sentence(
    parts: list[list],
    sources: list[str],
    values: list[list[str]],
    subwords: Vocabulary,
    why: str = CUT,
) -> list[list]:
    """Return the Translations of each part, without the marks of a sentence inside a sentence.

    values: what is kept in each part, and stays as it is. why: why there are parts of a sentence;
    it is noted in `given_up`.

    A part that a model has translated as a sentence begins with a capital letter and ends with a
    full stop. Where the source has no end of a sentence between two parts, the first letter becomes
    small, and the full stop the mark of the source, such as its comma.
    """
    joined, is_begun = [], False
    for i, (translations, source, kept) in enumerate(zip(parts, sources, values, strict=True)):
        is_open = i + 1 < len(parts) and goes_on(source)
        kept = tuple(kept)
        if is_begun:
            translations = [
                each if each.text.startswith(kept) else _with_small_letter(each, subwords)
                for each in translations
            ]
        if is_open:
            translations = [
                _without_stop(each, source.rstrip(), kept, why) for each in translations
            ]
        joined.append(translations)
        is_begun = is_open
    return joined


def _without_stop(translation, source, values, why):
    text, mark = translation.text, _MARK.search(source)
    if not text.endswith(values):
        text = _STOP.sub("", text)
    if mark and text[-1:] not in ",;:–—.!?…":
        text += mark[0]
    return dataclasses.replace(translation, text=text, given_up=(*translation.given_up, why))


def _with_small_letter(translation, subwords):
    """Return a Translation that begins with a small letter, unless its first word has a capital.

    A name, or a noun in German, takes more subwords in small letters: the model has not read it so.
    """
    text = translation.text
    word = _WORD.match(text)
    if not word or word[0] == "I" or word[0][1:] != word[0][1:].lower() or text.isupper():
        return translation  # the English word I, an abbreviation such as NATO, all in capitals
    small = word[0].lower()
    here, there = map(len, subwords.encode([word[0], small], side="target"))
    if there > here:
        return translation
    return dataclasses.replace(translation, text=small + text[word.end() :])


def alike_quotes(text: str) -> str:
    """Return a text whose double quotes are of one kind: straight ones if some are straight.

    >>> alike_quotes('„Kein!" sagte sie.'), alike_quotes("„Nein!“")
    ('"Kein!" sagte sie.', '„Nein!“')
    """
    return _KINDS.sub('"', text) if '"' in text else text
