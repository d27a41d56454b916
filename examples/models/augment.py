"""Make more training pairs from a small corpus, of the kinds of text that it lacks.

Everyday sentences are short, are about Tom, and contain no emoji. The text that people want
translated is different: longer, typed without capitals and full stops, SHOUTED, or already in the
language that they want; it contains addresses and telephone numbers. The pairs that this program
writes close some of that gap:

    python examples/models/augment.py --train train.en train.de --join 20000 --copy 40000 \
        --typed 6000 --capitals 12000 --same 4000 --verbatim 8000 --names 10000 \
        --output added.en added.de
    python -m minitf.training --train train.en train.de --add added.en added.de ...

If the name of the first file ends in .de, the pairs are for a model that translates from German.
The same input and the same seed give the same pairs, with one version of Python and NumPy. In the
functions below, `pairs` is (sources, targets), two lists of lines of equal length, and so is their
result.
"""

import argparse
import itertools
import os
import re
import string
import sys
import unicodedata
from pathlib import Path

import numpy as np

from minitf.data.corpora import read_pairs, undecoded
from minitf.errors import UserError
from minitf.files.atomic import install, staged
from minitf.terminal import counted, exit_code

__all__ = ["added", "capitals", "copy_through", "join", "names", "same", "typed", "verbatim"]


def _listed(words):
    return [word.replace("_", " ") for word in words.split()]


