"""The built-in corpus: English and German sentences drawn from a grammar (grammar.py).

The sentences are statements, questions, and clauses after "because", "that" and "whether", in
several tenses, with "not" and "no". They make sense: people read books, dogs do not, and nobody
buys a car every morning.
"""

from itertools import count, islice

import numpy as np

from minitf.cli import OptionParser, exit_code, number
from minitf.data.toy import grammar
from minitf.data.toy.grammar import (
    MINE,
    NAMES,
    NOTHING,
    NOUNS,
    PERSONS,
    PRONOUNS,
    VERB,
    VERBS,
    WORDS,
    Clause,
    Phrase,
    after,
    english_clause,
    german_clause,
    join,
    noun_phrase,
    nouns_of,
    pronoun,
)

MAX_WORDS = 16
BE = VERB["sein"]
PEOPLE = BE.subjects
PLAYMATES = nouns_of(["child", "pet"])
EDIBLE = ("snack", "food", "drink")  # groups without "my" and "your"
THINGS = [noun.english for noun in NOUNS.values() if "bare" in noun.articles]
COUNTED = [noun for noun in THINGS if NOUNS[noun].plural]
# Verbs with things as objects are drawn twice as often, because there are many things.
VERBS_DRAWN = VERBS + [verb for verb in VERBS if set(verb.objects) & set(THINGS)]
# Pairs (verb, object) and (adjective, noun) that no sentence of the training text contains.
HELD_OUT = frozenset(WORDS["held out"].items())
TIMES = {kind: [Phrase(*words) for words in table.items()] for kind, table in grammar.TIMES.items()}


# ---- 1. Random clauses.


class Dice:
    """Seeded choices, the same on every machine: of NumPy only `Generator.random` is used."""

    def __init__(self, seed):
        # Many numbers at a time, because each call is slow.
        generator = np.random.default_rng(seed)
        blocks = (generator.random(4096).tolist() for _ in count())
        self.random = (number for block in blocks for number in block).__next__

    def chance(self, probability):
        return self.random() < probability

    def pick(self, options):
        options = options if isinstance(options, list | tuple) else list(options)
        return options[int(self.random() * len(options))]


def some_noun(dice, noun, case, articles, negated=False, plain=False):
    """Return a noun with one of `articles` and perhaps an adjective.

    negated: "a", or no article, becomes "kein".
    """
    article = dice.pick(articles)
    if noun.group in ("food", "drink") and article == "a":
        article = "bare"
    many = article in ("count", "some", "bare", "how many")
    many = many or (article in ("the", "mine") and dice.chance(0.25))
    if article in ("mine", "count"):
        article = dice.pick(MINE if article == "mine" else grammar.NUMBERS)
    elif negated:
        article = {"a": "not a", "bare": "any"}.get(article, article)
    adjective = dice.pick(noun.adjectives) if not plain and dice.chance(0.3) else ""
    return noun_phrase(noun.english, article, case, many and bool(noun.plural), adjective)


def some_being(dice, names, case, known=False, other=NOTHING, plain=False):
    """Return a person or an animal other than `other`, as a noun, a name or a pronoun."""
    allowed = {"the", "this", "mine"} | ({"a"} if not known else set())
    if case == "nominative" and not known:
        allowed |= {"count", "some"}
    while True:
        noun, roll = NOUNS[dice.pick(names)], dice.random()
        if noun.group in PERSONS and roll < 0.22:
            phrase = pronoun(dice.pick(PRONOUNS), case)
        elif noun.group in PERSONS and roll < 0.34:
            name = dice.pick(NAMES)
            phrase = Phrase(name, name, pronoun=NAMES[name], noun=name)
        else:
            articles = [article for article in noun.articles if article in allowed]
            phrase = some_noun(dice, noun, case, articles, plain=plain)
        if phrase.noun != other.noun and {phrase.noun, other.noun} != {"I", "we"}:
            return phrase


def some_object(dice, verb, mode, subject, definite, negated):
    """Return an object of the verb."""
    case = "dative" if "dative" in verb.notes else "accusative"
    # "nicht gern", never "kein ... gern"
    noun, negated = NOUNS[dice.pick(verb.objects)], negated and mode != "like"
    definite, general = definite or "known" in verb.notes, mode in ("habit", "like")
    if noun.group in PERSONS:
        return some_being(dice, [noun.english], case, definite or general or negated, subject)
    is_edible = noun.group in EDIBLE
    kinds = [kind for kind in ("one", "few", "wares") if kind in verb.notes and not is_edible]
    if definite or general:
        kinds = ["known" if definite else mode]
    articles = grammar.ARTICLES[kinds[0]].split() if kinds else noun.articles
    unfit = ("mine",) if is_edible or "wares" in verb.notes else ()
    unfit += ("count", "some") if negated else ()
    articles = [article for article in articles if article not in unfit]
    return some_noun(dice, noun, case, articles, negated)


