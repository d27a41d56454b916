"""Make the text from which a translator of everyday sentences learns, English and German.

Everyday sentences are short, are about Tom, and contain no address. The text that people want
translated is different: longer, typed without capitals and full stops, SHOUTED, or already in the
language that they want; it contains dates, prices, links, and greetings. This program writes a
training text in which all of that occurs:

    python examples/models/prepare.py en-de --out runs/en-de-text
    python -m minitf train --train runs/en-de-text/train.en runs/en-de-text/train.de \
        --add runs/en-de-text/added.en runs/en-de-text/added.de ...

It needs the corpus tatoeba-en-de (`python -m minitf data tatoeba-en-de` says how to get it). With
--mono and --back it adds sentences of the target language whose sources a translator wrote, line by
line (*back-translation*). The same input and the same seed give the same text, with one version of
Python and NumPy. In the functions below, `pairs` is a list of (English, German).
"""

import itertools
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from minitf.atomic import save_text
from minitf.cli import OptionParser, exit_code
from minitf.data import corpora
from minitf.text.normalise import normalise
from minitf.text.protected import PLACEHOLDERS, protected_pattern, split_protected

__all__ = ["added_pairs", "numbered", "protected_pair", "trained_pairs"]

FOLDER = Path(__file__).resolve().parent
# The words of a sentence without a translation that the corpus knows, at least: nearly all of those
# of old books, fewer of German, which makes new words of two.
FAMILIAR = {"en": 0.95, "de": 0.8}
BACK = "⓪"  # the first token of a source that a translator wrote (Caswell et al. 2019)
_KEPT = protected_pattern((), list(map(chr, [*range(0x20, 0x250), 0x2013])))
_A_MARK = re.compile(f"[{PLACEHOLDERS}]")


def _read_names():
    """Return {kind: [name]} of phrases/names.txt, whose lines are a kind and some of its names."""
    names = {}
    for line in (FOLDER / "phrases" / "names.txt").read_text(encoding="utf-8").splitlines():
        kind, *words = line.split()
        names.setdefault(kind, []).extend(word.replace("_", " ") for word in words)
    return names


_NAMES = _read_names()
MEN, WOMEN, FAMILIES, TOWNS = (_NAMES[kind] for kind in ("men", "women", "families", "towns"))
PLACES = dict(name.split("/") for name in _NAMES["places"])  # English: German
_KINDS = (MEN, WOMEN, TOWNS, FAMILIES)
_GERMAN = {"Mary": ("Mary", "Maria")}  # names that are translated: all their German forms
_KIND = {name: kind for kind in _KINDS for name in kind}
_NAME = re.compile(rf"\b(?:{'|'.join(_KIND)})\b")
_NUMBER = re.compile(r"\b[0-9]+\b")
_LONE = re.compile(r"(?<=\s)[0-9]+(?=\s|[.?!]?$)")  # not a part of a number, and not an ordinal
# Limits between hours, days, minutes, percentages, ..., years.
_BANDS = (2, 10, 13, 32, 60, 100, 1000, 1700, 2030, 10000)
ANY_LENGTH = 0.5  # probability that a replaced number becomes one of any length up to four digits

# How often each kind is made, for 170,000 pairs.
COUNTS = {
    "joined": 20_000,
    "with_other_names": 20_000,
    "with_other_numbers": 20_000,
    "with_translated_names": 10_000,
    "with_placeholders": 40_000,
    "typed": 6_000,
    "capitals": 4_000,
    "same": 4_000,
}
PHRASES = 3  # times that each phrase is repeated in a training text


