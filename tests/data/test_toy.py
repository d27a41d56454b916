"""The built-in corpus: its German is right and depends on the English alone; no test sentence
is learned from.
"""

import hashlib
import re

import pytest

from minitf.data import toy
from minitf.data.toy import grammar
from minitf.data.toy.grammar import (
    NOUNS,
    PRONOUNS,
    VERB,
    Clause,
    Phrase,
    after,
    english_clause,
    german_clause,
    pronoun,
)

# The German was written by hand. Before it, what the clause is: the place of the verb, the verb,
# the mode ("not": negated); then its parts: s subject, o object (do in the dative), r recipient, w
# with, f for, p predicate, t time, in and at a place, into and to (zu) where to. A noun comes with
# its article and adjective, + is its plural.
CLAUSES = """
second lesen now; s the man; o a book
    the man is reading a book | der Mann liest ein Buch
second lesen habit; s I; o the newspaper; t every day
    I read the newspaper every day | ich lese jeden Tag die Zeitung
second essen now; s the child+; o two fresh apple+
    the children are eating two fresh apples | die Kinder essen zwei frische Äpfel
second trinken past; s she; o bare cold water; in the garden
    she drank cold water in the garden | sie hat im Garten kaltes Wasser getrunken
second essen now; s a old woman; o a egg
    an old woman is eating an egg | eine alte Frau isst ein Ei
second kennen now; s the boy; o the student
    the boy knows the student | der Junge kennt den Studenten
second helfen now; s her neighbor; do her neighbor+
    her neighbor is helping her neighbors | ihr Nachbar hilft ihren Nachbarn
second anrufen now; s he; o my old friend
    he is calling my old friend | er ruft meinen alten Freund an
last anrufen now; s he; o the friend
    he is calling the friend | er den Freund anruft
first anrufen now; s Anna; o the doctor
    is Anna calling the doctor | ruft Anna den Arzt an
second anrufen past; s he; o she; t yesterday
    he called her yesterday | er hat sie gestern angerufen
last anrufen past; s he; o they
    he called them | er sie angerufen hat
second zumachen must; s they; o the window+
    they have to close the windows | sie müssen die Fenster zumachen
last zumachen must; s she; o the door
    she has to close the door | sie die Tür zumachen muss
first abholen can; s I; o the aunt; at the station
    can I pick the aunt up at the station | kann ich die Tante am Bahnhof abholen
second zurückkommen past; s our father
    our father came back | unser Vater ist zurückgekommen
second lesen will; s this woman; o his book; t tomorrow
    this woman will read his book tomorrow | diese Frau wird morgen sein Buch lesen
last sehen want; s the little girl; o some bird+
    the little girl wants to see some birds | das kleine Mädchen einige Vögel sehen will
second schlafen now; s the small dog
    the small dog is sleeping | der kleine Hund schläft
second spielen now; s a little girl
    a little girl is playing | ein kleines Mädchen spielt
second kaufen now; s he; o a red jacket; f the mother
    he is buying a red jacket for the mother | er kauft für die Mutter eine rote Jacke
second helfen past; s he; do the little child+
    he helped the little children | er hat den kleinen Kindern geholfen
second wohnen now; s some young man+; in the old house
    some young men live in the old house | einige junge Männer wohnen im alten Haus
second lieben now; s she; o our black cat+
    she loves our black cats | sie liebt unsere schwarzen Katzen
second gehen now; s she; into the beautiful garden
    she is going into the beautiful garden | sie geht in den schönen Garten
second gehen past; s we; to the station
    we went to the station | wir sind zum Bahnhof gegangen
second helfen past; s the doctor; do I
    the doctor helped me | der Arzt hat mir geholfen
second geben now; s the man; r the girl; o a fresh apple
    the man is giving the girl a fresh apple | der Mann gibt dem Mädchen einen frischen Apfel
second geben past; s the man; r he; o the key; t yesterday
    the man gave him the key yesterday | der Mann hat ihm gestern den Schlüssel gegeben
second zeigen can; s I; r my brother+; o a long letter
    I can show my brothers a long letter | ich kann meinen Brüdern einen langen Brief zeigen
second lesen now not; s she; o the book; t today
    she is not reading the book today | sie liest das Buch heute nicht
second essen now not; s she; o not_a apple
    she is not eating an apple | sie isst keinen Apfel
second lesen past not; s she; o any old newspaper+
    she did not read any old newspapers | sie hat keine alten Zeitungen gelesen
second zurückkommen can not; s he
    he cannot come back | er kann nicht zurückkommen
second gehen past not; s he; to the station
    he did not go to the station | er ist nicht zum Bahnhof gegangen
second aufräumen must not; s Tom; o the kitchen
    Tom does not have to clean the kitchen up | Tom muss die Küche nicht aufräumen
second helfen habit; s he; do his brother; t never
    he never helps his brother | er hilft seinem Bruder nie
second lesen habit; s he; o the newspaper; t often
    he often reads the newspaper | er liest oft die Zeitung
second lesen like; s the woman; o bare book+
    the woman likes to read books | die Frau liest gern Bücher
second helfen like not; s they; do the man
    they do not like to help the man | sie helfen dem Mann nicht gern
second spielen now; s the child+; w the dog; in a park
    the children are playing with the dog in a park | die Kinder spielen mit dem Hund in einem Park
last sein past; s Paul; p ill; t on Sunday
    Paul was ill on Sunday | Paul am Sonntag krank war
second sein now not; s the car; p new
    the car is not new | das Auto ist nicht neu
last ankommen now; s the student; t now
    the student is arriving now | der Student jetzt ankommt
front anrufen past; s the doctor; o I; t yesterday
    yesterday the doctor called me | gestern hat mich der Arzt angerufen
front besuchen will; s my sister+; o she; t tomorrow
    tomorrow my sisters will visit her | morgen werden meine Schwestern sie besuchen
front kaufen past; s my mother; o four egg+; t yesterday
    yesterday my mother bought four eggs | gestern hat meine Mutter vier Eier gekauft
"""
# fmt: off
ROLES = {
    "s": ("subject", "nominative"), "o": ("object", "accusative"), "do": ("object", "dative"),
    "r": ("recipient", "dative"), "w": ("partner", "dative", "with", "mit"),
    "f": ("partner", "accusative", "for", "für"),
    "in": ("place", "dative", "in", "in"), "at": ("place", "dative", "at", "an"),
    "into": ("place", "accusative", "into", "in"), "to": ("place", "dative", "to", "zu"),
}
# fmt: on
TIMES = {english: german for table in grammar.TIMES.values() for english, german in table.items()}