def some_place(dice, name, goal=False):
    """Return a place (dative), or with `goal` a destination (accusative after "in")."""
    if name in WORDS["here and there"]:
        return Phrase(*WORDS["here and there"][name].split("/")[2 * goal :][:2])
    english, german = WORDS["places"][name].split()[2 * goal :][:2]
    case = "accusative" if goal and german == "in" else "dative"
    return after(english, german, some_noun(dice, NOUNS[name], case, NOUNS[name].articles))


def some_time(dice, verb, mode):
    """Return the clause's adverbs of frequency and time."""
    timeless = mode == "like" or (mode == "now" and not verb.ing and verb is not BE)
    timeless |= "moment" in verb.notes and mode not in ("now", "habit")
    if timeless or (mode != "habit" and dice.chance(0.55)):
        return {}
    hour = dice.pick(TIMES["hour"]) if "hour" in verb.notes and dice.chance(0.4) else NOTHING
    if mode == "habit" and dice.chance(0.5):
        return {"often": dice.pick(TIMES["often"]), "time": hour}
    day = dice.pick(TIMES.get(mode, TIMES["future"]))
    if day.english == "now":
        return {"time": day}
    return {"time": Phrase(join(day.english, hour.english), join(day.german, hour.german))}


def some_clause(
    dice, verb=None, mode=None, subject=None, known=False, negated=None, definite=False
):
    """Return a random clause; arguments that are given are not drawn.

    known: the subject is definite. definite: the object is.
    """
    verb = verb or dice.pick(VERBS_DRAWN)
    mode = mode or dice.pick(verb.modes)
    if negated is None:
        negated = mode != "habit" and dice.chance(0.12)
    known = known or negated or mode in ("habit", "like", "can", "must")
    subject = subject or some_being(dice, verb.subjects, "nominative", known)
    parts = some_time(dice, verb, mode)
    if "recipient" in verb.notes:
        parts["recipient"] = some_being(dice, PEOPLE, "dative", True, subject)
    if verb.objects:
        parts["object"] = some_object(dice, verb, mode, subject, definite, negated)
    may_have_place = verb.places and mode != "like" and not negated
    if "with" in verb.notes and dice.chance(0.4):
        being = some_being(dice, PLAYMATES, "dative", negated, subject)
        parts["partner"] = after("with", "mit", being)
    elif "for" in verb.notes and not negated and dice.chance(0.25):
        being = some_being(dice, PEOPLE, "accusative", True, subject)
        parts["partner"] = after("for", "für", being)
    elif "place" in verb.notes or (may_have_place and dice.chance(0.35)):
        parts["place"] = some_place(dice, dice.pick(verb.places), "goal" in verb.notes)
    return Clause(subject, verb, mode, negated, **parts)


def state(subject, adjective, mode="now", very=""):
    """Return a clause with "to be" and an adjective: somebody is tired, something is new."""
    german = join("sehr" if very else "", grammar.ADJECTIVES[adjective])
    predicate = Phrase(join(very, adjective), german, adjective=adjective)
    return Clause(subject, BE, mode, predicate=predicate)


def some_state(dice, positive=False):
    """Return a random clause with "to be": something is new, somebody is tired, or somewhere."""
    mode = dice.pick(("now", "now", "past"))
    negated = not positive and dice.chance(0.15)
    roll = dice.random()
    if roll < 0.35:
        noun = NOUNS[dice.pick(THINGS)]
        articles = ["the"] if noun.group in EDIBLE else ["the", "the", "mine"]
        subject = some_noun(dice, noun, "nominative", articles, plain=True)
        return state(subject, dice.pick(noun.adjectives))._replace(negated=negated)
    subject = some_being(dice, PEOPLE, "nominative", known=True, plain=roll < 0.7)
    times = some_time(dice, BE, mode)
    if roll < 0.7:
        very = "very" if not negated and dice.chance(0.2) else ""
        clause = state(subject, dice.pick(grammar.STATES), mode, very)
        return clause._replace(negated=negated, **times)
    return Clause(subject, BE, mode, negated, place=some_place(dice, dice.pick(BE.places)), **times)


# ---- 2. Sentences. Each function returns the clauses, English, German, and the final mark.


def statement(dice):
    """Return a statement: "The man reads."

    After an adverb of time the German verb stays second: "Heute liest der Mann."
    """
    clause, front = some_state(dice) if dice.chance(0.15) else some_clause(dice), NOTHING
    # "heute trifft sie ein Arzt" is ambiguous: who meets whom?
    unclear = clause.object.german == "sie" and not clause.subject.known
    if clause.time.english and not clause.often.english and not unclear and dice.chance(0.5):
        front, clause = clause.time, clause._replace(time=NOTHING)
    return [clause], english_clause(clause, front=front), german_clause(clause, front=front), "."