def protected_pair(english: str, german: str) -> tuple[str, str]:
    """Return a pair with a placeholder for what both sides have and must not be translated.

    Numbers are the same if their digits are: German writes 1.000 for 1,000 and 2.30 for 2:30. Where
    one side has a span that the other has not ("half past two"), the pair stays as it is.

    >>> protected_pair("It costs $1,000 at www.x.org.", "Auf www.x.org kostet es 1.000 $.")
    ('It costs ① at ②.', 'Auf ② kostet es ①.')
    """
    (texts, spans), (other_texts, other_spans) = (
        split_protected(side, _KEPT) for side in (english, german)
    )
    keys, other_keys = list(map(_key, spans)), list(map(_key, other_spans))
    if Counter(keys) != Counter(other_keys) or len(keys) > len(PLACEHOLDERS):
        return english, german
    places = {key: [i for i, each in enumerate(keys) if each == key] for key in keys}
    first = [*PLACEHOLDERS[: len(keys)], ""]
    second = [*(PLACEHOLDERS[places[key].pop(0)] for key in other_keys), ""]
    return tuple(
        "".join(itertools.chain(*zip(side, placeholders, strict=True)))
        for side, placeholders in ((texts, first), (other_texts, second))
    )


def _key(span):
    """Return what two spellings of a span share."""
    letters = re.sub(r"[\d\s.,:'+%°$€£–-]", "", span)
    return span if letters else (re.sub(r"\D", "", span), re.sub(r"[^%°$€£]", "", span))


def numbered(source: str, target: str, placeholders: str = PLACEHOLDERS) -> tuple[str, str]:
    """Number the placeholders of a pair in the order of the source, or replace them by others.

    >>> numbered("③ or ①", "① oder ③")
    ('① or ②', '② oder ①')
    """
    order = dict.fromkeys(_A_MARK.findall(source))
    new = dict(zip(order, placeholders, strict=False))
    return tuple(_A_MARK.sub(lambda found: new[found[0]], side) for side in (source, target))


def joined(pairs, n: int, rng):
    """Return n new pairs, each of two or three random pairs in a row."""
    made = []
    while len(made) < n:
        rows = [pairs[i] for i in rng.integers(len(pairs), size=2 if rng.random() < 0.75 else 3)]
        made.append(_join_in_a_row(rows))
    return made


def _join_in_a_row(pairs):
    """Join pairs; the placeholders of each are others than those before."""
    sides, used = [], 0
    for pair in pairs:
        sides.append(numbered(*pair, (PLACEHOLDERS * 2)[used:]))
        used += len(set(_A_MARK.findall(pair[0])))
    return tuple(" ".join(side) for side in zip(*sides, strict=True))


def with_other_names(pairs, n: int, rng):
    """Return n new pairs with other names, where both sides contain a name equally often."""
    named = [pair for pair in pairs if _names(*pair)]
    return [_rename(*_pick(named, rng), rng) for _ in range(n)]


def with_other_numbers(pairs, n: int, rng):
    """Return n new pairs with other numbers of up to four digits, where both have the same."""
    numbers = [pair for pair in pairs if _numbers(*pair)]
    return [_renumber(*_pick(numbers, rng), rng) for _ in range(n)]


def with_translated_names(pairs, n: int, rng):
    """Return n new pairs with a name that is not spelled alike: Vienna, Mr. Smith, Ms. Weber.

    A place takes the place of a town; a title and a family name that of a first name, where either
    stands once. German writes "Herrn" unless Mr. Smith is the subject, so a man's name is replaced
    only at the beginning of both sides.
    """
    found = [
        (name, pair)
        for pair in pairs
        for name in _lone_names(*pair)
        if _KIND[name] is not MEN or all(side.startswith(name) for side in pair)
    ]
    groups = [
        group
        for kind in (TOWNS, MEN, WOMEN)
        if (group := [place for place in found if _KIND[place[0]] is kind])
    ]
    made = []
    for _ in range(n):
        old, pair = _pick(_pick(groups, rng), rng)
        new = _translated_name(_KIND[old], rng)
        made.append(
            tuple(re.sub(rf"\b{old}\b", name, side) for side, name in zip(pair, new, strict=True))
        )
    return made