# Names spelled alike in English and German, so that one can replace another on both sides.
MEN = _listed(
    "Adam Ahmed Alexander Andreas Andrew Anton Ben Brian Carlos Chen Christian Daniel David "
    "Dimitri Emil Eric Felix Finn Florian Frank George Hans Hassan Henry Hugo Ivan Jack James Jan "
    "Jim Joe John Jonas José Jürgen Karl Kenji Kevin Klaus Leo Leon Liam Luca Lukas Mark Martin "
    "Matthias Max Michael Mike Mohammed Noah Oliver Omar Oscar Otto Patrick Paul Peter Philipp "
    "Pierre Rafael Raj Richard Robert Sam Sebastian Simon Stefan Steve Søren Ted Thomas Tim Tobias "
    "Tom Viktor Walter Wei Wolfgang Yusuf"
)
WOMEN = _listed(
    "Ada Aisha Alice Amelia Amy Ana Andrea Anja Anna Anne Barbara Birgit Carla Carmen Charlotte "
    "Chloé Clara Claudia Diana Elena Ellen Emilia Emily Emma Erika Eva Fatima Frieda Gloria Greta "
    "Hannah Heike Helen Ida Ingrid Jane Jenny Jessica Johanna Judy Julia Karen Kate Katrin Laura "
    "Lea Leila Lena Lina Linda Lisa Lucy Maria Marie Mary Mei Mia Monika Nadia Nancy Nicole Nina "
    "Olga Olivia Petra Priya Rita Rosa Sabine Sandra Sara Sarah Sofia Sophie Stefanie Susan "
    "Susanne Tina Ursula Vera Yuki Zoe"
)
FAMILIES = _listed(
    "Baker Bauer Becker Brown Carter Clark Cooper Davis Evans Fischer Garcia Green Hartmann "
    "Hoffmann Huber Ito Jackson Johnson Jones Keller Kim Klein Kowalski Krause Krüger Köhler Lee "
    "Lehmann Maier Meyer Miller Moore Müller Nakamura Neumann Nguyen Nowak O'Brien Parker Peterson "
    "Roberts Rossi Schmidt Schneider Schröder Schulz Schäfer Scott Singh Smith Tanaka Taylor "
    "Thompson Turner Wagner Walker Weber Werner White Williams Wilson Wood Yamamoto Young "
    "Zimmermann Öztürk"
)
TOWNS = _listed(
    "Adelaide Amsterdam Atlanta Auckland Bangkok Barcelona Berlin Boston Bremen Buenos_Aires "
    "Budapest Cambridge Chicago Denver Detroit Dortmund Dresden Dublin Frankfurt Hamburg "
    "Heidelberg Helsinki Houston Istanbul Jakarta Kiel Kyoto Leipzig Lima Liverpool London "
    "Los_Angeles Lyon Madrid Manchester Melbourne Miami Montreal Mumbai Nairobi New_York Osaka "
    "Oslo Oxford Portland Quito Rostock San_Francisco Seattle Seoul Shanghai Stockholm Stuttgart "
    "Sydney Toronto Vancouver Zagreb"
)
# Places that German names otherwise; all without an article there, as towns are.
PLACES = dict(
    pair.split("/")
    for pair in _listed(
        "Africa/Afrika America/Amerika Antwerp/Antwerpen Asia/Asien Athens/Athen "
        "Australia/Australien Austria/Österreich Bavaria/Bayern Beijing/Peking "
        "Belgium/Belgien Brazil/Brasilien Brussels/Brüssel Cairo/Kairo California/Kalifornien "
        "Canada/Kanada China/China Cologne/Köln Copenhagen/Kopenhagen Croatia/Kroatien "
        "Denmark/Dänemark Egypt/Ägypten England/England Europe/Europa Finland/Finnland "
        "Florence/Florenz France/Frankreich Geneva/Genf Genoa/Genua Germany/Deutschland "
        "Greece/Griechenland Hanover/Hannover Havana/Havanna Hungary/Ungarn Iceland/Island "
        "India/Indien Ireland/Irland Israel/Israel Italy/Italien Japan/Japan Kiev/Kiew "
        "Lisbon/Lissabon Lucerne/Luzern Mexico/Mexiko Milan/Mailand Morocco/Marokko "
        "Moscow/Moskau Munich/München Naples/Neapel New_Zealand/Neuseeland Norway/Norwegen "
        "Nuremberg/Nürnberg Paris/Paris Poland/Polen Portugal/Portugal Prague/Prag Rome/Rom "
        "Russia/Russland Saxony/Sachsen Scotland/Schottland Singapore/Singapur "
        "South_Africa/Südafrika Spain/Spanien Sweden/Schweden Tokyo/Tokio Turin/Turin "
        "Venice/Venedig Vienna/Wien Vietnam/Vietnam Wales/Wales Warsaw/Warschau "
        "Zurich/Zürich"
    )
)
_KINDS = (MEN, WOMEN, TOWNS, FAMILIES)
_GERMAN = {"Mary": ("Mary", "Maria")}  # names that are translated: all their German forms
_KIND = {name: kind for kind in _KINDS for name in kind}
_NAME = re.compile(rf"\b(?:{'|'.join(_KIND)})\b")
_NUMBER = re.compile(r"\b[0-9]+\b")
_LONE = re.compile(r"(?<=\s)[0-9]+(?=\s|[.?!]?$)")  # not a part of a number, and not an ordinal
# Limits between hours, days, minutes, percentages, ..., years.
_BANDS = (2, 10, 13, 32, 60, 100, 1000, 1700, 2030, 10000)

# Blocks of Unicode to draw from. The model spells unknown characters in bytes, so the training text
# should contain every lead byte.
_EMOJI = ((0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x2600, 0x27BF))
_SYMBOLS = (  # only categories S and Po are drawn: quotation marks and brackets are translated
    *((0xA1, 0xBF), (0x2010, 0x205E), (0x20A0, 0x20BF)),
    *((0x2100, 0x23FF), (0x2500, 0x25FF), (0x2900, 0x2BFF)),
)
_SCRIPTS = (
    ((0x00C0, 0x017F),),  # Latin with accents
    ((0x0391, 0x03C9),),  # Greek
    ((0x0410, 0x044F),),  # Cyrillic
    ((0x0531, 0x0587),),  # Armenian
    ((0x05D0, 0x05EA),),  # Hebrew
    ((0x0621, 0x064A),),  # Arabic
    ((0x0905, 0x0939),),  # Devanagari
    ((0x0E01, 0x0E2E),),  # Thai
    ((0x10D0, 0x10F0),),  # Georgian
    ((0x3041, 0x3096), (0x30A1, 0x30FA)),  # Hiragana, Katakana
    ((0x4E00, 0x9FA5),),  # Han
    ((0xAC00, 0xD7A3),),  # Hangul
)
_ENDINGS = ("com", "de", "org", "net", "eu", "io", "co.uk", "info")
_ADDRESSES = (
    "{name}@{host}",
    "{name}.{word}@{host}",
    "www.{host}",
    "https://{host}/{name}",
    "@{name}",
    "#{name}",
)
_TELEPHONES = ("0## #######", "0#### ######", "+49 ## #######", "+1 ### ### ####", "###-####")
_CODE = (
    *(
        "{word}({code})",
        "{word}[{number}]",
        "{word} = {number};",
        "{{{word}: {number}}}",
        "{word}|{code}",
    ),
    *(
        "<{word}>",
        "</{word}>",
        "`{code}`",
        "*{word}*",
        "~{word}",
        "${word}",
        "%{number}",
        "{code}-{number}",
    ),
    *(
        "{word}.py",
        "{word}.txt",
        "{word}.pdf",
        "/{word}/{code}",
        "C:\\{word}\\{code}",
        "v{digit}.{number}",
    ),
)
ANY_LENGTH = 0.5  # probability that a replaced number becomes one of any length up to six digits
_SYLLABLES = _listed(
    "ba bel bri da del dor e fen fi ga gor ha i ka kel la lin lo ma mi mor na nel no o pe ra ri "
    "ros sa sha ta ti tor u va vel wen ya yo za zi"
)


