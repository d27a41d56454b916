"""What the models in the repository copy unharmed: numbers, names, emoji.

`-s` prints the counts.
"""

import re
import sys

import numpy as np
import pytest
from paths import EXAMPLES

from minitf.files.models import read_notes
from minitf.translation import Translator

sys.path.insert(0, str(EXAMPLES / "models"))

import prepare

COUNTED = {
    "en": ("I have {} books.", "Tom bought {} apples yesterday."),
    "de": ("Ich habe {} Bücher.", "Tom hat gestern {} Äpfel gekauft."),
}
NAMED = {
    "en": ("{} lives in Boston.", "I saw {} in the park yesterday."),
    "de": ("{} wohnt in Boston.", "Ich habe {} gestern im Park gesehen."),
}
ENDED = {"en": ("It is raining. {}", "I love you {}"), "de": ("Es regnet. {}", "Ich liebe dich {}")}
NAMES = (
    "Anna Tom Mary Peter Lisa Emma Lukas Julia Sarah David Maria Paul Laura Felix Sophie Jonas "
    "Hannah Max Leon Mia"
)
EVERYDAY = (NAMES + " Ben Noah Emily Jack Olivia Harry Lucy Oscar Alice Henry").split()
SPELLED = {  # a small number may become a word: "two apples"; by the language of the sentence
    "en": ["zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "de": ["two", "three", "four", "five", "six", "seven", "eight", "nine"],
}
AT_LEAST = {  # shares of what is asked; the card says how many it really are
    **{f"{digits} digits": 0.95 for digits in range(1, 6)},
    "everyday names": 0.85,
    "invented names": 0.9,
    "emoji": 0.98,
}


def questions(language):
    """{what: [(sentence, what must stand in its translation)]}; no sentence is from a corpus."""
    rng = np.random.default_rng(20)
    asked = {}
    for digits in range(1, 6):
        numbers = rng.integers(2 if digits == 1 else 10 ** (digits - 1), 10**digits, 100)
        asked[f"{digits} digits"] = [
            (sentence.format(n), str(n)) for n in numbers for sentence in COUNTED[language]
        ]
    invented = [prepare.invented_name(rng) for _ in range(100)]
    emoji = [chr(rng.integers(0x1F600, 0x1F645)) for _ in range(25)]
    for what, signs, sentences in (
        ("everyday names", EVERYDAY, NAMED[language]),
        ("invented names", invented, NAMED[language]),
        ("emoji", emoji, ENDED[language]),
    ):
        asked[what] = [(sentence.format(sign), sign) for sign in signs for sentence in sentences]
    return asked


def copied(translator, language):
    """{what: (how many came through, how many were asked)}."""
    counts = {}
    for what, pairs in questions(language).items():
        texts = [best[0].text for best in translator.translate([sentence for sentence, _ in pairs])]
        right = [stands(sign, text, language) for (_, sign), text in zip(pairs, texts, strict=True)]
        counts[what] = sum(right), len(right)
    return counts


def stands(sign, text, language):
    """Whether a name, a number or an emoji stands in a translation; 4711 may be 4.711."""
    ways = [re.escape(sign)]
    if sign.isdigit():
        text = re.sub(r"(?<=\d)[.,](?=\d{3})", "", text)
        if int(sign) < 10:
            ways.append(SPELLED[language][int(sign) - 2])
    return re.search(rf"(?<!\w)(?:{'|'.join(ways)})(?!\w)", text) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_a_bundled_model_copies(name):
    counts = copied(Translator.load(EXAMPLES / "models" / name), name[:2])
    for what, (right, asked) in counts.items():
        print(f"{name} {what:15s} {right} of {asked}")
    short = {
        what: counts[what]
        for what, share in AT_LEAST.items()
        if counts[what][0] < share * counts[what][1]
    }
    assert not short


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_what_cards_and_judged_lists_show_is_what_the_model_writes(name):
    models = EXAMPLES / "models"
    card = (models / name / "README.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| (.+) \| (.+) \| (?:right|wrong).* \|$", card, re.MULTILINE)[1:])
    assert len(shown) >= 12
    columns = {f"{name}-0.3": (2, 2), f"sixty.{name[:2]}": (4, 2), f"fresh.{name[:2]}": (4, 2)}
    for file, (today, before) in columns.items():
        lines = (models / "judged" / f"{file}.tsv").read_text(encoding="utf-8").splitlines()
        for row in (line.split("\t") for line in lines[1:]):
            shown[row[1]] = row[before] if row[today] == "same" else row[today]
    found = Translator.load(models / name).translate(list(shown))
    texts = [best[0].text for best in found]
    assert dict(zip(shown, texts, strict=True)) == shown


@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_a_page_knows_the_direction_of_a_bundled_model(name):
    """By its notes: its examples are in the language that is read."""
    notes = read_notes(EXAMPLES / "models" / name)
    assert f"{notes['source_language']}-{notes['target_language']}" == name
    ours, theirs = {"en": ("I", "Ich"), "de": ("Ich", "I")}[name[:2]]
    words = " ".join(notes["page"]["examples"]).split()
    assert ours in words and theirs not in words


def test_the_best_translations_differ():
    """Words were cut in several ways in its training, so its beam holds a text several times."""
    translator = Translator.load(EXAMPLES / "models" / "en-de")
    lines = ["Where is the station?", "I don't know what to do."]
    for found in translator.translate(lines, n_best=4):
        texts = [translation.text for translation in found]
        assert len(set(texts)) == len(texts) <= 4
    assert texts[0] == "Ich weiß nicht, was ich tun soll."


@pytest.mark.parametrize(
    ("name", "line"),
    [("en-de", "My brother was at the station and bought two tickets."),
     ("de-en", "Mein Bruder war am Bahnhof und hat zwei Karten gekauft.")],
)  # fmt: skip
def test_markup_changes_nothing_but_its_place(name, line):
    translator = Translator.load(EXAMPLES / "models" / name)
    signs = ("+", "*", "<", "→", "%", "|", "§", "\\n", ";")
    first, second, rest = line.split(" ", 2)
    before, after = f"{first} {second}", f" {rest}"
    lines = [f"{before} {sign}{after}" for sign in signs]
    lines += [
        f"**{before}**{after}",
        f"({line})",
        line.replace(" and ", " & ").replace(" und ", " & "),
    ]
    plain, *found = (best[0].text for best in translator.translate([line, *lines]))
    for sign, text in zip([*signs, "**", "(", "&"], found, strict=True):
        kept = text if sign == "&" else text.replace(f" {sign}", "")
        assert re.sub(r"[*()]", "", kept) == plain
        assert text.count(sign) == {"**": 2, "&": 0}.get(sign, 1)