def with_placeholders(pairs, n: int, rng):
    """Return n new pairs with placeholders: for a name or number, around one, before or after.

    >>> import numpy as np
    >>> with_placeholders([("I saw Tom.", "Ich sah Tom.")], 2, np.random.default_rng(1))
    [('I saw ①.', 'Ich sah ①.'), ('I saw Tom. ①', 'Ich sah Tom. ①')]
    """
    found = [(pair, places) for pair in pairs if (places := _places(*pair))]
    made = []
    for draw in rng.random(n):
        pair, places = _pick(found, rng)
        if draw < 0.7:  # in place of a name or a number, or of two
            for placeholder, place in zip(
                PLACEHOLDERS, rng.permutation(places)[: _pick((1, 1, 2), rng)], strict=False
            ):
                pair = _replaced(pair, place, placeholder)
        elif draw < 0.78:  # tags around it
            place = _pick(places, rng)
            pair = _replaced(pair, place, f"①{place}②")
        elif draw < 0.86:  # around the sentence
            pair = tuple(f"①{side}②" for side in _pick(pairs, rng))
        elif draw < 0.97:  # before or after a sentence
            form = _pick(("① {}", "{} ①", "① {} ②", "{} ① ②", "①: {}", "({}) ①", "① - {}"), rng)
            pair = tuple(form.format(side) for side in _pick(pairs, rng))
        else:  # alone
            form = _pick(("①", "①.", "① ②", "①, ②", "① - ②", "① ② ③", "①: ②", "(①)"), rng)
            pair = form, form
        made.append(numbered(*pair))
    return made


def typed(pairs, n: int, rng, turned: bool = False):
    """Return n pairs whose source is as people type: without end mark, and with small letters.

    turned: whether German is the source. The target stays as it is: a model learns to complete it.
    """
    made = []
    for row in rng.integers(len(pairs), size=n):
        source, target = pairs[row][::-1] if turned else pairs[row]
        source = source.rstrip(".!?") or source
        source = source.lower() if rng.random() < 0.5 else source[:1].lower() + source[1:]
        made.append((target, source) if turned else (source, target))
    return made


def capitals(pairs, n: int, rng):
    """Return n pairs in capitals."""
    return [tuple(map(str.upper, _pick(pairs, rng))) for _ in range(n)]


def same(pairs, n: int, rng, turned: bool = False):
    """Return n pairs with the target's language on both sides: it stays as it is."""
    return [(_pick(pairs, rng)[0 if turned else 1],) * 2 for _ in range(n)]


def invented_name(rng) -> str:
    """Return a name that nobody has, of two or three syllables."""
    return "".join(_pick(_NAMES["syllables"], rng) for _ in range(rng.integers(2, 4))).capitalize()


def _pick(choices, rng):
    return choices[rng.integers(len(choices))]


def _forms(name):
    """Return a pattern of a name in German text; its group is the genitive's s, as in Toms Auto."""
    return rf"\b(?:{'|'.join(_GERMAN.get(name, [name]))})(s?)\b"


def _names(english, german):
    """Return the names that occur equally often in the English and in the German."""
    found = _NAME.findall(english)
    names = dict.fromkeys(found)
    return [name for name in names if found.count(name) == len(re.findall(_forms(name), german))]


def _rename(english, german, rng):
    new, forms = {}, {}
    for name in _names(english, german):
        genitive = "s" in re.findall(_forms(name), german)
        new[name] = _other_name(_KIND[name], rng, genitive, taken=[english, *new.values()])
        for form in _GERMAN.get(name, [name]):
            forms.update({form: new[name], form + "s": new[name] + "s"})
    german = re.sub(rf"\b(?:{'|'.join(forms)})\b", lambda found: forms[found[0]], german)
    return _NAME.sub(lambda found: new.get(found[0], found[0]), english), german