def join(pairs, n: int, rng):
    """Return n new pairs, each of two or three random pairs in a row.

    Raises ValueError if there are none to join.

    >>> import numpy as np
    >>> join((["Good day!"], ["Guten Tag!"]), 1, np.random.default_rng(0))
    (['Good day! Good day!'], ['Guten Tag! Guten Tag!'])
    """
    sources, targets = pairs
    if n and not len(sources):
        raise ValueError("no pairs to join")
    joined = []
    for _ in range(n):
        rows = rng.integers(len(sources), size=2 if rng.random() < 0.75 else 3)
        joined.append(
            [" ".join(side[row].strip() for row in rows).strip() for side in (sources, targets)]
        )
    return _sides(joined)


def copy_through(pairs, n: int, rng):
    """Return n new pairs that teach copying: of names, numbers, and signs without a translation.

    A name or a number is replaced only if both sides contain it equally often. Groups of emoji,
    other scripts, symbols, addresses and code are added at either end of a pair, or make a pair by
    themselves.
    """
    sources, targets = pairs
    named = [row for row, source in enumerate(sources) if _names(source, targets[row])]
    numbered = [row for row, source in enumerate(sources) if _numbers(source, targets[row])]
    made = []
    for draw in rng.random(n):
        if draw < 0.35 and named:
            row = _pick(named, rng)
            made.append(_rename(sources[row], targets[row], rng))
        elif draw < 0.8 and numbered:
            row = _pick(numbered, rng)
            made.append(_renumber(sources[row], targets[row], rng))
        else:
            made.append(_with_signs(sources, targets, rng))
    return _sides(made)


def typed(pairs, n: int, rng):
    """Return n pairs whose source is as people type: without its end mark, and with small letters.

    The target stays as it is, so a model learns to complete the text.

    >>> import numpy as np
    >>> typed((["Where is Tom?"], ["Wo ist Tom?"]), 2, np.random.default_rng(0))
    (['where is Tom', 'where is tom'], ['Wo ist Tom?', 'Wo ist Tom?'])
    """

    def one(row):
        source = sources[row].strip().rstrip(".!?") or sources[row]
        if rng.random() < 0.5:
            return source.lower(), targets[row]
        return source[:1].lower() + source[1:], targets[row]

    sources, targets = pairs
    return _sides([one(row) for row in rng.integers(len(sources), size=n)])


def capitals(pairs, n: int, rng):
    """Return n pairs in capitals.

    >>> import numpy as np
    >>> capitals((["The street!"], ["Die Straße!"]), 1, np.random.default_rng(0))
    (['THE STREET!'], ['DIE STRASSE!'])
    """
    rows = rng.integers(len(pairs[0]), size=n)
    return tuple([side[row].upper() for row in rows] for side in pairs)