def yes_no_question(dice):
    """Return a yes/no question, "Does the man read?"; in German the verb comes first."""
    is_state = dice.chance(0.2)
    clause = some_state(dice, True) if is_state else some_clause(dice, known=True, negated=False)
    return [clause], english_clause(clause, question=True), german_clause(clause, "first"), "?"


def who_question(dice):
    """Return a question for the subject, "Who reads?"; the German verb stays second."""
    clause = some_clause(dice, subject=Phrase("who", "wer", noun="who"), negated=False)
    return [clause], english_clause(clause), german_clause(clause), "?"


ASKED = {
    "what": [verb for verb in VERBS if verb.objects and verb.base not in ("love", "have")],
    "how many": [
        verb
        for verb in VERBS
        if not {"known", "one"} & {*verb.notes} and {*verb.objects} & {*COUNTED}
    ],
    "where": [verb for verb in VERBS if verb.places and verb.base not in ("stay", "see")],
    "when": [verb for verb in VERBS if "state" not in verb.notes],
    "why": VERBS,
}
MODES_ASKED = {"when": ("past", "will")}  # else also "now"
MISSING = {"where": {"place": NOTHING}, "when": {"time": NOTHING}, "why": {}}  # else the object


def w_question(dice):
    """Return a question for the object, the place, the time or the reason.

    It begins with the question word.
    """
    word = dice.pick(ASKED)
    verb = dice.pick(ASKED[word])
    allowed = MODES_ASKED.get(word, ("now", "past", "will"))
    modes = [mode for mode in verb.modes if mode in allowed]
    negated, definite = word == "why" and dice.chance(0.5), word in ("where", "when")
    mode = dice.pick(modes)
    clause = some_clause(dice, verb, mode, known=True, negated=negated, definite=definite)
    statement = asked = clause._replace(**MISSING.get(word, {"object": NOTHING}))
    if word == "what":
        noun, whom = NOUNS.get(clause.object.noun), "wem" if "dative" in verb.notes else "wen"
        front = Phrase("what", "was") if noun and noun.group not in PERSONS else Phrase("who", whom)
    elif word == "how many":
        noun = NOUNS[dice.pick([name for name in verb.objects if name in COUNTED])]
        front = some_noun(dice, noun, "accusative", ["how many"])
        statement = asked._replace(object=front)
    else:
        where = "wohin" if "goal" in verb.notes else "wo"
        front = Phrase(word, {"where": where, "when": "wann", "why": "warum"}[word])
    return [statement], english_clause(asked, True, front), german_clause(asked, front=front), "?"


CONJUNCTIONS = (("but", "aber"), ("because", "weil"), ("because", "weil"), ("because", "weil"))
REASONS = (("essen", ("hungry",)), ("schlafen", ("tired",)), ("bleiben", ("tired", "ill")))
DUTIES = [verb for verb in VERBS if "duty" in verb.notes]


def reason(dice):
    """Return a clause with a reason, "..., weil er müde ist", or with an obstacle and "aber"."""
    word, german = dice.pick(CONJUNCTIONS)
    verb, modes, adjectives = dice.pick(DUTIES), ("now", "past", "can", "will"), ("tired", "ill")
    done = word == "because" and dice.chance(0.35)
    if done:
        infinitive, adjectives = dice.pick(REASONS)
        verb, modes = VERB[infinitive], ("now", "past")
    subject = NOTHING
    while not subject.pronoun:  # a girl has none: "she" in English, but "es" in German
        subject = some_being(dice, verb.subjects, "nominative", known=True)
    mode = "want" if word == "but" else dice.pick(modes)
    clause = some_clause(dice, verb, mode, subject, negated=word == "because" and not done)
    person = pronoun(subject.pronoun, "nominative")
    second = state(person, dice.pick(adjectives), "past" if mode == "past" else "now")
    if not done and mode != "past" and dice.chance(0.6):
        time = Phrase("no time", "keine Zeit", known=False)
        no_time = Clause(person, VERB["haben"], object=time)
        second = dice.pick((no_time, Clause(person, VERB["arbeiten"], "must")))
    elif mode in ("want", "can", "will"):
        clause = clause._replace(time=NOTHING)  # who is ill may be well tomorrow
    if word == "because" and dice.chance(0.3):  # the reason comes first, and the verb second
        clause, second = clause._replace(subject=person), second._replace(subject=clause.subject)
        subordinate = german_clause(second, "last")
        front = Phrase(f"because {english_clause(second)},", f"weil {subordinate},")
        english, german = english_clause(clause, front=front), german_clause(clause, front=front)
        return [clause, second], english, german, "."
    english = f"{english_clause(clause)}{',' * (word == 'but')} {word} {english_clause(second)}"
    subordinate = german_clause(second, "last" if german == "weil" else "second")
    return [clause, second], english, f"{german_clause(clause)}, {german} {subordinate}", "."