def _other_name(kind, rng, genitive, taken):
    while True:
        draw = rng.random()
        if draw < 0.3:
            name = invented_name(rng)
        elif draw < 0.45 and kind in (MEN, WOMEN):
            name = f"{_pick(kind, rng)} {_pick(FAMILIES, rng)}"
        else:
            name = _pick(kind, rng)
        hissing = name.endswith(("s", "x", "z", "ß", "ce"))  # Max' Auto: German adds no s
        if not (genitive and hissing) and not any(name in text for text in taken):
            return name


def _numbers(english, german):
    """Return whether both sides contain the same numbers, among them one to replace.

    0 and 1 are not replaced: their grammar differs from that of other numbers.
    """
    found = sorted(_NUMBER.findall(english))
    return found == sorted(_NUMBER.findall(german)) and any(
        number not in ("0", "1") for number in found
    )


def _renumber(english, german, rng):
    new = {}
    for number in sorted(set(_NUMBER.findall(english))):
        new[number] = _other_number(number, rng)
    return tuple(_NUMBER.sub(lambda found: new[found[0]], side) for side in (english, german))


def _other_number(number, rng):
    """Return another number of the same kind (hour, day, year, ...), or any of up to four digits.

    Sentences about 4,711 hours are seldom true, but such numbers are too rare in a corpus to be
    learned from it.
    """
    if number in ("0", "1"):
        return number
    if number[0] != "0" and rng.random() < ANY_LENGTH:
        return str(rng.integers(2, 10 ** int(rng.integers(2, 5))))
    for low, high in itertools.pairwise(_BANDS):
        if number[0] != "0" and low <= int(number[:9]) < high and len(number) < 5:
            return str(rng.integers(low, high))
    first = "0" if number[0] == "0" and len(number) < 3 else str(rng.integers(1, 10))
    return first + "".join(str(digit) for digit in rng.integers(10, size=min(len(number), 4) - 1))


def _lone_names(english, german):
    """Return the names that stand once on each side, spelled alike and without a genitive's s.

    No family names, which follow others. In English, a capital letter after a name begins one: Tom
    Jackson.
    """

    def once(name, side, after):
        return side.count(name) == 1 and re.search(rf"\b{name}\b(?!{after})", side)

    names = [name for name in _names(english, german) if _KIND[name] is not FAMILIES]
    alone = [name for name in names if once(name, english, r"'|\s+[A-Z]")]
    return [name for name in alone if once(name, german, "'")]


def _places(english, german):
    """Return the names and the number in whose place a placeholder may stand."""
    numbers = _NUMBER.findall(english)
    alone = numbers == _NUMBER.findall(german) == _LONE.findall(english) == _LONE.findall(german)
    lone = numbers if alone and len(numbers) == 1 and numbers[0] not in ("0", "1") else []
    return [*_lone_names(english, german), *lone]


def _replaced(pair, place, new):
    pattern = re.compile(rf"(?<!\w){place}(?!\w)")
    return tuple(pattern.sub(new, side, count=1) for side in pair)


def _translated_name(kind, rng):
    """Return a name as English and German have it."""
    if kind is TOWNS:
        return _pick(list(PLACES.items()), rng)
    english, german = ("Mr.", "Herr") if kind is MEN else (_pick(("Mrs.", "Ms."), rng), "Frau")
    family = _pick(FAMILIES, rng)
    return f"{english} {family}", f"{german} {family}"


def trained_pairs(pairs, times: int = PHRASES):
    """Return the pairs of the corpus and of the phrase lists, from which subwords are learned."""
    pairs = [protected_pair(*map(normalise, pair)) for pair in pairs]
    pairs = [pair for pair in pairs if all(pair)]
    return pairs + times * phrases()


def phrases():
    """Return the pairs of phrases/taught, and those of spans.tsv, with placeholders."""
    rows = []
    folder = FOLDER / "phrases"
    for path in [*sorted((folder / "taught").glob("*.tsv")), folder / "spans.tsv"]:
        for line in corpora.read_lines(path):
            english, german = map(normalise, line.split("\t")[:2])
            rows.append(protected_pair(english, german))
    return rows