def same(pairs, n: int, rng):
    """Return n pairs whose source is the target: what is already translated stays as it is.

    >>> import numpy as np
    >>> same((["Hello."], ["Hallo."]), 1, np.random.default_rng(0))
    (['Hallo.'], ['Hallo.'])
    """
    _, targets = pairs
    lines = [targets[row] for row in rng.integers(len(targets), size=n)]
    return lines, list(lines)


def verbatim(pairs, n: int, rng):
    """Return n new pairs with an address, a signed number or a telephone number on both sides.

    An address takes the place of a name, a number that of another one, where either stands once.

    >>> import numpy as np
    >>> verbatim((["I have 3 cats."], ["Ich habe 3 Katzen."]), 1, np.random.default_rng(4))
    (['I have +9702 cats.'], ['Ich habe +9702 Katzen.'])
    """
    sources, targets = pairs
    named = [row for row, source in enumerate(sources) if _address_places(source, targets[row])]
    numbered = [row for row, source in enumerate(sources) if _lone_number(source, targets[row])]
    made = []
    for draw in rng.random(n if named or numbered else 0):
        if named and (draw < 0.6 or not numbered):
            row = _pick(named, rng)
            old, new = _pick(_address_places(sources[row], targets[row]), rng), _address(rng)
        else:
            row = _pick(numbered, rng)
            old, new = _lone_number(sources[row], targets[row]), _exact_number(rng)
        place = re.compile(rf"(?<!\w){old}(?!\w)")
        made.append([place.sub(lambda _, new=new: new, side[row]) for side in pairs])
    return _sides(made)


def names(pairs, n: int, rng):
    """Return n new pairs with a name that is not spelled alike: Vienna, Mr. Smith, Ms. Weber.

    A place takes the place of a town; a title and a family name that of a first name, where either
    stands once. The sources are English: German writes "Herrn" unless Mr. Smith is the subject, so
    a man's name is replaced only at the beginning of both sides.

    >>> import numpy as np
    >>> names((["He is in Boston."], ["Er ist in Boston."]), 1, np.random.default_rng(15))
    (['He is in Vienna.'], ['Er ist in Wien.'])
    """
    sources, targets = pairs
    found = [
        (name, row)
        for row, source in enumerate(sources)
        for name in _address_places(source, targets[row])
        if _KIND[name] is not MEN or _begin((source, targets[row]), name)
    ]
    groups = [
        group
        for kind in (TOWNS, MEN, WOMEN)
        if (group := [place for place in found if _KIND[place[0]] is kind])
    ]
    made = []
    for _ in range(n if groups else 0):
        old, row = _pick(_pick(groups, rng), rng)
        new = _translated_name(_KIND[old], rng)
        sides = zip((sources[row], targets[row]), new, strict=True)
        made.append([re.sub(rf"\b{old}\b", name, side) for side, name in sides])
    return _sides(made)


def invented_name(rng) -> str:
    """Return a name that nobody has, of two or three syllables."""
    return "".join(_pick(_SYLLABLES, rng) for _ in range(rng.integers(2, 4))).capitalize()


def signs(rng) -> str:
    """Return a short text that is copied and not translated.

    >>> import numpy as np
    >>> [signs(np.random.default_rng(seed)) for seed in (0, 7, 10)]
    ['nhib.pdf', '68578', 'hafitor@naeu.eu']
    """
    return _pick(
        (_emoji, _emoji, _emoji, _script, _script, _symbols, _address, _code, _numeral), rng
    )(rng)


def _sides(rows):
    return [source for source, _ in rows], [target for _, target in rows]


def _pick(choices, rng):
    return choices[rng.integers(len(choices))]


def _forms(name):
    """Return a pattern of a name in German text; its group is the genitive's s, as in Toms Auto."""
    return rf"\b(?:{'|'.join(_GERMAN.get(name, [name]))})(s?)\b"


def _names(source, target):
    """Return the names that occur equally often in the source and in the target."""
    found = _NAME.findall(source)
    names = dict.fromkeys(found)
    return [name for name in names if found.count(name) == len(re.findall(_forms(name), target))]