def phrase(text, case):
    """`phrase("the old man+", "dative")`: the old men."""
    if text in PRONOUNS:
        return pronoun(text, case)
    if text in grammar.NAMES:
        return Phrase(text, text)
    article, *adjective, name = text.split()
    return grammar.noun_phrase(
        name.rstrip("+"), article.replace("_", " "), case, name.endswith("+"), *adjective
    )


def clause_of(verb, mode, negated, parts):
    fields = {}
    for part in parts:
        role, text = part.split(" ", 1)
        if role == "p":
            fields["predicate"] = Phrase(text, grammar.ADJECTIVES[text])
        elif role == "t":
            fields["often" if text in grammar.TIMES["often"] else "time"] = Phrase(
                text, TIMES[text]
            )
        else:
            field, case, *prepositions = ROLES[role]
            words = phrase(text, case)
            fields[field] = after(*prepositions, words) if prepositions else words
    return Clause(verb=VERB[verb], mode=mode, negated=bool(negated), **fields)


@pytest.mark.parametrize(
    "lines", re.findall(r"(.+)\n    (.+)", CLAUSES), ids=lambda lines: lines[1].split(" | ")[0]
)
def test_clause_in_both_languages(lines):
    made_of, (english, german) = lines[0], lines[1].split(" | ")
    head, *parts = made_of.split("; ")
    order, verb, mode, *negated = head.split()
    clause, front = clause_of(verb, mode, negated, parts), Phrase()
    if order == "front":
        front, clause, order = clause.time, clause._replace(time=Phrase()), "second"
    assert english_clause(clause, order == "first", front) == english
    assert german_clause(clause, order, front) == german


@pytest.mark.parametrize(
    ("article", "nouns", "expected"),
    [
        ("the", "hat bag book", "alte alte alte alten alte alte alten alten alten"),
        ("a", "hat bag book", "alter alte altes alten alte altes alten alten alten"),
        ("bare", "coffee milk water", "alter alte altes alten alte altes altem alter altem"),
        ("the", "hat+", "alten alten alten"),
        ("my", "hat+", "alten alten alten"),
        ("two", "hat+", "alte alte alten"),
    ],
)
def test_endings_of_an_adjective(article, nouns, expected):
    """In the three cases, of a masculine, a feminine and a neuter noun, or of a plural."""
    made = [
        phrase(f"{article} old {noun}", case).german.split()[-2]
        for case in ("nominative", "accusative", "dative")
        for noun in nouns.split()
    ]
    assert " ".join(made) == expected