def added_pairs(pairs, seed: int = 0, turned: bool = False, counts=COUNTS):
    """Return the made pairs of each kind, one kind after the other.

    turned: whether German is the source.
    """
    rng = np.random.default_rng([seed, 1 << 20])
    makers = (
        joined,
        with_other_names,
        with_other_numbers,
        with_translated_names,
        with_placeholders,
    )
    made = [maker(pairs, counts[maker.__name__], rng) for maker in makers]
    made += [maker(pairs, counts[maker.__name__], rng, turned) for maker in (typed, same)]
    made.append(capitals(pairs, counts["capitals"], rng))
    return list(itertools.chain(*made))


def back_translated(mono_path, back_path, known, familiar, longest=18):
    """Return (source, target) for each usable line: the source as a translator wrote it, protected.

    Used are lines of 2 to `longest` words, of which the fraction `familiar` at least is in the set
    `known`: what a translator of everyday sentences cannot read it cannot translate back. Left out
    are lines whose translation is not about as long, is the line itself, or has damaged characters.
    """
    kept = []
    for target, source in zip(*corpora.read_pairs(mono_path, back_path), strict=True):
        target, source = normalise(target), normalise(source)
        words = target.split()
        n = len(words)
        if not 2 <= n <= longest or not 0.5 <= (len(source) + 5) / (len(target) + 5) <= 2:
            continue
        if source == target or "\ufffd" in source or split_protected(target, _KEPT)[1]:
            continue
        if sum(_plain(word) in known for word in words) >= familiar * n:
            kept.append((f"{BACK} {source}", target))
    return kept


def _plain(word):
    return word.strip(".,;:!?\"'()-–").lower()


def _run(options):
    english_first = options.direction == "en-de"
    corpus = corpora.load("tatoeba-en-de")
    real = trained_pairs(list(zip(*corpus.train, strict=True)), options.phrases)
    added = added_pairs([pair for pair in real if all(pair)], options.seed, not english_first)
    texts = {"train": real, "added": added}
    texts = {
        name: [pair if english_first else pair[::-1] for pair in pairs]
        for name, pairs in texts.items()
    }
    texts = {name: [numbered(*pair) for pair in pairs] for name, pairs in texts.items()}
    if options.mono:
        counts = Counter(_plain(word) for _, target in texts["train"] for word in target.split())
        known = {word for word, count in counts.items() if count > 1}
        texts["train"] += back_translated(
            options.mono, options.back, known, FAMILIAR[options.direction[-2:]]
        )
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, pairs in texts.items():
        for language, lines in zip(
            options.direction.split("-"), zip(*pairs, strict=True), strict=True
        ):
            save_text(out / f"{name}.{language}", "".join(f"{line}\n" for line in lines))
        print(f"{len(pairs):,} pairs written to {out / name}.*")


def main(arguments=None) -> int:
    """Run the command line; return the exit code."""
    return exit_code("prepare.py", lambda: _run(_options(arguments)))


def _options(arguments):
    parser = OptionParser(description=__doc__.splitlines()[0])
    parser.add_argument("direction", choices=("en-de", "de-en"))
    parser.add_argument("--out", required=True, help="the folder to write to")
    parser.add_argument("--mono", help="sentences of the target language")
    parser.add_argument("--back", help="their translations into the source language, line by line")
    said = f"times that each phrase is repeated (default: {PHRASES}; 0: without them)"
    parser.add_argument("--phrases", type=int, default=PHRASES, help=said)
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other pairs")
    options = parser.parse_args(arguments)
    if (options.mono is None) != (options.back is None):
        parser.error("--mono and --back belong together")
    return options


if __name__ == "__main__":
    sys.exit(main())