REPORTS = (
    ("that", "dass", "wissen"),
    ("that", "dass", "sagen"),
    ("that", "dass", "glauben"),
    ("whether", "ob", "fragen"),
    ("whether", "ob", "wissen"),
)


def report(dice):
    """Return what somebody knows, says or asks: "..., dass er das Buch gelesen hat"."""
    word, german_word, verb = dice.pick(REPORTS)
    subject = some_being(dice, PEOPLE, "nominative", known=True)
    clause = Clause(subject, VERB[verb], negated=word == "whether" and verb == "wissen")
    if dice.chance(0.2):
        part = some_state(dice, word == "whether")
    else:
        part = some_clause(dice, known=True, negated=False if word == "whether" else None)
    question = word == "that" and dice.chance(0.15)
    english = f"{english_clause(clause, question)} {word} {english_clause(part)}"
    german = german_clause(clause, "first" if question else "second")
    german += f", {german_word} {german_clause(part, 'last')}"
    return [clause, part], english, german, "?" if question else "."


KINDS = [statement] * 8 + [yes_no_question] * 2 + [who_question]
KINDS += [w_question] * 4 + [reason] * 4 + [report] * 4


def odd(clauses, english, german, mark):
    """Return whether a correct sentence is one that nobody says.

    "My aunt helps my aunt", "does he never read?", "do I sleep?", "I say that I ...".
    """
    words, main = english.replace(",", "").split(), clauses[0]
    phrases = [phrase for clause in clauses for phrase in (clause.subject, *clause[4:8])]
    nouns = [phrase.noun for phrase in phrases if phrase.noun and phrase.noun not in PRONOUNS]
    about_me = [clause.subject.noun in ("I", "we") for clause in clauses]
    return (
        len(set(nouns)) < len(nouns)
        or (mark == "?" and about_me[0] and main.mode != "can")
        or ("never" in words and (mark == "?" or "whether" in words))
        or ("clause" in main.verb.notes and len(clauses) == 2 and all(about_me))
        or any(words.count(adjective) > 1 for adjective in grammar.STATES)
        or "ihr ihr" in german
        # "das Mädchen": "ihr Buch" or "sein Buch"?
        or ("girl" in words and ("she" in words or "her" in words))
    )


# ---- 3. The corpus.


def sentences(seed):
    """Yield (English, German, word pairs) without end; no English sentence is repeated."""
    dice, seen = Dice(seed), set()
    while True:
        clauses, english, german, mark = dice.pick(KINDS)(dice)
        long = max(english.count(" "), german.count(" ")) >= MAX_WORDS
        if long or english in seen or odd(clauses, english, german, mark):
            continue
        seen.add(english)
        word_pairs = set().union(*(clause.word_pairs() for clause in clauses))
        english, german = (side[0].upper() + side[1:] + mark for side in (english, german))
        yield english, german, word_pairs


def pairs(n, seed=0):
    """Return n different English sentences and their German, as two lists of strings."""
    chosen = list(islice(sentences(seed), n))
    return [english for english, _, _ in chosen], [german for _, german, _ in chosen]


def splits(n_train=60_000, seed=0, n_valid=500, n_test=1000):
    """Return four texts, each two lists of strings (English, German), without a common sentence.

    No sentence of train, valid and test contains a word pair of `HELD_OUT`; each sentence of
    test_held_out does. Only train depends on `n_train`.
    """
    held_out, others, n_others = [], [], n_valid + n_test + n_train
    for english, german, word_pairs in sentences(seed):
        chosen = others if word_pairs.isdisjoint(HELD_OUT) else held_out
        chosen.append((english, german))
        if len(others) >= n_others and len(held_out) >= n_test:
            break
    parts = {
        "train": others[n_valid + n_test : n_others],
        "valid": others[:n_valid],
        "test": others[n_valid : n_valid + n_test],
        "test_held_out": held_out[:n_test],
    }
    return {name: ([a for a, _ in part], [b for _, b in part]) for name, part in parts.items()}


def main(arguments) -> int:
    """Print some sentences of the corpus, English and German; return the exit code."""
    return exit_code("minitf toy", lambda: _print_sentences(arguments))


def _print_sentences(arguments):
    parser = OptionParser(
        prog="python -m minitf toy", description="Print N sentences of the toy corpus (default 10)."
    )
    count = number(int, 0, 100_000)
    parser.add_argument("n", nargs="?", type=count, default=10, metavar="N")
    for english, german in zip(*pairs(parser.parse_args(arguments).n), strict=True):
        print(f"{english}\t{german}")