def test_the_sentences_are_those_of_every_machine():
    """All trainings on them depend on it: a change of the grammar draws others."""
    digest = hashlib.sha256(repr(toy.pairs(3000)).encode()).hexdigest()
    assert digest == "2717fe03430512ad1cf0dd2608a90824fb2486465749fa059c05494fe3cfae5b"
    assert toy.pairs(100, seed=6)[0] != toy.pairs(100, seed=5)[0]


@pytest.fixture(scope="module")
def sample():
    return toy.pairs(5_000, seed=1), toy.pairs(5_000, seed=2)


def test_one_english_sentence_has_one_german_sentence_and_there_are_many(sample):
    translations = {}
    for sources, targets in sample:
        assert len(set(sources)) == len(sources) == len(targets) == 5_000
        for source, target in zip(sources, targets, strict=True):
            assert translations.setdefault(source, target) == target
    # Capture and recapture: of N equally likely sentences, two samples of n share n * n / N.
    assert 5_000**2 / (10_000 - len(translations)) > 200_000


def test_sentences_are_well_formed(sample):
    capitals = {"Tag", "Abend", "Montag", "Sonntag", "Uhr", "Zeit", "Hause", "Schule"}
    capitals |= {*grammar.NAMES}
    for noun in NOUNS.values():
        plural = noun.german_plural
        capitals |= {noun.german, noun.oblique, plural, plural + "n"}
    for source, target in zip(*sample[0], strict=True):
        for line in (source, target):
            assert re.fullmatch(r"[A-Z][A-Za-zäöüß]*(,? [A-Za-zÄÖÜäöüß']+)*[.?]", line), line
            assert len(line.split()) <= 16
        assert source[-1] == target[-1]
        for word in re.findall(r"\w+", target)[1:]:
            # Der junge Junge; jeden Morgen, morgen
            if word.lower() not in ("junge", "jungen", "morgen"):
                assert word[0].isupper() == (word.capitalize() in capitals), (word, target)
        clauses = len(re.findall(r", (?:weil|dass|ob|aber) |^Weil .*, ", target))
        assert clauses == len(re.findall(r"\b(?:because|that|whether|but)\b", source.lower()))


def held_out_pattern():
    """Return what finds HELD_OUT in a text: "red bag", "the bag is red", "how many hats"."""
    between = "|".join(
        [*grammar.ADJECTIVES, "an?|any|the|this|some|two|three|four|five|six|my|his|her|our"]
    )
    patterns = []
    for word, name in toy.HELD_OUT:
        noun = f"(?:{name}|{NOUNS[name].plural or name})"
        if word in grammar.ADJECTIVES:
            patterns += [rf"{word} {noun}", rf"{noun} (?:is|are|was|were)(?: not)? {word}"]
            patterns += [rf"(?:Is|Are|Was|Were) (?:\w+ )?{noun} {word}"]
            continue
        verb = next(verb for verb in grammar.VERBS if verb.base == word)
        forms = "|".join({verb.base, verb.third, verb.ing, verb.past} - {""})
        patterns += [rf"(?:{forms})(?: (?:{between}))* {noun}"]
        patterns += [rf"[Hh]ow many (?:\w+ )?{noun} .*\b(?:{forms})"]
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b")


def test_splits():
    sizes = {"train": 6_000, "valid": 200, "test": 300, "test_held_out": 300}
    splits = toy.splits(n_train=6_000, n_valid=200, n_test=300)
    assert {name: len(pairs[0]) for name, pairs in splits.items()} == sizes
    sources = {name: set(pairs[0]) for name, pairs in splits.items()}
    assert len(set().union(*sources.values())) == sum(sizes.values()), "one is in two splits"
    smaller = toy.splits(n_train=100, n_valid=200, n_test=300)
    assert all(smaller[name] == splits[name] for name in ("valid", "test", "test_held_out"))
    held_out = held_out_pattern()
    for name, lines in sources.items():
        found = sum(bool(held_out.search(line)) for line in lines)
        assert found == (300 if name == "test_held_out" else 0), name
