"""A small English-German grammar: its words, its phrases, and the word order of its clauses.

A `Clause` says who does what, to whom, when and where, and has no word order. Two functions put it
into words. `english_clause` keeps the order subject - verb - object - place - time. `german_clause`
builds a frame: the finite verb comes second (first in a yes/no question, last after "weil" and
"dass"), the rest of the verb closes the clause, and everything else is between the two. Each English
word has one German word, so the German is a function of the English. minitf/data/toy/__init__.py
draws clauses at random. To add a word, add it to nouns.txt, verbs.txt or words.txt.
"""

from collections import defaultdict, namedtuple
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minitf.data import read_table

HERE = Path(__file__).parent

# ---- 1. The words, their forms, and the combinations that make sense.


def read_words():
    """Return {table: {entry: what it stands for}} of words.txt."""
    tables = defaultdict(dict)
    for name, entries in read_table(HERE, "words.txt", "|"):
        for entry in entries.split(","):
            word, _, meaning = entry.strip().partition(": ")
            tables[name.strip()][word] = meaning
    return tables


WORDS = read_words()
ARTICLES, ADJECTIVES, NAMES = WORDS["articles"], WORDS["adjectives"], WORDS["names"]
MINE, NUMBERS, MODALS = WORDS["mine"], WORDS["numbers"], WORDS["modals"]
STRONG, WEAK, CONTRACTIONS = WORDS["strong"], WORDS["weak"], WORDS["contractions"]
TIMES = {kind: WORDS[kind] for kind in ("now", "habit", "past", "future", "often")}
TIMES["hour"] = {f"at {hour} o'clock": f"um {zahl} Uhr" for hour, zahl in WORDS["hours"].items()}
PERSONS = ("adult", "child", "work", "friend", "parent", "sibling")
GROUPS = {
    "person": PERSONS,
    "grown": ("adult", "work", "friend", "parent"),
    "young": ("child", "sibling"),
    "pet": ("dog", "cat"),
}
STATES = ("tired", "ill", "happy", "hungry")  # temporary states of a person
EIN_WORDS = {"a": "ein", "not a": "kein", "any": "kein", **MINE}
UNCHANGING = {"bare": "", "some": "einige", "how many": "wie viele", **NUMBERS}
FIRST, SINGULAR, PLURAL = range(3)  # agreement of the verb: I; he, she; we, they
PRONOUNS = {  # agreement, English object, German
    "I": (FIRST, "me", {"nominative": "ich", "accusative": "mich", "dative": "mir"}),
    "he": (SINGULAR, "him", {"nominative": "er", "accusative": "ihn", "dative": "ihm"}),
    "she": (SINGULAR, "her", {"nominative": "sie", "accusative": "sie", "dative": "ihr"}),
    "we": (PLURAL, "us", {"nominative": "wir", "accusative": "uns", "dative": "uns"}),
    "they": (PLURAL, "them", {"nominative": "sie", "accusative": "sie", "dative": "ihnen"}),
}


# `oblique`: German singular outside the nominative. A plural that is not used is empty. A random
# article is drawn from `articles`, a random mode (see `Clause`) from `modes`.
Noun = namedtuple(
    "Noun", "english plural gender german oblique german_plural group articles adjectives"
)
Verb = namedtuple(
    "Verb",
    "base third ing past particle prefix infinitive er participle auxiliary subjects objects "
    "places notes modes",
)


def read_nouns():
    """Return the nouns by their English names."""
    nouns = {}
    for group, articles, adjectives, entries in read_table(HERE, "nouns.txt", "|"):
        articles = ARTICLES.get(articles.strip(), articles).split()
        for entry in entries.split(","):
            english, gender, german, german_plural = [*entry.split(), ""][:4]
            english, _, plural = english.partition("/")
            german, _, ending = german.partition("+")
            plural = german_plural and (plural or english + "s")
            forms = (english, plural, gender, german, german + ending, german_plural)
            nouns[english] = Noun(*forms, group.strip(), articles, adjectives.split())
    return nouns


def read_verbs():
    """Return the verbs."""
    verbs = []
    for row in read_table(HERE, "verbs.txt", "|"):
        english, german, subjects, objects, places, notes = map(str.split, row)
        english = ["" if form == "-" else form.replace("_", " ") for form in [*english, ""][:5]]
        prefix, _, infinitive = german[0].rpartition("-")
        german = (prefix, infinitive, german[1], german[2], "sein" if german[3:] else "haben")
        modes = ["now"] if "state" in notes else ["now", "past"] * 3
        modes += [] if "state" in notes or "plain" in notes else ["will", "can", "want"]
        modes += ["must"] * ("will" in modes and "fun" not in notes)
        modes += ["habit"] * 2 * ("habit" in notes) + ["like"] * ("like" in notes)
        beings_and_things = nouns_of(subjects), nouns_of(objects)
        verbs.append(Verb(*english, *german, *beings_and_things, places, notes, modes))
    return verbs


