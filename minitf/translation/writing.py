"""Join the translations of a line's parts, so that they read as if it had not been cut."""

import re
from collections.abc import Callable, Sequence

from minitf.text import Vocabulary
from minitf.text.sentences import is_abbreviated
from minitf.translation.markup import JOINT, insert_markup, place_markup
from minitf.translation.reading import PLACEHOLDER, Line, Part, Translation, join_texts, numbers_of

CUT_SENTENCE = "a sentence is too long for the model, and was translated in parts"
LOST_SPAN = "a number, tag or the like was lost, so its sentence was translated in parts"

_END = r"[.!?…。！？](?:[\"'”’»)\]」』]|\[\^?\w+\])*\s*$"  # of a sentence; a footnote may follow
_STOP = r"(?<!\.)[.。]$"  # a full stop, and no ellipsis
_ADDED = r"(?<![.!?])[.!。！]$"
_FRAGMENT = 8  # the most words of a fragment
_WORDS_END = r"\w[\"'”’»)\]]*$"
_PAUSE = r"[,;:–—，；：、]$"  # after which reading.py cuts
_WORD = r"[^\W\d_]+"
_DOUBLE_QUOTES = '["„“”«»]'


def without_added_stop(text: str, source: str) -> str:
    """Return a translation without a full stop that its source lacks.

    A model that learned from sentences ends a heading, an item or a cell of a table as one. A
    question mark stays, because many people leave it out. The end of a longer text stays as well:
    it is a sentence whose full stop somebody forgot.

    >>> without_added_stop("Sparen.", "Save"), without_added_stop("Er kam.", "He came.")
    ('Sparen', 'Er kam.')
    """
    is_fragment = re.search(_WORDS_END, source) and len(source.split()) <= _FRAGMENT
    if not is_fragment or is_abbreviated(text):
        return text
    return re.sub(_ADDED, "", text)


def as_one_sentence(
    line: Line, translations: Sequence[list[Translation]], subwords: Vocabulary
) -> list[list[Translation]]:
    """Return the translations of a line's parts with small first letters and no inner full stops.

    A part that a model has translated as a sentence begins with a capital letter and ends with a
    full stop. Where no sentence ends between two parts of the source, the first letter becomes
    small, and the full stop becomes what the source has, such as a comma. A span stays as it is.
    `problems` notes why a sentence has parts.
    """
    reason, is_begun, rewritten = LOST_SPAN if line.around else CUT_SENTENCE, False, []
    for part, best in zip(line.parts, translations, strict=True):
        source = part.source
        is_label = source.endswith(":") and part.markup  # **Note:** we sing
        is_open = part is not line.parts[-1] and not re.search(_END, source) and not is_label
        if is_begun:
            best = [_with_small_letter(each, part.spans, subwords) for each in best]
        if is_open:
            best = [_without_stop(each, source.rstrip(), part.spans, reason) for each in best]
        rewritten.append(best)
        is_begun = is_open
    return rewritten


def _without_stop(translation, source, spans, reason):
    text, pause = translation.text, re.search(_PAUSE, source)
    if not text.endswith(spans):
        text = re.sub(_STOP, "", text)
    if pause and text[-1:] not in ",;:–—.!?…":
        text += pause[0]
    return translation._replace(text=text, problems=(*translation.problems, reason))


def _with_small_letter(translation, spans, subwords):
    """Return a Translation that begins in lower case, unless its first word keeps its capital.

    A name, or a noun in German, has more subwords in lower case: the model has not read it so.
    """
    text = translation.text
    word = re.match(_WORD, text)
    if not word or text.startswith(spans):
        return translation
    if word[0] == "I" or word[0][1:] != word[0][1:].lower() or text.isupper():
        return translation  # the English word I, an abbreviation such as NATO, all in capitals
    small = word[0].lower()
    n_capital, n_small = map(len, subwords.encode([word[0], small], side="target"))
    if n_small > n_capital:
        return translation
    return translation._replace(text=small + text[word.end() :])