def _rename(source, target, rng):
    new, german = {}, {}
    for name in _names(source, target):
        genitive = "s" in re.findall(_forms(name), target)
        new[name] = _other_name(_KIND[name], rng, genitive, taken=[source, *new.values()])
        for form in _GERMAN.get(name, [name]):
            german.update({form: new[name], form + "s": new[name] + "s"})
    target = re.sub(rf"\b(?:{'|'.join(german)})\b", lambda found: german[found[0]], target)
    return _NAME.sub(lambda found: new.get(found[0], found[0]), source), target


def _other_name(kind, rng, genitive, taken):
    while True:
        draw = rng.random()
        if draw < 0.3:
            name = invented_name(rng)
        elif draw < 0.36:
            name = _letters(_pick(_SCRIPTS, rng), rng).title()
        elif draw < 0.5 and kind in (MEN, WOMEN):
            name = f"{_pick(kind, rng)} {_pick(FAMILIES, rng)}"
        else:
            name = _pick(kind, rng)
        hissing = name.endswith(("s", "x", "z", "ß", "ce"))  # Max' Auto: German adds no s
        if not (genitive and hissing) and not any(name in text for text in taken):
            return name


def _numbers(source, target):
    """Return whether both sides contain the same numbers, among them one to replace.

    0 and 1 are not replaced: their grammar differs from that of other numbers.
    """
    found = sorted(_NUMBER.findall(source))
    return found == sorted(_NUMBER.findall(target)) and any(
        number not in ("0", "1") for number in found
    )


def _renumber(source, target, rng):
    new = {}
    for number in sorted(set(_NUMBER.findall(source))):
        part = re.search(rf"\d[.,:]{number}(?!\d)|(?<!\d){number}[.,:]\d", f"{source} {target}")
        new[number] = _other_number(number, rng, 0 if part else ANY_LENGTH)
    return tuple(_NUMBER.sub(lambda found: new[found[0]], side) for side in (source, target))


def _other_number(number, rng, any_length):
    """Return another number, of the same kind (hour, day, year, ...) or of any length.

    Sentences about 4,711 hours are seldom true, but long numbers are too rare in a corpus to be
    learned from it. any_length: the probability of any length; 0 for a part of a number, as in
    9:30 and 1,450, which would not be one any more.
    """
    if number in ("0", "1"):
        return number
    if number[0] != "0" and rng.random() < any_length:
        return str(rng.integers(2, 10 ** int(rng.integers(2, 7))))
    for low, high in itertools.pairwise(_BANDS):
        if number[0] != "0" and low <= int(number[:9]) < high and len(number) < 5:
            return str(rng.integers(low, high))
    first = "0" if number[0] == "0" and len(number) < 3 else str(rng.integers(1, 10))
    return first + "".join(str(digit) for digit in rng.integers(10, size=len(number) - 1))


def _address_places(source, target):
    """Return the names that stand once on each side, spelled alike and without a genitive's s.

    No family names, which follow others. source: English, where a capital letter after a name
    begins one: Tom Jackson.
    """

    def once(name, side, after):
        return side.count(name) == 1 and re.search(rf"\b{name}\b(?!{after})", side)

    names = [name for name in _names(source, target) if _KIND[name] is not FAMILIES]
    alone = [name for name in names if once(name, source, r"'|\s+[A-Z]")]
    return [name for name in alone if once(name, target, "'")]


def _translated_name(kind, rng):
    """Return a name as English and German have it."""
    if kind is TOWNS:
        return _pick(list(PLACES.items()), rng)
    english, german = ("Mr.", "Herr") if kind is MEN else (_pick(("Mrs.", "Ms."), rng), "Frau")
    family = _pick(FAMILIES, rng)
    return f"{english} {family}", f"{german} {family}"


def _begin(sides, name):
    return all(side.startswith(name) for side in sides)


def _lone_number(source, target):
    """Return the number that stands alone in the source and in the target, or None.

    It is neither 0 nor 1, whose grammar differs from that of other numbers.
    """
    found = _NUMBER.findall(source)
    alone = found == _NUMBER.findall(target) == _LONE.findall(source) == _LONE.findall(target)
    return found[0] if alone and len(found) == 1 and found[0] not in ("0", "1") else None