def nouns_of(names):
    """Return the nouns of these groups.

    `nouns_of(["young", "key"])` is child, boy, girl, brother, sister, key.
    """
    groups = [group for name in names for group in GROUPS.get(name, (name,))]
    return [noun for group in groups for noun in NOUNS if group in (noun, NOUNS[noun].group)]


NOUNS = read_nouns()
_verbs = read_verbs()
VERBS = [verb for verb in _verbs if "clause" not in verb.notes]
VERB = {verb.prefix + verb.infinitive: verb for verb in _verbs}


# ---- 2. Phrases, in both languages at once.


class Phrase(NamedTuple):
    """Words with the same meaning in both languages, and the facts that a sentence needs."""

    english: str = ""
    german: str = ""
    agreement: int = SINGULAR
    known: bool = True  # definite: "the", "my", a name, a pronoun
    pronoun: str = ""  # that can replace it: "he", "she", "they"
    noun: str = ""
    adjective: str = ""


NOTHING = Phrase()


def join(*words):
    """Join the words that are not empty with spaces."""
    return " ".join(filter(None, words))


@cache
def noun_phrase(name, article, case, plural=False, adjective=""):
    """Return a noun with its article and adjective.

    `noun_phrase("dog", "the", "dative", adjective="old")` is "the old dog", "dem alten Hund".

    One word has to show the case. If the article does ("dem"), the adjective is weak ("alten");
    if there is none, or it has no ending ("ein"), the adjective takes the strong ending ("ein alter
    Hund", "alte Hunde").
    """
    noun = NOUNS[name]
    gender = "p" if plural else noun.gender
    strong, weak = (endings[case].split()["mfnp".index(gender)] for endings in (STRONG, WEAK))
    shown = strong
    if article == "the":
        german = "d" + {"e": "ie", "es": "as"}.get(strong, strong)
    elif article == "this":
        german = "dies" + strong
    elif article in EIN_WORDS:
        shown = "" if case != "dative" and strong in ("er", "es") else strong
        german = EIN_WORDS[article] + shown
    else:
        shown, german = "", UNCHANGING[article]
    german_adjective = ADJECTIVES[adjective] + (weak if shown else strong) if adjective else ""
    german_noun = noun.german if case == "nominative" else noun.oblique
    if plural:
        ending = "n" if case == "dative" and noun.german_plural[-1] not in "ns" else ""
        german_noun = noun.german_plural + ending
    english = join(adjective, noun.plural if plural else noun.english)
    before = {"bare": "", "not a": "a"}.get(article, article)
    before += "n" * (before == "a" and english[0] in "aeiou")
    return Phrase(
        join(before, english),
        join(german, german_adjective, german_noun),
        PLURAL if plural else SINGULAR,
        article in ("the", "this", *MINE),
        {"m": "he", "f": "she", "n": "", "p": "they"}[gender],
        name,
        adjective,
    )


def pronoun(name, case):
    """Return a pronoun: `pronoun("he", "dative")` is "him", "ihm"."""
    agreement, other, german = PRONOUNS[name]
    english = name if case == "nominative" else other
    return Phrase(english, german[case], agreement, True, name, name)


def after(english, german, phrase):
    """Return the phrase after a preposition.

    `after("to", "zu", the station)` is "to the station", "zum Bahnhof".
    """
    words = f"{german} {phrase.german}"
    start = " ".join(words.split()[:2])
    german = CONTRACTIONS.get(start, start) + words.removeprefix(start)
    return phrase._replace(english=f"{english} {phrase.english}", german=german)


# ---- 3. The clause, and its two word orders.


class Clause(NamedTuple):
    """The meaning of a clause, without an order of words."""

    subject: Phrase
    verb: Verb
    mode: str = "now"  # now, habit, past, will, can, must, want, like
    negated: bool = False
    recipient: Phrase = NOTHING  # gives *him* a book
    object: Phrase = NOTHING
    predicate: Phrase = NOTHING  # is *tired*
    partner: Phrase = NOTHING  # plays *with the dog*, buys a book *for him*
    place: Phrase = NOTHING
    often: Phrase = NOTHING  # often, sometimes, never
    time: Phrase = NOTHING

    def word_pairs(self):
        """Return the pairs (verb, object) and (adjective, noun), as English dictionary forms."""
        phrases = (self.subject, self.recipient, self.object, self.partner, self.place)
        pairs = {(phrase.adjective, phrase.noun) for phrase in phrases if phrase.adjective}
        predicate = self.predicate.adjective, self.subject.noun
        return pairs | {(self.verb.base, self.object.noun), predicate}