def with_uniform_quotes(text: str) -> str:
    """Return a text with one kind of double quotes: straight ones if some are straight.

    >>> with_uniform_quotes('„Kein!" sagte sie.'), with_uniform_quotes("„Nein!“")
    ('"Kein!" sagte sie.', '„Nein!“')
    """
    return re.sub(_DOUBLE_QUOTES, '"', text) if '"' in text else text


def restore(
    part: Part,
    translations: Sequence[Translation],
    placeholders: Sequence[str],
    wellformed: bool = True,
    log_probabilities: Callable[[Sequence[tuple[str, str]]], Sequence[float]] | None = None,
) -> list[Translation]:
    """Return the translations that have each placeholder once, with the part's spans in place.

    wellformed: whether they must have the numbers, dashes and quotes of the part as well, and no
    full stop that the source lacks. log_probabilities: for `place_markup`, which gives them the
    part's markup. Translations that are the same then are returned once.
    """
    spans = dict(zip(placeholders, part.spans, strict=False))
    if len(spans) < len(part.spans):
        return []
    source, numbers, distinct = part.source.rstrip(), numbers_of("".join(part.texts)), {}
    read, unused = part.input(placeholders), next(iter(placeholders[len(spans) :]), "")
    patterns = [
        rf"(?<=\w ){re.escape(each)}(?= \w)" if re.fullmatch(JOINT, span) else re.escape(each)
        for each, span in spans.items()
    ]
    pattern = rf"(?<!\w)(?:{'|'.join(patterns) or '(?!)'})(?!\w)"
    for each in translations:
        rest, words = re.sub(pattern, "", each.text), re.findall(pattern, each.text)
        if spans and (sorted(words) != sorted(spans) or any(map(rest.count, placeholders))):
            continue  # one is missing, or is there twice, or in a word
        if wellformed and placeholders and (spans or numbers) and numbers_of(rest) != numbers:
            if not distinct and '"' not in numbers:
                break  # better read again than the next best, which has them in other places
            continue
        # Drop placeholders that are not in the source.
        text = PLACEHOLDER.sub("", each.text) if placeholders and not spans else each.text
        if wellformed:
            text = without_added_stop(text, source)
        if part.markup:
            text = place_markup(text, part.markup, read, unused, log_probabilities, spans)
        text = text.upper() if part.in_capitals else text
        text = insert_markup(text, part.markup, spans)
        distinct.setdefault(text, each._replace(text=text))
    return list(distinct.values())


def join_parts(
    translations: Sequence[list[Translation]], n: int, around: Sequence[str] = ()
) -> list[Translation]:
    """Return the n best translations of a line, joined from those of its parts.

    around: what is copied before, between and after them; without it they are joined as sentences.
    """
    if not translations:
        return [Translation("".join(around), 0.0, 0.0)]
    first, *between = around or [""] * (len(translations) + 1)
    best = []
    for after, of_part in zip(between, translations, strict=True):
        before = "" if best else first
        of_part = [each._replace(text=before + each.text + after) for each in of_part]
        best = _join_two(best, of_part, n, "".join if around else join_texts) if best else of_part
    return best


def _join_two(first, second, n, glue):
    """Return the n best translations of two parts together, the best first.

    Scores are added. A pair of the i-th best of one part and the j-th best of the other is behind
    i j - 1 other pairs, so only those with i j <= n can be among the n best.
    """
    pairs = [(a, b) for i, a in enumerate(first, 1) for j, b in enumerate(second, 1) if i * j <= n]
    best, *others = (
        Translation(
            glue([t.text for t in pair if t.text]),
            sum(t.log_probability for t in pair),
            sum(t.score for t in pair),
            tuple(dict.fromkeys(note for t in pair for note in t.problems)),
        )
        for pair in pairs
    )
    by_text = {}
    for each in (best, *sorted(others, key=lambda t: -t.score)):
        by_text.setdefault(each.text, each)
    return list(by_text.values())[:n]