def _exact_number(rng):
    """Return a telephone number or a number with a sign."""
    if rng.random() < 0.4:
        return re.sub("#", lambda _: str(rng.integers(10)), _pick(_TELEPHONES, rng))
    return _pick("--\N{MINUS SIGN}+", rng) + str(rng.integers(1, 10 ** int(rng.integers(1, 5))))


def _with_signs(sources, targets, rng):
    row, place = signs(rng), rng.random()
    if place < 0.3 or not len(sources):
        return row, row
    pair = rng.integers(len(sources))
    order = ("{1} {0}" if place < 0.45 else "{0} {1}").format
    return tuple(order(side[pair], row).strip() for side in (sources, targets))


def _character(blocks, rng, category):
    """Return a random character of these blocks whose Unicode category begins with `category`."""
    while True:
        low, high = _pick(blocks, rng)
        character = chr(rng.integers(low, high + 1))
        if unicodedata.category(character).startswith(category):
            return character


def _letters(blocks, rng):
    return "".join(_character(blocks, rng, "L") for _ in range(rng.integers(2, 6)))


def _emoji(rng):
    def one():
        draw = rng.random()
        if draw < 0.3:
            return chr(rng.integers(0x1F600, 0x1F650))  # faces and hands, by far the most used
        if draw < 0.38:
            # Tones
            return _pick("\U0001f44d\U0001f44f\U0001f64f\U0001f4aa\u270c", rng) + chr(
                rng.integers(0x1F3FB, 0x1F400)
            )
        if draw < 0.46:
            return _pick("\u2764\u2600\u2714\u26a0\u263a", rng) + "\ufe0f"  # in colour
        if draw < 0.52:
            return "".join(chr(0x1F1E6 + letter) for letter in rng.integers(26, size=2))  # flags
        if draw < 0.58:
            # Families
            return "\u200d".join(
                _pick("\U0001f468\U0001f469\U0001f467\U0001f466", rng) for _ in range(3)
            )
        return _character(_EMOJI, rng, "So")

    return _pick(("", "", " "), rng).join(one() for _ in range(rng.integers(1, 4)))


def _script(rng):
    blocks = _pick(_SCRIPTS, rng)
    return " ".join(_letters(blocks, rng) for _ in range(rng.integers(1, 4)))


def _symbols(rng):
    row = [_character(_SYMBOLS, rng, ("S", "Po")) for _ in range(rng.integers(1, 4))]
    return _pick(("", " "), rng).join(row)


def _word(rng, alphabet=string.ascii_lowercase):
    return "".join(_pick(alphabet, rng) for _ in range(rng.integers(2, 6)))


def _address(rng):
    name, host = invented_name(rng).lower(), f"{invented_name(rng).lower()}.{_pick(_ENDINGS, rng)}"
    return _pick(_ADDRESSES, rng).format(name=name, host=host, word=_word(rng))


def _code(rng):
    word, code = _word(rng), _word(rng, string.ascii_letters + string.digits + "_-")
    return _pick(_CODE, rng).format(
        word=word, code=code, number=rng.integers(1000), digit=rng.integers(10)
    )


def _numeral(rng):
    digits = "".join(str(digit) for digit in rng.integers(10, size=rng.integers(2, 8)))
    return _pick(
        (digits, digits, f"+{digits[:3]} {digits[3:]}".strip(), f"{digits[:1]}/{digits[1:3]}"), rng
    )


KINDS = {
    "join": (join, "pairs of two or three pairs each"),
    "copy": (copy_through, "pairs that teach copying"),
    "typed": (typed, "pairs with a source without its end mark and its capital letters"),
    "capitals": (capitals, "pairs in capitals"),
    "same": (same, "pairs whose source is already translated"),
    "verbatim": (verbatim, "pairs with an address, a telephone number or a minus sign"),
    "names": (names, "pairs with Mr., Mrs., or a place whose name is translated"),
}