def english_verb(clause):
    """Return the auxiliary, the verb after it, and the verb without auxiliary ("" if needed)."""
    verb, mode, agreement = clause.verb, clause.mode, clause.subject.agreement
    if verb.base == "be":
        return {"now": ("am", "is", "are"), "past": ("was", "was", "were")}[mode][agreement], "", ""
    if mode == "now" and verb.ing:
        return ("am", "is", "are")[agreement], verb.ing, ""
    if mode in ("can", "will"):
        return mode, verb.base, ""
    if mode == "past":
        return "did", verb.base, verb.past
    third = agreement == SINGULAR
    base, alone = verb.base, verb.third if third else verb.base
    if mode in ("must", "want", "like"):  # "has to read" is built from "have", "wants to read"
        plain, with_s = {"must": ("have", "has")}.get(mode, (mode, mode + "s"))
        base, alone = f"{plain} to {base}", f"{with_s if third else plain} to {base}"
    return "does" if third else "do", base, alone


def english_clause(clause, question=False, front=NOTHING):
    """Return the clause in English: subject, verb, objects, place, time.

    question: the auxiliary comes before the subject. front: words before everything else.
    """
    auxiliary, verb, alone = english_verb(clause)
    subject, often = clause.subject.english, clause.often.english
    negation = "not" if clause.negated else ""
    if question:
        start = join(auxiliary, subject, negation, often, verb)
    elif alone and not negation:
        start = join(subject, often, alone)
    else:
        start = join(subject, join(auxiliary, negation).replace("can not", "cannot"), often, verb)
    objects = clause.recipient.english, clause.object.english, clause.verb.particle
    others = (clause.predicate, clause.partner, clause.place, clause.time)
    return join(front.english, start, *objects, *(phrase.english for phrase in others))


def german_verb(clause):
    """Return the finite verb, and the words that close the clause.

    "ruft ... an", "hat ... angerufen", "kann ... anrufen".
    """
    verb, mode = clause.verb, clause.mode
    finite, closing = verb.infinitive, verb.prefix + clause.predicate.german
    if mode == "past":
        finite, closing = verb.auxiliary, verb.prefix + verb.participle
    if verb.base == "be":
        finite, closing = "war" if mode == "past" else "sein", clause.predicate.german
    if mode in MODALS:
        finite, closing = MODALS[mode], verb.prefix + verb.infinitive
    forms = WORDS["irregular"].get(finite, f"{finite[:-1]} {verb.er} {finite}")  # ich, er, wir
    return forms.split()[clause.subject.agreement], closing


def german_clause(clause, order="second", front=NOTHING):
    """Return the clause in German.

    order: the finite verb comes "first", "second" or "last". In the middle of the clause, known
    things come first and new ones last. front: words before the verb.
    """
    finite, closing = german_verb(clause)
    subject, often = clause.subject, clause.often.german
    new = "" if clause.object.known else clause.object.german
    negation = "nicht" if clause.negated and not new.startswith("kein") else ""
    gladly = "gern" if clause.mode == "like" else ""
    inverted = order == "first" or bool(front.german)
    short, early, late = [], [], []
    for phrase in (clause.recipient, clause.object):
        is_pronoun = phrase.noun in PRONOUNS and phrase.german != "sie"
        if inverted and is_pronoun and subject.noun not in PRONOUNS:
            # "heute ruft mich Anna an"; "sie" here would be taken for the subject
            short.append(phrase.german)
        elif phrase.known:
            # Names and pronouns come before the time, as does everything "nicht" and "nie" negate.
            is_early = negation or often == "nie" or phrase.noun not in NOUNS
            (early if is_early else late).append(phrase.german)
    place = (clause.partner.german, clause.place.german)
    middle = join(*early, often, clause.time.german, *late, negation, gladly, *place, new)
    if order == "last":  # "anruft" is one word, "angerufen hat" two
        space = "" if closing == clause.verb.prefix else " "
        return join(subject.german, middle, closing + space + finite)
    if inverted:
        return join(front.german, finite, *short, subject.german, middle, closing)
    return join(subject.german, finite, middle, closing)