def added(pairs, seed: int, from_german: bool = False, **counts: int):
    """Return the new pairs of each kind in counts, one kind after the other in the order of KINDS.

    Pairs with an empty side are not used: joined to another, such a pair would be a long sentence
    of which only half is translated. from_german: whether German is the language of the sources.
    Raises TypeError for a kind that does not exist.
    """
    if unknown := counts.keys() - KINDS.keys():
        raise TypeError(f"there is no kind {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    complete = [pair for pair in zip(*pairs, strict=True) if all(line.strip() for line in pair)]
    if not complete:
        return [], []
    rng = np.random.default_rng([seed, 1 << 20])
    made = []
    for name, (make, _) in KINDS.items():
        sides = _sides(complete)
        # These know how German inflects names.
        turned = from_german and make in (copy_through, verbatim, names)
        new = make(sides[::-1] if turned else sides, counts.get(name, 0), rng)
        made.append(new[::-1] if turned else new)
    sources, targets = zip(*made, strict=True)
    return list(itertools.chain(*sources)), list(itertools.chain(*targets))


def save_pair(paths, sides):
    """Write the two files; if one cannot be written, both stay as they were.

    A new file beside an old one would be pairs of sentences that do not belong together.
    paths: of ordinary files, as `_output` returns them.
    """
    texts = ("".join(line + "\n" for line in lines).encode() for lines in sides)
    writers = {
        path: lambda aside, text=text: aside.write_bytes(text)
        for path, text in zip(paths, texts, strict=True)
    }
    with staged(writers) as files:
        for path in files:
            install(files, path)


def _output(name):
    """Return the path of a file to write; of a link, that of its target.

    Raises UserError for a missing folder, and for what a new file must not replace: a folder, which
    would be noticed only after the other file was written, a pipe, or a device.
    """
    path = Path(name).resolve()
    # Path.is_dir raises errors for names that are too long, and in folders that are not readable.
    if not os.path.isdir(path.parent):
        raise UserError(f"{name}: its folder does not exist: make it, or choose another folder")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{name} is a folder, a pipe or a device: name a file")
    return path


def _options(arguments):
    """Return the options of the command line, and the number of pairs of each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    files = {"nargs": 2, "metavar": ("SOURCE", "TARGET"), "required": True}
    parser.add_argument("--train", help="the pairs to start from", **files)
    parser.add_argument("--output", help="files to write the new pairs to", **files)
    number = {"type": int, "default": 0, "metavar": "N"}
    for name, (_, what) in KINDS.items():
        parser.add_argument(f"--{name}", help=f"make N {what}", **number)
    parser.add_argument("--seed", help="another seed gives other pairs (default 0)", **number)
    options = parser.parse_args(arguments)
    counts = {name: getattr(options, name) for name in KINDS}
    if min(options.seed, *counts.values()) < 0:
        parser.error(f"{', '.join(f'--{name}' for name in KINDS)} and --seed must be at least 0")
    if not any(counts.values()):
        parser.error(f"give at least one of {', '.join(f'--{name}' for name in KINDS)}")
    paths = [*options.train, *options.output]
    if len({Path(path).resolve() for path in paths}) < len(paths):
        parser.error("--train and --output must name four different files")
    return options, counts


def _run(options, counts):
    outputs = [_output(name) for name in options.output]
    pairs = read_pairs(*options.train)
    for path, lines in zip(options.train, pairs, strict=True):
        if warning := undecoded(path, lines):
            _say(warning)
    from_german = Path(options.train[0]).suffix == ".de"
    sides = added(pairs, options.seed, from_german, **counts)
    missing = sum(counts.values()) - len(sides[0])
    lacking = "has a name or number that --verbatim or --names could replace"
    lacking = f"no pair of {options.train[0]} {lacking}"
    if not sides[0] and any(all(map(str.strip, pair)) for pair in zip(*pairs, strict=True)):
        raise UserError(f"{lacking}: give another text")
    if not sides[0]:
        raise UserError(f"{options.train[0]} has no pair to start from: give another")
    save_pair(outputs, sides)
    if missing:
        _say(f"{counted(missing, 'pair')} fewer than asked for: {lacking}")
    print(f"{len(sides[0]):,} pairs written to {' and '.join(options.output)}")


def _say(message):
    print(f"augment.py: {message}", file=sys.stderr)


def main(arguments=None) -> int:
    """Run the command line; return the exit code."""
    options, counts = _options(arguments)
    return exit_code("augment.py", lambda: _run(options, counts))


if __name__ == "__main__":
    sys.exit(main())
